//! The variants of each case, and their targets.

use std::time::Duration;

use super::lateness::Tries;
use crate::UserError;
use crate::bench::measured::{again, output_of};
use crate::bench::uwork_pool::RUNNER;

pub(super) const TIMER_SLEEP: &str = "timer-sleep";
pub(super) const TIMER_COMPUTE: &str = "timer-compute";
pub(super) const READY: &str = "ready-after-wait";
pub(super) const CASES: [&str; 3] = [TIMER_SLEEP, TIMER_COMPUTE, READY];

pub(super) const DECLARED: &str = "declared";
pub(super) const TIERS: [&str; 4] = [DECLARED, "standby", "events", "sampling"];
pub(super) const CPUS: [(&str, usize); 2] = [("1", 1), ("2", 2)];

/// Tries of each variant.
pub(super) const SAMPLES: usize = 1_000;
/// A try leaves the pool with one more worker, because a woken worker creates the next one. A new
/// process starts with one worker.
const TRIES_OF_A_CHILD: usize = 20;

/// Maximum lateness if a CPU is free for the item.
const LATE_MAX: Duration = Duration::from_millis(5);
/// The time after which an item counts as a hog and no longer keeps other items from running.
const COMPUTES_MAX: Duration = Duration::from_millis(10);

/// The task of a child process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    pub(super) case: String,
    pub(super) tier: String,
    pub(super) cpus: usize,
    /// Whether several workers of the pool are idle when a try begins; otherwise exactly one is.
    pub(super) spare: bool,
    pub(super) samples: usize,
    /// The number of the first try.
    pub(super) first: usize,
}

/// The number of child processes that each variant takes.
pub(super) fn children(samples: usize) -> usize {
    samples.div_ceil(TRIES_OF_A_CHILD)
}

/// The variants of a case.
pub(super) fn orders(case: &str, tiers: &[&str], cpus: &[usize], samples: usize) -> Vec<Order> {
    // In this case the wait of the first item creates a second worker, so a variant with spare
    // workers is pointless.
    let crews: &[bool] = if case == READY { &[false] } else { &[false, true] };
    let mut orders = Vec::new();
    for tier in tiers {
        for &cpus in cpus {
            orders.extend(crews.iter().map(|&spare| {
                let (case, tier) = (case.to_owned(), (*tier).to_owned());
                Order { case, tier, cpus, spare, samples, first: 0 }
            }));
        }
    }
    orders
}

impl Order {
    /// The variant's name in tables and records: `events+2cpu`.
    pub(super) fn variant(&self) -> String {
        let Self { tier, cpus, spare, .. } = self;
        format!("{tier}+{cpus}cpu{}", if *spare { "+spare" } else { "" })
    }

    /// The maximum permitted lateness.
    pub(super) fn target(&self) -> Duration {
        let is_alone = self.case == READY || (self.case == TIMER_COMPUTE && self.cpus == 1);
        if is_alone { COMPUTES_MAX + LATE_MAX } else { LATE_MAX }
    }

    /// Runs a child process for a part of the tries.
    pub(super) fn carry_out(&self, number: usize) -> Result<Tries, UserError> {
        let first = number * TRIES_OF_A_CHILD;
        let samples = TRIES_OF_A_CHILD.min(self.samples - first);
        let mut command = again("progress", &Self { first, samples, ..self.clone() })?;
        command.env("UWORK_BLOCKING", &self.tier);
        let name = format!("{RUNNER} {} ({})", self.variant(), self.case);
        let (printed, said) = output_of(command, &name)?;
        Tries::read(self, &printed, &said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_includes_the_bound_for_computing_only_where_no_cpu_is_free() {
        let targets = |case: &str| -> Vec<(String, u128)> {
            let orders = orders(case, &["events"], &[1, 2], 1);
            orders.iter().map(|order| (order.variant(), order.target().as_millis())).collect()
        };
        let named = |all: &[(&str, u128)]| -> Vec<(String, u128)> {
            all.iter().map(|&(variant, ms)| (variant.to_owned(), ms)).collect()
        };
        let [one, one_spare] = ["events+1cpu", "events+1cpu+spare"];
        let [two, two_spare] = ["events+2cpu", "events+2cpu+spare"];
        assert_eq!(
            targets(TIMER_SLEEP),
            named(&[(one, 5), (one_spare, 5), (two, 5), (two_spare, 5)])
        );
        assert_eq!(
            targets(TIMER_COMPUTE),
            named(&[(one, 15), (one_spare, 15), (two, 5), (two_spare, 5)])
        );
        assert_eq!(targets(READY), named(&[(one, 15), (two, 15)]));
    }
}
