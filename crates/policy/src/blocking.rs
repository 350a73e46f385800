//! How undeclared blocking of workers is detected, and when another worker replaces the blocked
//! one.
//!
//! Times go in, a decision comes out.

use std::fmt;
use std::str::FromStr;

/// How a pool learns that one of its workers is blocked inside an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Only declared blocking: `blocking(..)`, and uwork's own waits.
    Declared,
    /// Also detect blocking by threads of little weight, which run when a worker blocks and leaves its
    /// CPU; and like `Events`, or else `Sampling`, where such a thread does not get its CPU.
    Standby,
    /// Also detect blocking from the kernel's records of the workers' context switches.
    Events,
    /// Also detect blocking by sampling the workers' states.
    Sampling,
}

impl Tier {
    /// All tiers, in the order in which the documents list them.
    pub const ALL: [Tier; 4] = [Tier::Declared, Tier::Standby, Tier::Events, Tier::Sampling];

    /// The tier's name, as it is written in `UWORK_BLOCKING`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Declared => "declared",
            Tier::Standby => "standby",
            Tier::Events => "events",
            Tier::Sampling => "sampling",
        }
    }

    /// The tier to try next where the platform refuses this one.
    /// ```
    /// use uwork_policy::blocking::Tier;
    /// assert_eq!(Tier::Standby.next(), Some(Tier::Events));
    /// assert_eq!(Tier::Events.next(), Some(Tier::Sampling));
    /// assert_eq!(Tier::Sampling.next(), Some(Tier::Declared));
    /// assert_eq!(Tier::Declared.next(), None);
    /// ```
    pub fn next(self) -> Option<Tier> {
        match self {
            Tier::Standby => Some(Tier::Events),
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

/// A text that does not name a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTier(pub String);

impl fmt::Display for UnknownTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of declared, standby, events, sampling", self.0)
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

/// The approximate cost to wake a parked worker. A block that ends sooner needs no replacement
/// worker.
pub const WAKE_COST_NS: u64 = 50_000;
/// The approximate cost to wake a parked worker on the CPU that a block has left idle.
pub const REPLACE_COST_NS: u64 = 25_000;
/// The approximate cost to spawn a worker.
pub const CREATE_COST_NS: u64 = 100_000;
/// How long a worker must have been blocked before another worker replaces it. Blocks usually last
/// for `usual_ns`. `has_idle` says whether an idle worker exists; without one, a worker must be
/// spawned.
///
/// A block that usually lasts at least four times as long as the replacement costs is replaced at
/// once. A shorter one gets twice its usual length to end by itself, but not more than the
/// replacement costs: so waiting and replacing together cost at most twice the better of the two
/// (ski rental: Karlin, Manasse, Rudolph, Sleator, *Competitive snoopy caching*, Algorithmica 1988).
/// ```
/// use uwork_policy::blocking::{CREATE_COST_NS, REPLACE_COST_NS, patience_ns};
/// assert_eq!(patience_ns(10_000_000, false), 0);
/// assert_eq!(patience_ns(250_000, true), 0, "a parked worker is woken");
/// assert_eq!(patience_ns(250_000, false), CREATE_COST_NS, "and none is made yet");
/// assert_eq!(patience_ns(10_000, true), 20_000);
/// assert_eq!(patience_ns(90_000, true), REPLACE_COST_NS);
/// ```
pub fn patience_ns(usual_ns: u64, has_idle: bool) -> u64 {
    let cost = if has_idle { REPLACE_COST_NS } else { CREATE_COST_NS };
    if usual_ns >= 4 * cost { 0 } else { (2 * usual_ns).min(cost) }
}

/// The usual length of a block after one more that lasted for `slept_ns`: a moving average in which
/// the newest block weighs one eighth.
/// ```
/// use uwork_policy::blocking::usual_block_ns;
/// assert_eq!(usual_block_ns(800, 800), 800);
/// assert_eq!(usual_block_ns(800, 0), 700);
/// ```
pub fn usual_block_ns(usual_ns: u64, slept_ns: u64) -> u64 {
    usual_ns - usual_ns / 8 + slept_ns / 8
}

/// The number of consecutive runs of a function, of a queue's items in a pool, that must have been
/// found blocked before the next run is presumed to block.
pub const PRESUME_BLOCKED_AFTER: u32 = 8;

/// The greatest count of consecutive runs that were found blocked.
const BLOCK_SCORE_MAX: u32 = 2 * PRESUME_BLOCKED_AFTER - 2;

/// The number of runs in a row that may be presumed to block without a look at the one presumed
/// last, where all recent runs have blocked. A look is several system calls.
pub const UNVERIFIED_MAX: u32 = 3;

/// Whether one more run is presumed to block without a look at the one presumed last, after
/// `unverified` runs without a look.
/// ```
/// use uwork_policy::blocking::{UNVERIFIED_MAX, block_score_after, trusts_presumption};
/// let sure = (0..100).fold(0, |block_score, _| block_score_after(block_score, true));
/// assert!(trusts_presumption(sure, 0));
/// assert!(!trusts_presumption(sure, UNVERIFIED_MAX));
/// assert!(!trusts_presumption(block_score_after(sure, false), 0), "a recent one has not blocked");
/// ```
pub fn trusts_presumption(block_score: u32, unverified: u32) -> bool {
    block_score >= BLOCK_SCORE_MAX && unverified < UNVERIFIED_MAX
}

/// Presumptions in a row without a verification, at most, where the run presumed last has hardly run
/// yet.
pub const UNDECIDED_MAX: u32 = 8;

/// The run that was last presumed to block, when another one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresumedRun {
    /// Whether it sleeps, or is over.
    pub sleeps: bool,
    /// How long ago it began.
    pub since_ns: u64,
    /// For how long it has had a CPU since then.
    pub cpu_ns: u64,
    /// How many presumptions in a row were not verified.
    pub unverified: u32,
}

/// What the last presumed run says about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presumption {
    /// It blocks: the next one is presumed to block.
    Verified,
    /// It has hardly run yet, so nothing is known: the next one is presumed to block.
    Undecided,
    /// It computes: the next one is not presumed to block.
    Refuted,
}

