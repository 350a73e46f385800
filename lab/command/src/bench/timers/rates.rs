//! The cost of arming, rearming and cancelling a timer.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uwork::{DelayedWork, Enqueued, Queue, WorkItem};

use super::Draw;
use crate::bench::contestant::{Contestant, Group, Names, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;
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

uwork::has_work!(impl HasDelayedWork for Timeout { work });

impl WorkItem for Timeout {
    type Pointer = &'static Timeout;

    fn run(_this: &'static Timeout) {}
}

const OPERATIONS: [&str; 5] = ["touch", "arm", "put-off", "rearm", "cancel"];
const NANOS: Metric = Metric { name: "ns_per_op", unit: "ns", title: "ns_per_op", decimals: 1 };

/// A group for each order of the items.
pub(super) fn groups(cases: &[&'static str], armed: usize, samples: usize) -> Vec<Group<Measured>> {
    let items = Rc::new(OnceCell::new());
    let group = |order: &'static str| {
        let rounds = Rc::new(Rounds {
            armed,
            order,
            items: Rc::clone(&items),
            timers: OnceCell::new(),
            taken: RefCell::default(),
        });
        let chosen = OPERATIONS.into_iter().enumerate().filter(|(_, case)| cases.contains(case));
        let contestants = chosen.map(|(at, case)| {
            let rounds = Rc::clone(&rounds);
            Contestant {
                names: Names { case, runner: uwork_pool::RUNNER, variant: order.to_owned() },
                standing: None,
                measure: Box::new(move |number| {
                    Ok(Measured::new(vec![(NANOS, rounds.nanos(number)[at])]))
                }),
            }
        });
        Group {
            title: format!("timers  ({armed} armed, {samples} sample(s), one thread, {order})"),
            contestants: contestants.collect(),
            samples,
            ratio_to: RatioTo::Nothing,
        }
    };
    ["in-order", "scattered"].map(group).into()
}

/// The measurement that the contestants of an order share: a round has a time for each operation,
/// because each operation needs the previous one.
struct Rounds {
    armed: usize,
    order: &'static str,
    /// Shared with the other orders, which run before or after this one.
    items: Rc<OnceCell<&'static [Timeout]>>,
    timers: OnceCell<Timers>,
    taken: RefCell<Vec<[f64; 5]>>,
}

impl Rounds {
    /// The nanoseconds of each operation in a round. The first contestant that asks takes the
    /// round.
    fn nanos(&self, round: usize) -> [f64; 5] {
        let mut taken = self.taken.borrow_mut();
        if taken.len() == round {
            taken.push(self.timers.get_or_init(|| self.start()).round(self.armed));
        }
        taken[round]
    }

    fn start(&self) -> Timers {
        let make = || {
            let timeout = |_| Timeout { work: DelayedWork::new(), touched: AtomicU32::new(0) };
            // Leaked, because the engine may access an item until it has run.
            let items: &'static [Timeout] =
                Vec::leak((0..self.armed + self.armed.div_ceil(PART)).map(timeout).collect());
            items
        };
        let items: &'static [Timeout] = self.items.get_or_init(make);
        let mut draw = Draw(SEED);
        let order = match self.order {
            "in-order" => (0..items.len()).collect(),
            _ => draw.order(items.len()),
        };
        let mut delay = || Duration::from_millis(DELAY_MS + draw.below(DELAY_MS));
        let steps = order.into_iter().map(|at| (at, [delay(), delay()])).collect();
        let timers = Timers { queue: uwork_pool::queue("system"), items, steps };
        timers.arm(&timers.steps[..self.armed]);
        // A warm-up.
        timers.round(self.armed);
        timers
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if let Some(timers) = self.timers.get() {
            timers.cancel(&timers.steps[..self.armed]);
        }
    }
}

/// The timers, and the order in which they are used.
struct Timers {
    queue: Queue,
    items: &'static [Timeout],
    /// For each step, the item and two delays.
    steps: Vec<(usize, [Duration; 2])>,
}

impl Timers {
    /// Each operation on all timers but the first `armed`, which stay armed: nanoseconds per timer.
    fn round(&self, armed: usize) -> [f64; 5] {
        let (background, part) = self.steps.split_at(armed);
        // Evicts the measured items from the caches: this touches all other items first.
        self.touch(background);
        let touch = self.touch(part);
        self.touch(background);
        let arm = self.arm(part);
        let put_off = self.rearm(part, 0);
        let rearm = self.rearm(part, 1);
        [touch, arm, put_off, rearm, self.cancel(part)]
            .map(|time| time.as_secs_f64() * 1e9 / part.len() as f64)
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
