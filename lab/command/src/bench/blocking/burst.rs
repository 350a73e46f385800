//! Many items that sleep, submitted at once to a pool with a limit.

use std::time::Instant;

use uwork_rivals::jobs::JobPool;
use uwork_rivals::load::cpu_time;

use super::cases::{BURST_AT_ONCE, BURST_SLEEP, Size};
use super::figures::{OVER_IDEAL, THREADS};
use super::obstacles::{Kind, Obstacles};
use super::tally::Tally;
use super::threads::Peak;
use super::throughput;
use crate::bench::measured::Figures;

/// Submits all items and waits for them.
pub(super) fn measure(
    pool: &dyn JobPool,
    obstacles: &'static Obstacles,
    size: &Size,
    mut peak: Peak,
    figures: &mut Figures,
) {
    let tally = Tally::new();
    let (start, cpu_before) = (Instant::now(), cpu_time());
    tally.expect(size.burst_items);
    let wait = pool.wait();
    for _ in 0..size.burst_items {
        let sleeps = move || {
            let block = obstacles.prepare(Kind::Sleep, BURST_SLEEP);
            wait(&mut || block.enter());
            tally.done();
        };
        pool.submit(Box::new(sleeps), true);
    }
    tally.wait(|| peak.look());
    let (wall, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu_before));
    throughput::rates(figures, size.burst_items, wall.as_secs_f64(), cpu.as_secs_f64());
    let ideal = BURST_SLEEP.as_secs_f64() * size.burst_items as f64 / BURST_AT_ONCE as f64;
    figures.set(OVER_IDEAL, wall.as_secs_f64() / ideal);
    figures.set(THREADS, peak.threads() as f64);
}
