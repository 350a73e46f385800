//! What docs/porting.md says to users of tokio and rayon: a function for each name on uwork's side of
//! its tables.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::child::alone;
use crate::support::executor::block_on;
use crate::support::gate::Gate;
use crate::support::{WAIT_CAP, queue, watchdog};
use uwork::{BoundedQueue, ErrorKind, JoinError, Queue, Shutdown};

const GUIDE: &str = include_str!("../../../../docs/porting.md");

/// A code span of the guide, and the program that shows it.
type Claim = (&'static str, fn());

const CLAIMS: &[Claim] = &[
    ("queue.spawn(f).await", a_handle_is_a_future),
    ("uwork::blocking(f)", a_declared_block_is_replaced),
    ("max_active", max_active_limits_what_runs),
    ("max_active(n)", max_active_limits_what_runs),
    ("JoinHandle::cancel", a_cancel_tells_whether_it_came_in_time),
    ("JoinError::Panicked", a_panic_comes_back_with_its_payload),
    ("queue.spawn_future", a_future_is_polled_by_items),
    ("uwork::shutdown", shutdown_has_a_limit),
    ("uwork::scope(&queue, \\|s\\| s.spawn(..))", a_scope_borrows_and_returns_results),
    ("chunks", a_scope_borrows_and_returns_results),
    ("scope", a_scope_borrows_and_returns_results),
    ("uwork::join(a, b)", join_runs_both),
    ("b", join_runs_both),
    ("queue.execute", execute_has_no_handle),
    ("queue.spawn", a_drop_of_the_handle_detaches),
];

/// The names in the guide's text, and the programs that show them.
const IN_TEXT: &[Claim] = &[
    ("uwork::blocking", a_declared_block_is_replaced),
    ("BoundedQueue", a_bounded_queue_bounds_what_waits),
    ("uwork::unblock(move || queue.flush())", async_code_awaits_a_flush),
    ("uwork::report_waits(future)", async_code_awaits_a_flush),
];

/// The part of the guide from a heading to the next one.
fn section(heading: &str) -> &'static str {
    let from = GUIDE.find(&format!("\n## {heading}\n")).expect("the heading");
    let text = &GUIDE[from + 4..];
    &text[..text.find("\n## ").unwrap_or(text.len())]
}

fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

// Catches: a table that names what does not exist or does something else; a row without a program.
#[test]
fn the_rows_of_the_porting_guide_hold() {
    alone("the_rows_of_the_porting_guide_hold", || {
        let _watchdog = watchdog();
        let rows = ["tokio", "rayon"].into_iter().flat_map(|heading| {
            section(heading)
                .lines()
                .filter(|line| line.starts_with("| `") || line.starts_with("| a "))
        });
        let right = rows.filter_map(|row| row.split(" | ").nth(1));
        let named: BTreeSet<&str> = right.flat_map(code_spans).collect();
        let shown: BTreeSet<&str> = CLAIMS.iter().map(|claim| claim.0).collect();
        assert_eq!(named, shown, "the names in the tables, and those with a program here");
        let text: String = GUIDE.lines().filter(|line| !line.starts_with('|')).collect();
        for (name, _) in IN_TEXT {
            assert!(text.contains(name), "{name} is in the guide's text");
        }
        // The shutdown comes last: it is for the whole process.
        let (last, others): (Vec<&Claim>, Vec<&Claim>) =
            CLAIMS.iter().chain(IN_TEXT).partition(|claim| claim.0 == "uwork::shutdown");
        others.into_iter().chain(last).for_each(|(_, show)| show());
    });
}

fn a_handle_is_a_future() {
    let queue = queue("future").build().unwrap();
    assert_eq!(block_on(async { queue.spawn(|| 6 * 7).await }).unwrap(), 42);
}

/// The only worker that may compute blocks, and declares it.
fn a_declared_block_is_replaced() {
    let queue = queue("blocks").build().unwrap();
    let (gate, inside) = (Gate::new(), Gate::new());
    let (held, begun) = (gate.clone(), inside.clone());
    let blocked = queue.spawn(move || {
        uwork::blocking(|| {
            begun.open();
            held.wait();
        });
    });
    inside.wait();
    let opened = gate.clone();
    queue.execute(move || opened.open()).unwrap();
    gate.wait();
    blocked.join().unwrap();
}

