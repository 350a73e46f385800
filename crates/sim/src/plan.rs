//! Planned arrivals of an open loop, and the sojourn times in a perfect queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::chance::Chance;
use crate::setup::{MS, US};

/// The run times of the items.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    short_ns: u64,
    long_ns: u64,
    /// One item in this many is long. 0: none.
    long_one_in: u64,
    /// How long an item sleeps, undeclared, after it has computed, and how many items do: one in this
    /// many. 0: none.
    doze_ns: u64,
    doze_one_in: u64,
}

impl Mix {
    /// Short items, and a few that take 25 times as long.
    pub const BIMODAL: Mix = Mix::computing(20 * US, 500 * US, 20);
    /// Short items, and a few that take 150 times as long.
    pub const HEAVY: Mix = Mix::computing(20 * US, 3 * MS, 20);
    /// Items that all take 100 us.
    pub const UNIFORM: Mix = Mix::alike(100 * US);
    /// Short items, and very few that take 150 times as long.
    pub const RARELY_LONG: Mix = Mix::computing(20 * US, 3 * MS, 500);
    /// As `UNIFORM`, and a few sleep.
    pub const DOZING: Mix = Mix { doze_ns: 20 * MS, doze_one_in: 200, ..Mix::UNIFORM };
    /// Those of which no item sleeps.
    pub const ALL: [Mix; 4] = [Mix::BIMODAL, Mix::HEAVY, Mix::UNIFORM, Mix::RARELY_LONG];

    /// Items that all compute for this time.
    #[must_use]
    pub const fn alike(run_ns: u64) -> Mix {
        Mix::computing(run_ns, 0, 0)
    }

    const fn computing(short_ns: u64, long_ns: u64, long_one_in: u64) -> Mix {
        Mix { short_ns, long_ns, long_one_in, doze_ns: 0, doze_one_in: 0 }
    }

    fn draw(self, chance: &mut Chance, at: u64) -> Arrival {
        let run_ns = if chance.one_in(self.long_one_in) { self.long_ns } else { self.short_ns };
        let doze_ns = if chance.one_in(self.doze_one_in) { self.doze_ns } else { 0 };
        Arrival { at, run_ns, doze_ns }
    }

    /// How long an item computes on average.
    #[must_use]
    pub fn mean_ns(self) -> u64 {
        let more = self.long_ns.saturating_sub(self.short_ns);
        self.short_ns + more.checked_div(self.long_one_in).unwrap_or(0)
    }
}

/// When the items arrive.
#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// At random and independently of each other.
    Poisson {
        /// The share of the CPUs' time that the items occupy.
        percent: u64,
    },
    /// Several at once.
    Bursts {
        /// How many.
        size: u64,
        /// The share of the CPUs' time that the items occupy.
        percent: u64,
    },
}

/// An arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When, in nanoseconds.
    pub at: u64,
    /// How long the item computes.
    pub run_ns: u64,
    /// How long it then sleeps.
    pub doze_ns: u64,
}

/// Draws this many arrivals for this many CPUs, in the order of time.
pub fn arrivals(
    chance: &mut Chance,
    mix: Mix,
    pattern: Pattern,
    cpus: u64,
    count: usize,
) -> Vec<Arrival> {
    let gap = |size, percent| mix.mean_ns() * size * 100 / (percent * cpus);
    match pattern {
        Pattern::Poisson { percent } => poisson(chance, mix, (MS, gap(1, percent)), count),
        Pattern::Bursts { size, percent } => {
            let mut arrivals = Vec::with_capacity(count);
            for burst in 1..=(count as u64).div_ceil(size) {
                let at = MS + burst * gap(size, percent);
                arrivals.extend((0..size).map(|_| mix.draw(chance, at)));
            }
            arrivals
        }
    }
}

/// Draws this many arrivals at random, from `start` on and `gap` apart on average.
pub fn poisson(
    chance: &mut Chance,
    mix: Mix,
    (start, gap): (u64, u64),
    count: usize,
) -> Vec<Arrival> {
    let mut at = start;
    let arrive = |_| {
        at += exponential(chance, gap);
        mix.draw(chance, at)
    };
    (0..count).map(arrive).collect()
}

/// An exponentially distributed number with this mean.
fn exponential(chance: &mut Chance, mean: u64) -> u64 {
    const STEPS: u64 = 1 << 53;
    let uniform = (chance.below(STEPS) + 1) as f64 / STEPS as f64;
    (-uniform.ln() * mean as f64) as u64
}

/// The sojourn times of these arrivals in a single queue, first come, first served. An item computes
/// on one of this many servers, and a server that idles needs `wake_ns` to begin.
///
/// # Panics
/// There is no server.
#[must_use]
pub fn perfect(arrivals: &[Arrival], servers: usize, wake_ns: u64) -> Vec<u64> {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let sojourn = |arrival: &Arrival| {
        let Reverse(free) = free_at.pop().expect("at least one server");
        let begins = if free > arrival.at { free } else { arrival.at + wake_ns };
        let ends = begins + arrival.run_ns;
        free_at.push(Reverse(ends));
        ends - arrival.at
    };
    arrivals.iter().map(sojourn).collect()
}

/// The value that `percent` of the times do not exceed.
///
/// # Panics
/// There are no times.
#[must_use]
pub fn percentile(times: &[u64], percent: usize) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) * percent / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_queue_serves_in_order_on_all_servers() {
        let arrival = |at, run_ns| Arrival { at, run_ns, doze_ns: 0 };
        let all =
            [arrival(0, 100), arrival(10, 20), arrival(15, 30), arrival(16, 1), arrival(500, 7)];
        assert_eq!(perfect(&all, 2, 0), [100, 20, 45, 45, 7]);
        assert_eq!(perfect(&all, 1, 0), [100, 110, 135, 135, 7]);
        // Only servers that idle are woken.
        assert_eq!(perfect(&all, 2, 5), [105, 25, 50, 50, 12]);
    }

    #[test]
    fn arrivals_bring_the_load_that_was_asked_for() {
        for mix in Mix::ALL {
            let poisson = Pattern::Poisson { percent: 60 };
            let all = arrivals(&mut Chance::new(7), mix, poisson, 16, 200_000);
            let work: u64 = all.iter().map(|arrival| arrival.run_ns).sum();
            let percent = work * 100 / (all[all.len() - 1].at * 16);
            assert!((54..=66).contains(&percent), "{mix:?}: {percent} %");
        }
    }

    #[test]
    fn the_percentile_of_one_time_is_that_time() {
        assert_eq!([1, 50, 99].map(|percent| percentile(&[7], percent)), [7; 3]);
        assert_eq!([50, 90, 99].map(|percent| percentile(&[3, 1, 2], percent)), [2, 2, 2]);
    }
}
