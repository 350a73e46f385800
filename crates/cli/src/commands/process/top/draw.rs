//! The screen of `uwork top`: a line about the process, the queues, the pools on the machine's
//! topology, the workers, and a line with the keys or the input.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::machine::{self, Place};
use super::view::{Focus, HISTORY, Order, Pool, Queue, View, Worker};
use crate::commands::process::time;

/// The narrowest screens on which the waits have a sparkline as the run times do, and on which both
/// have all samples.
const WIDE: u16 = 100;
const WIDEST: u16 = 140;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is drawn beside the view.
pub(super) struct Screen<'a> {
    pub(super) title: &'a str,
    /// Why the process no longer answers.
    pub(super) gone: Option<&'a str>,
    /// The last line: an input, a message, or the keys.
    pub(super) footer: &'a str,
    pub(super) has_colour: bool,
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

/// The first line that was shown of each list.
#[derive(Default)]
pub(super) struct Scroll {
    queues: usize,
    pools: usize,
    workers: usize,
}

/// Draws everything. Works for a screen of any size; what does not fit is left out.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View, scroll: &mut Scroll, screen: &Screen<'_>) {
    let places = machine::places(&view.topology, &view.pools);
    let area = frame.area();
    // More room for the pools while the keys move in them.
    let most = if view.focus == Focus::Pools { area.height / 2 } else { area.height / 4 };
    let pools = (places.len() as u16 + 1).min(most).max(2);
    let [head, queues, middle, workers, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(3),
        Constraint::Length(pools),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(head_line(view, screen), head);
    // The titles take lines of a pane.
    let room = |area: Rect, titles: u16| usize::from(area.height.saturating_sub(titles));
    let shown = view.shown().count();
    scroll.queues = first_shown(scroll.queues, view.selected, room(queues, 2), shown);
    scroll.pools = first_shown(scroll.pools, view.pool_line, room(middle, 1), places.len());
    let lines = view.workers.len();
    scroll.workers = first_shown(scroll.workers, view.worker_line, room(workers, 2), lines);
    draw_queues(frame, queues, scroll.queues, view, screen);
    draw_pools(frame, middle, &places, scroll.pools, view, screen);
    draw_workers(frame, workers, scroll.workers, view, screen);
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

/// A pane with a title on its upper border, which is bold if the keys move in it.
fn pane(title: String, has_focus: bool) -> Block<'static> {
    let style = if has_focus { Modifier::BOLD } else { Modifier::empty() };
    Block::new().borders(Borders::TOP).title(title).title_style(Style::new().add_modifier(style))
}

/// The first line to show of a list of this length: the same as before, unless the selected line
/// would be outside, or lines at the end would stay empty. `room`: the lines that have room.
fn first_shown(before: usize, selected: usize, room: usize, length: usize) -> usize {
    let room = room.max(1);
    before.clamp((selected + 1).saturating_sub(room), selected).min(length.saturating_sub(room))
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, first: usize, view: &View, screen: &Screen<'_>) {
    let mark = |order: Order| {
        let arrow = if view.reversed { "↑" } else { "↓" };
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
        mark(Order::Wait),
        "gate".to_owned(),
        "run time".to_owned(),
    ];
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(8),
    ];
    let (runs, waits) = match area.width {
        WIDEST.. => (HISTORY, HISTORY),
        WIDE.. => (12, 12),
        _ => (8, 0),
    };
    widths.push(Constraint::Length(runs as u16));
    if waits > 0 {
        titles.push("wait time".to_owned());
        widths.push(Constraint::Length(waits as u16));
    }
    let shown = view.shown().count();
    // Only the rows on the screen are made: there may be thousands of queues.
    let height = usize::from(area.height.saturating_sub(2));
    let sparks = (runs, waits);
    let rows = view.shown().skip(first).take(height).map(|queue| row(queue, sparks, screen));
    let filter = match view.filter.is_empty() {
        true => String::new(),
        false => format!(" with \"{}\"", view.filter),
    };
    let header = Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(pane(format!(" {shown} queues{filter} "), view.focus == Focus::Queues));
    let mut state = TableState::new().with_selected(view.selected - first);
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'a>(queue: &'a Queue, sparks: (usize, usize), screen: &Screen<'_>) -> Row<'a> {
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
        Cell::from(time(queue.wait_ns)),
        Cell::from(if queue.saturated && queue.gate == "open" { "full" } else { &queue.gate }),
        Cell::from(sparkline(&queue.run_times, sparks.0)),
        Cell::from(sparkline(&queue.waits, sparks.1)),
    ])
    .style(style)
}

