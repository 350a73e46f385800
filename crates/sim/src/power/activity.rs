//! When each CPU is busy, wakes, and runs items, from the record of a run.

use std::collections::BTreeMap;

use crate::machine::ThreadId;
use crate::tape::{Entry, Tape, What};

/// A period, in nanoseconds; the end is not part of it.
pub type Span = (u64, u64);

/// What a CPU does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cpu {
    /// Its busy periods, in order and apart from each other. A period without length is a wake for
    /// which the record has no work.
    busy: Vec<Span>,
    /// When a thread woke here, in order.
    wakes: Vec<u64>,
    /// When an item started here, in order.
    runs: Vec<u64>,
}

/// What each CPU does, with at least one wake in each busy period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    cpus: Vec<Cpu>,
    /// The whole period that is observed.
    whole: Span,
}

/// Work that the record lacks, because instructions take no time: nanoseconds of a CPU of capacity
/// 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Of a thread that wakes.
    pub wake_ns: u64,
    /// Of an item that is run.
    pub run_ns: u64,
}

impl Activity {
    /// The busy periods of `cpus` CPUs between two times.
    ///
    /// A thread that wakes and computes nothing makes its CPU busy for no time: the model charges
    /// the wake.
    #[must_use]
    pub fn of(tape: &Tape, cpus: usize, whole: Span) -> Activity {
        let mut cpus = vec![Cpu::default(); cpus];
        // The last period of each thread, which an eviction cuts, and the threads that have woken
        // and done nothing since.
        let mut burning: BTreeMap<ThreadId, (usize, usize)> = BTreeMap::new();
        let mut woken: BTreeMap<ThreadId, ()> = BTreeMap::new();
        for Entry { at, thread, cpu, what } in tape.entries() {
            let at_cpu = *cpu as usize;
            let cpu = &mut cpus[at_cpu];
            if *what == What::Unparked {
                woken.insert(*thread, ());
                continue;
            }
            let wakes = woken.remove(thread).is_some();
            if wakes {
                cpu.wakes.push(*at);
            }
            match what {
                What::Starts(_) => cpu.runs.push(*at),
                What::Burns(ns) => {
                    burning.insert(*thread, (at_cpu, cpu.busy.len()));
                    cpu.busy.push((*at, at + ns));
                    continue;
                }
                What::Evicted => {
                    if let Some((cpu, index)) = burning.remove(thread) {
                        cpus[cpu].busy[index].1 = *at;
                    }
                    continue;
                }
                _ => {}
            }
            if wakes {
                cpu.busy.push((*at, *at));
            }
        }
        for cpu in &mut cpus {
            cpu.busy = merged(std::mem::take(&mut cpu.busy), whole);
        }
        Activity { cpus, whole }
    }

    /// The busy periods of a CPU.
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> &[Span] {
        &self.cpus[cpu].busy
    }

    /// The period that is observed.
    #[must_use]
    pub fn whole(&self) -> Span {
        self.whole
    }

    /// The busy periods of a CPU, each longer by the work of its wakes and runs.
    #[must_use]
    pub fn with_overhead(&self, cpu: usize, overhead: Overhead) -> Vec<Span> {
        let Cpu { busy, wakes, runs } = &self.cpus[cpu];
        let longer = busy.iter().map(|&span| {
            let wakes = within(wakes, span).max(1) * overhead.wake_ns;
            (span.0, span.1 + wakes + within(runs, span) * overhead.run_ns)
        });
        merged(longer.collect(), self.whole)
    }
}

/// How many of these times, which are in order, lie in a period or at its end.
fn within(times: &[u64], (from, to): Span) -> u64 {
    let before = |bound: u64| times.partition_point(|&at| at < bound);
    (before(to + 1) - before(from)) as u64
}

/// The union of periods within the whole, in order. Periods that touch become one.
pub(super) fn merged(mut spans: Vec<Span>, whole: Span) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (from, to) in spans {
        if from >= whole.1 || to < whole.0 {
            continue;
        }
        let (from, to) = (from.max(whole.0), to.min(whole.1));
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// The periods between these, which are in order, within the whole.
pub(super) fn gaps(spans: &[Span], whole: Span) -> Vec<Span> {
    let ends = std::iter::once(whole.0).chain(spans.iter().map(|span| span.1));
    let begins = spans.iter().map(|span| span.0).chain([whole.1]);
    ends.zip(begins).filter(|(from, to)| from < to).collect()
}

/// The length of these periods together.
pub(super) fn length(spans: &[Span]) -> u64 {
    spans.iter().map(|(from, to)| to - from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_thread_is_busy_until_the_eviction_and_again_later() {
        let mut tape = Tape::default();
        tape.push(100, 1, 0, What::Burns(50));
        tape.push(120, 1, 0, What::Evicted);
        tape.push(120, 2, 0, What::Burns(10));
        tape.push(200, 1, 1, What::Burns(30));
        let activity = Activity::of(&tape, 2, (0, 1_000));
        assert_eq!(activity.of_cpu(0), [(100, 130)]);
        assert_eq!(activity.of_cpu(1), [(200, 230)]);
    }

    #[test]
    fn a_wake_without_work_counts_on_the_cpu_where_it_ends() {
        let mut tape = Tape::default();
        tape.push(10, 1, 0, What::Unparked);
        tape.push(12, 1, 1, What::Parks);
        tape.push(20, 1, 1, What::Unparked);
        tape.push(20, 1, 1, What::Burns(5));
        tape.push(25, 1, 1, What::Parks);
        let activity = Activity::of(&tape, 2, (0, 1_000));
        assert_eq!(activity.of_cpu(0), []);
        assert_eq!(activity.of_cpu(1), [(12, 12), (20, 25)]);
        let overhead = Overhead { wake_ns: 4, run_ns: 100 };
        assert_eq!(activity.with_overhead(1, overhead), [(12, 16), (20, 29)]);
    }

    #[test]
    fn each_wake_and_each_run_of_a_busy_period_has_its_overhead() {
        let mut tape = Tape::default();
        for (at, what) in [(10, What::Unparked), (10, What::Starts(0)), (10, What::Burns(20))] {
            tape.push(at, 1, 0, what);
        }
        tape.push(30, 1, 0, What::Starts(1));
        tape.push(25, 2, 0, What::Unparked);
        tape.push(30, 2, 0, What::Burns(5));
        let activity = Activity::of(&tape, 1, (0, 1_000));
        assert_eq!(activity.of_cpu(0), [(10, 35)]);
        let overhead = Overhead { wake_ns: 100, run_ns: 7 };
        assert_eq!(activity.with_overhead(0, overhead), [(10, 35 + 2 * 100 + 2 * 7)]);
    }

    #[test]
    fn what_lies_outside_is_cut_off() {
        assert_eq!(merged(vec![(0, 20), (90, 200), (5, 5)], (10, 100)), [(10, 20), (90, 100)]);
        assert_eq!(gaps(&[(10, 20), (90, 100)], (10, 100)), [(20, 90)]);
        assert_eq!(length(&[(20, 90)]), 70);
    }
}
