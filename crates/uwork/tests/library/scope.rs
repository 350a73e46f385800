//! Closures that borrow, and a scope that does not end before them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::gate::Gate;
use crate::support::machine::in_the_wait;
use crate::support::{keep, queue, watchdog, within};
use uwork::{JoinError, Queue, scope};

fn every_kind() -> [Queue; 4] {
    [
        queue("scope"),
        queue("scope").per_cpu(),
        queue("scope").ordered(),
        queue("scope").max_active(2),
    ]
    .map(|builder| builder.build().unwrap())
}

// Catches: a scope that ends before its closures, a result that gets lost.
#[test]
fn closures_borrow_and_write_what_is_around_the_scope() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        let words = ["deferred".to_owned(), "work".to_owned(), String::new()];
        let mut lengths = [0; 3];
        let total = scope(&queue, |s| {
            let handles: Vec<_> = words
                .iter()
                .zip(&mut lengths)
                .map(|(word, length)| {
                    s.spawn(move || {
                        *length = word.len();
                        &word[..]
                    })
                })
                .collect();
            let joined = handles.into_iter().map(|handle| handle.join().unwrap().len());
            joined.sum::<usize>()
        });
        assert_eq!((total, &lengths[..]), (12, &[8, 4, 0][..]));
    }
}

// Catches: a scope that waits only for joined closures.
#[test]
fn the_end_of_the_scope_waits_for_dropped_handles() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        let mut done = [0_u32; 100];
        scope(&queue, |s| {
            for (number, done) in done.iter_mut().enumerate() {
                drop(s.spawn(move || {
                    uwork::blocking(std::thread::yield_now);
                    *done = number as u32;
                }));
            }
        });
        assert!(done.iter().enumerate().all(|(number, &done)| done == number as u32));
    }
}

// Catches: a panic that is lost or propagated too early, while other closures still borrow.
#[test]
fn a_panic_is_propagated_after_all_closures_have_finished() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        let finished = AtomicU32::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            scope(&queue, |s| {
                for number in 0..20 {
                    let finished = &finished;
                    drop(s.spawn(move || {
                        assert!(number != 3, "on purpose");
                        uwork::blocking(std::thread::yield_now);
                        finished.fetch_add(1, Ordering::Relaxed);
                    }));
                }
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(finished.into_inner(), 19);

        let finished = AtomicU32::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            scope(&queue, |s| {
                for _ in 0..20 {
                    drop(s.spawn(|| finished.fetch_add(1, Ordering::Relaxed)));
                }
                panic!("on purpose, in the scope's own function");
            });
        }));
        let payload = outcome.unwrap_err();
        assert!(payload.downcast_ref::<&str>().is_some_and(|text| text.contains("own function")));
        assert_eq!(finished.into_inner(), 20);
    }
}

// Catches: a payload whose destructor panics, and ends the scope before its other closures. The end of
// the scope drops that payload while all others wait for the gate: the handle that was dropped last is
// the first that it joins. The closures do not borrow, so that a broken scope ends in an assertion.
#[test]
fn a_panic_whose_payload_panics_is_propagated_after_all_closures_have_finished() {
    struct PanicsWhenDropped(Gate);
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            self.0.open();
            panic!("on purpose, in the payload's destructor");
        }
    }
    let _watchdog = watchdog();
    for queue in every_kind() {
        let (dropped, may_end) = (Gate::new(), Gate::new());
        let finished = Arc::new(AtomicU32::new(0));
        let (payload, gate, count) =
            (PanicsWhenDropped(dropped.clone()), may_end.clone(), finished.clone());
        let waiting = in_the_wait(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                scope(&queue, |s| {
                    let panics = s.spawn(move || std::panic::panic_any(payload));
                    for _ in 0..20 {
                        let (gate, count) = (gate.clone(), count.clone());
                        drop(s.spawn(move || {
                            gate.wait_blocking();
                            count.fetch_add(1, Ordering::SeqCst);
                        }));
                    }
                    drop(panics);
                });
            }));
            (outcome.is_err(), count.load(Ordering::SeqCst))
        });
        dropped.wait();
        waiting.assert_waits();
        may_end.open();
        assert_eq!(waiting.result(), (true, 20));
    }
}

// Catches: a panic that its join has returned and that is propagated once more.
#[test]
fn a_joined_panic_is_not_propagated_again() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        let value = scope(&queue, |s| {
            let bad = s.spawn(|| -> u32 { panic!("on purpose") });
            let good = s.spawn(|| 5);
            assert!(matches!(bad.join(), Err(JoinError::Panicked(_))));
            good.join().unwrap()
        });
        assert_eq!(value, 5);
    }
}

