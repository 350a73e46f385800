//! Items with a timer (SEMANTICS 2.11, 2.12, 2.16, 2.19). No test waits for more than a
//! millisecond of delay; an hour stands for never.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::machine::{current_cpu, on_cpu, two_cpus};
use crate::support::{queue, until, watchdog, within};
use uwork::{DelayedWork, Enqueued, Queue};

const NEVER: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_millis(1);

/// An item that records the CPU on which it runs.
fn noting(log: &Log<u32>) -> Arc<Later> {
    let log = log.clone();
    Later::new(move |_| log.push(current_cpu()))
}

// Catches: a delay of 0 that is armed (it would not expire here: the worker that would handle it is
// held).
#[test]
fn s2_11_delay_zero_bypasses_the_timer() {
    let _watchdog = watchdog();
    let queue = queue("s2-11").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let order = Log::new();
    let (first, second) = (order.clone(), order.clone());
    let later = Later::new(move |_| first.push("delayed by 0"));
    assert!(queue.enqueue_delayed(later.clone(), Duration::ZERO).is_queued());
    // Queued, not armed: it has its position in the order already.
    assert!(queue.enqueue(Job::new(move |_| second.push("not delayed"))).is_queued());
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(order.events(), ["delayed by 0", "not delayed"]);
}

// Catches: an armed item that is not pending (it could be armed twice), or expires early, or never.
#[test]
fn s2_11_an_armed_item_is_pending_and_never_early() {
    let _watchdog = watchdog();
    let queue = queue("s2-11").build().unwrap();
    let armed = Later::counting();
    assert!(queue.enqueue_delayed(armed.clone(), NEVER).is_queued());
    assert!(armed.work.is_pending());
    assert!(matches!(queue.enqueue_delayed(armed.clone(), SOON), Enqueued::Pending(_)));
    assert!(matches!(queue.enqueue(armed.clone()), Enqueued::Pending(_)));
    queue.flush().unwrap();
    assert_eq!((armed.tally.started(), armed.work.is_pending()), (0, true));
    assert!(armed.work.cancel().is_some());
    assert!(!armed.work.is_pending());

    let log = Log::new();
    let times = log.clone();
    let before = Instant::now();
    let soon = Later::new(move |_| times.push(Instant::now()));
    assert!(queue.enqueue_delayed(soon, SOON).is_queued());
    log.wait_for_count(1);
    assert!(log.events()[0] >= before + SOON, "early");
}

// Catches: a deadline or a window that overflows the clock and wraps to the present.
#[test]
fn s2_11_delays_beyond_the_clock_do_not_expire() {
    let _watchdog = watchdog();
    let queue = queue("s2-11").build().unwrap();
    let slacks = [Duration::ZERO, NEVER, Duration::MAX];
    for delay in [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_nanos(u64::MAX - 1)]
    {
        for slack in slacks {
            let later = Later::of(DelayedWork::new().with_slack(slack), |_| {});
            assert!(queue.enqueue_delayed(later.clone(), delay).is_queued());
            assert!(matches!(queue.mod_delayed(later.clone(), delay), Enqueued::Pending(_)));
            // When another timer has expired, the keeper has been notified of this one.
            let soon = Later::counting();
            assert!(queue.enqueue_delayed(soon.clone(), SOON).is_queued());
            until("the other one fires", || soon.tally.finished() == 1);
            assert_eq!((later.tally.started(), later.work.is_pending()), (0, true));
            assert!(later.work.cancel().is_some());
        }
    }
}

// Catches: a slack that is subtracted from the delay, or a slack on a delay of zero.
#[test]
fn s2_11_an_item_with_slack_is_never_early() {
    let _watchdog = watchdog();
    let queue = queue("s2-11").build().unwrap();
    let log = Log::new();
    let slack = Duration::from_micros(500);
    let items: Vec<_> = (0..50)
        .map(|_| {
            let times = log.clone();
            let work = DelayedWork::new().with_slack(slack);
            Later::of(work, move |_| times.push(Instant::now()))
        })
        .collect();
    let before = Instant::now();
    for item in &items {
        assert!(queue.enqueue_delayed(item.clone(), SOON).is_queued());
    }
    log.wait_for_count(items.len());
    assert!(log.events().iter().all(|&at| at >= before + SOON), "early");

    let at_once = Later::of(DelayedWork::new().with_slack(NEVER), |_| {});
    assert!(queue.enqueue_delayed(at_once.clone(), Duration::ZERO).is_queued());
    queue.flush().unwrap();
    assert_eq!(at_once.tally.finished(), 1);
}

