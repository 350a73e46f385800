//! Freezing (SEMANTICS 2.27). It is process-wide, so each of these tests is a process of its own.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::machine::{cpus, in_the_wait, on_cpu};
use crate::support::{queue, until, watchdog};
use uwork::freeze::{self, FreezeError};
use uwork::{AffinityScope, AffinityScopeChoice, Builder, Queue};

fn one_of_each() -> Vec<Queue> {
    let kinds: [fn(Builder) -> Builder; 4] = [
        Builder::per_cpu,
        Builder::ordered,
        |builder| builder.affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System)),
        |builder| builder.affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu)),
    ];
    kinds.map(|kind| kind(queue("s2-27")).freezable().build().unwrap()).into()
}

/// Queues an item that logs its number.
fn say(queue: &Queue, log: &Log<u32>, number: u32) -> Arc<Job> {
    let theirs = log.clone();
    let job = Job::new(move |_| theirs.push(number));
    assert!(queue.enqueue(job.clone()).is_queued());
    job
}

// Catches: an item that starts while frozen, one that is interrupted, a queue that is frozen
// although it is not freezable, one that is created meanwhile and not frozen.
#[test]
fn s2_27_new_items_wait_and_active_ones_finish() {
    alone("s2_27_new_items_wait_and_active_ones_finish", || {
        let _watchdog = watchdog();
        for before in one_of_each() {
            let (log, started, may_end) = (Log::new(), Gate::new(), Gate::new());
            assert!(before.enqueue(Job::held(&started, &may_end)).is_queued());
            started.wait();
            freeze::begin().unwrap();
            let during = queue("s2-27").freezable().build().unwrap();
            // A per-CPU queue is congested on the CPU where its items wait.
            on_cpu(cpus()[0], || {
                for number in 0..10 {
                    say(&before, &log, number);
                    say(&during, &log, 100 + number);
                }
                assert!(before.is_congested() && during.is_congested());
            });
            assert!(before.dump().frozen && during.dump().to_string().contains("  frozen"));
            assert_eq!(freeze::is_busy(), Ok(true));
            may_end.open();
            until("what was taken is over", || freeze::is_busy() == Ok(false));
            let free = queue("s2-27").per_cpu().build().unwrap();
            say(&free, &log, 1_000);
            free.flush().unwrap();
            assert_eq!(log.events(), [1_000]);
            freeze::thaw().unwrap();
            before.flush().unwrap();
            during.flush().unwrap();
            let mut events = log.events();
            events.sort_unstable();
            assert_eq!(events, (0..10).chain(100..110).chain([1_000]).collect::<Vec<_>>());
        }
    });
}

// Catches: a wait for frozen items that ends, one that the thaw does not end, a join that runs the
// item itself.
#[test]
fn s2_27_flushes_and_joins_of_frozen_items_wait_for_the_thaw() {
    alone("s2_27_flushes_and_joins_of_frozen_items_wait_for_the_thaw", || {
        let _watchdog = watchdog();
        for queue in one_of_each() {
            let log = Log::new();
            freeze::begin().unwrap();
            let item = say(&queue, &log, 1);
            let spawned = queue.spawn(|| 2);
            let of_queue = queue.clone();
            let of_queue = in_the_wait(move || of_queue.flush());
            let of_item = in_the_wait(move || item.work.flush());
            let join = in_the_wait(move || spawned.join().unwrap());
            let drain = in_the_wait(move || queue.drain());
            for _ in 0..2 {
                of_queue.assert_waits();
                of_item.assert_waits();
                join.assert_waits();
                drain.assert_waits();
            }
            assert_eq!(log.events(), [0_u32; 0]);
            freeze::thaw().unwrap();
            of_queue.result().unwrap();
            assert!(of_item.result());
            assert_eq!(join.result(), 2);
            drain.result().unwrap();
            assert_eq!(log.events(), [1]);
        }
    });
}

// Catches: an item that lends its permit to a frozen one of its queue; one that does not after the
// thaw.
#[test]
fn s2_27_an_item_does_not_help_with_frozen_ones() {
    alone("s2_27_an_item_does_not_help_with_frozen_ones", || {
        let _watchdog = watchdog();
        let queue = queue("s2-27").max_active(1).freezable().build().unwrap();
        let (started, go, log) = (Gate::new(), Gate::new(), Log::new());
        let (inner, begun, may_join, theirs) =
            (queue.clone(), started.clone(), go.clone(), log.clone());
        let outer = queue.spawn(move || {
            begun.open();
            may_join.wait();
            let told = theirs.clone();
            let child = inner.spawn(move || told.push("child"));
            theirs.push("joins");
            child.join().unwrap();
            theirs.push("joined");
        });
        started.wait();
        freeze::begin().unwrap();
        go.open();
        log.wait_for(&"joins");
        let waits = in_the_wait(move || outer.join());
        waits.assert_waits();
        assert_eq!((log.events(), freeze::is_busy()), (vec!["joins"], Ok(true)));
        freeze::thaw().unwrap();
        waits.result().unwrap();
        assert_eq!(log.events(), ["joins", "child", "joined"]);
    });
}

