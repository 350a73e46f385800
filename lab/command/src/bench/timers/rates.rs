//! The cost of arming, rearming and cancelling a timer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uwork::{DelayedWork, Enqueued, Queue, WorkItem};

use super::{Draw, Line};
use crate::bench::uwork_pool;

/// One in this many timers is armed, rearmed and cancelled; the others stay unchanged.
const PART: usize = 10;
/// Delays are between this value and its double, so that no timer expires during the measurement.
const DELAY_MS: u64 = 600_000;
const SEED: u64 = 0x5eed;

struct Timeout {
    work: DelayedWork<Timeout>,
    touched: AtomicU32,
}

uwork::has_delayed_work!(impl HasDelayedWork for Timeout { work });

impl WorkItem for Timeout {
    type Pointer = &'static Timeout;

    fn run(_this: &'static Timeout) {}
}

/// The timers, and the order in which they are used.
struct Timers {
    queue: Queue,
    items: &'static [Timeout],
    /// For each step, the item and two delays.
    steps: Vec<(usize, [Duration; 2])>,
}

/// Nanoseconds per operation, for each case and order.
pub(super) fn measure(armed: usize, samples: usize) -> Vec<Line> {
    let items = (0..armed + armed.div_ceil(PART))
        .map(|_| Timeout { work: DelayedWork::new(), touched: AtomicU32::new(0) });
    // Leaked, because the engine may access an item until it has run.
    let items: &'static [Timeout] = Vec::leak(items.collect());
    let queue = uwork_pool::queue("system");
    let mut draw = Draw(SEED);
    let mut lines = Vec::new();
    for variant in ["in-order", "scattered"] {
        let order = match variant {
            "in-order" => (0..items.len()).collect(),
            _ => draw.order(items.len()),
        };
        let mut delay = || Duration::from_millis(DELAY_MS + draw.below(DELAY_MS));
        let steps = order.into_iter().map(|at| (at, [delay(), delay()])).collect();
        let timers = Timers { queue: queue.clone(), items, steps };
        let all = timers.sample_all(armed, samples);
        for (case, values) in ["touch", "arm", "put-off", "rearm", "cancel"].into_iter().zip(all) {
            lines.push(([case, variant, "ns_per_op", "ns"], values));
        }
    }
    lines
}

impl Timers {
    /// Arms the first `armed` timers, and measures with the others.
    fn sample_all(&self, armed: usize, samples: usize) -> [Vec<f64>; 5] {
        let (background, part) = self.steps.split_at(armed);
        self.arm(background);
        let mut all: [Vec<f64>; 5] = Default::default();
        // Round 0 is a warm-up.
        for round in 0..=samples {
            // Evicts the measured items from the caches: this touches all other items first.
            self.touch(background);
            let touch = self.touch(part);
            self.touch(background);
            let arm = self.arm(part);
            let put_off = self.rearm(part, 0);
            let rearm = self.rearm(part, 1);
            let times = [touch, arm, put_off, rearm, self.cancel(part)];
            for (values, time) in all.iter_mut().zip(times).filter(|_| round > 0) {
                values.push(time.as_secs_f64() * 1e9 / part.len() as f64);
            }
        }
        self.cancel(background);
        all
    }

    fn touch(&self, steps: &[(usize, [Duration; 2])]) -> Duration {
        let start = Instant::now();
        let mut step = 0;
        while let Some(&(at, _)) = steps.get(step) {
            // The next access depends on the result of this one, as in code with more work between
            // accesses.
            step += 1 + (self.items[at].touched.fetch_add(1, Ordering::Relaxed) >> 31) as usize;
        }
        start.elapsed()
    }

    fn arm(&self, steps: &[(usize, [Duration; 2])]) -> Duration {
        let start = Instant::now();
        for &(at, [delay, _]) in steps {
            let armed = self.queue.enqueue_delayed(&self.items[at], delay);
            assert!(armed.is_queued(), "an idle item is armed");
        }
        start.elapsed()
    }

    /// With the same delay as before, or with the other delay.
    fn rearm(&self, steps: &[(usize, [Duration; 2])], which: usize) -> Duration {
        let start = Instant::now();
        for &(at, delays) in steps {
            let moved = self.queue.mod_delayed(&self.items[at], delays[which]);
            assert!(matches!(moved, Enqueued::Pending(_)), "an armed item is moved");
        }
        start.elapsed()
    }

    fn cancel(&self, steps: &[(usize, [Duration; 2])]) -> Duration {
        let start = Instant::now();
        for &(at, _) in steps {
            assert!(self.items[at].work.cancel().is_some(), "an armed item is cancelled");
        }
        start.elapsed()
    }
}
