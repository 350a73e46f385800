//! Items that wait while nothing progresses are reported (SEMANTICS 2.36), with the items that
//! block them. Thresholds and reports are process-wide, so each test has a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::guard::KnownChild;
use crate::support::items::Job;
use crate::support::machine::{cpus, thread_id, until_asleep};
use crate::support::{keep, queue, until, watchdog};
use uwork::dump::WorkerState;
use uwork::dump::{Awaited, Stall, Wants};
use uwork::{Queue, Report};

/// Short, where an item waits until its stall is reported.
const THRESH: Duration = Duration::from_millis(50);
/// Longer than an item waits for a worker on any machine.
const LONG: Duration = Duration::from_secs(3_600);

static STALLS: Mutex<Vec<Stall>> = Mutex::new(Vec::new());

/// Collects the reports from here on.
fn watch(thresh: Duration) {
    let collect = |report: &Report| {
        if let Report::Stalled(stall) = report {
            STALLS.lock().unwrap().push((**stall).clone());
        }
    };
    uwork::set_reporter(collect).expect("the first");
    uwork::watchdog::set_thresh(thresh);
}

/// The stalls of a queue.
fn stalls_of(queue: &Queue) -> Vec<Stall> {
    let is_of = |stall: &&Stall| stall.queues.iter().any(|name| name == queue.name());
    STALLS.lock().unwrap().iter().filter(is_of).cloned().collect()
}

#[inline(never)]
fn stands_at_the_gate(gate: &Gate, declared: bool) -> bool {
    if declared {
        gate.wait_blocking()
    } else {
        gate.wait()
    }
    std::hint::black_box(gate.is_open())
}

/// Whether a stack contains this function. Builds with line tables only name functions without
/// their paths.
fn has(stall: &Stall, function: &str) -> bool {
    let stacks = stall.workers.iter().filter_map(|worker| worker.stack.as_ref().ok());
    let names = stacks.flatten().filter_map(|frame| frame.symbol.as_ref());
    let mut last = names.filter_map(|name| name.rsplit("::").next());
    last.any(|name| name == function)
}

/// An item that stands at a gate, and one behind it.
struct Stuck {
    gate: Gate,
    behind: Arc<Job>,
}

impl Stuck {
    /// Queues both on the first CPU. Returns when the worker sleeps at the gate.
    fn queue(queue: &Queue, declared: bool) -> Stuck {
        let (inside, gate) = (Log::new(), Gate::new());
        let (entered, closed) = (inside.clone(), gate.clone());
        let stuck = Job::new(move |_| {
            entered.push(thread_id());
            assert!(stands_at_the_gate(&closed, declared));
        });
        let (behind, cpu) = (Job::counting(), cpus()[0]);
        assert!(queue.enqueue_on(cpu, stuck).unwrap().is_queued());
        inside.wait_for_count(1);
        until_asleep(inside.events()[0]);
        assert!(queue.enqueue_on(cpu, behind.clone()).unwrap().is_queued());
        Stuck { gate, behind }
    }

    fn release(self, queue: &Queue) {
        self.gate.open();
        queue.flush().unwrap();
        assert_eq!(self.behind.tally.finished(), 1);
    }
}

/// Returns the next report of a stall of this queue that has a stack, which a thread that gets no
/// CPU does not give, and whose worker was asleep. Each stall is reported once: after its report
/// comes that of a later one.
fn stall_with_a_stack(queue: &Queue, other: &Queue, declared: bool) -> Stall {
    loop {
        let stuck = Stuck::queue(queue, declared);
        let (ours, theirs) = (stalls_of(queue).len(), stalls_of(other).len());
        uwork::watchdog::set_thresh(THRESH);
        until("the stall is reported", || stalls_of(queue).len() > ours);
        let later = Stuck::queue(other, true);
        until("a later stall is reported", || stalls_of(other).len() > theirs);
        // What takes long from here on is no stall.
        uwork::watchdog::set_thresh(LONG);
        let mut stalls = stalls_of(queue).split_off(ours);
        assert_eq!(stalls.len(), 1, "once: {stalls:#?}");
        stuck.release(queue);
        later.release(other);
        let stall = stalls.remove(0);
        let has_stack = !cfg!(feature = "symbols") || stall.workers[0].stack.is_ok();
        // A thread that waits looks now and then whether its test hangs.
        if has_stack && (declared || stall.workers[0].worker.state == WorkerState::Asleep) {
            return stall;
        }
    }
}

