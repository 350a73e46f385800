//! Hogs: runs that compute for longer than their queue can afford.
//!
//! A pool of a per-CPU queue runs one item at a time. If that item computes for long, everything
//! behind it waits as long. So while something waits, the watcher measures the CPU time of the runs
//! that it sees. A run that used more than the threshold stops counting as running until it ends:
//! the items scheduled behind it are given back, and another worker takes over. A run that sleeps
//! uses no CPU time and is no hog. In an unbound pool hogs are also replaced, while fewer than twice
//! the target compute; they are not reported.
//!
//! The mark is made under the slot's lock, during the run (`RemoteSlot::mark_not_running`). The owner
//! finds it when the run ends, before anything else, and counts again. The kernel does the same
//! from its tick (`wq_worker_tick()`). A function is reported at its fourth violation, and then at
//! distances that double, as in the kernel.

use std::collections::HashMap;

use uwork_policy::blocking::Tier;
use uwork_policy::concurrency::{hog_report_due, may_replace_hog};

use super::blocked::count_out;
use super::survey::Survey;
use crate::engine::Engine;
use crate::pool::{NEVER, Pool};
use crate::slot::NotRunning;
use crate::words::dump::Function;
use crate::words::host::{Activity, Host, Observer, Report};
use crate::words::sync::{AtomicU64, Lock, LockGuard, Ordering};

/// The most functions that are remembered (the kernel's `WCI_MAX_ENTS`).
const FUNCTIONS_MAX: usize = 128;
/// The shortest interval between two measurements of a run.
const POLL_MIN_NS: u64 = super::STUCK_NS;
/// The default threshold (the kernel's `cpu_intensive_thresh_us`).
pub const CPU_INTENSIVE_THRESH_NS: u64 = 10_000_000;
/// Violations of one function up to the first report (`cpu_intensive_warning_thresh`).
pub const CPU_INTENSIVE_WARNING_THRESH: u64 = 4;

/// The thresholds, and the violations by function.
pub(crate) struct Hogs {
    threshold_ns: AtomicU64,
    warning_threshold: AtomicU64,
    /// Violations by function.
    functions: Lock<Vec<(usize, u64)>>,
}

impl Hogs {
    pub(crate) fn new() -> Hogs {
        Hogs {
            threshold_ns: AtomicU64::new(CPU_INTENSIVE_THRESH_NS),
            warning_threshold: AtomicU64::new(CPU_INTENSIVE_WARNING_THRESH),
            functions: Lock::new(Vec::with_capacity(FUNCTIONS_MAX)),
        }
    }

    /// Whether anything counts as a hog.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.threshold_ns.load(Ordering::Relaxed) != 0
    }

    /// Locks the table of violations.
    pub(crate) fn hold(&self) -> LockGuard<'_, Vec<(usize, u64)>> {
        self.functions.lock()
    }

    /// Counts a violation. Returns the count, if it is due to be reported.
    fn note(&self, function: usize) -> Option<u64> {
        let mut functions = self.functions.lock();
        let at = match functions.iter().position(|&(known, _)| known == function) {
            Some(at) => at,
            None if functions.len() < FUNCTIONS_MAX => {
                functions.push((function, 0));
                functions.len() - 1
            }
            None => return None,
        };
        functions[at].1 += 1;
        let count = functions[at].1;
        let threshold = self.warning_threshold.load(Ordering::Relaxed);
        hog_report_due(count, threshold).then_some(count)
    }
}

/// The runs that the watcher saw in its last scans: by slot, the run's number and the CPU time of
/// its thread when it was first seen.
pub(crate) type Runs = HashMap<u32, (u64, u64)>;

impl<H: Host> Engine<H> {
    /// How much CPU time a run may use before it stops counting as running, in nanoseconds; 0: no
    /// limit.
    pub fn cpu_intensive_thresh(&self) -> u64 {
        self.hogs.threshold_ns.load(Ordering::Relaxed)
    }

    /// Changes the threshold. It applies to runs that are seen from now on.
    pub fn set_cpu_intensive_thresh(&self, ns: u64) {
        self.hogs.threshold_ns.store(ns, Ordering::Relaxed);
    }

