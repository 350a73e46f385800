//! The screen of `uwork top`: a line about the process, the queues, the pools on the machine's
//! topology, the workers, and a line with the keys or the input.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};
use uwork_policy::topology::Topology;

use super::machine::{self, Place};
use super::view::{HISTORY, Order, Pool, Queue, View, Worker};

/// The narrowest screen on which the queues have sparklines.
const WIDE: u16 = 100;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is drawn beside the view.
pub(super) struct Screen<'a> {
    pub(super) title: &'a str,
    /// Why the process no longer answers.
    pub(super) gone: Option<&'a str>,
    /// The last line: an input, a message, or the keys.
    pub(super) footer: &'a str,
    pub(super) has_colour: bool,
    pub(super) topology: &'a Topology,
}

impl Screen<'_> {
    fn colour(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn of_worker(&self, state: &str) -> Style {
        match state {
            "running" => self.colour(Color::Green),
            "waiting" => self.colour(Color::Yellow),
            "asleep" | "stopped" => self.colour(Color::Red),
            _ => Style::new(),
        }
    }
}

/// Draws everything. Works for a screen of any size; what does not fit is left out.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View, screen: &Screen<'_>) {
    let places = machine::places(screen.topology, &view.pools);
    let area = frame.area();
    let pools = (places.len() as u16 + 1).min(area.height / 4).max(2);
    let [head, queues, middle, workers, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(3),
        Constraint::Length(pools),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(head_line(view, screen), head);
    draw_queues(frame, queues, view, screen);
    draw_pools(frame, middle, &places, screen);
    draw_workers(frame, workers, view, screen);
    frame.render_widget(Paragraph::new(screen.footer), foot);
}

fn head_line<'a>(view: &'a View, screen: &'a Screen<'_>) -> Paragraph<'a> {
    if let Some(reason) = screen.gone {
        let style = screen.colour(Color::Red).add_modifier(Modifier::BOLD);
        return Paragraph::new(Line::styled(format!("GONE  {reason}"), style));
    }
    let rate: f64 = view.queues.iter().map(|queue| queue.rate).sum();
    let mut text = format!(
        "{}  queues {}  workers {}  {} items/s  tier {}",
        screen.title,
        view.queues.len(),
        view.workers.len(),
        count(rate),
        view.tier
    );
    if view.panics > 0 {
        text.push_str(&format!("  panics {}", view.panics));
    }
    Paragraph::new(Line::styled(text, Style::new().add_modifier(Modifier::BOLD)))
}

/// A pane with a title on its upper border.
fn pane(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title)
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, view: &View, screen: &Screen<'_>) {
    let is_wide = area.width >= WIDE;
    let mark = |order: Order| {
        let arrow = if view.reversed { "^" } else { "v" };
        if order == view.order { format!("{}{arrow}", order.title()) } else { order.title().into() }
    };
    let mut titles = vec![
        mark(Order::Name),
        mark(Order::Rate),
        mark(Order::Busy),
        mark(Order::InFlight),
        mark(Order::Pending),
        "run/max".to_owned(),
        mark(Order::P99),
        "gate".to_owned(),
    ];
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Length(8),
    ];
    let spark = if is_wide { HISTORY } else { 8 };
    titles.push("run time".to_owned());
    widths.push(Constraint::Length(spark as u16));
    let shown = view.shown().count();
    // Only the rows on the screen are made: there may be thousands of queues.
    let height = usize::from(area.height.saturating_sub(2));
    let first = view.selected.saturating_sub(height.saturating_sub(1));
    let rows = view.shown().skip(first).take(height).map(|queue| row(queue, spark, screen));
    let filter = match view.filter.is_empty() {
        true => String::new(),
        false => format!(" with \"{}\"", view.filter),
    };
    let header = Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(pane(format!(" {shown} queues{filter} ")));
    let mut state = TableState::new().with_selected(view.selected - first);
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'a>(queue: &'a Queue, spark: usize, screen: &Screen<'_>) -> Row<'a> {
    let style = match (queue.gate.as_str(), queue.saturated) {
        ("open", false) => Style::new(),
        ("open", true) => screen.colour(Color::Yellow),
        _ => screen.colour(Color::Red),
    };
    Row::new([
        Cell::from(queue.name.as_str()),
        Cell::from(count(queue.rate)),
        Cell::from(format!("{:.2}", queue.busy)),
        Cell::from(count(queue.in_flight as f64)),
        Cell::from(count(queue.pending as f64)),
        Cell::from(format!("{}/{}", queue.running, queue.max_active)),
        Cell::from(time(queue.p99_ns)),
        Cell::from(if queue.saturated && queue.gate == "open" { "full" } else { &queue.gate }),
        Cell::from(sparkline(&queue.run_times, spark)),
    ])
    .style(style)
}

fn draw_pools(frame: &mut Frame<'_>, area: Rect, places: &[Place<'_>], screen: &Screen<'_>) {
    let lines = places.iter().map(|place| match place {
        Place::Group { depth, name } => Line::raw(format!("{}{name}", "  ".repeat(*depth))),
        Place::Pool { depth, pool } => pool_line(*depth, pool, screen),
    });
    let lines: Vec<Line<'static>> = lines.collect();
    let pools = places.iter().filter(|place| matches!(place, Place::Pool { .. })).count();
    let legend = format!(" {pools} pools: # running, . idle, z waits or sleeps ");
    frame.render_widget(Paragraph::new(lines).block(pane(legend)), area);
}

