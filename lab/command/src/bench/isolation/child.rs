//! The child process: one thread alone on its CPU, one thread that drains, and their figures.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uwork::percpu::{Bundle, Cache, mode, reason};
use uwork::topology::Machine;

use super::loner::{self, Noticed};
use super::switches::{Losses, Recorder};
use super::{
    CAUSED, DRAIN_MAX, DRAIN_P50, DRAIN_P99, DRAINS, GAP_MAX, GAPS, INVOLUNTARY, Order, RATE,
    REAL_TIME, STUCK, SWITCHES, UNDISTURBED, UserError, VOLUNTARY,
};
use crate::bench::measured::Figures;
use crate::bench::{affinity, privilege};

/// The interval between drains.
pub(super) const EVERY: Duration = Duration::from_millis(10);

/// The data that the two threads share; the variant decides how the isolated thread uses it.
enum Shared {
    FilledOnce(Bundle<u64>),
    FilledSteadily(Bundle<u64>),
    InUse(Cache<[u64; 8]>),
}

impl Shared {
    fn of(case: &str) -> Self {
        let bundle = || Bundle::new(64, |_items| ());
        match case {
            "once" => Self::FilledOnce(bundle()),
            "steady" => Self::FilledSteadily(bundle()),
            _ => Self::InUse(Cache::new("bench")),
        }
    }

    /// Puts an item into the part of the caller's CPU.
    fn fill(&self) {
        const ITEMS: u64 = 8;
        match self {
            Self::FilledOnce(bundle) | Self::FilledSteadily(bundle) => {
                (0..ITEMS).for_each(|item| bundle.add(item));
            }
            Self::InUse(cache) => drop(cache.alloc([0; 8])),
        }
    }

    /// What the isolated thread does between two clock readings on `cpu`.
    #[inline(always)]
    fn use_on(&self, cpu: u32) {
        match self {
            Self::FilledOnce(_) => {}
            Self::FilledSteadily(bundle) => {
                if bundle.len_on(cpu) == 0 {
                    bundle.add(0);
                }
            }
            Self::InUse(cache) => drop(black_box(cache.alloc([0; 8]))),
        }
    }

    fn drain(&self) -> Result<usize, uwork::Error> {
        match self {
            Self::FilledOnce(bundle) | Self::FilledSteadily(bundle) => bundle.drain_all(),
            Self::InUse(cache) => cache.flush_all(),
        }
    }
}

/// The results of the drains.
struct Drains {
    took: Histogram<u64>,
    stuck: u64,
}

/// Measures and prints.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    if order.unprivileged {
        // Before any thread starts.
        privilege::drop().map_err(|error| UserError(format!("--unprivileged: {error}")))?;
    }
    let machine = Machine::read().map_err(|error| UserError(error.to_string()))?;
    let cpus = (machine.allowed.first(), machine.allowed.last());
    let (Some(drainer), Some(alone)) = cpus else { unreachable!("never empty") };
    if drainer == alone {
        return Err(UserError("this takes two CPUs, and the process may use one".to_owned()));
    }
    let drains = order.mode != UNDISTURBED;
    if drains && order.mode != format!("mode{}", mode().number()) {
        eprintln!("mode {}: {}", mode(), reason());
    }
    // Also starts the engine, from a thread that is not pinned.
    let shared = Shared::of(&order.case);
    let over = AtomicBool::new(false);
    let recorder = Recorder::new(alone).map_err(|refusal| {
        eprintln!("context switches cannot be recorded ({refusal}): their causes are unknown");
    });
    let recorder = recorder.as_ref().ok();
    let (filled, is_filled) = channel();
    let (begins, has_begun) = channel();
    let (noticed, drains) = thread::scope(|scope| {
        let alone = scope.spawn(|| {
            // Dropped on an error return too, so that the other thread does not wait for it.
            let (filled, begins) = (filled, begins);
            pinned(alone)?;
            let is_real_time = loner::become_real_time();
            shared.fill();
            filled.send(()).expect("the other thread waits for it");
            begins.send(()).expect("the timer waits for it");
            let noticed = loner::read_the_clock(|| shared.use_on(alone), recorder, &over);
            Ok(Noticed { is_real_time, ..noticed })
        });
        let (shared, over) = (&shared, &over);
        let drains = scope.spawn(move || {
            pinned(drainer)?;
            // If the channel is closed without a message, the other thread reports the reason.
            let _ = is_filled.recv();
            Ok(drain(drains.then_some(|| shared.drain()), over))
        });
        // The timer of this measurement needs a thread of its own. The calling thread has the
        // affinity mask of the process, so it could wake up on the isolated CPU.
        scope.spawn(move || {
            let _ = pinned(drainer);
            // On a busy machine the thread may take long to begin. As above for a closed channel.
            let _ = has_begun.recv();
            thread::sleep(Duration::from_secs(order.seconds as u64));
            over.store(true, Ordering::Relaxed);
        });
        let no_panic = "neither thread panics";
        (alone.join().expect(no_panic), drains.join().expect(no_panic))
    });
    let noticed = noticed?;
    let losses = recorder.map(|recorder| recorder.losses_of(noticed.thread));
    print(&noticed, losses.as_ref(), &drains?);
    Ok(())
}

