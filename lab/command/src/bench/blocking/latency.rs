//! The time from the start of a block to the start of the next item.
//!
//! The pool runs one item at a time; an item that blocks is followed by a short one. The first item
//! waits until the second is queued, reads the clock, and blocks. The second item reads the clock
//! when it starts. The latency is zero if the second item starts before the first one blocks. It is
//! the whole block if the block is not detected.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uwork_rivals::jobs::JobPool;

use super::cases::{LONG_BLOCK, Size};
use super::figures::{LATENCIES, LATENCY_P50, LATENCY_P90, LATENCY_P99};
use super::obstacles::{Kind, Obstacles};
use crate::bench::measured::Figures;

/// Warm-up rounds, which create threads and are not counted.
const WARM_UP: usize = 3;
/// The value of a time that has not been recorded.
const NOT_YET: u64 = u64::MAX;

/// Measures latencies until there are enough of them or the time limit is reached.
pub(super) fn measure(
    pool: &dyn JobPool,
    obstacles: &'static Obstacles,
    kinds: &'static [Kind],
    size: &Size,
    figures: &mut Figures,
) {
    let round: &'static Round = Box::leak(Box::new(Round::new()));
    let mut taken: Histogram<u64> =
        Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("ten seconds in three digits");
    let (most, fewest) = size.latencies;
    let mut noticed = false;
    let start = Instant::now();
    for (number, kind) in kinds.iter().cycle().take(WARM_UP + most).enumerate() {
        let latency_ns = round.run(pool, obstacles, *kind);
        if number >= WARM_UP {
            taken.saturating_record(latency_ns.max(1));
            noticed |= latency_ns < LONG_BLOCK.as_nanos() as u64 / 2;
        }
        // Latencies equal to a whole block hardly vary, so the minimum number suffices.
        let enough = taken.len() as usize >= fewest;
        if enough && (!noticed || start.elapsed() > size.latencies_for) {
            break;
        }
        // Of varying length, to avoid resonance with periodic activity.
        thread::sleep(Duration::from_micros(100 + number as u64 * 37 % 400));
    }
    let micros = |quantile| taken.value_at_quantile(quantile) as f64 / 1e3;
    figures.set(LATENCY_P50, micros(0.50));
    figures.set(LATENCY_P90, micros(0.90));
    figures.set(LATENCY_P99, micros(0.99));
    figures.set(LATENCIES, taken.len() as f64);
}

/// The state that the two items and the waiting thread share. Times are in nanoseconds since
/// `origin`.
struct Round {
    origin: Instant,
    waiter: Thread,
    queued: AtomicBool,
    blocks_ns: AtomicU64,
    starts_ns: AtomicU64,
    block_over: AtomicBool,
}

impl Round {
    fn new() -> Self {
        Self {
            origin: Instant::now(),
            waiter: thread::current(),
            queued: AtomicBool::new(false),
            blocks_ns: AtomicU64::new(NOT_YET),
            starts_ns: AtomicU64::new(NOT_YET),
            block_over: AtomicBool::new(false),
        }
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Measures one latency, in nanoseconds.
    fn run(&'static self, pool: &dyn JobPool, obstacles: &Obstacles, kind: Kind) -> u64 {
        self.queued.store(false, Ordering::Relaxed);
        self.blocks_ns.store(NOT_YET, Ordering::Relaxed);
        self.starts_ns.store(NOT_YET, Ordering::Relaxed);
        self.block_over.store(false, Ordering::Relaxed);

        let (wait, block) = (pool.wait(), obstacles.prepare(kind, LONG_BLOCK));
        let blocks = move || {
            while !self.queued.load(Ordering::Acquire) {
                hint::spin_loop();
                // The submitter may be waiting for this CPU.
                thread::yield_now();
            }
            self.blocks_ns.store(self.now_ns(), Ordering::Release);
            wait(&mut || block.enter());
            block.leave();
            self.block_over.store(true, Ordering::Release);
            self.waiter.unpark();
        };
        pool.submit(Box::new(blocks), true);
        let next = || {
            self.starts_ns.store(self.now_ns(), Ordering::Release);
            self.waiter.unpark();
        };
        pool.submit(Box::new(next), false);
        self.queued.store(true, Ordering::Release);

        self.wait_until(|| self.starts_ns.load(Ordering::Acquire) != NOT_YET);
        while self.blocks_ns.load(Ordering::Acquire) == NOT_YET {
            // It is about to happen, and no wake-up follows.
            thread::yield_now();
        }
        obstacles.end_all();
        self.wait_until(|| self.block_over.load(Ordering::Acquire));
        let starts_ns = self.starts_ns.load(Ordering::Relaxed);
        starts_ns.saturating_sub(self.blocks_ns.load(Ordering::Relaxed))
    }

    fn wait_until(&self, happened: impl Fn() -> bool) {
        while !happened() {
            thread::park();
        }
    }
}