fn max_active_limits_what_runs() {
    let queue = queue("limited").max_active(1).build().unwrap();
    let (gate, inside, count) = (Gate::new(), Gate::new(), Arc::new(AtomicU32::new(0)));
    let (held, begun) = (gate.clone(), inside.clone());
    queue
        .execute(move || {
            begun.open();
            held.wait();
        })
        .unwrap();
    inside.wait();
    // It takes any number.
    for _ in 0..1_000 {
        let count = count.clone();
        queue.execute(move || _ = count.fetch_add(1, Ordering::SeqCst)).unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    gate.open();
    queue.flush().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1_000);
}

fn a_cancel_tells_whether_it_came_in_time() {
    let queue = queue("cancelled").build().unwrap();
    queue.pause().unwrap();
    let waiting = queue.spawn(|| unreachable!("cancelled"));
    assert!(waiting.cancel());
    queue.resume().unwrap();
    assert!(matches!(waiting.join(), Err(JoinError::Cancelled)));
    let gate = Gate::new();
    let opened = gate.clone();
    let started = queue.spawn(move || opened.open());
    gate.wait();
    assert!(!started.cancel(), "nothing stops a running closure");
    started.join().unwrap();
}

fn a_panic_comes_back_with_its_payload() {
    let queue = queue("panics").build().unwrap();
    match queue.spawn(|| std::panic::panic_any(7_u8)).join() {
        Err(JoinError::Panicked(payload)) => assert_eq!(payload.downcast_ref(), Some(&7_u8)),
        other => panic!("{other:?}"),
    }
}

fn a_future_is_polled_by_items() {
    let queue = queue("polled").build().unwrap();
    let name = queue.spawn_future(async { std::thread::current().name().map(str::to_owned) });
    assert!(block_on(name).unwrap().is_some_and(|name| name.starts_with("uw/")));
}

fn a_scope_borrows_and_returns_results() {
    let queue = queue("parts").build().unwrap();
    let numbers: Vec<u64> = (1..=1_000).collect();
    let sums: Vec<u64> = uwork::scope(&queue, |scope| {
        let parts: Vec<_> =
            numbers.chunks(100).map(|part| scope.spawn(move || part.iter().sum())).collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    });
    assert_eq!((sums.len(), sums.iter().sum::<u64>()), (10, 500_500));
}

fn join_runs_both() {
    let numbers = [1, 2, 3, 4];
    let (left, right) = numbers.split_at(2);
    let sums = uwork::join(|| left.iter().sum::<i32>(), || right.iter().sum::<i32>());
    assert_eq!(sums, (3, 7));
}

fn execute_has_no_handle() {
    let queue = queue("executes").build().unwrap();
    let ran = Gate::new();
    let opened = ran.clone();
    let (): () = queue.execute(move || opened.open()).unwrap();
    ran.wait();
}

fn a_drop_of_the_handle_detaches() {
    let queue = queue("detached").build().unwrap();
    let ran = Gate::new();
    let opened = ran.clone();
    drop(queue.spawn(move || opened.open()));
    ran.wait();
}

fn a_bounded_queue_bounds_what_waits() {
    let queue = queue("bounded").build().unwrap();
    let bounded = BoundedQueue::new(&queue, 1).unwrap();
    queue.pause().unwrap();
    let first = bounded.spawn(|| 1).unwrap();
    let back = bounded.try_spawn(|| 2).err().unwrap();
    assert_eq!((back.error.kind(), (back.item)()), (ErrorKind::Full, 2));
    queue.resume().unwrap();
    assert_eq!(first.join().unwrap(), 1);
}

fn async_code_awaits_a_flush() {
    let queue: Queue = queue("awaited").build().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let inside = order.clone();
    queue.execute(move || inside.lock().unwrap().push("item")).unwrap();
    block_on(uwork::report_waits(async {
        uwork::unblock(move || queue.flush()).await.unwrap().unwrap();
        order.lock().unwrap().push("after");
    }));
    assert_eq!(*order.lock().unwrap(), ["item", "after"]);
}

fn shutdown_has_a_limit() {
    let queue = queue("last").build().unwrap();
    let answer = queue.spawn(|| 42);
    let report = uwork::shutdown(Shutdown::Drain, WAIT_CAP).unwrap();
    assert!(report.is_complete(), "{report}");
    assert_eq!(answer.join().unwrap(), 42);
}