fn pinned(cpu: u32) -> Result<(), UserError> {
    affinity::restrict_to(&[cpu])
        .map_err(|error| UserError(format!("cannot pin a thread to CPU {cpu}: {error}")))
}

/// Calls `call` at fixed intervals until `over` is set, at least once; with `None`, only waits.
fn drain(call: Option<impl Fn() -> Result<usize, uwork::Error>>, over: &AtomicBool) -> Drains {
    let took =
        Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("an hour in three digits");
    let mut so_far = Drains { took, stuck: 0 };
    let mut next = Instant::now();
    loop {
        let start = Instant::now();
        if let Some(call) = &call {
            if let Err(error) = call() {
                eprintln!("draining failed: {error}");
            }
            let took = start.elapsed();
            so_far.took.saturating_record(took.as_nanos() as u64);
            so_far.stuck += u64::from(is_stuck(took, over.load(Ordering::Relaxed)));
        }
        if over.load(Ordering::Relaxed) {
            return so_far;
        }
        next = (next + EVERY).max(Instant::now());
        thread::sleep(next - Instant::now().min(next));
    }
}

/// Whether a drain may have returned only because the thread that it waited for has ended.
fn is_stuck(took: Duration, is_over: bool) -> bool {
    is_over && took > EVERY
}

fn print(noticed: &Noticed, losses: Option<&Losses>, drains: &Drains) {
    let mut figures = Figures::default();
    let us = |quantile| drains.took.value_at_quantile(quantile) as f64 / 1e3;
    figures.set(RATE, noticed.readings as f64 / noticed.wall.as_secs_f64());
    figures.set(GAP_MAX, noticed.gap_max.as_secs_f64() * 1e6);
    figures.set(GAPS, noticed.gaps as f64);
    figures.set(SWITCHES, (noticed.voluntary + noticed.involuntary) as f64);
    if let Some(losses) = losses {
        figures.set(CAUSED, losses.caused as f64);
        if !losses.others.is_empty() {
            eprintln!("the thread lost its CPU to other programs: {}", losses.names_of_others());
        }
        if losses.is_incomplete {
            eprintln!("the record buffer was full: some switches are not attributed");
        }
    }
    figures.set(VOLUNTARY, noticed.voluntary as f64);
    figures.set(INVOLUNTARY, noticed.involuntary as f64);
    figures.set(DRAIN_P50, us(0.5));
    figures.set(DRAIN_P99, us(0.99));
    figures.set(DRAIN_MAX, drains.took.max() as f64 / 1e3);
    figures.set(DRAINS, drains.took.len() as f64);
    figures.set(STUCK, drains.stuck as f64);
    figures.set(REAL_TIME, f64::from(u8::from(noticed.is_real_time)));
    figures.print();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_drain_that_returns_only_after_the_thread_ended_is_stuck() {
        let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        // The second call waits for the end of the run, and a little longer.
        let call = || {
            if calls.fetch_add(1, Ordering::Relaxed) == 1 {
                over.store(true, Ordering::Relaxed);
                let start = Instant::now();
                while start.elapsed() < 2 * EVERY {}
            }
            Ok(0)
        };
        let drains = drain(Some(call), &over);
        assert_eq!((drains.took.len(), drains.stuck), (2, 1));
        assert!(!is_stuck(2 * EVERY, false), "late, but it returned by itself");
        assert!(!is_stuck(EVERY / 2, true));
    }
}
