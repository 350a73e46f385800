//! When each CPU is busy, from the record of a run.

use std::collections::BTreeMap;

use crate::machine::ThreadId;
use crate::tape::{Entry, Tape, What};

/// A period, in nanoseconds; the end is not part of it.
pub type Span = (u64, u64);

/// The busy periods of each CPU, with at least one wake in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// For each CPU, in order and apart from each other. A period without length is a wake for which
    /// the record has no work.
    cpus: Vec<Vec<Span>>,
    /// The whole period that is observed.
    whole: Span,
}

impl Activity {
    /// The busy periods of `cpus` CPUs between two times.
    ///
    /// A thread that wakes and computes nothing makes its CPU busy for no time: the model charges
    /// the wake.
    #[must_use]
    pub fn of(tape: &Tape, cpus: usize, whole: Span) -> Activity {
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); cpus];
        // The last period of each thread, which an eviction cuts, and the threads that have woken
        // and done nothing since.
        let mut burning: BTreeMap<ThreadId, (usize, usize)> = BTreeMap::new();
        let mut woken: BTreeMap<ThreadId, ()> = BTreeMap::new();
        for Entry { at, thread, cpu, what } in tape.entries() {
            let cpu = *cpu as usize;
            match what {
                What::Unparked => {
                    woken.insert(*thread, ());
                    continue;
                }
                What::Burns(ns) => {
                    burning.insert(*thread, (cpu, spans[cpu].len()));
                    spans[cpu].push((*at, at + ns));
                }
                What::Evicted => {
                    if let Some((cpu, index)) = burning.remove(thread) {
                        spans[cpu][index].1 = *at;
                    }
                }
                _ if woken.contains_key(thread) => spans[cpu].push((*at, *at)),
                _ => {}
            }
            woken.remove(thread);
        }
        let cpus = spans.into_iter().map(|spans| merged(spans, whole)).collect();
        Activity { cpus, whole }
    }

    /// The busy periods of a CPU.
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> &[Span] {
        &self.cpus[cpu]
    }

    /// The period that is observed.
    #[must_use]
    pub fn whole(&self) -> Span {
        self.whole
    }

    /// The same, with each busy period of CPU `n` longer by `overhead(n)`: the work of a wake.
    #[must_use]
    pub fn with_overhead(&self, overhead: impl Fn(usize) -> u64) -> Activity {
        let longer = |(cpu, spans): (usize, &Vec<Span>)| {
            let longer = spans.iter().map(|&(from, to)| (from, to + overhead(cpu))).collect();
            merged(longer, self.whole)
        };
        Activity { cpus: self.cpus.iter().enumerate().map(longer).collect(), whole: self.whole }
    }
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
        let longer = activity.with_overhead(|cpu| 4 * cpu as u64);
        assert_eq!(longer.of_cpu(1), [(12, 16), (20, 29)]);
    }

    #[test]
    fn what_lies_outside_is_cut_off() {
        assert_eq!(merged(vec![(0, 20), (90, 200), (5, 5)], (10, 100)), [(10, 20), (90, 100)]);
        assert_eq!(gaps(&[(10, 20), (90, 100)], (10, 100)), [(20, 90)]);
        assert_eq!(length(&[(20, 90)]), 70);
    }
}