    /// The violation at which a function is first reported; later reports come at distances that
    /// double. 0: never.
    pub fn cpu_intensive_warning_thresh(&self) -> u64 {
        self.hogs.warning_threshold.load(Ordering::Relaxed)
    }

    /// Changes the violation at which a function is first reported.
    pub fn set_cpu_intensive_warning_thresh(&self, violations: u64) {
        self.hogs.warning_threshold.store(violations, Ordering::Relaxed);
    }
}

impl<H: Host> Pool<H> {
    fn count_hog_out(&self, engine: &Engine<H>, id: u32, run: u64, used_ns: u64) {
        let Some(function) = count_out(engine, id, run, NotRunning::Hog) else { return };
        // A pool that is not confined is the right place for long computations: no report.
        if let Some(function) = function.filter(|_| self.spec().confined)
            && let Some(count) = engine.hogs.note(function)
        {
            // SAFETY: a slot gets functions from items only.
            let Function { address, name } = unsafe { Function::at(function) };
            engine.caller().report(Report::CpuIntensive {
                function: address,
                name,
                count,
                used_ns,
            });
        }
    }
}

impl Hogs {
    /// Measures the runs of a pool in which something waits, and counts hogs out. Returns when to
    /// measure again.
    pub(crate) fn find<H: Host>(
        &self,
        engine: &Engine<H>,
        pool: &Pool<H>,
        runs: &mut Runs,
        now: u64,
    ) -> u64 {
        let threshold = engine.cpu_intensive_thresh();
        if threshold == 0 {
            return NEVER;
        }
        let workers = pool.list_workers();
        if !pool.spec().confined
            && !may_replace_hog(Survey::of(engine).computing(&workers), pool.base_target())
        {
            // As many as twice the target compute: the CPUs are busy, and more workers would not
            // help.
            return NEVER;
        }
        let mut next = NEVER;
        for id in workers {
            let slot = engine.slot(id);
            let Some(run) = slot.present_run() else {
                runs.remove(&id);
                continue;
            };
            if slot.not_running() != NotRunning::No {
                continue;
            }
            let thread = slot.thread();
            let Some(cpu_ns) = engine.observer().cpu_time(thread) else { continue };
            let met = match runs.get(&id) {
                Some(&(known, met)) if known == run => met,
                _ => {
                    runs.insert(id, (run, cpu_ns));
                    cpu_ns
                }
            };
            let used = cpu_ns.saturating_sub(met);
            if used < threshold {
                // A thread just below the threshold may wait for a CPU: the watcher polls it no more often than this.
                next = next.min(now.saturating_add((threshold - used).max(POLL_MIN_NS)));
            } else {
                pool.count_hog_out(engine, id, run, used);
            }
        }
        next
    }
}

impl<'a, H: Host> Survey<'a, H> {
    /// How many of these workers are in an item, and neither in a declared wait nor found asleep.
    fn computing(self, workers: &[u32]) -> u32 {
        let computes = |&&id: &&u32| self.engine.slot(id).computes() && !self.is_sleeping_hog(id);
        workers.iter().filter(computes).count() as u32
    }

    /// Whether a worker that computed for too long sleeps now. It does not count as running, so the
    /// watcher takes no samples of it: query the system.
    fn is_sleeping_hog(self, id: u32) -> bool {
        let slot = self.engine.slot(id);
        self.engine.observer().tier() != Tier::Declared
            && slot.not_running() == NotRunning::Hog
            && {
                let thread = slot.thread();
                matches!(self.engine.observer().activity(thread), Some(Activity::Sleeps { .. }))
            }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hog_reports_back_off_and_stop_when_the_table_is_full() {
        let hogs = Hogs::new();
        let reported: Vec<u64> = (0..40).filter_map(|_| hogs.note(7)).collect();
        assert_eq!(reported, [4, 5, 7, 11, 19, 35]);
        for function in 8..8 + FUNCTIONS_MAX {
            let _ = hogs.note(function);
        }
        assert_eq!(hogs.functions.lock().len(), FUNCTIONS_MAX);
        assert_eq!((0..40).filter_map(|_| hogs.note(1_000)).count(), 0);
        hogs.warning_threshold.store(0, Ordering::Relaxed);
        assert_eq!((0..40).filter_map(|_| hogs.note(7)).count(), 0);
    }
}