// Catches: a deferrable item that a busy pool misses, or that is early.
#[test]
fn s2_11_a_deferrable_item_fires_in_a_pool_that_works() {
    let _watchdog = watchdog();
    let queue = queue("s2-11").per_cpu().build().unwrap();
    let cpu = current_cpu();
    let log = Log::new();
    let times = log.clone();
    let later = Later::of(DelayedWork::deferrable(), move |_| times.push(Instant::now()));
    let before = Instant::now();
    assert!(queue.enqueue_delayed_on(cpu, later.clone(), SOON).unwrap().is_queued());
    until("it fires", || {
        assert!(queue.enqueue_on(cpu, Job::counting()).unwrap().is_queued());
        queue.flush().unwrap();
        later.tally.finished() == 1
    });
    assert!(log.events()[0] >= before + SOON, "early");
}

// Catches: a CPU that is fixed when the item is armed, although the caller named none.
#[test]
fn s2_11_a_cpu_that_was_not_given_is_that_of_the_expiry() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let queue = queue("s2-11").per_cpu().build().unwrap();
    let log = Log::new();
    let later = noting(&log);
    assert!(on_cpu(here, || queue.enqueue_delayed(later.clone(), NEVER).is_queued()));
    // A flush makes the timer expire on the caller's CPU.
    assert!(on_cpu(there, || later.work.flush()));
    assert_eq!(log.events(), [there]);
}

// Catches: a timer that is armed by a worker which parks again, while the keeper was not notified.
#[test]
fn s2_11_an_item_armed_inside_another_one_fires() {
    let _watchdog = watchdog();
    let queue = queue("s2-11").per_cpu().build().unwrap();
    let cpu = current_cpu();
    for _ in 0..5 {
        // Leaves several workers of the CPU parked, one of which is the keeper.
        let held: [(Gate, Gate); 3] = Default::default();
        for (started, may_end) in &held {
            let job = Job::held(started, may_end);
            assert!(queue.enqueue_on(cpu, job).unwrap().is_queued());
        }
        held.iter().for_each(|(started, _)| started.wait());
        held.iter().for_each(|(_, may_end)| may_end.open());
        queue.flush().unwrap();

        let (own, later) = (queue.clone(), Later::counting());
        let armed = later.clone();
        let arms = Job::new(move |_| {
            assert!(own.enqueue_delayed(armed.clone(), SOON).is_queued());
        });
        assert!(queue.enqueue_on(cpu, arms).unwrap().is_queued());
        until("it fires", || later.tally.finished() == 1);
    }
}

// Catches: inverted results, a timer that keeps its old time, an item that is armed twice or lost
// on its way from the queue to the timer.
#[test]
fn s2_12_mod_delayed_returns_whether_it_was_pending_and_moves_the_time() {
    let _watchdog = watchdog();
    let queue = queue("s2-12").build().unwrap();
    let later = Later::counting();
    let modify = |delay| match queue.mod_delayed(later.clone(), delay) {
        Enqueued::Queued => false,
        Enqueued::Pending(_) => true,
        other => panic!("{}", other.is_queued()),
    };
    assert!(!modify(NEVER), "was idle, is armed");
    assert!(modify(NEVER), "was armed, is armed again");
    assert!(modify(SOON), "was armed, is for soon");
    until("it has run", || later.tally.finished() == 1);
    queue.flush().unwrap();
    assert!(!modify(Duration::ZERO), "was idle, is queued");
    assert!(later.work.flush() || later.tally.finished() == 2);
    assert_eq!(later.tally.finished(), 2);
    assert_eq!(Arc::strong_count(&later), 1, "every pointer that was one too many came back");
}

// Catches: a CPU that is not taken over, a refused call that has changed the item.
#[test]
fn s2_12_mod_delayed_on_moves_the_cpu_as_well() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let queue = queue("s2-12").per_cpu().build().unwrap();
    let log = Log::new();
    let later = noting(&log);
    let modify = |cpu, delay| queue.mod_delayed_on(cpu, later.clone(), delay);
    assert!(modify(here, NEVER).unwrap().is_queued(), "was idle, is armed");
    assert!(matches!(modify(there, NEVER), Ok(Enqueued::Pending(_))), "was armed");
    let rejected = modify(u32::MAX, SOON).unwrap_err();
    assert!(Arc::ptr_eq(&rejected.item, &later) && later.work.is_pending());
    assert!(on_cpu(here, || later.work.flush()));
    assert_eq!(log.events(), [there]);
    assert!(modify(here, Duration::ZERO).unwrap().is_queued());
    queue.flush().unwrap();
    assert_eq!(log.events(), [there, here]);
}

// Catches: a modified delay that leaves a pending item on its queue.
#[test]
fn s2_12_mod_delayed_takes_a_queued_item_back_to_the_timer() {
    let _watchdog = watchdog();
    let queue = queue("s2-12").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let later = Later::counting();
    assert!(queue.enqueue(later.clone()).is_queued());
    assert!(matches!(queue.mod_delayed(later.clone(), NEVER), Enqueued::Pending(_)));
    may_end.open();
    queue.flush().unwrap();
    assert_eq!((later.tally.started(), later.work.is_pending()), (0, true), "armed, not queued");
    assert!(later.work.cancel().is_some());
}

