//! The jobs: what each does follows from its number, which is its payload and its id.

use std::time::Duration;

/// Where a job is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The server with a log, whose clock steps.
    Plain,
    /// The cluster, whose masters die.
    Cluster,
}

pub(super) const SIDES: [Side; 2] = [Side::Plain, Side::Cluster];

/// What a job leaves on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    /// Its effect: a count in a hash.
    First,
    /// A second count, in the same script.
    Second,
    /// An entry in the stream of results.
    Result,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Returns after this time.
    Plain(Duration),
    /// Fails in this number of attempts. Of the default 5 the last one may be left.
    Fails(u32),
    /// Is pushed with a delay.
    Delayed,
    /// Kills its consumer in each attempt.
    Poison,
}

/// Jobs with a poisonous one among them.
const POISON_EVERY: u64 = 50_000;
const POISON_MAX: u64 = 10;

/// All jobs of a torture.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Jobs {
    pub(super) count: u64,
}

impl Side {
    /// The side of a consumer. They take turns.
    pub(super) fn of_consumer(consumer: usize) -> Side {
        SIDES[consumer % 2]
    }
}

impl Jobs {
    pub(super) fn side(job: u64) -> Side {
        SIDES[(job % 2) as usize]
    }

    pub(super) fn of(side: Side, count: u64) -> impl Iterator<Item = u64> {
        (0..count).filter(move |&job| Jobs::side(job) == side)
    }

    /// The number of poisonous jobs: half of them on each side. None in a small torture, since each
    /// takes seven heartbeats.
    pub(super) fn poison(self) -> u64 {
        match self.count {
            ..10_000 => 0,
            count => (count / POISON_EVERY).clamp(2, POISON_MAX),
        }
    }

    /// Whether a job leaves this on its server. Those that leave nothing are acknowledged in another
    /// script.
    pub(super) fn has(job: u64, trace: Trace) -> bool {
        let nth = job / 2;
        match trace {
            Trace::First => nth % 4 != 3,
            Trace::Second => nth % 16 == 8,
            Trace::Result => matches!(nth % 16, 9 | 11),
        }
    }

    /// How often a job leaves this on its server, whatever runs it has had.
    pub(super) fn traces(self, job: u64, trace: Trace) -> u64 {
        u64::from(Jobs::has(job, trace) && self.kind(job) != Kind::Poison)
    }

    pub(super) fn kind(self, job: u64) -> Kind {
        // Evenly over the first half, so that all are dead letters soon after the end of the time. The
        // distance is even, so the remainder chooses the side.
        let every = (self.count / 4 / self.poison().max(1)).max(1) * 2;
        let nth = job / every;
        if nth < self.poison() && job == nth * every + nth % 2 {
            return Kind::Poison;
        }
        match job % 1000 {
            // Consumers are killed while these run, more than once.
            10 | 11 if (job / 1000).is_multiple_of(8) => {
                Kind::Plain(Duration::from_secs(1 + job / 8000 % 3))
            }
            10 | 11 => Kind::Plain(Duration::from_millis(200)),
            12..16 => Kind::Delayed,
            16..20 => Kind::Fails(1),
            20..24 => Kind::Fails(4),
            // While these run, others are fetched and wait.
            100..150 => Kind::Plain(Duration::from_millis(20)),
            _ => Kind::Plain(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poisonous_jobs_are_as_many_as_stated_and_half_on_each_side() {
        for count in [1_000, 20_000, 50_000, 123_457, 1_000_000] {
            let jobs = Jobs { count };
            let poison = |side| {
                Jobs::of(side, count).filter(|&job| jobs.kind(job) == Kind::Poison).count() as u64
            };
            assert_eq!(poison(Side::Plain) + poison(Side::Cluster), jobs.poison(), "{count}");
            assert!(poison(Side::Plain).abs_diff(poison(Side::Cluster)) <= 1, "{count}");
        }
    }
}
