//! The cases: the streams of arrivals, and what their items demand.

use std::time::Duration;

/// The names of the cases, in the order in which they run.
pub(super) const ALL: [&str; 8] =
    ["bimodal-30", "bimodal-60", "bimodal-80", "heavy-60", "uniform-60", SLEEPS, BURST, MIXED];
/// The case in which items block.
pub(super) const SLEEPS: &str = "sleep-40";
const BURST: &str = "burst";
const MIXED: &str = "mixed";

/// What an item does: it computes, then sleeps without a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) compute: Duration,
    pub(super) sleep: Duration,
}

impl Demand {
    const fn compute_us(us: u64) -> Self {
        Self { compute: Duration::from_micros(us), sleep: Duration::ZERO }
    }

    const fn sleep_us(us: u64) -> Self {
        Self { compute: Duration::ZERO, sleep: Duration::from_micros(us) }
    }

    /// The time for which the item occupies a worker.
    fn total(self) -> Duration {
        self.compute + self.sleep
    }
}

/// Short items with some long ones among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) short: Demand,
    pub(super) long: Demand,
    /// Long items among 100.
    pub(super) long_percent: u64,
}

impl Mix {
    const fn of(short: Demand, long: Demand) -> Self {
        Self { short, long, long_percent: 5 }
    }

    const fn uniform(demand: Demand) -> Self {
        Self { short: demand, long: demand, long_percent: 0 }
    }

    fn mean_s(&self) -> f64 {
        let long = self.long_percent as f64 / 100.0;
        self.short.total().as_secs_f64() * (1.0 - long) + self.long.total().as_secs_f64() * long
    }
}

/// When items arrive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// At random and independently of each other. `percent` is the share of the time of as many
    /// workers as CPUs that the items occupy. A sleep counts, although it leaves the CPU free.
    Poisson { percent: u32 },
    /// This many at once, again and again.
    Bursts { size: usize, every: Duration },
}

/// The items of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) mix: Mix,
    pub(super) pattern: Pattern,
    /// Whether the items go to the second queue, whose items are latency-critical.
    pub(super) critical: bool,
}

impl Stream {
    const fn poisson(mix: Mix, percent: u32) -> Self {
        Self { mix, pattern: Pattern::Poisson { percent }, critical: false }
    }

    /// Arrivals per second on this many CPUs.
    pub(super) fn per_second(&self, cpus: usize) -> f64 {
        match self.pattern {
            Pattern::Poisson { percent } => {
                f64::from(percent) / 100.0 * cpus as f64 / self.mix.mean_s()
            }
            Pattern::Bursts { size, every } => size as f64 / every.as_secs_f64(),
        }
    }
}

/// The streams of a case.
pub(super) fn streams(case: &str) -> Vec<Stream> {
    const SHORT: Demand = Demand::compute_us(20);
    const BIMODAL: Mix = Mix::of(SHORT, Demand::compute_us(500));
    let stream = match case {
        "bimodal-30" => Stream::poisson(BIMODAL, 30),
        "bimodal-60" => Stream::poisson(BIMODAL, 60),
        "bimodal-80" => Stream::poisson(BIMODAL, 80),
        "heavy-60" => Stream::poisson(Mix::of(SHORT, Demand::compute_us(3_000)), 60),
        "uniform-60" => Stream::poisson(Mix::uniform(Demand::compute_us(100)), 60),
        SLEEPS => Stream::poisson(Mix::of(SHORT, Demand::sleep_us(1_000)), 40),
        BURST => Stream {
            mix: Mix::uniform(SHORT),
            pattern: Pattern::Bursts { size: 100, every: Duration::from_millis(10) },
            critical: false,
        },
        _ => {
            let critical = Stream::poisson(Mix::uniform(SHORT), 10);
            return vec![Stream::poisson(BIMODAL, 50), Stream { critical: true, ..critical }];
        }
    };
    vec![stream]
}

/// The description above the table.
pub(super) fn about(case: &str, cpus: usize) -> String {
    let streams = streams(case);
    let described = streams.iter().map(|stream| {
        let queue = if stream.critical { "; latency-critical: " } else { "" };
        format!("{queue}{}", describe(stream, cpus))
    });
    described.collect()
}

fn describe(stream: &Stream, cpus: usize) -> String {
    let Mix { short, long, long_percent } = stream.mix;
    let demand = |demand: Demand| match demand.sleep.as_micros() {
        0 => format!("compute for {} us", demand.compute.as_micros()),
        us => format!("sleep for {us} us"),
    };
    let items = match long_percent {
        0 => format!("items {}", demand(short)),
        _ => format!(
            "{} % of the items {}, {long_percent} % {}",
            100 - long_percent,
            demand(short),
            demand(long)
        ),
    };
    let arrivals = match stream.pattern {
        Pattern::Poisson { percent } => {
            format!("{:.0} arrivals/s, load {percent} %", stream.per_second(cpus))
        }
        Pattern::Bursts { size, every } => {
            format!("{size} arrive at once every {} ms", every.as_millis())
        }
    };
    format!("{items}, {arrivals}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_shares_of_the_time_of_as_many_workers_as_cpus() {
        let rates = |cpus| -> Vec<u64> {
            let first = ALL.map(|case| streams(case)[0].per_second(cpus).round() as u64);
            first.to_vec()
        };
        // The mean times of the items are 44, 44, 44, 169, 100, 69, 20 and 44 us.
        assert_eq!(rates(2), [13_636, 27_273, 36_364, 7_101, 12_000, 11_594, 10_000, 22_727]);
        assert_eq!(rates(4)[0], 27_273);
    }

    #[test]
    fn a_description_names_what_items_do_and_when_they_arrive() {
        assert_eq!(
            about("sleep-40", 2),
            "95 % of the items compute for 20 us, 5 % sleep for 1000 us, 11594 arrivals/s, load 40 %"
        );
        assert_eq!(about("burst", 2), "items compute for 20 us, 100 arrive at once every 10 ms");
        assert!(about(MIXED, 2).contains("; latency-critical: items compute for 20 us, 10000 arr"));
    }
}
