//! Thread hooks and fork(2). Each test runs in a process of its own, because hooks are for the whole
//! process.

use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::child::alone;
use crate::support::forked::{fork, in_child};
use crate::support::gate::{Gate, Log};
use crate::support::{queue, until, watchdog};
use uwork::Queue;
use uwork::threads::{self, Hooks};

/// What `f` returns in an item of this queue, on a worker: a join could run it on this thread.
fn on_worker<R: Send + 'static>(queue: &Queue, f: impl FnOnce() -> R + Send + 'static) -> R {
    let slot = Arc::new((Mutex::new(None), Gate::new()));
    let filled = slot.clone();
    let _detached = queue.spawn(move || {
        *filled.0.lock().unwrap() = Some(f());
        filled.1.open();
    });
    slot.1.wait();
    slot.0.lock().unwrap().take().expect("stored before the gate was opened")
}

/// The process in which the start hook of the worker was called.
fn of_worker(queue: &Queue, hooks: Hooks<u32>) -> Option<u32> {
    on_worker(queue, move || hooks.with(|process| *process))
}

// Catches: a stop hook for a thread that does not exist in the child, a worker of the child without
// state or with its parent's, hooks that the child cannot add or remove.
#[test]
fn workers_of_a_child_call_the_hooks_and_those_of_its_parent_do_not() {
    alone("workers_of_a_child_call_the_hooks_and_those_of_its_parent_do_not", || {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        static FOREIGN_STOPS: AtomicUsize = AtomicUsize::new(0);
        static OWN_STOPS: AtomicUsize = AtomicUsize::new(0);
        let _watchdog = watchdog();
        let hooks = threads::add_hooks(
            |_| {
                STARTS.fetch_add(1, Ordering::SeqCst);
                process::id()
            },
            |_, started| {
                let stops = if started == process::id() { &OWN_STOPS } else { &FOREIGN_STOPS };
                stops.fetch_add(1, Ordering::SeqCst);
            },
        );
        let (shared, own) =
            (queue("shared").build().unwrap(), queue("own").dedicated().build().unwrap());
        let parent = process::id();
        assert_eq!([&shared, &own].map(|queue| of_worker(queue, hooks)), [Some(parent); 2]);
        in_child(|| {
            let child = process::id();
            assert_eq!(hooks.with(|_| ()), None, "this thread is the program's");
            let (starts, late) =
                (STARTS.load(Ordering::SeqCst), threads::add_hooks(|_| 0, |_, _| ()));
            assert_eq!(late.missed(), 0, "the parent's workers do not exist here");
            assert_eq!([&shared, &own].map(|queue| of_worker(queue, hooks)), [Some(child); 2]);
            assert_eq!([&shared, &own].map(|queue| of_worker(queue, late)), [Some(0); 2]);
            assert!(STARTS.load(Ordering::SeqCst) >= starts + 2);
            let next = queue("next").dedicated().build().unwrap();
            assert_eq!(of_worker(&next, hooks), Some(child));
            drop(next);
            until("a stop hook of the child", || OWN_STOPS.load(Ordering::SeqCst) == 1);
            hooks.remove();
            let last = queue("last").dedicated().build().unwrap();
            assert_eq!((of_worker(&last, hooks), of_worker(&last, late)), (None, Some(0)));
            assert_eq!(FOREIGN_STOPS.load(Ordering::SeqCst), 0);
        });
        // The child's removal is the child's.
        let next = queue("next").dedicated().build().unwrap();
        assert_eq!([&own, &next].map(|queue| of_worker(queue, hooks)), [Some(parent); 2]);
    });
}

// Catches: a child whose removal waits for the parent's threads, a thread that loses its state or gets
// a second one by a fork, and a stop hook that runs in both processes for a worker of the parent's.
#[test]
fn a_thread_that_forks_keeps_its_states_and_a_removal_in_the_child_waits_for_no_other() {
    alone(
        "a_thread_that_forks_keeps_its_states_and_a_removal_in_the_child_waits_for_no_other",
        || {
            static STOPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
            let _watchdog = watchdog();
            let hooks =
                threads::add_lazy_hooks(|_| process::id(), |_, id| STOPS.lock().unwrap().push(id));
            let queue = queue("shared").build().unwrap();
            let parent = process::id();
            assert_eq!(of_worker(&queue, hooks), Some(parent));
            let this = std::thread::current().id();
            let asks = move || {
                (std::thread::current().id() == this).then(|| hooks.with(|process| *process))
            };
            // Until this thread has run one itself.
            while queue.spawn(asks).join().unwrap().is_none() {}
            let _busy = {
                let (gate, inside) = (Gate::new(), Gate::new());
                let (held, begun) = (gate.clone(), inside.clone());
                drop(queue.spawn(move || {
                    hooks.with(|_| ());
                    begun.open();
                    held.wait();
                }));
                inside.wait();
                OpenAtEnd(gate)
            };
            in_child(|| {
                assert_eq!(hooks.with(|process| *process), Some(parent), "the copy of its own");
                assert_eq!(of_worker(&queue, hooks), Some(process::id()));
                assert_eq!(hooks.remove_sync().unwrap(), 0);
                let mut stops = STOPS.lock().unwrap().clone();
                stops.sort_unstable();
                let mut wanted = [parent, process::id()];
                wanted.sort_unstable();
                assert_eq!(stops, wanted, "this thread and the worker of the child");
            });
            assert_eq!(hooks.with(|process| *process), Some(parent), "the parent removed nothing");
        },
    );
}

struct OpenAtEnd(Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

// Catches: a child that waits for a thread of its parent's that was in a hook.
#[test]
fn a_fork_while_a_start_hook_blocks() {
    alone("a_fork_while_a_start_hook_blocks", || {
        let _watchdog = watchdog();
        let (gate, inside) = (Gate::new(), Gate::new());
        let (held, begun, parent) = (gate.clone(), inside.clone(), process::id());
        let hooks = threads::add_hooks(
            move |thread| {
                if thread.queue() == Some("slow") && process::id() == parent {
                    begun.open();
                    held.wait();
                }
                process::id()
            },
            |_, _| (),
        );
        let slow = Queue::builder("slow").dedicated().build().unwrap();
        let waiting = slow.spawn(|| ());
        inside.wait();
        in_child(|| assert_eq!(of_worker(&slow, hooks), Some(process::id())));
        gate.open();
        waiting.join().unwrap();
        assert_eq!(of_worker(&slow, hooks), Some(parent));
    });
}

// Catches: a child of a hook that continues as a worker, and a parent that takes itself for the
// child.
#[test]
fn a_child_of_a_hook_ends_with_the_hook() {
    alone("a_child_of_a_hook_ends_with_the_hook", || {
        let _watchdog = watchdog();
        let statuses = Log::new();
        // The child returns from the hook and ends with it.
        let forks = |statuses: &Log<i32>| {
            if let Some(status) = fork() {
                statuses.push(status);
            }
        };
        let (of_start, of_stop) = (statuses.clone(), statuses.clone());
        threads::add_hooks(
            move |thread| {
                if thread.queue() == Some("forks") {
                    forks(&of_start);
                }
            },
            move |thread, ()| {
                if thread.queue() == Some("forks") {
                    forks(&of_stop);
                }
            },
        );
        let forks = Queue::builder("forks").dedicated().build().unwrap();
        assert_eq!(on_worker(&forks, process::id), process::id());
        drop(forks);
        statuses.wait_for_count(2);
        assert_eq!(statuses.events(), [0, 0]);
    });
}
