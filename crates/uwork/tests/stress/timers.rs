//! Timers that are due at one moment, while other threads cancel them and arm them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::assert_no_rescues;
use crate::support::items::Later;
use crate::support::random::Random;
use crate::support::{queue, until, watchdog};
use uwork::{DelayedWork, Enqueued, Queue};

/// Fewer in a build that is not optimized: `ci/stress.sh` builds one that is.
const ROUNDS: u64 = if cfg!(debug_assertions) { 10 } else { 40 };
const TIMERS: usize = 4_000;
const THREADS: u64 = 3;
/// The time from arming to the moment at which all are due.
const AHEAD: Duration = Duration::from_millis(5);

/// How often items began to be pending, and how that ended.
#[derive(Default)]
struct Counts {
    armed: AtomicU64,
    cancelled: AtomicU64,
    ran: Arc<AtomicU64>,
}

/// Cancels and moves timers around the moment at which they are due.
fn disturb(counts: &Counts, queues: &[Queue], items: &[Arc<Later>], moment: Instant, seed: u64) {
    let mut random = Random::new(seed);
    let add = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
    while moment.saturating_duration_since(Instant::now()) > AHEAD / 10 {
        std::thread::yield_now();
    }
    for _ in 0..2 * TIMERS {
        let item = &items[random.below(TIMERS as u64) as usize];
        let queue = &queues[random.below(queues.len() as u64) as usize];
        let delay = moment.saturating_duration_since(Instant::now());
        match random.below(4) {
            0 | 1 if item.work.cancel().is_some() => add(&counts.cancelled),
            2 => match queue.mod_delayed(item.clone(), delay) {
                Enqueued::Queued => add(&counts.armed),
                other => assert!(matches!(other, Enqueued::Pending(_)), "{other:?}"),
            },
            3 => match queue.enqueue_delayed(item.clone(), delay) {
                Enqueued::Queued => add(&counts.armed),
                other => assert!(matches!(other, Enqueued::Pending(_)), "{other:?}"),
            },
            _ => {}
        }
    }
}

// Catches: an item that is in the wheel and in an inbox, or in neither, while a batch expires.
#[test]
fn timers_at_one_moment_run_or_are_cancelled_exactly_once() {
    let _watchdog = watchdog();
    let queues = [
        queue("stress-at-once").build().unwrap(),
        queue("stress-at-once-cpu").per_cpu().build().unwrap(),
        queue("stress-at-once-ordered").ordered().build().unwrap(),
        queue("stress-at-once-power").power_efficient().build().unwrap(),
    ];
    for round in 0..ROUNDS {
        let counts = Counts::default();
        let items: Vec<_> = (0..TIMERS)
            .map(|index| {
                let ran = counts.ran.clone();
                let slack = Duration::from_micros(if index % 3 == 0 { 200 } else { 0 });
                let work = DelayedWork::new().with_slack(slack);
                Later::of(work, move |_| _ = ran.fetch_add(1, Ordering::Relaxed))
            })
            .collect();
        let moment = Instant::now() + AHEAD;
        for (index, item) in items.iter().enumerate() {
            let delay = moment.saturating_duration_since(Instant::now());
            assert!(queues[index % 4].enqueue_delayed(item.clone(), delay).is_queued());
        }
        counts.armed.store(TIMERS as u64, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (counts, queues, items) = (&counts, &queues, &items);
                let seed = round * THREADS + thread + 1;
                scope.spawn(move || disturb(counts, queues, items, moment, seed));
            }
        });
        until("the timers expire", || items.iter().all(|item| !item.work.is_pending()));
        queues.iter().for_each(|queue| queue.flush().unwrap());
        let ended = counts.ran.load(Ordering::Relaxed) + counts.cancelled.load(Ordering::Relaxed);
        assert_eq!(ended, counts.armed.load(Ordering::Relaxed), "round {round}");
        assert!(items.iter().all(|item| !item.tally.overlapped()));
        assert!(items.iter().all(|item| Arc::strong_count(item) == 1), "no reference is lost");
    }
    assert_no_rescues();
}
