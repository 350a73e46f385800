//! The screen of `uwork top`: a line about the process, the queues, the pools on the machine's
//! topology, the workers, and a line with the keys or the input.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, TableState};

use super::columns::{Cells, Column, cut_start, fit, longest, parts_that_fit, wrapped};
use super::keys::HELP;
use super::machine::{self, Place};
use super::view::{Focus, HISTORY, Order, POOLS_MAX, Pool, Queue, View, Worker};
use crate::commands::process::time;
use crate::printable::in_a_line;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is drawn beside the view.
pub(super) struct Screen<'a> {
    pub(super) title: &'a str,
    /// Why the process no longer answers.
    pub(super) gone: Option<&'a str>,
    /// The last line: an input, a message, or the keys.
    pub(super) footer: &'a str,
    pub(super) has_help: bool,
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
    let (head, foot) =
        (head_lines(view, screen, area.width), foot_lines(screen.footer, area.width));
    // More room for the pools while the keys move in them.
    let most = if view.focus == Focus::Pools { area.height / 2 } else { area.height / 4 };
    let pools = (places.len() as u16 + 1).min(most).max(2);
    let (above, below) = (head.len() as u16, foot.len() as u16);
    // Three fifths for the queues. What they leave empty is for the workers: a filter moves nothing.
    let rest = area.height.saturating_sub(above + pools + below);
    let queues = (view.queues.len() + 2).min(usize::from(rest) * 3 / 5) as u16;
    let [head_area, queues, middle, workers, foot_area] = Layout::vertical([
        Constraint::Length(above),
        Constraint::Length(queues),
        Constraint::Length(pools),
        Constraint::Fill(1),
        Constraint::Length(below),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), head_area);
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
    frame.render_widget(Paragraph::new(foot), foot_area);
    if screen.has_help {
        draw_help(frame);
    }
}

/// All keys, on top of the rest.
fn draw_help(frame: &mut Frame<'_>) {
    const WIDTH: u16 = 40;
    let lines = HELP.map(|(key, does)| Line::raw(format!(" {key:<6} {does}")));
    let area = frame.area().centered(
        Constraint::Length(WIDTH),
        // With the borders.
        Constraint::Length(HELP.len() as u16 + 2),
    );
    let list = Paragraph::new(lines.to_vec()).block(Block::bordered().title(" keys "));
    frame.render_widget(Clear, area);
    frame.render_widget(list, area);
}

fn head_lines(view: &View, screen: &Screen<'_>, width: u16) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if let Some(reason) = screen.gone {
        let style = screen.colour(Color::Red).patch(bold);
        let lines = wrapped(&format!("GONE  {reason}"), width).into_iter();
        return lines.map(|line| Line::styled(line, style)).collect();
    }
    let rate: f64 = view.queues.iter().map(|queue| queue.rate).sum();
    let mut parts = vec![screen.title.to_owned(), format!("{} items/s", count(rate))];
    if view.panics > 0 {
        parts.push(format!("panics {}", count(view.panics as f64)));
    }
    parts.push(format!("queues {}", view.queues.len()));
    parts.push(format!("workers {}", view.workers.len()));
    parts.push(format!("tier {}", view.tier));
    vec![Line::styled(parts_that_fit(&parts, width.into()), bold)]
}