// Catches: a cancel that does not find a frozen item, a timer that starts one.
#[test]
fn s2_27_frozen_items_can_be_cancelled_and_timers_expire_into_the_freeze() {
    alone("s2_27_frozen_items_can_be_cancelled_and_timers_expire_into_the_freeze", || {
        let _watchdog = watchdog();
        for queue in one_of_each() {
            freeze::begin().unwrap();
            let log = Log::new();
            let item = say(&queue, &log, 1);
            assert!(item.work.cancel().is_some());
            assert!(item.work.cancel().is_none());
            let later = Later::counting();
            assert!(queue.enqueue_delayed(later.clone(), Duration::from_nanos(1)).is_queued());
            until("the timer has expired", || queue.is_congested());
            assert!(later.work.is_pending());
            assert_eq!(later.tally.started(), 0);
            freeze::thaw().unwrap();
            queue.flush().unwrap();
            assert_eq!((later.tally.finished(), log.events()), (1, vec![]));
        }
    });
}

// Catches: a wait for a frozen item that outlives a cancel, two cancels that both succeed or both
// wait for the item, a cancel that waits for the thaw.
#[test]
fn s2_27_two_threads_at_once_with_a_frozen_item() {
    alone("s2_27_two_threads_at_once_with_a_frozen_item", || {
        let _watchdog = watchdog();
        for queue in one_of_each() {
            // First pending and frozen; then running since before the freeze, and pending and
            // frozen.
            for runs in [false, true] {
                let (started, may_end) = (Gate::new(), Gate::new());
                let item = Job::held(&started, &may_end);
                if runs {
                    assert!(queue.enqueue(item.clone()).is_queued());
                    started.wait();
                }
                freeze::begin().unwrap();
                assert!(queue.enqueue(item.clone()).is_queued());
                let [one, two] = [item.clone(), item.clone()];
                let flushes = [one, two].map(|item| in_the_wait(move || item.work.flush()));
                flushes.iter().for_each(|flush| flush.assert_waits());
                let [one, two] = [item.clone(), item.clone()];
                let cancels = [one, two]
                    .map(|item| thread::spawn(move || item.work.cancel_sync().unwrap().is_some()));
                if runs {
                    until("it is taken back", || !item.work.is_pending());
                    assert!(
                        !cancels.iter().any(|cancel| cancel.is_finished()),
                        "they wait for the run"
                    );
                    may_end.open();
                }
                let got = cancels.map(|cancel| cancel.join().unwrap());
                assert_eq!(got.iter().filter(|&&got| got).count(), 1, "one of them gets it");
                flushes.into_iter().for_each(|flush| _ = flush.result());
                assert_eq!(
                    (item.tally.finished(), item.work.is_pending()),
                    (u32::from(runs), false)
                );
                // The item can be queued again, disabled, and flushed after the thaw.
                assert!(queue.enqueue(item.clone()).is_queued());
                assert!(item.work.disable().unwrap().is_some());
                assert!(item.work.enable().unwrap() && !item.work.flush());
                freeze::thaw().unwrap();
                may_end.open();
                assert!(queue.enqueue(item.clone()).is_queued());
                queue.flush().unwrap();
                assert_eq!(item.tally.finished(), u32::from(runs) + 1);
                assert_eq!(Arc::strong_count(&item), 1);
            }
        }
    });
}

// Catches: calls out of order that are accepted, errors that do not say how to correct them.
#[test]
fn s2_27_calls_out_of_order_are_errors() {
    alone("s2_27_calls_out_of_order_are_errors", || {
        let _watchdog = watchdog();
        assert_eq!(freeze::is_busy(), Err(FreezeError::NotFrozen));
        assert_eq!(freeze::thaw(), Err(FreezeError::NotFrozen));
        freeze::begin().unwrap();
        let error = freeze::begin().unwrap_err();
        assert_eq!(error, FreezeError::AlreadyFrozen);
        assert!(error.to_string().contains("thaw"), "{error}");
        freeze::thaw().unwrap();
        let error = freeze::thaw().unwrap_err();
        assert!(error.to_string().contains("freeze must begin"), "{error}");
    });
}

// Catches: an item that is lost, run twice or run while frozen, under many freezes and changes.
#[test]
fn s2_27_freezes_under_load() {
    alone("s2_27_freezes_under_load", || {
        let _watchdog = watchdog();
        let queues = one_of_each();
        let items: Vec<Arc<Job>> = (0..400).map(|_| Job::new(|_| {})).collect();
        thread::scope(|scope| {
            for half in items.chunks(200) {
                let queues = &queues;
                scope.spawn(move || {
                    for (index, item) in half.iter().enumerate() {
                        assert!(queues[index % queues.len()].enqueue(item.clone()).is_queued());
                    }
                });
            }
            for round in 0..100 {
                freeze::begin().unwrap();
                until("what was taken is over", || freeze::is_busy() == Ok(false));
                let started = || items.iter().map(|item| item.tally.started()).sum::<u32>();
                let before = started();
                queues[2].set_max_active(1 + round % 3).unwrap();
                queues[3].set_max_active(1 + round % 5).unwrap();
                queues[3].set_min_active(1 + round % 2).unwrap();
                if round % 10 == 0 {
                    let scope = AffinityScope::ALL[round as usize / 10 % 7];
                    queues[3].set_affinity_scope(AffinityScopeChoice::Explicit(scope)).unwrap();
                }
                thread::yield_now();
                assert_eq!(started(), before, "frozen");
                freeze::thaw().unwrap();
            }
        });
        queues.iter().for_each(|queue| queue.flush().unwrap());
        assert!(items.iter().all(|item| item.tally.finished() == 1 && !item.tally.overlapped()));
    });
}
