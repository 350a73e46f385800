//! The screen as text, at many sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use uwork_policy::topology::Topology;

use super::*;
use crate::commands::process::top::columns::width_of;
use crate::commands::process::top::text_of;
use crate::commands::process::top::view::tests::view;

/// The screen as lines.
fn drawn(view: &View, size: (u16, u16), gone: Option<&str>) -> String {
    let title = "process 7";
    let screen = Screen { title, gone, footer: "q quit", has_help: false, has_colour: false };
    drawn_as(view, size, &screen)
}

fn drawn_as(view: &View, (width, height): (u16, u16), screen: &Screen<'_>) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut scroll = Scroll::default();
    terminal.draw(|frame| draw(frame, view, &mut scroll, screen)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset), "no colour");
    let lines = buffer.content.chunks(width.into());
    lines.map(|line| text_of(line).trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_small_screen_has_queues_pools_and_workers() {
    let text = drawn(&view(), (80, 24), None);
    for part in [
        "process 7  100 items/s  queues 2  workers 3  tier standby",
        "queue ",
        "items/s↓",
        "2 queues",
        "pool 0  running 1/1 of 2  ready 3  #.  cpus 0\n",
        "  .  cpus 0-1  nice -5\n",
        "app::Write",
        "3 workers, the longest run first",
        "q quit",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let log = text.lines().find(|line| line.starts_with("log ")).expect("a row");
    let cells: Vec<&str> = log.split_whitespace().collect();
    assert_eq!(cells, ["log", "100", "0.20", "2", "1", "1/8", "16us", "50us", "0", "open", "█"]);
    let wide = drawn(&view(), (120, 24), None);
    let log = wide.lines().find(|line| line.starts_with("log ")).expect("a row");
    assert_eq!(log.matches('█').count(), 2, "run time and wait: {log}");
    let io = text.lines().find(|line| line.starts_with("io ")).expect("a row");
    assert!(io.contains(" 1 frozen"), "the gate, and one pool without a permit: {io}");
}

#[test]
fn every_size_is_drawn() {
    for size in [(1, 1), (10, 3), (40, 8), (80, 24), (250, 100)] {
        for has_help in [false, true] {
            let (title, gone, footer) = ("process 7", None, "q quit");
            let screen = Screen { title, gone, footer, has_help, has_colour: false };
            drawn_as(&view(), size, &screen);
        }
    }
}

#[test]
fn all_keys_are_listed_on_a_narrow_screen() {
    let (title, gone, footer) = ("process 7", None, "q quit");
    let screen = Screen { title, gone, footer, has_help: true, has_colour: false };
    let text = drawn_as(&view(), (40, 16), &screen);
    for (key, does) in HELP {
        assert!(text.contains(&format!("{key:<6} {does}")), "{key}: {text}");
    }
}

/// The words of the line that begins so.
fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(start));
    line.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect()
}

#[test]
fn no_column_is_cut_or_glued_to_another_at_any_width() {
    let huge = Queue {
        in_flight: u64::MAX,
        pending: 1_234_567,
        running: 65_534,
        max_active: 2_048,
        saturated: u64::MAX,
        gate: "draining".to_owned(),
        rate: 1e25,
        busy: 65_534.0,
        p99_ns: u64::MAX,
        wait_ns: 9_999_999_999_999,
        run_times: vec![1; HISTORY],
        waits: vec![1; HISTORY],
        ..Queue::default()
    };
    let names = ["log", "a-queue-with-a-name-of-31-bytes", "待機列-待機列-待機列-待機列"];
    let mut view = View::new(Topology::flat(2));
    view.queues = names.map(|name| Queue { name: name.to_owned(), ..huge.clone() }).to_vec();
    view.workers = vec![Worker {
        pool: "12345".to_owned(),
        name: "uw/standby-1234".to_owned(),
        thread: "4194303".to_owned(),
        state: "stopped".to_owned(),
        queue: names[2].to_owned(),
        function: "app::module::待機::Append::{{closure}}".to_owned(),
        for_us: u64::MAX,
    }];
    // The columns that are shown, in order.
    let columns = [
        (40, "10Y 1235k draining"),
        (60, "10Y 18E 1235k 66k/2048 draining"),
        (80, "10Y 66k 18E 1235k 66k/2048 9999d 9999s 4096 draining"),
        (120, "10Y 66k 18E 1235k 66k/2048 9999d 9999s 4096 draining"),
    ];
    for (width, numbers) in columns {
        let text = drawn(&view, (width, 24), None);
        let numbers: Vec<&str> = numbers.split(' ').collect();
        for start in ["log ", "a-queue-with-a", "待機列-"] {
            let words = words(&text, start);
            let shown = numbers.len().min(words.len() - 1);
            assert_eq!(words[1..=shown], numbers, "{width}: {text}");
        }
        let titles = words(&text, "queue");
        assert_eq!(titles[1], "items/s↓", "{width}: {text}");
        assert!(text.lines().all(|line| width_of(line) <= width.into()), "{text}");
        assert!(text.contains("stopped") && text.contains("Append::{"), "{width}: {text}");
        assert!(!text.contains("4194303") || text.contains(" 4194303 "), "{width}: {text}");
    }
    let wide = drawn(&view, (120, 24), None);
    assert!(names.iter().all(|name| wide.contains(name)), "{wide}");
}

