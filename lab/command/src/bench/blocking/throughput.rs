//! Blocking items among computing items: the rate, and the number of threads.

use std::hint;
use std::time::Instant;

use uwork_rivals::jobs::JobPool;
use uwork_rivals::load::cpu_time;

use super::cases::{self, Size};
use super::figures::{THREADS, WALL};
use super::obstacles::{Kind, Obstacles};
use super::tally::Tally;
use super::threads::Peak;
use crate::bench::measured::Figures;
use crate::bench::summary::{CPU, RATE};

/// About 5 us on a CPU of 2020. The work is the same for every pool, however often it is preempted.
const SHORT_STEPS: u32 = 3_000;

/// Runs chunks of items until the time is over.
pub(super) fn measure(
    pool: &dyn JobPool,
    obstacles: &'static Obstacles,
    kinds: &'static [Kind],
    size: &Size,
    mut peak: Peak,
    figures: &mut Figures,
) {
    let tally = Tally::new();
    let (start, cpu_before) = (Instant::now(), cpu_time());
    let mut items = 0;
    while items == 0 || start.elapsed() < size.chunks_for {
        let chunk = size.chunk * (1 + cases::SHORT_PER_BLOCK);
        tally.expect(chunk);
        submit(pool, obstacles, kinds, size.chunk, tally);
        tally.wait(|| peak.look());
        items += chunk;
    }
    let (wall, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu_before));
    rates(figures, items, wall.as_secs_f64(), cpu.as_secs_f64());
    figures.set(THREADS, peak.threads() as f64);
}

/// The metrics of every case.
pub(super) fn rates(figures: &mut Figures, items: usize, wall_s: f64, cpu_s: f64) {
    figures.set(RATE, items as f64 / wall_s);
    figures.set(CPU, cpu_s * 1e6 / items as f64);
    figures.set(WALL, wall_s);
}

fn submit(
    pool: &dyn JobPool,
    obstacles: &'static Obstacles,
    kinds: &'static [Kind],
    blocks: usize,
    tally: &'static Tally,
) {
    let wait = pool.wait();
    for kind in kinds.iter().cycle().take(blocks) {
        let blocks = move || {
            let block = obstacles.prepare(*kind, cases::BLOCK);
            wait(&mut || block.enter());
            block.leave();
            tally.done();
        };
        pool.submit(Box::new(blocks), true);
        for _ in 0..cases::SHORT_PER_BLOCK {
            let computes = move || {
                compute();
                tally.done();
            };
            pool.submit(Box::new(computes), false);
        }
    }
}

/// Each step depends on the result of the previous step, so the CPU cannot overlap them.
fn compute() {
    let mut value = 1_u64;
    for _ in 0..SHORT_STEPS {
        value = hint::black_box(value).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    hint::black_box(value);
}