fn draw_pools(
    frame: &mut Frame<'_>,
    area: Rect,
    places: &[Place<'_>],
    first: usize,
    view: &View,
    screen: &Screen<'_>,
) {
    let has_focus = view.focus == Focus::Pools;
    let room = usize::from(area.height.saturating_sub(1));
    let lines = places.iter().skip(first).take(room).map(|place| match place {
        Place::Group { depth, name } => Line::raw(format!("{}{name}", "  ".repeat(*depth))),
        Place::Pool { depth, pool } => pool_line(*depth, pool, screen),
    });
    let mut lines: Vec<Line<'static>> = lines.collect();
    if has_focus && let Some(line) = lines.get_mut(view.pool_line - first) {
        *line = std::mem::take(line).style(Style::new().add_modifier(Modifier::REVERSED));
    }
    let pools = places.iter().filter(|place| matches!(place, Place::Pool { .. })).count();
    let legend = format!(" {pools} pools: # running, . idle, z waits or sleeps ");
    frame.render_widget(Paragraph::new(lines).block(pane(legend, has_focus)), area);
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

fn draw_workers(frame: &mut Frame<'_>, area: Rect, first: usize, view: &View, screen: &Screen<'_>) {
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
    let rows: Vec<Row<'_>> = view.workers.iter().skip(first).take(height).map(row).collect();
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
    let has_focus = view.focus == Focus::Workers;
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(pane(title, has_focus));
    let selected = has_focus.then_some(view.worker_line - first);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
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
    use uwork_policy::topology::Topology;

    use super::*;
    use crate::commands::process::top::view::tests::view;

    /// The screen as lines.
    fn drawn(view: &View, (width, height): (u16, u16), gone: Option<&str>) -> String {
        let screen = Screen { title: "process 7", gone, footer: "q quit", has_colour: false };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut scroll = Scroll::default();
        terminal.draw(|frame| draw(frame, view, &mut scroll, &screen)).unwrap();
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
            "items/s↓",
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
        assert_eq!(cells, ["log", "100", "0.20", "2", "1", "1/8", "16us", "50us", "open", "█"]);
        let wide = drawn(&view(), (100, 24), None);
        let log = wide.lines().find(|line| line.starts_with("log ")).expect("a row");
        assert_eq!(log.matches('█').count(), 2, "run time and wait: {log}");
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
        let mut view = View::new(Topology::flat(2));
        view.queues =
            (0..1_000).map(|n| Queue { name: format!("q{n:04}"), ..Queue::default() }).collect();
        view.select(700);
        let text = drawn(&view, (80, 24), None);
        assert!(text.contains("q0700") && !text.contains("q0701"), "{text}");
    }

    #[test]
    fn the_selected_pool_and_worker_are_on_the_screen() {
        let mut view = view();
        view.pools = (0..50).map(|id| Pool { id, ..Pool::default() }).collect();
        view.workers =
            (0..50).map(|n| Worker { name: format!("w{n:02}"), ..Worker::default() }).collect();
        let before = drawn(&view, (80, 24), None);
        assert!(before.contains("pool 0 ") && !before.contains("pool 30 "), "{before}");
        view.focus = Focus::Pools;
        view.select(30);
        let text = drawn(&view, (80, 24), None);
        assert!(text.contains("pool 30 ") && !text.contains("pool 31 "), "{text}");
        view.focus = Focus::Workers;
        view.select(40);
        let text = drawn(&view, (80, 24), None);
        assert!(text.contains("w40") && !text.contains("w41"), "{text}");
    }

    #[test]
    fn a_list_scrolls_when_the_selection_leaves_the_screen() {
        // Down to line 30, back up within the screen, and above it.
        let down = first_shown(0, 30, 10, 100);
        assert_eq!(down, 21);
        assert_eq!(first_shown(down, 22, 10, 100), 21);
        assert_eq!(first_shown(down, 20, 10, 100), 20);
        // The list became shorter, or the screen larger.
        assert_eq!(first_shown(down, 22, 10, 25), 15);
        assert_eq!(first_shown(down, 22, 90, 100), 10);
        assert_eq!([first_shown(0, 5, 0, 9), first_shown(0, 0, 0, 0)], [5, 0]);
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