#[test]
fn a_narrow_screen_has_names_next_to_their_numbers() {
    let text = drawn(&view(), (40, 24), None);
    assert_eq!(words(&text, "log "), ["log", "100", "2", "1", "open"], "{text}");
    assert!(text.contains("process 7  100 items/s  queues 2"), "{text}");
    assert!(text.contains("pool 0  running 1/1 of 2  ready 3  #."), "{text}");
    let mut sorted = view();
    sorted.order = Order::Wait;
    assert!(drawn(&sorted, (40, 24), None).contains("wait↓"), "the column that sorts");
    // The name column is as wide as the longest name, also where there is more room.
    let text = drawn(&view(), (200, 24), None);
    let log = text.lines().find(|line| line.starts_with("log ")).unwrap();
    assert!(log.find("100").unwrap() < 16, "{log}");
    let footer = "set of queue log: ATTRIBUTE VALUE, as in max_active 64: max_active 7_";
    let foot = |footer, width| foot_lines(footer, width).iter().map(Line::to_string).collect();
    let lines: Vec<String> = foot(footer, 20);
    assert!(lines.len() == 1 && lines[0].ends_with(": max_active 7_"), "{lines:?}");
    let lines: Vec<String> = foot("q quit  Tab list  arrows move", 17);
    assert_eq!(lines, ["q quit  Tab list"]);
    let lines: Vec<String> = foot("no such attribute", 9);
    assert_eq!(lines, ["no such", "attribute"]);
}

#[test]
fn a_reason_is_shown_as_a_whole_on_a_narrow_screen() {
    let reason = "process 7 is stopped: `kill -CONT 7` lets it go on";
    let text = drawn(&view(), (40, 24), Some(reason));
    let lines: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(lines[0], "GONE  process 7 is stopped: `kill -CONT");
    assert!(lines[1] == "7` lets it go on" && lines[2].contains("2 queues"), "{text}");
}

#[test]
fn workers_get_the_lines_that_queues_leave_empty() {
    let mut view = view();
    view.workers =
        (0..50).map(|n| Worker { name: format!("w{n:02}"), ..Worker::default() }).collect();
    let text = drawn(&view, (80, 24), None);
    assert!(text.contains("log ") && text.contains("w12"), "{text}");
    // Typing a filter moves no list.
    view.filter = "none".to_owned();
    let row_of = |text: &str| text.lines().position(|line| line.contains("50 workers"));
    assert_eq!(row_of(&drawn(&view, (80, 24), None)), row_of(&text));
    view.queues = vec![Queue::default(); 50];
    view.filter.clear();
    let text = drawn(&view, (80, 24), None);
    assert!(text.contains("w03") && !text.contains("w08"), "{text}");
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
    let odd = [-1.0, 9.96, 9_999.6, 9_999_600.0, u64::MAX as f64, f64::INFINITY, f64::NAN];
    assert_eq!(odd.map(count), ["0", "10", "10k", "10M", "18E", "many", "0"]);
}
