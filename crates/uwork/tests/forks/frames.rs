//! Frames and handles that are open at a fork: in the child their items are the parent's. Each wait
//! for them ends, by a return, an error or a panic that says why.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::support::flag::SetOnDrop;
use crate::support::forked::{fork, in_child, leave};
use crate::support::gate::Gate;
use crate::support::machine::two_cpus;
use crate::support::{queue, until, watchdog};
use uwork::{JoinError, JoinHandle, Queue, StackWork, on_stack, scope};

/// Forks inside of `body`, which calls its argument once to do so. In the child, `check` gets the
/// outcome of `body`; in the parent, `release` is called after the child has ended.
#[track_caller]
fn forks_inside<T>(
    release: impl Fn() + Sync,
    body: impl FnOnce(&(dyn Fn() + Sync)) -> T,
    check: impl FnOnce(thread::Result<T>),
) -> Option<thread::Result<T>> {
    let in_child = AtomicBool::new(false);
    let forks = || match fork() {
        None => in_child.store(true, Ordering::Relaxed),
        Some(status) => {
            release();
            assert_eq!(status, 0, "the child has failed");
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&forks)));
    if in_child.load(Ordering::Relaxed) {
        leave(catch_unwind(AssertUnwindSafe(|| check(outcome))).is_ok());
    }
    Some(outcome)
}

fn text_of<T>(outcome: thread::Result<T>) -> String {
    let payload = outcome.err().expect("a panic");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned())).expect("a text")
}

/// A queue that starts nothing before it is released.
fn paused(name: &str) -> Queue {
    let queue = queue(name).build().unwrap();
    queue.pause().unwrap();
    queue
}

#[test]
fn an_item_on_the_stack_leaves_its_frame_in_the_child() {
    let _watchdog = watchdog();
    let (queue, runs) = (paused("frame"), AtomicU32::new(0));
    let states: [&dyn Fn(&StackWork); 3] = [
        &|item| assert!(item.enqueue(&queue).is_queued()),
        &|item| assert!(item.enqueue_delayed(&queue, Duration::from_secs(3_600)).is_queued()),
        &|_| (),
    ];
    for (at_fork, in_the_child) in [(0, 2), (1, 2), (2, 2), (0, 0), (0, 1), (1, 1), (2, 0)] {
        let body = |forks: &(dyn Fn() + Sync)| {
            let count = |_: &StackWork| _ = runs.fetch_add(1, Ordering::Relaxed);
            on_stack(count, |item| {
                states[at_fork](item);
                forks();
                if !item.is_pending() {
                    // In the child, where it was made idle, or where it never was pending.
                    states[in_the_child](item);
                }
            });
        };
        forks_inside(|| (), body, |outcome| outcome.expect("no panic")).unwrap().unwrap();
    }
    queue.resume().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 0, "every item was taken off its queue");
}

#[test]
fn an_item_on_the_stack_that_runs_at_the_fork_leaves_its_frame_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("frame-runs").build().unwrap();
    let (gate, started) = (Gate::new(), Gate::new());
    let body = |forks: &(dyn Fn() + Sync)| {
        let runs = |_: &StackWork| {
            started.open();
            gate.wait();
        };
        on_stack(runs, |item| {
            assert!(item.enqueue(&queue).is_queued());
            started.wait();
            // It is pending as well, behind itself.
            assert!(item.enqueue(&queue).is_queued());
            forks();
        });
    };
    forks_inside(|| gate.open(), body, |outcome| outcome.expect("no panic")).unwrap().unwrap();
}

// Catches: a queueing that the child has inherited and that the frame does not wait for, or that is
// counted twice.
#[test]
fn an_inherited_item_on_the_stack_runs_in_the_child_before_its_frame_ends() {
    let _watchdog = watchdog();
    let queue = queue("frame-heir").fork_inherited(true).build().unwrap();
    queue.pause().unwrap();
    let runs = AtomicU32::new(0);
    for again in [false, true] {
        runs.store(0, Ordering::Relaxed);
        let body = |forks: &(dyn Fn() + Sync)| {
            let count = |_: &StackWork| _ = runs.fetch_add(1, Ordering::Relaxed);
            on_stack(count, |item| {
                assert!(item.enqueue(&queue).is_queued());
                forks();
                if again {
                    assert!(!item.enqueue(&queue).is_queued(), "it is pending in both processes");
                }
                queue.resume().unwrap();
                item.flush();
                assert!(!again || item.enqueue(&queue).is_queued());
            });
            queue.pause().unwrap();
        };
        let ran = || assert!([1, 2].contains(&runs.load(Ordering::Relaxed)));
        let check = |outcome: thread::Result<()>| {
            outcome.expect("no panic");
            ran();
        };
        forks_inside(|| (), body, check).unwrap().unwrap();
        ran();
    }
    queue.resume().unwrap();
}

