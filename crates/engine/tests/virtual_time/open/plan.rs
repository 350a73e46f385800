//! Planned arrivals of an open loop, and the sojourn times in a perfect queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::chance::Chance;
use crate::setup::{MS, US};

/// The run times of the items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) short_ns: u64,
    pub(super) long_ns: u64,
    /// One item in this many is long. 0: none.
    pub(super) long_one_in: u64,
    /// How long an item sleeps, undeclared, after it has computed, and how many items do: one in this
    /// many. 0: none.
    pub(super) doze_ns: u64,
    pub(super) doze_one_in: u64,
}

impl Mix {
    pub(super) const BIMODAL: Mix = Mix::computing(20 * US, 500 * US, 20);
    pub(super) const HEAVY: Mix = Mix::computing(20 * US, 3 * MS, 20);
    pub(super) const UNIFORM: Mix = Mix::computing(100 * US, 0, 0);
    pub(super) const RARELY_LONG: Mix = Mix::computing(20 * US, 3 * MS, 500);
    pub(super) const DOZING: Mix = Mix { doze_ns: 20 * MS, doze_one_in: 200, ..Mix::UNIFORM };
    pub(super) const ALL: [Mix; 4] = [Mix::BIMODAL, Mix::HEAVY, Mix::UNIFORM, Mix::RARELY_LONG];

    const fn computing(short_ns: u64, long_ns: u64, long_one_in: u64) -> Mix {
        Mix { short_ns, long_ns, long_one_in, doze_ns: 0, doze_one_in: 0 }
    }

    fn draw(self, chance: &mut Chance, at: u64) -> Arrival {
        let run_ns = if chance.one_in(self.long_one_in) { self.long_ns } else { self.short_ns };
        let doze_ns = if chance.one_in(self.doze_one_in) { self.doze_ns } else { 0 };
        Arrival { at, run_ns, doze_ns }
    }

    fn mean_ns(self) -> u64 {
        let more = self.long_ns.saturating_sub(self.short_ns);
        self.short_ns + more.checked_div(self.long_one_in).unwrap_or(0)
    }
}

/// When the items arrive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// At random and independently of each other. The items occupy this share of the CPUs' time.
    Poisson { percent: u64 },
    /// This many at once, so often that they occupy this share of the CPUs' time.
    Bursts { size: u64, percent: u64 },
}

/// An arrival: when, how long the item computes, and how long it then sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: u64,
    pub(super) run_ns: u64,
    pub(super) doze_ns: u64,
}

/// Draws this many arrivals for this many CPUs, in the order of time.
pub(super) fn arrivals(
    chance: &mut Chance,
    mix: Mix,
    pattern: Pattern,
    cpus: u64,
    count: usize,
) -> Vec<Arrival> {
    let (size, percent) = match pattern {
        Pattern::Poisson { percent } => (1, percent),
        Pattern::Bursts { size, percent } => (size, percent),
    };
    let gap = mix.mean_ns() * size * 100 / (percent * cpus);
    let mut at = MS;
    let mut arrivals = Vec::with_capacity(count);
    while arrivals.len() < count {
        at += match pattern {
            Pattern::Poisson { .. } => exponential(chance, gap),
            Pattern::Bursts { .. } => gap,
        };
        arrivals.extend((0..size).map(|_| mix.draw(chance, at)));
    }
    arrivals
}

/// An exponentially distributed number with this mean.
fn exponential(chance: &mut Chance, mean: u64) -> u64 {
    const STEPS: u64 = 1 << 53;
    let uniform = (chance.below(STEPS) + 1) as f64 / STEPS as f64;
    (-uniform.ln() * mean as f64) as u64
}

/// The sojourn times of these arrivals in a single queue, first come, first served, with this many
/// servers and no cost.
pub(super) fn perfect(arrivals: &[Arrival], servers: u64) -> Vec<u64> {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let sojourn = |arrival: &Arrival| {
        let Reverse(free) = free_at.pop().expect("at least one server");
        let ends = free.max(arrival.at) + arrival.run_ns;
        free_at.push(Reverse(ends));
        ends - arrival.at
    };
    arrivals.iter().map(sojourn).collect()
}

/// The value that `percent` of the times do not exceed.
pub(super) fn percentile(times: &[u64], percent: usize) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) * percent / 100]
}

#[test]
fn a_perfect_queue_serves_in_order_on_all_servers() {
    let arrival = |at, run_ns| Arrival { at, run_ns, doze_ns: 0 };
    let all = [arrival(0, 100), arrival(10, 20), arrival(15, 30), arrival(16, 1), arrival(500, 7)];
    assert_eq!(perfect(&all, 2), [100, 20, 45, 45, 7]);
    assert_eq!(perfect(&all, 1), [100, 110, 135, 135, 7]);
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
