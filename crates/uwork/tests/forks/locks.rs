//! A fork holds every lock of the library, so workers wait for it. Here one does at every such fork:
//! a handler that the C library calls when the library has its locks, directly before the process is
//! duplicated, releases the worker from its item.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::support::blocks::compute_first;
use crate::support::child::{alone, alone_each, stderr_of};
use crate::support::flag::SetOnDrop;
use crate::support::forked::in_child;
use crate::support::gate::Gate;
use crate::support::items::Job;
use crate::support::machine::{cpus, thread_id, until_asleep};
use crate::support::tiers::{BLOCKED, VARIABLE, are_replaced, collect_reports};
use crate::support::{queue, until, watchdog};
use uwork::{Flags, Queue};

/// The thread that the next fork releases; 0 if none.
static WORKER: AtomicI32 = AtomicI32::new(0);
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

/// Registers the handler before the library registers its own: the C library calls the handlers
/// before a fork from the last one to the first.
// SAFETY: functions in this section are called when the program starts, by one thread, and those in
// a section with a number before the others; this one uses nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static AT_START: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the function lives as long as the process and does not unwind.
    unsafe { libc::pthread_atfork(Some(release_worker), None, None) };
}

/// Before a fork, with all locks of the library held.
extern "C" fn release_worker() {
    let worker = WORKER.swap(0, Ordering::Relaxed);
    if worker != 0 {
        IS_RELEASED.store(true, Ordering::Relaxed);
        until_asleep(worker);
    }
}

/// What the program's own handlers submit at a fork.
static SUBMITTED: OnceLock<(Queue, Arc<Job>)> = OnceLock::new();

/// Registers handlers as a program does, in a constructor.
// SAFETY: as above.
#[used]
#[unsafe(link_section = ".init_array.00200")]
static OF_THE_PROGRAM: extern "C" fn() = register_of_the_program;

extern "C" fn register_of_the_program() {
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(Some(submit), Some(submit), Some(submit)) };
}

extern "C" fn submit() {
    if let Some((queue, item)) = SUBMITTED.get() {
        let _ = queue.enqueue(item.clone());
    }
}

// Catches: handlers of the program that run while the library holds its locks: they wait for a lock of
// their own thread.
#[test]
fn handlers_of_the_program_use_the_library_before_and_after_a_fork() {
    alone("handlers_of_the_program_use_the_library_before_and_after_a_fork", || {
        let _watchdog = watchdog();
        let queue = queue("handlers").build().unwrap();
        let item = Job::counting();
        assert!(SUBMITTED.set((queue, item.clone())).is_ok());
        let (queue, _) = SUBMITTED.get().unwrap();
        in_child(|| {
            let before = item.tally.started();
            queue.flush().unwrap();
            let _ = queue.enqueue(item.clone());
            queue.flush().unwrap();
            assert!(item.tally.finished() > before, "items run in the child");
        });
        queue.flush().unwrap();
        let finished = item.tally.finished();
        assert!((1..=2).contains(&finished), "submitted before and after the fork: {finished}");
    });
}

// Catches: a worker of the child that passes for one that waits for a lock, as a worker of the parent
// did during the fork: when it blocks, it is not replaced.
#[test]
fn a_lock_for_which_a_worker_waits_during_a_fork_is_not_waited_for_in_the_child() {
    let test = "a_lock_for_which_a_worker_waits_during_a_fork_is_not_waited_for_in_the_child";
    alone_each(test, VARIABLE, &["standby", "events", "sampling"], VARIABLE, |_| {
        let _watchdog = watchdog();
        collect_reports();
        // Workers of other CPUs take none of its items.
        let limit = BLOCKED as u32 + 1;
        let queue = queue("confined").per_cpu().max_active(limit).build().unwrap();
        // Dropped before the queue, whose end waits for the item.
        let _released = SetOnDrop(&IS_RELEASED);
        let item = Job::new(|_| {
            WORKER.store(thread_id(), Ordering::Relaxed);
            while !IS_RELEASED.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        assert!(queue.enqueue_on(cpus()[0], item.clone()).unwrap().is_queued());
        until("the item runs", || WORKER.load(Ordering::Relaxed) != 0);
        in_child(|| {
            assert!(IS_RELEASED.load(Ordering::Relaxed), "the fork has released the worker");
            are_replaced(&queue, Arc::new(compute_first(BLOCKED)), BLOCKED);
        });
        queue.flush().unwrap();
        assert_eq!((item.tally.started(), item.tally.finished()), (1, 1));
    });
}

// Catches: a report of the child that waits for ever for the standard library's lock of standard
// error, which a thread of the parent held at the fork: it wrote to a full pipe, for example.
#[test]
fn a_child_reports_although_a_thread_of_the_parent_was_writing() {
    let test = "a_child_reports_although_a_thread_of_the_parent_was_writing";
    let said = stderr_of(
        test,
        |_| {},
        || {
            let _watchdog = watchdog();
            let (holds, may_end) = (Gate::new(), Gate::new());
            let (held, until_then) = (holds.clone(), may_end.clone());
            let writer = std::thread::spawn(move || {
                let _lock = std::io::stderr().lock();
                held.open();
                until_then.wait();
            });
            holds.wait();
            in_child(|| {
                // Reported, and made a per-CPU one.
                drop(queue("flags").flags(Flags::FREEZABLE).build().unwrap());
            });
            may_end.open();
            writer.join().unwrap();
        },
    );
    if let Some(said) = said {
        assert!(said.contains("uwork: ") && said.contains("neither PERCPU nor"), "{said}");
    }
}