/// What the last presumed run says about the next one. A worker wakes its replacement before it
/// begins such a run, so the replacement may look before the run has blocked. Where both are on one
/// CPU, the run may not even go on until the replacement has parked.
/// ```
/// use uwork_policy::blocking::{
///     PresumedRun, Presumption, REPLACE_COST_NS, UNDECIDED_MAX, WAKE_COST_NS, judge_presumed,
/// };
/// let run = PresumedRun { sleeps: false, since_ns: 5_000, cpu_ns: 5_000, unverified: 3 };
/// assert_eq!(judge_presumed(run), Presumption::Undecided);
/// let waits_for_cpu = PresumedRun { since_ns: 1_000_000, ..run };
/// assert_eq!(judge_presumed(waits_for_cpu), Presumption::Undecided);
/// let computes = PresumedRun { since_ns: WAKE_COST_NS, cpu_ns: REPLACE_COST_NS, ..run };
/// assert_eq!(judge_presumed(computes), Presumption::Refuted);
/// assert_eq!(judge_presumed(PresumedRun { unverified: UNDECIDED_MAX, ..run }), Presumption::Refuted);
/// assert_eq!(judge_presumed(PresumedRun { sleeps: true, ..run }), Presumption::Verified);
/// ```
#[must_use]
pub fn judge_presumed(run: PresumedRun) -> Presumption {
    match run {
        PresumedRun { sleeps: true, .. } => Presumption::Verified,
        PresumedRun { unverified: UNDECIDED_MAX.., .. } => Presumption::Refuted,
        PresumedRun { since_ns, cpu_ns, .. }
            if since_ns < WAKE_COST_NS || cpu_ns < REPLACE_COST_NS =>
        {
            Presumption::Undecided
        }
        _ => Presumption::Refuted,
    }
}

/// Whether a run that took `wall_ns`, `cpu_ns` of it on a CPU, blocked for most of its time. If it
/// did, it was right not to count its worker as running from the start.
/// ```
/// use uwork_policy::blocking::was_block;
/// assert!(was_block(10_000_000, 20_000));
/// assert!(!was_block(10_000_000, 1_000_000), "it computed for longer than it takes to replace it");
/// assert!(!was_block(60_000, 20_000), "it was back before anybody could have come");
/// ```
pub fn was_block(wall_ns: u64, cpu_ns: u64) -> bool {
    wall_ns >= 4 * WAKE_COST_NS && cpu_ns <= 2 * WAKE_COST_NS
}

/// The count of runs found blocked, after one more run that blocked or did not. Once the next run
/// is presumed to block, one run that does not is tolerated; two in a row end the presumption.
/// ```
/// use uwork_policy::blocking::{PRESUME_BLOCKED_AFTER, block_score_after};
/// let sure = (0..100).fold(0, |block_score, _| block_score_after(block_score, true));
/// let once = block_score_after(sure, false);
/// assert!(once >= PRESUME_BLOCKED_AFTER && block_score_after(once, false) < PRESUME_BLOCKED_AFTER);
/// assert_eq!(block_score_after(PRESUME_BLOCKED_AFTER - 1, false), 0);
/// ```
pub fn block_score_after(block_score: u32, slept: bool) -> u32 {
    match slept {
        true => (block_score + 1).min(BLOCK_SCORE_MAX),
        false if block_score < PRESUME_BLOCKED_AFTER => 0,
        false => block_score - PRESUME_BLOCKED_AFTER / 2 - 1,
    }
}

/// How many workers one pool may have. `limits` is the number of items that its queues may run at
/// once, and `threads` the number of threads that the process may still create, if that is limited.
/// The result is enough for all those items and one spare worker for each CPU, but at most half of
/// the threads.
///
/// The limits of the queues are added up because items of one queue may wait for those of another.
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
    fn tier_names_round_trip() {
        for tier in Tier::ALL {
            assert_eq!(tier.to_string().parse(), Ok(tier));
        }
        for wrong in ["", "Events", "event", "events ", "off"] {
            assert_eq!(wrong.parse::<Tier>(), Err(UnknownTier(wrong.to_owned())));
        }
    }

    #[test]
    fn every_fallback_chain_ends_at_declared() {
        for mut tier in Tier::ALL {
            let mut steps = 0;
            while let Some(next) = tier.next() {
                (tier, steps) = (next, steps + 1);
            }
            assert!(tier == Tier::Declared && steps <= 3);
        }
    }

    #[test]
    fn the_usual_sleep_follows_and_never_overflows() {
        let mut usual = 10_000_000;
        for _ in 0..100 {
            usual = usual_block_ns(usual, 1_000);
        }
        assert!(usual < 2_000, "{usual}");
        assert_eq!(usual_block_ns(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(patience_ns(u64::MAX, false), 0);
    }
}