/// Of an input the end is shown, of the keys those that have room, and a message as a whole.
fn foot_lines(footer: &str, width: u16) -> Vec<Line<'static>> {
    if footer.ends_with('_') {
        return vec![Line::raw(cut_start(footer, width.into()))];
    }
    if !footer.contains("  ") {
        return wrapped(footer, width).into_iter().map(Line::raw).collect();
    }
    let parts: Vec<String> = footer.split("  ").map(str::to_owned).collect();
    vec![Line::raw(parts_that_fit(&parts, width.into()))]
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
    /// The cells of a name that numbers do not take, and those of a name that are shown at most.
    const NAME: usize = 16;
    const NAME_MAX: usize = 40;
    let mark = |order: Order| {
        let arrow = if view.reversed { "↑" } else { "↓" };
        if order == view.order { format!("{}{arrow}", order.title()) } else { order.title().into() }
    };
    let name = longest(view.queues.iter().map(|queue| queue.name.as_str()), 6, NAME_MAX);
    let samples = |rank| Column { least: 8, wish: HISTORY, rank };
    let mut cells = Cells {
        columns: vec![
            Column { least: name.min(NAME), wish: name, rank: 0 },
            Column::fixed(8, 1),
            Column::fixed(5, 8),
            Column::fixed(5, 4),
            Column::fixed(5, 2),
            Column::fixed(10, 5),
            Column::fixed(5, 6),
            Column::fixed(5, 7),
            Column::fixed(4, 5),
            Column::fixed(8, 3),
            samples(9),
            samples(10),
        ],
        titles: vec![
            mark(Order::Name),
            mark(Order::Rate),
            mark(Order::Busy),
            mark(Order::InFlight),
            mark(Order::Pending),
            "run/max".to_owned(),
            mark(Order::P99),
            mark(Order::Wait),
            "full".to_owned(),
            "gate".to_owned(),
            "run time".to_owned(),
            "wait time".to_owned(),
        ],
        numbers: &[1, 2, 3, 4, 5, 6, 7, 8],
        kept_end: None,
    };
    // The column that sorts the rows is on the screen.
    let sorting = [Order::Name, Order::Rate, Order::Busy, Order::InFlight, Order::Pending];
    let place = sorting.iter().position(|order| *order == view.order);
    let place = place.unwrap_or(if view.order == Order::P99 { 6 } else { 7 });
    cells.columns[place].rank = cells.columns[place].rank.min(1);
    let widths = fit(&cells.columns, area.width.into());
    let samples = [10, 11].map(|place| widths[place].unwrap_or(0));
    let shown = view.shown().count();
    // Only the rows on the screen are made: there may be thousands of queues.
    let height = usize::from(area.height.saturating_sub(2));
    let rows = view.shown().skip(first).take(height).map(|queue| row(queue, samples, screen));
    let filter = match view.filter.is_empty() {
        true => String::new(),
        false => format!(" with \"{}\"", view.filter),
    };
    let queues = if shown == 1 { "queue" } else { "queues" };
    let title = format!(" {shown} {queues}{filter} ");
    let table = cells.table(area.width, rows).block(pane(title, view.focus == Focus::Queues));
    let mut state = TableState::new().with_selected(view.selected - first);
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(queue: &Queue, samples: [usize; 2], screen: &Screen<'_>) -> (Vec<String>, Style) {
    let style = match (queue.gate.as_str(), queue.saturated) {
        ("open", 0) => Style::new(),
        ("open", _) => screen.colour(Color::Yellow),
        _ => screen.colour(Color::Red),
    };
    let busy = if queue.busy < 10.0 { format!("{:.2}", queue.busy) } else { count(queue.busy) };
    let cells = vec![
        queue.name.clone(),
        count(queue.rate),
        busy,
        count(queue.in_flight as f64),
        count(queue.pending as f64),
        format!("{}/{}", short(queue.running), short(queue.max_active)),
        time(queue.p99_ns),
        time(queue.wait_ns),
        short(queue.saturated.min(POOLS_MAX as u64)),
        queue.gate.clone(),
        sparkline(&queue.run_times, samples[0]),
        sparkline(&queue.waits, samples[1]),
    ];
    (cells, style)
}

fn short(number: u64) -> String {
    count(number as f64)
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
    let labels = PoolLabels::of(places);
    let lines = places.iter().skip(first).take(room).map(|place| match place {
        Place::Group { depth, name } => Line::raw(format!("{}{name}", "  ".repeat(*depth))),
        Place::Pool { depth, pool } => labels.line(*depth, pool, screen),
    });
    let mut lines: Vec<Line<'static>> = lines.collect();
    if has_focus && let Some(line) = lines.get_mut(view.pool_line - first) {
        *line = std::mem::take(line).style(Style::new().add_modifier(Modifier::REVERSED));
    }
    let pools = places.iter().filter(|place| matches!(place, Place::Pool { .. })).count();
    let legend = format!(" {pools} pools: # runs, z waits, . idle ");
    frame.render_widget(Paragraph::new(lines).block(pane(legend, has_focus)), area);
}

/// The widths of what stands at the start of each pool's line. What may be long stands at the end.
struct PoolLabels {
    name: usize,
    workers: usize,
    ready: usize,
}