#[test]
fn a_scope_ends_in_the_child() {
    let _watchdog = watchdog();
    let queue = paused("scope");
    let borrowed = AtomicU32::new(0);
    let resume = || queue.resume().unwrap();
    let count = || borrowed.fetch_add(1, Ordering::Relaxed);
    // A closure of each kind of handle: joined, dropped, forgotten.
    let joined = |forks: &(dyn Fn() + Sync)| {
        scope(&queue, |s| {
            let handle = s.spawn(count);
            forks();
            handle.join().map(drop)
        })
    };
    let check = |outcome: thread::Result<Result<(), JoinError>>| {
        let error = outcome.expect("the error says it").unwrap_err();
        assert!(matches!(error, JoinError::Forked), "{error}");
        assert!(error.to_string().contains("belongs to the parent process"));
        assert_eq!(borrowed.load(Ordering::Relaxed), 0);
    };
    forks_inside(resume, joined, check).unwrap().unwrap().unwrap();
    for forgotten in [false, true] {
        queue.pause().unwrap();
        let left = |forks: &(dyn Fn() + Sync)| {
            scope(&queue, |s| {
                let handle = s.spawn(count);
                forks();
                if forgotten {
                    std::mem::forget(handle)
                } else {
                    drop(handle)
                }
                // Closures that the child spawns run there.
                if queue.is_paused() {
                    queue.resume().unwrap();
                    assert_eq!(s.spawn(|| 7).join().unwrap(), 7);
                    std::mem::forget(s.spawn(count));
                }
            });
        };
        let check = |outcome: thread::Result<()>| {
            let text = text_of(outcome);
            assert!(text.contains("the parent process's") && text.contains("fork"), "{text}");
            assert!(borrowed.load(Ordering::Relaxed) >= 2, "the child's own closure has run");
        };
        forks_inside(resume, left, check).unwrap().unwrap();
    }
}

// Catches: a lock of the scope that a thread of the parent holds at the fork.
#[test]
fn a_scope_ends_in_the_child_although_a_thread_drops_handles_at_the_fork() {
    let _watchdog = watchdog();
    let queue = queue("scope-drops").build().unwrap();
    for _ in 0..30 {
        let (begun, stops) = (Gate::new(), AtomicBool::new(false));
        let drops = |forks: &(dyn Fn() + Sync)| {
            scope(&queue, |s| {
                let dropper = s.spawn(|| {
                    begun.open();
                    while !stops.load(Ordering::Relaxed) {
                        drop(s.spawn(|| ()));
                    }
                });
                let over = SetOnDrop(&stops);
                begun.wait();
                forks();
                drop((over, dropper));
            });
        };
        let check = |outcome: thread::Result<()>| {
            let text = text_of(outcome);
            assert!(text.contains("the parent process's"), "{text}");
        };
        forks_inside(|| (), drops, check).unwrap().unwrap();
    }
}

#[test]
fn a_scope_whose_closures_have_ended_or_are_inherited_returns_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("scope-heir").fork_inherited(true).build().unwrap();
    let body = |forks: &(dyn Fn() + Sync)| {
        scope(&queue, |s| {
            let done = s.spawn(|| 1);
            queue.flush().unwrap();
            queue.pause().unwrap();
            let (pending, dropped) = (s.spawn(|| 2), s.spawn(|| 3));
            std::mem::forget(s.spawn(|| 4));
            forks();
            queue.resume().unwrap();
            drop(dropped);
            (done.join().unwrap(), pending.join().unwrap())
        })
    };
    let check = |outcome: thread::Result<_>| assert_eq!(outcome.expect("no panic"), (1, 2));
    assert_eq!(forks_inside(|| (), body, check).unwrap().unwrap(), (1, 2));
}