// Catches: a stall that is missed, or reported repeatedly; calls of another thread, or without
// names; a queue that is not the waiting one.
#[test]
fn s2_36_a_stall_is_reported_once_with_the_blocking_items_stack() {
    alone("s2_36_a_stall_is_reported_once_with_the_blocking_items_stack", || {
        let _watchdog = watchdog();
        watch(LONG);
        let other = queue("later").ordered().build().unwrap();
        let kinds = [queue("ordered").ordered(), queue("one").per_cpu().max_active(1)];
        for (declared, builder) in [true, false].into_iter().zip(kinds) {
            let queue = builder.build().unwrap();
            for _ in 0..2 {
                let stall = stall_with_a_stack(&queue, &other, declared);
                assert_eq!((stall.wants, stall.pending), (Wants::Permit, 1), "{stall}");
                assert!(u128::from(stall.stalled_ns) >= THRESH.as_nanos());
                let blocker = &stall.workers[0];
                let running = blocker.worker.running.as_ref().expect("it runs an item");
                assert!(blocker.blocks && running.queue.as_deref() == Some(queue.name()));
                let function = running.function.as_ref().and_then(|f| f.name.as_deref());
                assert!(function.is_some_and(|name| name.ends_with("::Job")), "{function:?}");
                if cfg!(feature = "symbols") {
                    assert!(has(&stall, "stands_at_the_gate"), "{stall}");
                    assert!(!has(&stall, "run_item") && !has(&stall, "thread_start"), "{stall}");
                    assert!(!stall.to_string().contains("/rustc/"), "{stall}");
                }
                let state = if declared { WorkerState::Waiting } else { WorkerState::Asleep };
                assert_eq!(blocker.worker.state, state, "{stall}");
            }
        }
    });
}

/// A reporter that does not return before a blocked worker has been replaced.
#[test]
fn a_reporter_does_not_delay_the_replacement_of_a_blocked_worker() {
    alone("a_reporter_does_not_delay_the_replacement_of_a_blocked_worker", || {
        static ENTERED: AtomicBool = AtomicBool::new(false);
        static STOOD_IN: AtomicBool = AtomicBool::new(false);
        static RETURNS: AtomicBool = AtomicBool::new(false);
        let _watchdog = watchdog();
        if uwork::dump().blocking.tier == uwork::BlockingTier::Declared {
            return;
        }
        let waits = |report: &Report| {
            if let Report::Stalled(_) = report {
                ENTERED.store(true, Ordering::SeqCst);
                until("a worker replaces it", || STOOD_IN.load(Ordering::SeqCst));
                RETURNS.store(true, Ordering::SeqCst);
            }
        };
        uwork::set_reporter(waits).expect("the first");
        uwork::watchdog::set_thresh(THRESH);
        let (stuck, cpu) = (queue("stuck").ordered().build().unwrap(), cpus()[0]);
        let gates = [Gate::new(), Gate::new()];
        let first = gates[0].clone();
        assert!(stuck.enqueue(Job::new(move |_| first.wait_blocking())).is_queued());
        let behind = Job::counting();
        assert!(stuck.enqueue(behind.clone()).is_queued());
        until("the reporter is entered", || ENTERED.load(Ordering::SeqCst));
        let (sleepers, second) = (queue("sleepers").per_cpu().build().unwrap(), gates[1].clone());
        let sleeps = Job::new(move |_| second.wait());
        assert!(sleepers.enqueue_on(cpu, sleeps).unwrap().is_queued());
        let next = Job::new(|_| STOOD_IN.store(true, Ordering::SeqCst));
        assert!(sleepers.enqueue_on(cpu, next).unwrap().is_queued());
        until("the reporter returns", || RETURNS.load(Ordering::SeqCst));
        gates.iter().for_each(Gate::open);
        stuck.flush().unwrap();
        sleepers.flush().unwrap();
    });
}

