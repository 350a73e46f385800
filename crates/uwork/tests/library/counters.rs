//! What the counters of queues and functions say about runs and waits.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use uwork::{FunctionCounters, Queue, QueueCounters};

use crate::support::child::alone_with;
use crate::support::tiers::VARIABLE;
use crate::support::until;

fn of_queue(name: &str) -> QueueCounters {
    let all = uwork::counters().queues;
    all.into_iter().find(|queue| queue.name == name).expect("a queue that exists is counted")
}

/// The functions whose names contain the name of a test.
fn of_functions(test: &str) -> Vec<FunctionCounters> {
    let all = uwork::counters().functions;
    all.into_iter().filter(|function| function.name.contains(test)).collect()
}

#[test]
fn counters_of_a_queue_and_of_its_functions_agree() {
    let queue = Queue::builder("counted").unbound().build().unwrap();
    // Detached, so that no joiner runs them.
    for _ in 0..1_000 {
        drop(queue.spawn(|| std::hint::black_box(1)));
    }
    queue.flush().unwrap();
    // The flush returns with the last run; its batch may be counted a moment later.
    until("the runs are counted", || of_queue("counted").ran >= 1_000);
    let counted = of_queue("counted");
    assert_eq!((counted.ran, counted.run_times.count(), counted.pending), (1_000, 1_000, 0));
    assert_eq!(counted.waits.count(), 1_000, "no run lacks its wait");
    assert!(counted.started >= 1_000 && counted.cpu_time <= counted.run_time);
    let ran = of_functions("counters_of_a_queue_and_of_its_functions_agree");
    assert_eq!(ran.iter().map(|function| function.ran).sum::<u64>(), 1_000);
    assert!(
        uwork::counters()
            .to_openmetrics()
            .contains("uwork_wait_seconds_count{queue=\"counted\"} 1000\n")
    );
}

// Catches: a counter that the page for operators leaves out.
#[test]
fn the_page_for_operators_names_every_counter() {
    let page = include_str!("../../../../docs/operations.md");
    let queue = Queue::builder("named").build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    let text = uwork::counters().to_openmetrics();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut count = 0;
    for name in names {
        // The type of a counter is declared without the suffix of its values.
        let is_named = [format!("`{name}`"), format!("`{name}_total`")];
        assert!(is_named.iter().any(|name| page.contains(name)), "{name}");
        count += 1;
    }
    assert!(count > 10, "{text}");
}

/// The values of a queue in the tables of the control socket: runs, waits, and items that workers
/// took.
fn of_table(name: &str) -> [u64; 3] {
    let table = uwork::control::answer(&format!("queues {name}"));
    let mut lines = table.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let (titles, row) = (lines.next().unwrap(), lines.next().expect("a row of the queue"));
    ["ran", "waits", "started"].map(|column| {
        let place = titles.iter().position(|title| *title == column).unwrap();
        row[place].parse().unwrap()
    })
}

// Catches: counters of the pwqs that a change of attributes leaves behind are lost, or count twice.
#[test]
fn a_change_of_attributes_keeps_the_counters() {
    const ITEMS: u64 = 100;
    const CHANGES: [(&str, &str); 9] = [
        ("affinity_scope", "cpu"),
        ("affinity_scope", "system"),
        ("affinity_strict", "1"),
        ("nice", "5"),
        ("cpumask", "first"),
        ("max_active", "3"),
        ("cpumask", "all"),
        // Pools that the queue has used before.
        ("nice", "0"),
        ("affinity_scope", "cpu"),
    ];
    let allowed = uwork::sysfs::get("cpumask").unwrap();
    for (name, is_ordered) in [("changed-unbound", false), ("changed-ordered", true)] {
        let builder = Queue::builder(name).sysfs();
        let builder = if is_ordered { builder.ordered() } else { builder.unbound() };
        let queue = builder.build().unwrap();
        let mut total = 0;
        for change in std::iter::once(None).chain(CHANGES.map(Some)) {
            if let Some((attribute, value)) =
                change.filter(|of| !(is_ordered && of.0 == "max_active"))
            {
                let value = match value {
                    "all" => allowed.clone(),
                    "first" => first_cpu(&allowed),
                    value => value.to_owned(),
                };
                uwork::sysfs::set(&format!("devices/{name}/{attribute}"), &value).unwrap();
                assert_eq!(of_queue(name).ran, total, "{name}, after {attribute} = {value}");
            }
            // Detached, so that no joiner runs them.
            (0..ITEMS).for_each(|_| drop(queue.spawn(|| ())));
            queue.flush().unwrap();
            total += ITEMS;
            // The flush returns with the last run; its batch may be counted a moment later.
            until("the runs are counted", || of_queue(name).ran >= total);
            let counted = of_queue(name);
            assert_eq!((counted.ran, counted.waits.count()), (total, total), "{name}, {change:?}");
            let [ran, waits, started] = of_table(name);
            assert_eq!((ran, waits), (total, total), "{name}, {change:?}");
            assert!(started >= total && counted.started >= total, "{name}, {change:?}");
            let metrics = uwork::control::answer("metrics");
            let line = format!("\nuwork_run_seconds_count{{queue=\"{name}\"}} {total}\n");
            assert!(metrics.contains(&line), "{name}, {change:?}: {metrics}");
        }
    }
}