/// Every use of a handle in a child.
fn is_of_the_parent<R: Unpin>(handles: [JoinHandle<R>; 2]) {
    let [joined, mut polled] = handles;
    assert!(joined.is_finished(), "a join would not wait");
    assert!(matches!(joined.join(), Err(JoinError::Forked)));
    let outcome = std::pin::Pin::new(&mut polled).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(outcome, Poll::Ready(Err(JoinError::Forked))));
}

#[test]
fn handles_of_the_parent_end_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("handles").max_active(2).build().unwrap();
    let gate = Gate::new();
    let started = [Gate::new(), Gate::new()];
    let running = started.each_ref().map(|started| {
        let (gate, started) = (gate.clone(), started.clone());
        queue.spawn(move || {
            started.open();
            gate.wait();
        })
    });
    started.iter().for_each(Gate::wait);
    let pending = [queue.spawn(|| 1), queue.spawn(|| 1)];
    let futures = [(); 2].map(|()| queue.spawn_future(std::future::pending::<()>()));
    match fork() {
        None => {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                is_of_the_parent(running);
                is_of_the_parent(pending);
                is_of_the_parent(futures);
                assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
            }));
            leave(outcome.is_ok())
        }
        Some(status) => {
            gate.open();
            assert_eq!(status, 0, "the child has failed");
        }
    }
    running.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(pending.map(|handle| handle.join().unwrap()), [1, 1]);
    assert!(futures.iter().all(JoinHandle::cancel));
}

#[test]
fn handles_of_finished_and_inherited_items_have_results_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("handle-heir").fork_inherited(true).build().unwrap();
    let done = queue.spawn(|| 1);
    queue.flush().unwrap();
    queue.pause().unwrap();
    let pending = [queue.spawn(|| 2), queue.spawn(|| 3)];
    let joins = |done: JoinHandle<i32>, [first, second]: [JoinHandle<i32>; 2]| {
        assert!(done.is_finished() && !first.is_finished());
        queue.resume().unwrap();
        assert_eq!((done.join().unwrap(), first.join().unwrap()), (1, 2));
        queue.flush().unwrap();
        assert_eq!(second.join().unwrap(), 3);
    };
    match fork() {
        None => leave(catch_unwind(AssertUnwindSafe(|| joins(done, pending))).is_ok()),
        Some(status) => {
            joins(done, pending);
            assert_eq!(status, 0, "the child has failed");
        }
    }
}

/// The frame of a join whose second half a worker of the parent has.
#[test]
fn a_join_whose_second_half_is_the_parents_panics_in_the_child() {
    let _watchdog = watchdog();
    if two_cpus().is_none() {
        return;
    }
    let attempt = || {
        let (here, gate) = (thread::current().id(), Gate::new());
        let taken = Arc::new(AtomicBool::new(false));
        let mut was_taken = false;
        let outcome = forks_inside(
            || gate.open(),
            |forks| {
                uwork::join(
                    || {
                        for _ in 0..100_000 {
                            if taken.load(Ordering::SeqCst) {
                                was_taken = true;
                                forks();
                                // A join in the child, inside of the one that the fork has cut off.
                                assert_eq!(uwork::join(|| 1, || 2), (1, 2));
                                break;
                            }
                            thread::yield_now();
                        }
                    },
                    || {
                        if thread::current().id() != here {
                            taken.store(true, Ordering::SeqCst);
                            gate.wait();
                        }
                    },
                )
            },
            |outcome| {
                let text = text_of(outcome);
                assert!(text.contains("in the parent process at the fork"), "{text}");
                assert_eq!(uwork::join(|| 1, || 2), (1, 2));
            },
        );
        outcome.unwrap().unwrap();
        was_taken
    };
    until("a worker takes a half", attempt);
}

#[test]
fn a_join_that_forks_runs_its_second_half_in_both_processes() {
    let _watchdog = watchdog();
    // Nested, so that several entries are in the deque at the fork.
    let outcome = uwork::join(|| uwork::join(|| uwork::join(fork, || 1), || 2), || 3);
    let (((status, one), two), three) = outcome;
    let right = (one, two, three) == (1, 2, 3);
    match status {
        None => leave(right),
        Some(status) => assert!(status == 0 && right),
    }
    in_child(|| assert_eq!(uwork::join(|| 1, || 2), (1, 2)));
}
