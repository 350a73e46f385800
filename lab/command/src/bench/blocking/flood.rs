//! Tiny items that do not block: the cost of detection, and whether it mistakes preemption for
//! blocking.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uwork_rivals::{Load, Sample};

use super::cases::Size;
use super::figures::{OVER_TARGET, WORKERS};
use super::throughput;
use crate::UserError;
use crate::bench::measured::Figures;
use crate::bench::uwork_pool;

const PRODUCERS: usize = 8;
/// Interval between two snapshots of the pools.
const GLANCE: Duration = Duration::from_millis(50);

/// Runs the configured number of floods, after a warm-up flood that creates threads.
pub(super) fn measure(size: &Size, figures: &mut Figures) -> Result<(), UserError> {
    flood(size)?;
    let samples = (0..size.floods).map(|_| flood(size)).collect::<Result<Vec<_>, _>>()?;
    sum(figures, &samples);
    Ok(())
}

/// Runs floods for the configured time, and records the peak number of workers.
pub(super) fn measure_workers(size: &Size, figures: &mut Figures) -> Result<(), UserError> {
    let over = AtomicBool::new(false);
    let (samples, workers) = thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let mut workers = Workers::default();
            loop {
                let last = over.load(Ordering::Acquire);
                workers.look();
                if last {
                    return workers;
                }
                thread::park_timeout(GLANCE);
            }
        });
        let (start, mut samples) = (Instant::now(), Vec::new());
        while start.elapsed() < size.busy_for && samples.last().is_none_or(Result::is_ok) {
            samples.push(flood(size));
        }
        over.store(true, Ordering::Release);
        observer.thread().unpark();
        (samples, observer.join().expect("the observer does not panic"))
    });
    sum(figures, &samples.into_iter().collect::<Result<Vec<_>, _>>()?);
    figures.set(WORKERS, f64::from(workers.most));
    figures.set(OVER_TARGET, f64::from(workers.over_target));
    Ok(())
}

fn flood(size: &Size) -> Result<Sample, UserError> {
    let items = size.flood_items;
    let load = Load { producers: PRODUCERS, items, outstanding: items, clock: false };
    let contestants = uwork_pool::contestants("flood", &["default"], load);
    (contestants[0].measure)(0)
}

fn sum(figures: &mut Figures, samples: &[Sample]) {
    let items = samples.iter().map(|sample| sample.items).sum::<u64>() as usize;
    let wall: Duration = samples.iter().map(|sample| sample.wall).sum();
    let cpu: Duration = samples.iter().map(|sample| sample.cpu).sum();
    throughput::rates(figures, items, wall.as_secs_f64(), cpu.as_secs_f64());
}

/// The peak number of workers so far.
#[derive(Default)]
struct Workers {
    most: u32,
    over_target: u32,
}

impl Workers {
    fn look(&mut self) {
        for pool in uwork::dump().pools {
            self.most = self.most.max(pool.nr_workers);
            self.over_target = self.over_target.max(pool.nr_workers.saturating_sub(pool.target));
        }
    }
}
