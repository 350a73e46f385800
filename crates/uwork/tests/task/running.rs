//! Adding and running: the order, how often, on which thread, and until when.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::task::{self, Added, Delivery, Notify, TaskHandle};

use crate::support::gate::{Gate, Log};
use crate::support::{watchdog, within};
use crate::target::{Target, jobs};

#[test]
fn items_run_in_the_order_in_which_they_were_added() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let notifies = [Notify::None, Notify::Resume, Notify::Signal];
    for (job, notify) in jobs(&log, 9).into_iter().zip(notifies.into_iter().cycle()) {
        assert!(handle.add(job, notify).is_added());
    }
    assert_eq!(task::run(), 9);
    assert_eq!(log.events(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn items_added_by_items_run_after_the_earlier_ones() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let jobs = jobs(&log, 3);
    let (last, again) = (jobs[2].clone(), handle.clone());
    let first = log.clone();
    handle
        .add_fn(Notify::None, move || {
            assert!(again.add(last, Notify::None).is_added());
            first.push(10);
            // A nested run continues with the older items.
            assert_eq!(task::run(), 3);
            first.push(11);
        })
        .unwrap();
    assert!(handle.add(jobs[0].clone(), Notify::None).is_added());
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    assert_eq!(task::run(), 1);
    assert_eq!(log.events(), [10, 0, 1, 2, 11]);
}

#[test]
fn one_run_takes_the_items_added_before_it_and_leaves_later_ones() {
    let _watchdog = watchdog();
    let handle = TaskHandle::current();
    fn again(handle: TaskHandle, runs: Arc<AtomicU32>) {
        let next = handle.clone();
        let function = move || {
            runs.fetch_add(1, Ordering::Relaxed);
            again(next, runs);
        };
        // Returns an error when the thread has ended.
        let _ = handle.add_fn(Notify::Signal, function);
    }
    let runs = Arc::new(AtomicU32::new(0));
    again(handle, runs.clone());
    assert_eq!(task::run_once(), 1);
    assert_eq!(task::safe_point(), 1);
    assert_eq!(task::park(), 1);
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[test]
fn an_item_is_in_one_list_at_a_time() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let job = &jobs(&log, 1)[0];
    assert!(handle.add(job.clone(), Notify::None).is_added());
    assert!(matches!(handle.add(job.clone(), Notify::Signal), Added::Pending(_)));
    let other = within("another thread's handle", TaskHandle::current);
    assert!(matches!(other.add(job.clone(), Notify::None), Added::Pending(_)));
    // The refused add sent no notification.
    assert!(!task::is_notified());
    assert_eq!(task::run(), 1);
    assert!(handle.add(job.clone(), Notify::None).is_added());
    assert_eq!(task::run(), 1);
}

#[test]
fn none_and_resume_do_not_wake_the_target() {
    let _watchdog = watchdog();
    let handle = TaskHandle::current();
    assert!(handle.add_fn(Notify::None, || ()).is_ok());
    assert!(!task::is_notified());
    // Sleeps although an item could run.
    assert_eq!(task::park_timeout(Duration::from_millis(1)), 0);
    assert!(handle.add_fn(Notify::Resume, || ()).is_ok());
    assert!(task::is_notified());
    assert_eq!(task::park(), 2);
}

#[test]
fn a_thread_that_computes_runs_items_at_its_safe_point() {
    let _watchdog = watchdog();
    for delivery in [Delivery::Auto, Delivery::Light, Delivery::Signal] {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let target = Target::new(delivery, || _ = task::safe_point());
        for number in 0..100 {
            let ran = ran.clone();
            assert!(
                target
                    .handle
                    .add_fn(Notify::Signal, move || ran.lock().unwrap().push(number))
                    .is_ok()
            );
        }
        target.end();
        assert_eq!(*ran.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_thread_that_ends_runs_its_items_and_returns_later_ones() {
    let _watchdog = watchdog();
    let log = Log::new();
    let jobs = jobs(&log, 3);
    let (first, gate) = (jobs[0].clone(), Gate::new());
    let (send, receive): (_, Receiver<TaskHandle>) = channel();
    let open = gate.clone();
    let thread = std::thread::spawn(move || {
        let handle = TaskHandle::current();
        assert!(handle.add(first, Notify::None).is_added());
        send.send(handle).unwrap();
        open.wait();
    });
    let handle = receive.recv().unwrap();
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    gate.open();
    within("the thread ends", move || thread.join().unwrap());
    assert_eq!(log.events(), [0, 1]);
    assert!(
        matches!(handle.add(jobs[2].clone(), Notify::Signal), Added::Exited(job) if job.number == 2)
    );
    assert!(!jobs[2].work.is_pending());
    assert!(handle.cancel(&jobs[2].work).is_none());
    let events = log.clone();
    let Err(task::ExitedError(function)) = handle.add_fn(Notify::None, move || log.push(9)) else {
        panic!("the thread has ended")
    };
    function();
    assert_eq!(events.events(), [0, 1, 9]);
}

#[test]
fn an_item_that_panics_ends_neither_its_thread_nor_those_behind_it() {
    let _watchdog = watchdog();
    let (log, handle, before) = (Log::new(), TaskHandle::current(), uwork::panics());
    assert!(handle.add_fn(Notify::None, || panic!("on purpose")).is_ok());
    assert!(handle.add(jobs(&log, 1).remove(0), Notify::None).is_added());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0]);
    assert!(uwork::panics() > before);
}

/// How deep item runs nest.
#[derive(Default)]
struct Nest {
    depth: Cell<u32>,
    deepest: Cell<u32>,
    order: RefCell<Vec<u32>>,
}

thread_local! {
    static NEST: Nest = Nest::default();
}

/// Records the start of item `number`, calls `inside` with the current depth, and records the end.
fn nested(number: u32, inside: impl FnOnce(u32)) {
    let depth = NEST.with(|nest| {
        nest.order.borrow_mut().push(number);
        nest.depth.set(nest.depth.get() + 1);
        nest.deepest.set(nest.deepest.get().max(nest.depth.get()));
        nest.depth.get()
    });
    inside(depth);
    NEST.with(|nest| nest.depth.set(nest.depth.get() - 1));
}

/// The current and the greatest depth, and the items in the order in which they began.
fn nest() -> (u32, u32, Vec<u32>) {
    NEST.with(|nest| (nest.depth.get(), nest.deepest.get(), nest.order.take()))
}

const NESTED: u32 = 10_000;

/// Adds an item that adds the next one before it calls `inside`.
fn add_nested(handle: TaskHandle, number: u32, inside: fn(u32)) {
    let next = handle.clone();
    let function = move || {
        nested(number, |depth| {
            if number + 1 < NESTED {
                add_nested(next, number + 1, inside);
                inside(depth);
            }
        });
    };
    handle.add_fn(Notify::Signal, function).unwrap();
}

#[test]
fn runs_go_two_deep_however_many_items_are_added() {
    let _watchdog = watchdog();
    fn read(depth: u32) {
        let null = std::fs::File::open("/dev/null").unwrap();
        match task::read(&null, &mut [0; 8]) {
            Ok(bytes) => assert_eq!((depth, bytes), (1, 0)),
            Err(error) => assert_eq!((depth, error.kind()), (2, ErrorKind::Interrupted)),
        }
    }
    let insides: [fn(u32); 5] = [
        |depth| assert_eq!(task::run() == 0, depth == 2),
        |depth| assert_eq!(task::run_once(), usize::from(depth == 1)),
        |depth| assert_eq!(task::safe_point(), usize::from(depth == 1)),
        |depth| assert_eq!(task::park(), usize::from(depth == 1)),
        read,
    ];
    for inside in insides {
        let (depth, deepest, order) = within("a thread runs all", move || {
            add_nested(TaskHandle::current(), 0, inside);
            while task::safe_point() > 0 {}
            nest()
        });
        assert_eq!((depth, deepest), (0, 2));
        assert_eq!(order, (0..NESTED).collect::<Vec<_>>());
    }
}

#[test]
fn items_that_all_run_the_list_run_once_and_do_not_nest_deeply() {
    let _watchdog = watchdog();
    let (depth, deepest, order) = within("a thread runs all", || {
        let handle = TaskHandle::current();
        for number in 0..NESTED {
            let again = handle.clone();
            let function = move || {
                nested(number, |_| {
                    task::exit();
                    assert!(again.add_fn(Notify::None, || ()).is_err());
                });
            };
            handle.add_fn(Notify::None, function).unwrap();
        }
        task::run();
        nest()
    });
    // Two runs, and the one at the end of the thread.
    assert_eq!((depth, deepest), (0, 3));
    assert_eq!(order, (0..NESTED).collect::<Vec<_>>());
}