/// Two items, each of an ordered queue, join a closure that is behind the other item.
#[test]
fn s2_36_items_that_wait_for_each_other_are_named() {
    alone("s2_36_items_that_wait_for_each_other_are_named", || {
        let _watchdog = watchdog();
        watch(THRESH);
        let build = |name| queue(name).ordered().build().unwrap();
        let queues = [build("left"), build("right")];
        queues.iter().for_each(keep);
        let both = Arc::new(Barrier::new(2));
        for (at, here) in queues.iter().enumerate() {
            let (there, both) = (queues[1 - at].clone(), both.clone());
            let item = Job::new(move |_| {
                uwork::blocking(|| both.wait());
                there.spawn(|| ()).join().expect("never");
            });
            assert!(here.enqueue(item).is_queued());
        }
        let deadlocks = || {
            let stalls = queues.iter().flat_map(stalls_of);
            stalls.filter(|stall| !stall.deadlock.is_empty()).collect::<Vec<_>>()
        };
        until("the deadlock is reported", || !deadlocks().is_empty());
        assert_eq!(deadlocks().len(), 1, "once");
        for stall in deadlocks() {
            let names: Vec<&str> = stall.deadlock.iter().map(|item| item.queue.as_str()).collect();
            assert!(names.len() == 2 && names[0] != names[1], "{stall}");
            for item in &stall.deadlock {
                let at = usize::from(item.queue == queues[1].name());
                assert_eq!(item.queue, queues[at].name(), "{stall}");
                let Awaited::Pending { queue, ordered: true, .. } = &item.waits_for else {
                    panic!("{stall}");
                };
                assert_eq!(queue, queues[1 - at].name());
            }
            assert!(stall.to_string().contains("\n  deadlock: item "), "{stall}");
        }
    });
}

static READER: AtomicI32 = AtomicI32::new(0);

#[inline(never)]
fn reads_what_does_not_come() -> usize {
    READER.store(thread_id(), Ordering::SeqCst);
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text).expect("the parent closes it");
    // What takes long from here on is no stall.
    uwork::watchdog::set_thresh(LONG);
    std::hint::black_box(read)
}

/// A process whose item reads from its standard input, until that is closed.
fn stalls() {
    let queue = Queue::builder("printed").ordered().build().unwrap();
    let reads = queue.spawn(reads_what_does_not_come);
    until("it runs", || READER.load(Ordering::SeqCst) != 0);
    until_asleep(READER.load(Ordering::SeqCst));
    let behind = queue.spawn(|| ());
    uwork::sysfs::set("module/parameters/watchdog_thresh", "0.05").unwrap();
    assert_eq!(reads.join().unwrap(), 0, "it read on after its stack was taken");
    behind.join().unwrap();
}

/// What such a process writes to its standard error.
fn said_by_a_process_that_stalls(test: &str, mark: &str) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("watchdog::{test}"), "--nocapture", "--test-threads=1"])
        .env(mark, "")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _known = KnownChild::new(child.id() as libc::pid_t);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    for line in &mut lines {
        said.push(line);
        if said.last().is_some_and(|line| line.starts_with("  in the way: ")) {
            break;
        }
    }
    drop(child.stdin.take());
    said.extend(lines);
    assert!(child.wait().unwrap().success(), "{said:#?}");
    said
}

#[test]
fn a_stall_is_printed_where_no_reporter_is_set() {
    const CHILD: &str = "UWORK_TEST_STALLS";
    let _watchdog = watchdog();
    if std::env::var_os(CHILD).is_some() {
        return stalls();
    }
    let in_the_way = match cfg!(feature = "symbols") {
        true => "asleep, in library::watchdog::reads_what_does_not_come",
        false => "asleep",
    };
    let said = said_by_a_process_that_stalls("a_stall_is_printed_where_no_reporter_is_set", CHILD);
    let begins = |line: &String| line.starts_with("uwork: nothing has moved for ");
    let reports = said.iter().filter(|line| begins(line)).count();
    assert_eq!(reports, 1, "{said:#?}");
    let first = said.iter().position(begins).expect("counted above");
    let place = "in queue \"printed\"; 1 item waits for a permit of max_active";
    assert!(said[first].ends_with(place), "{said:#?}");
    assert!(said[first + 1].starts_with("  in the way: "), "{said:#?}");
    assert!(said[first + 1].contains(in_the_way), "{said:#?}");
}
