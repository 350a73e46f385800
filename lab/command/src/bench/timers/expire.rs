//! The lateness of timers on an idle machine, and their cost in wake-ups.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use uwork::{DelayedWork, Queue, WorkItem};

use super::{Draw, EXPIRE};
use crate::bench::contestant::{Contestant, Group, Names, RatioTo};
use crate::bench::idle::WAKEUPS;
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;
use crate::bench::{UserError, idle, uwork_pool};

/// The average interval between two timers.
const APART: Duration = Duration::from_millis(2);
/// The time from arming the last timer to the first deadline.
const HEAD_START: Duration = Duration::from_millis(20);
const SLACK: Duration = Duration::from_millis(10);
const SEED: u64 = 0x5eed;
/// The lateness of a timer that has not expired yet.
const NOT_YET: i64 = i64::MIN;

const fn late(name: &'static str) -> Metric {
    Metric { name, unit: "us", title: name, decimals: 1 }
}

const LATE: [Metric; 3] = [late("late_p50_us"), late("late_p99_us"), late("late_max_us")];
const EARLY: Metric = Metric { name: "early", unit: "timers", title: "early", decimals: 0 };

struct Timer {
    work: DelayedWork<Timer>,
    deadline: OnceLock<Instant>,
    late_ns: AtomicI64,
}

uwork::has_work!(impl HasDelayedWork for Timer { work });

impl WorkItem for Timer {
    type Pointer = &'static Timer;

    fn run(this: &'static Timer) {
        let now = Instant::now();
        let deadline = *this.deadline.get().expect("set before it was armed");
        let late = now.saturating_duration_since(deadline).as_nanos() as i64;
        let early = deadline.saturating_duration_since(now).as_nanos() as i64;
        this.late_ns.store(late - early, Ordering::Release);
    }
}

/// Lateness relative to the deadlines, for each slack.
pub(super) fn group(timers: usize, samples: usize) -> Group<Measured> {
    let queue = uwork_pool::queue("system");
    let contestants =
        [("slack-0ms", Duration::ZERO), ("slack-10ms", SLACK)].map(|(name, slack)| {
            let queue = queue.clone();
            Contestant {
                names: Names { case: EXPIRE, runner: uwork_pool::RUNNER, variant: name.to_owned() },
                standing: None,
                measure: Box::new(move |number| {
                    sample_once(&queue, timers, slack, SEED + number as u64).map(Measured::new)
                }),
            }
        });
    Group {
        title: format!("timers  ({timers} expire one by one, {samples} sample(s))"),
        contestants: Vec::from(contestants),
        samples,
        ratio_to: RatioTo::Nothing,
    }
}

/// Arms timers and sleeps until all have expired. Returns the median, the 99th percentile and the
/// maximum of their lateness, the number of early timers, and the wake-ups per second of uwork's
/// threads.
fn sample_once(
    queue: &Queue,
    timers: usize,
    slack: Duration,
    seed: u64,
) -> Result<Vec<(Metric, f64)>, UserError> {
    let timer = |_| Timer {
        work: DelayedWork::new().with_slack(slack),
        deadline: OnceLock::new(),
        late_ns: AtomicI64::new(NOT_YET),
    };
    // Leaked, because the engine may access an item until it has run.
    let items: &'static [Timer] = Vec::leak((0..timers).map(timer).collect());
    let span = APART * timers as u32;
    let mut draw = Draw(seed);
    let start = Instant::now();
    for item in items {
        let at = HEAD_START + Duration::from_nanos(draw.below(span.as_nanos() as u64));
        let now = Instant::now();
        let delay = (start + at).saturating_duration_since(now);
        item.deadline.set(now + delay).expect("a fresh item");
        assert!(queue.enqueue_delayed(item, delay).is_queued(), "an idle item is armed");
    }
    let (_, before) = idle::switches(&[idle::SLEEPS])?;
    let mut late = Vec::with_capacity(timers);
    std::thread::sleep((start + HEAD_START + span).saturating_duration_since(Instant::now()));
    for item in items {
        // Waits for the last timers, or for very late ones.
        while item.late_ns.load(Ordering::Acquire) == NOT_YET {
            std::thread::sleep(Duration::from_millis(1));
        }
        late.push(item.late_ns.load(Ordering::Acquire));
    }
    let (_, after) = idle::switches(&[idle::SLEEPS])?;
    late.sort_unstable();
    let micros = |part: usize| late[(late.len() - 1) * part / 100] as f64 / 1e3;
    let early = late.iter().filter(|&&late| late < 0).count();
    let wakeups = after.saturating_sub(before) as f64 / start.elapsed().as_secs_f64();
    let [p50, p99, max] = LATE;
    Ok(vec![
        (p50, micros(50)),
        (p99, micros(99)),
        (max, micros(100)),
        (EARLY, early as f64),
        (WAKEUPS, wakeups),
    ])
}