fn pool_line(depth: usize, pool: &Pool, screen: &Screen<'_>) -> Line<'static> {
    /// Workers that are drawn, of each kind.
    const DRAWN: u64 = 16;
    let others = pool.workers.saturating_sub(pool.running + pool.idle);
    let drawn = |mark: &str, number: u64| mark.repeat(number.min(DRAWN) as usize);
    let name =
        format!("{}pool {} cpus {} nice {} ", "  ".repeat(depth), pool.id, pool.cpus, pool.nice);
    let mut spans = vec![
        Span::raw(format!("{name:<36}")),
        Span::styled(drawn("#", pool.running), screen.of_worker("running")),
        Span::styled(drawn("z", others), screen.of_worker("asleep")),
        Span::raw(drawn(".", pool.idle)),
        Span::raw(format!("  running {}/{} of {}", pool.running, pool.target, pool.workers)),
    ];
    if pool.ready > 0 {
        spans.push(Span::styled(format!("  ready {}", pool.ready), screen.colour(Color::Yellow)));
    }
    Line::from(spans)
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, view: &View, screen: &Screen<'_>) {
    let row = |worker: &Worker| {
        let style = screen.of_worker(&worker.state);
        Row::new([
            worker.name.clone(),
            worker.thread.clone(),
            worker.pool.clone(),
            worker.state.clone(),
            time(worker.for_us * 1_000),
            worker.queue.clone(),
            worker.function.clone(),
        ])
        .style(style)
    };
    let height = usize::from(area.height.saturating_sub(2));
    let rows: Vec<Row<'_>> = view.workers.iter().take(height).map(row).collect();
    let widths = [
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(4),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Fill(1),
        Constraint::Fill(2),
    ];
    let titles = ["worker", "thread", "pool", "state", "for", "queue", "function"];
    let header = Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
    let title = format!(" {} workers, the longest run first ", view.workers.len());
    frame.render_widget(Table::new(rows, widths).header(header).block(pane(title)), area);
}

/// A number in at most six characters.
pub(super) fn count(number: f64) -> String {
    match number {
        ..0.0 => "0".to_owned(),
        ..10.0 if number.fract() > 0.0 => format!("{number:.1}"),
        ..10_000.0 => format!("{number:.0}"),
        ..10_000_000.0 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.0}M", number / 1e6),
    }
}

/// A time, rounded down, with a unit; 0 is no time.
fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

/// The last samples as bars, relative to the greatest. A sample of 0 is a blank.
fn sparkline(samples: &[u64], width: usize) -> String {
    let last = &samples[samples.len().saturating_sub(width)..];
    let most = last.iter().copied().max().unwrap_or(0).max(1);
    let bar = |&sample: &u64| match sample {
        0 => ' ',
        sample => BARS[((u128::from(sample) * 8).div_ceil(u128::from(most)) as usize - 1).min(7)],
    };
    last.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::commands::process::top::view::tests::view;

    /// The screen as lines.
    fn drawn(view: &View, (width, height): (u16, u16), gone: Option<&str>) -> String {
        let topology = Topology::flat(2);
        let screen = Screen {
            title: "process 7",
            gone,
            footer: "q quit",
            has_colour: false,
            topology: &topology,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, &screen)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset), "no colour");
        let lines = buffer.content.chunks(width.into());
        let lines = lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
        lines.map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn a_small_screen_has_queues_pools_and_workers() {
        let text = drawn(&view(), (80, 24), None);
        for part in [
            "process 7  queues 2  workers 3  100 items/s  tier standby",
            "queue ",
            "items/sv",
            "2 queues",
            "pool 0 cpus 0 nice 0",
            "#.  running 1/1 of 2  ready 3",
            "app::Write",
            "3 workers, the longest run first",
            "q quit",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let log = text.lines().find(|line| line.starts_with("log ")).expect("a row");
        let cells: Vec<&str> = log.split_whitespace().collect();
        assert_eq!(cells, ["log", "100", "0.20", "2", "1", "1/8", "16us", "open", "█"]);
        let io = text.lines().find(|line| line.starts_with("io ")).expect("a row");
        assert!(io.contains("frozen"), "{io}");
    }

    #[test]
    fn every_size_is_drawn() {
        for size in [(1, 1), (10, 3), (40, 8), (80, 24), (250, 100)] {
            drawn(&view(), size, None);
        }
    }

    #[test]
    fn a_process_that_has_ended_is_shown_as_gone() {
        let text = drawn(&view(), (80, 24), Some("process 7 is gone"));
        assert!(text.starts_with("GONE  process 7 is gone\n"), "{text}");
        assert!(text.contains("app::Write"), "the last state stays");
    }

    #[test]
    fn the_selected_queue_is_on_the_screen() {
        let mut view = View::new();
        view.queues =
            (0..1_000).map(|n| Queue { name: format!("q{n:04}"), ..Queue::default() }).collect();
        view.select(700);
        let text = drawn(&view, (80, 24), None);
        assert!(text.contains("q0700") && !text.contains("q0701"), "{text}");
    }

    #[test]
    fn a_sparkline_is_relative_to_its_greatest_sample() {
        assert_eq!(sparkline(&[0, 1, 4, 8], 4), " ▁▄█");
        assert_eq!(sparkline(&[9, 9, 1], 1), "█");
        assert_eq!(sparkline(&[u64::MAX, 0], 8), "█ ");
        assert_eq!(sparkline(&[], 8), "");
    }

    #[test]
    fn counts_are_short() {
        let short = [0.0, 0.25, 7.0, 9_999.0, 1_234_567.0, 5e9].map(count);
        assert_eq!(short, ["0", "0.2", "7", "9999", "1235k", "5000M"]);
    }
}