// Catches: a mod_delayed that waits for the run that it is called from.
#[test]
fn s2_12_mod_delayed_works_from_inside_the_item() {
    let _watchdog = watchdog();
    let queue = queue("s2-12").build().unwrap();
    let inner = queue.clone();
    let later = Later::new(move |this| match this.tally.started() {
        1 => {
            assert!(inner.mod_delayed(this.clone(), NEVER).is_queued(), "running, not pending");
            assert!(matches!(inner.mod_delayed(this.clone(), SOON), Enqueued::Pending(_)));
        }
        2 => assert!(inner.mod_delayed(this.clone(), Duration::ZERO).is_queued()),
        _ => {}
    });
    assert!(queue.mod_delayed(later.clone(), Duration::ZERO).is_queued());
    until("it has run three times", || later.tally.finished() == 3);
    queue.flush().unwrap();
    assert!(!later.tally.overlapped() && !later.work.is_pending());
}

// Catches: mod_delayed on a disabled item.
#[test]
fn s2_12_a_disabled_item_is_not_armed() {
    let _watchdog = watchdog();
    let queue = queue("s2-12").build().unwrap();
    let later = Later::counting();
    assert!(queue.enqueue_delayed(later.clone(), NEVER).is_queued());
    assert!(later.work.disable().unwrap().is_some(), "it was armed");
    assert!(matches!(queue.mod_delayed(later.clone(), SOON), Enqueued::Disabled(_)));
    assert!(matches!(queue.enqueue_delayed(later.clone(), SOON), Enqueued::Disabled(_)));
    assert!(later.work.enable().unwrap());
    assert!(!later.work.is_pending(), "enable does not arm");
}

// Catches: a cancel that cannot remove an armed item, waits for its timer, or loses its pointer.
#[test]
fn s2_16_cancel_takes_an_armed_item_from_its_timer() {
    let _watchdog = watchdog();
    let queue = queue("s2-16").build().unwrap();
    for work in [DelayedWork::new(), DelayedWork::deferrable()] {
        take_armed(&queue, &Later::of(work, |_| {}));
    }
}

fn take_armed(queue: &Queue, later: &Arc<Later>) {
    type Take = fn(&Later) -> Option<Arc<Later>>;
    let ways: [Take; 4] = [
        |later| later.work.cancel(),
        |later| later.work.cancel_sync().unwrap(),
        |later| {
            let back = later.work.disable().unwrap();
            assert!(later.work.enable().unwrap());
            back
        },
        |later| {
            let back = later.work.disable_sync().unwrap();
            assert!(later.work.enable().unwrap());
            back
        },
    ];
    for take in ways {
        assert!(queue.enqueue_delayed(later.clone(), NEVER).is_queued());
        let cancelled = later.clone();
        let back = within("a cancel of an armed item", move || take(&cancelled));
        assert!(back.is_some_and(|back| Arc::ptr_eq(&back, later)));
        assert!(!later.work.is_pending());
        assert!(take(later).is_none(), "idle: nothing to take");
    }
    assert_eq!(Arc::strong_count(later), 1);
    assert_eq!(later.tally.started(), 0);
}

// Catches: a flush that waits for the timer, or queues on another queue or CPU than requested.
#[test]
fn s2_19_flush_of_an_armed_item_queues_it_at_once_on_its_target() {
    let _watchdog = watchdog();
    let queue = queue("s2-19").per_cpu().build().unwrap();
    let log = Log::new();
    let later = noting(&log);
    assert!(!later.work.flush(), "idle");
    assert!(queue.enqueue_delayed(later.clone(), NEVER).is_queued());
    assert!(flush(&later));
    assert_eq!(later.tally.finished(), 1, "it has run when the flush returns");
    assert!(!later.work.is_pending());

    let deferrable = Later::of(DelayedWork::deferrable(), |_| {});
    assert!(queue.enqueue_delayed(deferrable.clone(), NEVER).is_queued());
    assert!(flush(&deferrable));
    assert_eq!(deferrable.tally.finished(), 1);

    let Some((here, there)) = two_cpus() else { return };
    let arm_on = |queue: &Queue, cpu| {
        assert!(queue.enqueue_delayed_on(cpu, later.clone(), NEVER).unwrap().is_queued());
    };
    arm_on(&queue, here);
    assert!(on_cpu(there, || later.work.flush()));
    arm_on(&queue, there);
    assert!(on_cpu(here, || later.work.flush()));
    assert_eq!(log.events()[1..], [here, there]);
}

fn flush(later: &Arc<Later>) -> bool {
    let flushed = later.clone();
    within("a flush of an armed item", move || flushed.work.flush())
}