// Catches: a result that is dropped after the scope has ended, with a borrow in it.
#[test]
fn results_are_dropped_before_the_scope_ends() {
    let _watchdog = watchdog();
    struct Borrows<'a>(&'a AtomicU32);
    impl Drop for Borrows<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for queue in every_kind() {
        for _ in 0..50 {
            let dropped = AtomicU32::new(0);
            scope(&queue, |s| {
                drop(s.spawn(|| Borrows(&dropped)));
                drop(s.spawn(|| Borrows(&dropped)).join());
                let captured = Borrows(&dropped);
                drop(s.spawn(move || {
                    let _whole = &captured;
                }));
            });
            assert_eq!(dropped.into_inner(), 3);
        }
    }
}

/// A recursive sum by halves, each half in a scope of its own.
fn sum(queue: &Queue, numbers: &[u64]) -> u64 {
    if numbers.len() <= 8 {
        return numbers.iter().sum();
    }
    let (low, high) = numbers.split_at(numbers.len() / 2);
    scope(queue, |s| {
        let low = s.spawn(|| sum(queue, low));
        sum(queue, high) + low.join().unwrap()
    })
}

// Catches: nested scopes that starve each other, or an item of an ordered queue that waits for
// closures behind itself.
#[test]
fn scopes_nest_also_inside_items() {
    let _watchdog = watchdog();
    let numbers: Arc<Vec<u64>> = Arc::new((1..=400).collect());
    for queue in every_kind() {
        keep(&queue);
        assert_eq!(sum(&queue, &numbers), 80_200);
        let (own, theirs) = (queue.clone(), numbers.clone());
        let handle = queue.spawn(move || sum(&own, &theirs));
        let outcome = within("scopes inside an item", move || handle.join());
        assert_eq!(outcome.unwrap(), 80_200);
    }
}

// Catches: closures on an ordered queue that run in another order than they were spawned in.
#[test]
fn closures_in_an_ordered_item_run_at_once_on_its_thread() {
    let _watchdog = watchdog();
    let queue = queue("scope").ordered().build().unwrap();
    let own = queue.clone();
    let handle = queue.spawn(move || {
        let here = std::thread::current().id();
        let ran = AtomicU32::new(0);
        scope(&own, |s| {
            for number in 0..10 {
                let ran = &ran;
                drop(s.spawn(move || {
                    assert_eq!(std::thread::current().id(), here);
                    assert_eq!(ran.fetch_add(1, Ordering::Relaxed), number);
                }));
                assert_eq!(ran.load(Ordering::Relaxed), number + 1);
            }
        });
        ran.into_inner()
    });
    assert_eq!(within("a scope in an ordered item", move || handle.join()).unwrap(), 10);
}

// Catches: a closure that a destroyed queue keeps, with its borrow, or a scope that waits for it.
#[test]
fn a_scope_on_a_destroyed_queue_ends() {
    let _watchdog = watchdog();
    let queue = queue("scope").build().unwrap();
    queue.destroy().unwrap();
    let outcome = within("a scope on a destroyed queue", move || {
        let ran = AtomicU32::new(0);
        let refused = scope(&queue, |s| {
            drop(s.spawn(|| ran.fetch_add(1, Ordering::Relaxed)));
            s.spawn(|| ran.fetch_add(1, Ordering::Relaxed)).join()
        });
        (matches!(refused, Err(JoinError::Refused)), ran.into_inner())
    });
    assert_eq!(outcome, (true, 0));
}

// Catches: a join that helps while the closure already runs, or waits without being woken.
#[test]
fn join_waits_for_a_closure_that_runs() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        let (started, may_end) = (Gate::new(), Gate::new());
        let value = scope(&queue, |s| {
            let handle = s.spawn(|| {
                started.open();
                may_end.wait_blocking();
                9
            });
            started.wait();
            let opener = may_end.clone();
            let opening = std::thread::spawn(move || opener.open());
            let value = handle.join().unwrap();
            opening.join().unwrap();
            value
        });
        assert_eq!(value, 9);
    }
}

// Catches: a scope that waits in a BH item for a closure that only that item's worker can run.
#[test]
fn a_scope_in_a_bh_item_is_refused_or_runs_its_closures_at_once() {
    let _watchdog = watchdog();
    let bh = queue("bh").bh().build().unwrap();
    for target in [bh.clone(), queue("scope").build().unwrap()] {
        for joined in [false, true] {
            let target = target.clone();
            let outcome = bh.spawn(move || {
                let here = std::thread::current().id();
                let mut lent = 7;
                scope(&target, |s| {
                    let handle = s.spawn(|| {
                        assert_eq!(std::thread::current().id(), here);
                        lent += 1;
                    });
                    if joined {
                        handle.join().unwrap();
                    }
                });
                lent
            });
            match outcome.join() {
                Ok(lent) => assert!(lent == 8 && !cfg!(debug_assertions)),
                Err(JoinError::Panicked(payload)) if cfg!(debug_assertions) => {
                    let text = payload.downcast_ref::<&str>().unwrap();
                    assert!(text.contains("BH queue was about to wait"), "{text}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
