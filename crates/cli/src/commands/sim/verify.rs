//! `uwork sim calibrate --verify`: the patterns on this machine, and simulated with its costs.
//!
//! The host of a virtual machine moves its CPUs, and a line then costs several times as much. So
//! the costs are measured again before each block of samples, and each block is compared with its
//! own costs. Within a block, the patterns take turns, sample by sample.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use uwork_policy::topology::Topology;
use uwork_sim::costs::patterns::{Ground, Pattern, Shared, Word, simulate};

use super::UserError;
use super::calibrate::{join, measure, on};
use crate::commands::print;
use crate::commands::progress::Progress;

/// Blocks, and the samples of a pattern in each.
const BLOCKS: usize = 5;
const SAMPLES: usize = 9;
/// Rounds of a thread in a sample, and of wakes, each of which waits for the sleeper.
const ROUNDS: u64 = 4_000;
const WAKES: u64 = 40;
/// Rounds that are simulated.
const SIMULATED: u64 = 2_000;
/// The ratios of simulated to measured that pass.
const PASSES: std::ops::RangeInclusive<f64> = 0.67..=1.5;

/// A thread of this machine.
struct Real {
    epoch: Instant,
}

impl Ground for Real {
    type Lock = Mutex<()>;
    type Bed = OnceLock<Thread>;

    fn load(&self, word: &Word) -> u64 {
        word.0.load(Ordering::Acquire)
    }

    fn store(&self, word: &Word, value: u64) {
        word.0.store(value, Ordering::Release);
    }

    fn add(&self, word: &Word) {
        word.0.fetch_add(1, Ordering::AcqRel);
    }

    fn exchange(&self, word: &Word, from: u64, to: u64) -> bool {
        word.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn add_locked(&self, lock: &Mutex<()>, word: &Word) {
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.store(word, self.load(word) + 1);
    }

    fn relax(&self) {
        std::hint::spin_loop();
    }

    fn park(&self, bed: &OnceLock<Thread>) {
        if bed.get().is_some() {
            return std::thread::park();
        }
        // The waker sees the sleeper, or the sleeper sees the word when it looks again.
        bed.get_or_init(std::thread::current);
        fence(Ordering::SeqCst);
    }

    fn wake(&self, bed: &OnceLock<Thread>) {
        fence(Ordering::SeqCst);
        if let Some(sleeper) = bed.get() {
            sleeper.unpark();
        }
    }

    fn rest(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

fn rounds(pattern: Pattern) -> u64 {
    if pattern == Pattern::Wake { WAKES } else { ROUNDS }
}

/// The nanoseconds of an operation on these CPUs, one thread on each.
fn sample(pattern: Pattern, cpus: &[u32]) -> Result<f64, UserError> {
    let (shared, arrived) = (Arc::new(Shared::new(cpus.len())), Arc::new(AtomicUsize::new(0)));
    let (epoch, count, rounds) = (Instant::now(), cpus.len(), rounds(pattern));
    let start = |(at, &cpu): (usize, &u32)| {
        let (shared, arrived) = (shared.clone(), arrived.clone());
        on(cpu, move || {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < count {
                std::hint::spin_loop();
            }
            pattern.play(&Real { epoch }, &shared, at, rounds)
        })
    };
    let threads: Vec<_> = cpus.iter().enumerate().map(start).collect();
    let mut longest = 0;
    for thread in threads {
        longest = longest.max(join(thread)?);
    }
    Ok(longest as f64 / pattern.operations(count, rounds) as f64)
}

/// The value that this many percent of the values do not exceed.
fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

#[derive(Default)]
struct Row {
    simulated: Vec<f64>,
    measured: Vec<f64>,
    ratios: Vec<f64>,
}

pub(super) fn run(machine: &Topology, allowed: &[u32]) -> Result<ExitCode, UserError> {
    let patterns = Pattern::ALL.iter().filter_map(|&pattern| {
        let threads = pattern.threads(allowed.len())?;
        Some((pattern, &allowed[..threads], Row::default()))
    });
    let mut rows: Vec<_> = patterns.collect();
    // On a terminal it draws five times a second, on a thread that is bound to no CPU. The medians leave
    // out samples that it disturbs.
    let progress = Progress::new(Some(BLOCKS));
    for _ in 0..BLOCKS {
        progress.begin("the costs of this machine");
        let costs = measure(machine, allowed)?;
        let mut block = vec![Vec::new(); rows.len()];
        // The first sample warms up.
        progress.begin("the programs on this machine");
        for nth in 0..=SAMPLES {
            for ((pattern, cpus, _), values) in rows.iter().zip(&mut block) {
                let ns = sample(*pattern, cpus)?;
                values.extend((nth > 0).then_some(ns));
            }
        }
        progress.begin("the programs in the simulator");
        for ((pattern, cpus, row), mut values) in rows.iter_mut().zip(block) {
            let rounds = SIMULATED.min(rounds(*pattern));
            let ns = simulate(machine, &costs, *pattern, cpus, rounds).map_err(UserError)?;
            row.simulated.push(ns);
            row.ratios.push(ns / percentile(&mut values, 50).max(0.1));
            row.measured.append(&mut values);
        }
        progress.done();
    }
    drop(progress);
    let mut text = format!(
        "{:<38} {:>7} {:>10} {:>10} {:>19} {:>6}\n",
        "ns of", "threads", "simulated", "measured", "p10..p90", "ratio"
    );
    let mut all_pass = true;
    for (pattern, cpus, mut row) in rows {
        let ratio = percentile(&mut row.ratios, 50);
        let passes = PASSES.contains(&ratio);
        all_pass &= passes;
        let [p10, p50, p90] = [10, 50, 90].map(|at| percentile(&mut row.measured, at));
        let _ = writeln!(
            text,
            "{:<38} {:>7} {:>10.1} {p50:>10.1} {:>19} {ratio:>6.2} {}",
            pattern.about(),
            cpus.len(),
            percentile(&mut row.simulated, 50),
            format!("{p10:.1}..{p90:.1}"),
            if passes { "ok" } else { "outside" }
        );
    }
    let _ =
        writeln!(text, "ok: simulated over measured is from 0.67 to 1.5, as the median of blocks");
    print(&text)?;
    Ok(if all_pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