impl PoolLabels {
    fn of(places: &[Place<'_>]) -> PoolLabels {
        let mut labels = PoolLabels { name: 0, workers: 0, ready: 0 };
        for place in places {
            let Place::Pool { depth, pool } = place else { continue };
            labels.name = labels.name.max(PoolLabels::name(*depth, pool).len());
            labels.workers = labels.workers.max(PoolLabels::workers(pool).len());
            labels.ready = labels.ready.max(PoolLabels::ready(pool).len());
        }
        labels
    }

    fn name(depth: usize, pool: &Pool) -> String {
        format!("{}pool {}", "  ".repeat(depth), pool.id)
    }

    fn workers(pool: &Pool) -> String {
        let [running, target, workers] = [pool.running, pool.target, pool.workers].map(short);
        format!("  running {running}/{target} of {workers}")
    }

    fn ready(pool: &Pool) -> String {
        if pool.ready == 0 { String::new() } else { format!("  ready {}", short(pool.ready)) }
    }

    fn line(&self, depth: usize, pool: &Pool, screen: &Screen<'_>) -> Line<'static> {
        /// Workers that are drawn, of each kind.
        const DRAWN: u64 = 16;
        let others = pool.workers.saturating_sub(pool.running.saturating_add(pool.idle));
        let drawn = |mark: &str, number: u64| mark.repeat(number.min(DRAWN) as usize);
        let name = PoolLabels::name(depth, pool);
        Line::from(vec![
            Span::raw(format!("{name:<0$}", self.name)),
            Span::raw(format!("{:<1$}", PoolLabels::workers(pool), self.workers)),
            Span::styled(
                format!("{:<1$}", PoolLabels::ready(pool), self.ready),
                screen.colour(Color::Yellow),
            ),
            Span::raw("  "),
            Span::styled(drawn("#", pool.running), screen.of_worker("running")),
            Span::styled(drawn("z", others), screen.of_worker("asleep")),
            Span::raw(drawn(".", pool.idle)),
            Span::raw(format!("  cpus {}", in_a_line(&pool.cpus))),
            Span::raw(if pool.nice == "0" {
                String::new()
            } else {
                format!("  nice {}", in_a_line(&pool.nice))
            }),
        ])
    }
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, first: usize, view: &View, screen: &Screen<'_>) {
    let wish = |text: fn(&Worker) -> &str, least, most| {
        longest(view.workers.iter().map(text), least, most)
    };
    let queue = wish(|worker| &worker.queue, 5, 40);
    let function = wish(|worker| &worker.function, 8, 500);
    let name = wish(|worker| &worker.name, 6, 15);
    let cells = Cells {
        columns: vec![
            Column::fixed(name, 5),
            Column::fixed(8, 4),
            Column::fixed(5, 6),
            Column::fixed(8, 1),
            Column::fixed(5, 2),
            Column { least: queue.min(10), wish: queue, rank: 3 },
            Column { least: function.min(12), wish: function, rank: 0 },
        ],
        titles: ["worker", "thread", "pool", "state", "for", "queue", "function"]
            .map(str::to_owned)
            .to_vec(),
        numbers: &[1, 2, 4],
        kept_end: Some(6),
    };
    let row = |worker: &Worker| {
        let texts = vec![
            worker.name.clone(),
            worker.thread.clone(),
            worker.pool.clone(),
            worker.state.clone(),
            time(worker.for_us.saturating_mul(1_000)),
            worker.queue.clone(),
            worker.function.clone(),
        ];
        (texts, screen.of_worker(&worker.state))
    };
    let height = usize::from(area.height.saturating_sub(2));
    let rows = view.workers.iter().skip(first).take(height).map(row);
    let title = format!(" {} workers, the longest run first ", view.workers.len());
    let has_focus = view.focus == Focus::Workers;
    let table = cells.table(area.width, rows).block(pane(title, has_focus));
    let selected = has_focus.then_some(view.worker_line - first);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
}

/// A number in at most five characters.
pub(super) fn count(number: f64) -> String {
    const UNITS: [&str; 9] = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut scaled = number.max(0.0);
    if scaled < 9.95 && scaled.fract() > 0.0 {
        return format!("{scaled:.1}");
    }
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while scaled.round() >= 10_000.0 {
        let Some(larger) = units.next() else { return "many".to_owned() };
        (scaled, unit) = (scaled / 1e3, larger);
    }
    format!("{scaled:.0}{unit}")
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
mod tests;
