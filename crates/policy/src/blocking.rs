//! How undeclared sleeps of workers are noticed, and when somebody stands in.
//!
//! Times in, a decision out.

use std::fmt;
use std::str::FromStr;

/// How a pool learns that one of its workers sleeps inside an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Only where the item says so: `blocking(..)`, and uwork's own waits.
    Declared,
    /// By the kernel's records of the workers' context switches as well.
    Events,
    /// By looking at the workers' states from time to time as well.
    Sampling,
}

impl Tier {
    /// All of them, in the order in which they are written about.
    pub const ALL: [Tier; 3] = [Tier::Declared, Tier::Events, Tier::Sampling];

    /// Its name, as it is written in `UWORK_BLOCKING`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Declared => "declared",
            Tier::Events => "events",
            Tier::Sampling => "sampling",
        }
    }

    /// What is tried where a platform refuses this one.
    ///
    /// ```
    /// use uwork_policy::blocking::Tier;
    /// assert_eq!(Tier::Events.next(), Some(Tier::Sampling));
    /// assert_eq!(Tier::Sampling.next(), Some(Tier::Declared));
    /// assert_eq!(Tier::Declared.next(), None);
    /// ```
    pub fn next(self) -> Option<Tier> {
        match self {
            Tier::Events => Some(Tier::Sampling),
            Tier::Sampling => Some(Tier::Declared),
            Tier::Declared => None,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTier(pub String);

impl fmt::Display for UnknownTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of declared, events, sampling", self.0)
    }
}

impl std::error::Error for UnknownTier {}

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(text: &str) -> Result<Tier, UnknownTier> {
        let known = Tier::ALL.into_iter().find(|tier| tier.name() == text);
        known.ok_or_else(|| UnknownTier(text.to_owned()))
    }
}

/// What it costs to wake a parked worker, roughly. Sleeps that are over sooner need nobody to stand in.
pub const WAKE_COST_NS: u64 = 50_000;
/// What it costs to make one.
pub const CREATE_COST_NS: u64 = 100_000;
/// However brief sleeps are as a rule, one that lasts for this long is none of them.
pub const PATIENCE_MAX_NS: u64 = 1_000_000;

/// How long a worker must have slept before another one stands in, where sleeps last for `usual_ns` as
/// a rule, and the other one has to be made unless one is idle.
///
/// A sleep that lasts at least four times as long as it takes to replace the sleeper is worth it at
/// once. Shorter ones get twice their usual length to end by themselves: what lasts longer
/// than that is of another kind.
///
/// ```
/// use uwork_policy::blocking::{PATIENCE_MAX_NS, patience_ns};
/// assert_eq!(patience_ns(10_000_000, false), 0);
/// assert_eq!(patience_ns(250_000, true), 0, "a parked worker is woken");
/// assert_eq!(patience_ns(250_000, false), 500_000, "and none is made yet");
/// assert_eq!(patience_ns(20_000, true), 40_000);
/// assert!(patience_ns(400_000, false) <= PATIENCE_MAX_NS);
/// ```
pub fn patience_ns(usual_ns: u64, has_idle: bool) -> u64 {
    let cost = if has_idle { WAKE_COST_NS } else { CREATE_COST_NS };
    if usual_ns >= 4 * cost { 0 } else { (2 * usual_ns).min(PATIENCE_MAX_NS) }
}

/// How long sleeps last as a rule, after one more that lasted for `slept_ns`: an average in which
/// each counts as much as the eight before it.
///
/// ```
/// use uwork_policy::blocking::usual_sleep_ns;
/// assert_eq!(usual_sleep_ns(800, 800), 800);
/// assert_eq!(usual_sleep_ns(800, 0), 700);
/// ```
pub fn usual_sleep_ns(usual_ns: u64, slept_ns: u64) -> u64 {
    usual_ns - usual_ns / 8 + slept_ns / 8
}

/// Runs of a queue's items in a pool, one after the other, that must have been found asleep before the next
/// is presumed to sleep.
pub const PRESUME_AFTER: u32 = 8;

/// Whether a run that took `wall_ns`, `cpu_ns` of it on a CPU, was a sleep: a worker that was counted out
/// from its beginning was missed by nobody.
///
/// ```
/// use uwork_policy::blocking::was_sleep;
/// assert!(was_sleep(10_000_000, 20_000));
/// assert!(!was_sleep(10_000_000, 1_000_000), "it computed for longer than it takes to replace it");
/// assert!(!was_sleep(60_000, 20_000), "it was back before anybody could have come");
/// ```
pub fn was_sleep(wall_ns: u64, cpu_ns: u64) -> bool {
    wall_ns >= 4 * WAKE_COST_NS && cpu_ns <= 2 * WAKE_COST_NS
}

/// The count of runs found asleep after one more run, that was a sleep or was none. Once the next is
/// presumed to sleep, one that does not is an exception, and two in a row are the end of it.
///
/// ```
/// use uwork_policy::blocking::{PRESUME_AFTER, sleepy_after};
/// let sure = (0..100).fold(0, |sleepy, _| sleepy_after(sleepy, true));
/// let once = sleepy_after(sure, false);
/// assert!(once >= PRESUME_AFTER && sleepy_after(once, false) < PRESUME_AFTER);
/// assert_eq!(sleepy_after(PRESUME_AFTER - 1, false), 0);
/// ```
pub fn sleepy_after(sleepy: u32, slept: bool) -> u32 {
    match slept {
        true => (sleepy + 1).min(2 * PRESUME_AFTER - 2),
        false if sleepy < PRESUME_AFTER => 0,
        false => sleepy - PRESUME_AFTER / 2 - 1,
    }
}

/// How many workers one pool may have whose queues' items may run `limits` at once, where the process may
/// have `threads` more, if that is limited: enough for all of those and a spare one for each CPU, and not
/// more than half of the threads.
///
/// The limits of the queues are added up: items of one queue may wait for those of another.
///
/// ```
/// use uwork_policy::blocking::workers_max;
/// assert_eq!(workers_max(256, 2, None), 258);
/// assert_eq!(workers_max(1024, 2, Some(600)), 300);
/// assert_eq!(workers_max(1024, 4, Some(3)), 5, "never less than the pool's CPUs and one");
/// ```
pub fn workers_max(limits: u32, target: u32, threads: Option<u64>) -> u32 {
    let wanted = limits.saturating_add(target);
    let share = threads.map_or(u32::MAX, |threads| u32::try_from(threads / 2).unwrap_or(u32::MAX));
    wanted.min(share).max(target.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for tier in Tier::ALL {
            assert_eq!(tier.to_string().parse(), Ok(tier));
        }
        for wrong in ["", "Events", "event", "events ", "off"] {
            assert_eq!(wrong.parse::<Tier>(), Err(UnknownTier(wrong.to_owned())));
        }
    }

    #[test]
    fn fallbacks_end() {
        for mut tier in Tier::ALL {
            let mut steps = 0;
            while let Some(next) = tier.next() {
                (tier, steps) = (next, steps + 1);
            }
            assert!(tier == Tier::Declared && steps <= 2);
        }
    }

    #[test]
    fn the_average_follows_and_never_overflows() {
        let mut usual = 10_000_000;
        for _ in 0..100 {
            usual = usual_sleep_ns(usual, 1_000);
        }
        assert!(usual < 2_000, "{usual}");
        assert_eq!(usual_sleep_ns(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(patience_ns(u64::MAX, false), 0);
    }
}
