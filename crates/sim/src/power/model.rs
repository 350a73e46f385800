//! From busy periods to joules.

use std::ops::Range;

use super::activity::{Activity, Overhead, Span, gaps, length, merged};

/// CPUs with a part in common that is powered for all of them: a cluster, or a package.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// Its name.
    pub name: &'static str,
    /// Its CPUs.
    pub cpus: Range<usize>,
    /// How much slower than capacity 1024 its CPUs are at the chosen frequency.
    pub capacity: u32,
    /// Watts of a CPU, above those of the common part.
    pub cpu_w: Watts,
    /// Watts of the common part. It is active while any CPU is, idle while none is, and asleep if
    /// that lasts.
    pub common_w: Watts,
    /// The shortest sleep of a CPU that is worth it, in nanoseconds.
    pub cpu_sleep_ns: u64,
    /// The same for the common part.
    pub common_sleep_ns: u64,
    /// The energy of a CPU that enters its sleep and leaves it, in joules.
    pub cpu_wake_j: f64,
    /// The same for the common part.
    pub common_wake_j: f64,
}

/// Power in three states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watts {
    /// Executes instructions.
    pub active: f64,
    /// Idle, and ready at once.
    pub idle: f64,
    /// In the deep state.
    pub asleep: f64,
}

/// The energy of a domain in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Energy {
    /// Joules in all.
    pub joules: f64,
    /// Those while a CPU of the domain is active.
    pub active_j: f64,
    /// Those of leaving deep states.
    pub wake_j: f64,
    /// How often a CPU became busy.
    pub wakes: usize,
    /// The part of the time in which the common part was asleep.
    pub asleep: f64,
}

impl Domain {
    /// The energy of this domain, if each wake and each run take so much work.
    #[must_use]
    pub fn energy(&self, activity: &Activity, work: Overhead) -> Energy {
        let overhead =
            Overhead { wake_ns: self.time_of(work.wake_ns), run_ns: self.time_of(work.run_ns) };
        let whole = activity.whole();
        let mut energy = Energy::default();
        let mut any: Vec<Span> = Vec::new();
        for cpu in self.cpus.clone() {
            let busy = activity.with_overhead(cpu, overhead);
            energy.wakes += busy.len();
            energy.add(&busy, whole, self.cpu_w, self.cpu_sleep_ns, self.cpu_wake_j);
            any.extend(busy);
        }
        let any = merged(any, whole);
        let asleep_ns =
            energy.add(&any, whole, self.common_w, self.common_sleep_ns, self.common_wake_j);
        energy.asleep = asleep_ns as f64 / (whole.1 - whole.0) as f64;
        energy
    }

    /// How long a CPU of this domain needs for work that takes so long at capacity 1024.
    #[must_use]
    pub fn time_of(&self, work_ns: u64) -> u64 {
        work_ns * 1024 / u64::from(self.capacity)
    }
}

impl Energy {
    /// Adds a part that is busy at these times. Returns how long it is asleep.
    fn add(&mut self, busy: &[Span], whole: Span, watts: Watts, sleep_ns: u64, wake_j: f64) -> u64 {
        let (deep, shallow): (Vec<Span>, Vec<Span>) =
            gaps(busy, whole).into_iter().partition(|(from, to)| to - from >= sleep_ns);
        let joules = |watts: f64, ns: u64| watts * ns as f64 / 1e9;
        let active_j = joules(watts.active, length(busy));
        let woken_j = wake_j * deep.len() as f64;
        self.active_j += active_j;
        self.wake_j += woken_j;
        self.joules += active_j
            + woken_j
            + joules(watts.idle, length(&shallow))
            + joules(watts.asleep, length(&deep));
        length(&deep)
    }
}

/// The energy at which a sleep of `least_ns` costs as much as staying idle: that of a wake, by the
/// definition of the shortest sleep that is worth it.
#[must_use]
pub fn break_even_j(watts: Watts, least_ns: u64) -> f64 {
    (watts.idle - watts.asleep) * least_ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Tape, What};

    const MS: u64 = 1_000_000;
    const NONE: Overhead = Overhead { wake_ns: 0, run_ns: 0 };

    fn domain() -> Domain {
        let common_w = Watts { active: 2.0, idle: 0.5, asleep: 0.1 };
        Domain {
            name: "d",
            cpus: 0..2,
            capacity: 512,
            cpu_w: Watts { active: 1.0, idle: 0.0, asleep: 0.0 },
            common_w,
            cpu_sleep_ns: u64::MAX,
            common_sleep_ns: 100 * MS,
            cpu_wake_j: 0.0,
            common_wake_j: break_even_j(common_w, 100 * MS),
        }
    }

    fn activity(burns: &[(u64, u32, u64)]) -> Activity {
        let mut tape = Tape::default();
        for &(at, cpu, ns) in burns {
            tape.push(at, cpu as usize, cpu, What::Burns(ns));
        }
        Activity::of(&tape, 2, (0, 1_000 * MS))
    }

    fn assert_near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }

    /// One second: 10 ms busy, 50 ms idle, 10 ms busy, the rest asleep.
    #[test]
    fn the_parts_add_up() {
        let domain = domain();
        let energy = domain.energy(&activity(&[(0, 0, 10 * MS), (60 * MS, 0, 10 * MS)]), NONE);
        assert_near(energy.active_j, 0.02 * 3.0);
        assert_near(energy.wake_j, 0.04);
        assert_near(energy.joules, 0.02 * 3.0 + 0.05 * 0.5 + 0.93 * 0.1 + 0.04);
        assert_near(energy.asleep, 0.93);
        assert_eq!(energy.wakes, 2);
    }

    #[test]
    fn cpus_that_are_busy_together_share_the_common_part() {
        let domain = domain();
        let apart = domain.energy(&activity(&[(0, 0, 10 * MS), (10 * MS, 1, 10 * MS)]), NONE);
        let together = domain.energy(&activity(&[(0, 0, 10 * MS), (0, 1, 10 * MS)]), NONE);
        assert_near(apart.joules - together.joules, 0.01 * (2.0 - 0.1));
    }

    #[test]
    fn a_wake_costs_its_work_on_a_slow_cpu() {
        let domain = domain();
        assert_eq!(domain.time_of(MS), 2 * MS);
        let none = domain.energy(&activity(&[(0, 0, 0)]), NONE);
        let some = domain.energy(&activity(&[(0, 0, 0)]), Overhead { wake_ns: MS, run_ns: MS });
        assert_near(some.joules - none.joules, 0.002 * (3.0 - 0.1));
    }

    #[test]
    fn a_sleep_of_the_least_length_saves_nothing() {
        let domain = domain();
        let asleep = domain.energy(&activity(&[(0, 0, 450 * MS), (550 * MS, 0, 450 * MS)]), NONE);
        let awake = Domain { common_sleep_ns: u64::MAX, ..domain };
        let awake = awake.energy(&activity(&[(0, 0, 450 * MS), (550 * MS, 0, 450 * MS)]), NONE);
        assert_near(asleep.joules, awake.joules);
    }
}