/// The mask with the first CPU of another, both hexadecimal in groups of eight digits.
fn first_cpu(mask: &str) -> String {
    let lowest = |digit: char| {
        let digit = digit.to_digit(16).unwrap();
        char::from_digit(digit & digit.wrapping_neg(), 16).unwrap()
    };
    let last = mask.rfind(|c| !matches!(c, '0' | ',')).expect("a CPU");
    let digit = |(place, c): (usize, char)| match c {
        ',' => ',',
        c if place == last => lowest(c),
        _ => '0',
    };
    mask.char_indices().map(digit).collect()
}

#[test]
fn an_item_behind_another_is_counted_with_its_wait() {
    let queue = Queue::builder("behind").ordered().build().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<Instant>();
    drop(queue.spawn(move || {
        begun.send(()).unwrap();
        ends.recv().unwrap()
    }));
    has_begun.recv().unwrap();
    drop(queue.spawn(|| ()));
    let queued = Instant::now();
    while queued.elapsed() < Duration::from_millis(2) {
        std::thread::yield_now();
    }
    end.send(Instant::now()).unwrap();
    queue.flush().unwrap();
    until("the runs are counted", || of_queue("behind").ran >= 2);
    let counted = of_queue("behind");
    assert_eq!((counted.waits.count(), counted.max_active), (2, 1));
    assert!(counted.waits.sum() >= Duration::from_millis(2), "the second item waited: {counted:?}");
    assert!(counted.run_time >= Duration::from_millis(2), "the first item ran: {counted:?}");
}

#[test]
fn a_worker_that_declares_a_wait_counts_as_replaced() {
    // A worker that is found asleep counts too: on a lock of the library, for example.
    let declared = |command: &mut std::process::Command| _ = command.env(VARIABLE, "declared");
    alone_with("a_worker_that_declares_a_wait_counts_as_replaced", declared, || {
        let queue = Queue::builder("declares").build().unwrap();
        drop(queue.spawn(|| uwork::blocking(|| ())));
        queue.flush().unwrap();
        assert_eq!(of_queue("declares").replaced, 1);
    });
}

#[test]
fn functions_of_one_batch_are_told_apart() {
    fn few() {}
    fn many() {}
    let queue = Queue::builder("apart").unbound().build().unwrap();
    for n in 0..8 {
        match n % 4 {
            0 => drop(queue.spawn(few)),
            _ => drop(queue.spawn(many)),
        }
    }
    queue.flush().unwrap();
    until("the runs are counted", || of_queue("apart").ran >= 8);
    let counted = of_functions("functions_of_one_batch_are_told_apart");
    let ran = |name: &str| {
        let found = counted.iter().find(|function| function.name.contains(name));
        found.map_or(0, |function| function.ran)
    };
    // In a single batch the changes up to the fourth are counted: 1 + 3 + 1 + 3.
    assert_eq!((ran("few"), ran("many")), (2, 6), "{counted:?}");
}
