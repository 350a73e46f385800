//! What a standby thread does when it gets its CPU.
//!
//! A standby is pinned to one CPU and has little weight there. So it runs when the thread that had the
//! CPU blocks, and in the moments of its small share. It takes no lock and allocates nothing: the
//! system may withhold its CPU while other threads want to run. It only wakes a thread of normal
//! weight, which examines the pool. `watch/README.md` of the engine has the protocol.

use crate::progress::NEVER;

/// A pool that was examined in vain is examined again after this long, then after twice as long, and
/// so on: the worker had not blocked yet, or its block may end soon.
pub const EXAMINE_AGAIN_NS: u64 = 20_000;
/// The examinations of a pool from one batch to the next, after which its standbys give up.
pub const EXAMINATIONS_MAX: u32 = 6;
/// A standby that lets other threads run so many times in a row, to find that nothing has changed,
/// gives up.
pub const ROUNDS_MAX: u32 = 64;
/// A standby that is awake and has not run for this long does not get its CPU: the watcher must
/// find blocked workers by itself.
pub const STARVED_NS: u64 = 2_000_000;

/// A standby that ran on another CPU than its own is spawned again after this long, then after twice
/// as long, and so on.
pub const RESPAWN_NS: u64 = 1_000_000_000;
/// How often that time doubles at most.
const RESPAWN_DOUBLINGS_MAX: u32 = 6;

/// How long a standby stays away that ran on another CPU than its own, and had done so `moves` times
/// before. Where the system refuses to pin a thread, each one does.
/// ```
/// use uwork_policy::standby::{RESPAWN_NS, respawns_after_ns};
/// assert_eq!([0, 1, 2].map(respawns_after_ns), [1, 2, 4].map(|times| times * RESPAWN_NS));
/// assert_eq!(respawns_after_ns(u32::MAX), 64 * RESPAWN_NS);
/// ```
#[must_use]
pub fn respawns_after_ns(moves: u32) -> u64 {
    RESPAWN_NS << moves.min(RESPAWN_DOUBLINGS_MAX)
}

/// A pool, as a standby sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// Whether items wait that a worker of the pool could run.
    pub waits: bool,
    /// How many workers run.
    pub running: u32,
    /// How many should run while an item waits.
    pub target: u32,
    /// How often the pool was examined since a worker last took a batch.
    pub examinations: u32,
    /// How long ago the last of these examinations was called for.
    pub since_ns: u64,
}

/// What a standby does about a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PoolPlan {
    /// Nothing: no item waits.
    Rest,
    /// Nothing now: a worker is on its way.
    Wait,
    /// Items wait behind running workers, one of which may have blocked: have the pool examined.
    Examine {
        /// For the first time since a worker took a batch.
        first: bool,
    },
    /// It was examined in vain a moment ago. Have it examined again after this long.
    ExamineIn(u64),
    /// It was examined in vain too often.
    GiveUp,
}

/// What a standby does about a pool. Below its target, a pool wakes a worker by its own rule.
/// ```
/// use uwork_policy::standby::{EXAMINE_AGAIN_NS, PoolFacts, PoolPlan, plan_pool};
/// let pool = PoolFacts { waits: true, running: 1, target: 1, examinations: 0, since_ns: 0 };
/// assert_eq!(plan_pool(pool), PoolPlan::Examine { first: true });
/// let pool = PoolFacts { examinations: 1, since_ns: 5_000, ..pool };
/// assert_eq!(plan_pool(pool), PoolPlan::ExamineIn(EXAMINE_AGAIN_NS - 5_000));
/// ```
pub fn plan_pool(pool: PoolFacts) -> PoolPlan {
    if !pool.waits {
        return PoolPlan::Rest;
    }
    if pool.running < pool.target {
        return PoolPlan::Wait;
    }
    let due = match pool.examinations {
        0 => 0,
        EXAMINATIONS_MAX.. => return PoolPlan::GiveUp,
        examinations => EXAMINE_AGAIN_NS << (examinations - 1),
    };
    match due.saturating_sub(pool.since_ns) {
        0 => PoolPlan::Examine { first: pool.examinations == 0 },
        ns => PoolPlan::ExamineIn(ns),
    }
}

/// What a round over all pools of a standby has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Whether any pool was examined, or waits for a worker on its way.
    pub busy: bool,
    /// Whether any pool was examined for the first time since a worker took a batch: earlier rounds
    /// had an effect.
    pub fresh: bool,
    /// Whether any pool is given up.
    pub given_up: bool,
    /// After how long a pool is to be examined again; [`NEVER`].
    pub again_ns: u64,
}

impl Round {
    /// Before the first pool.
    pub const NOTHING: Round =
        Round { busy: false, fresh: false, given_up: false, again_ns: NEVER };

    /// With one more pool.
    #[must_use]
    pub fn with(self, plan: PoolPlan) -> Round {
        match plan {
            PoolPlan::Rest => self,
            PoolPlan::Wait => Round { busy: true, ..self },
            PoolPlan::Examine { first } => Round { busy: true, fresh: self.fresh || first, ..self },
            PoolPlan::ExamineIn(ns) => Round { again_ns: self.again_ns.min(ns), ..self },
            PoolPlan::GiveUp => Round { given_up: true, ..self },
        }
    }
}

/// What a standby does after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum After {
    /// It lets other threads run, then begins another round.
    Yield,
    /// It sleeps for so long, or until a pool is called for that was not examined since its last batch.
    Pause(u64),
    /// Nothing waits: it sleeps until it is called.
    Sleep,
    /// Something waits that it cannot help: it sleeps until it is called, and does not serve its
    /// pools until then.
    GiveUp,
}

/// What a standby does after a round. `rounds`: how many rounds in a row ended with
/// [`After::Yield`], this one included. The count begins anew with a round that is
/// [`fresh`](Round::fresh).
/// ```
/// use uwork_policy::standby::{After, ROUNDS_MAX, Round, after_round};
/// let busy = Round { busy: true, ..Round::NOTHING };
/// assert_eq!(after_round(Round::NOTHING, 1), After::Sleep);
/// assert_eq!(after_round(busy, 1), After::Yield);
/// assert_eq!(after_round(busy, ROUNDS_MAX), After::GiveUp);
/// ```
pub fn after_round(round: Round, rounds: u32) -> After {
    if round.busy {
        return if rounds < ROUNDS_MAX { After::Yield } else { After::GiveUp };
    }
    match round.again_ns {
        NEVER if round.given_up => After::GiveUp,
        NEVER => After::Sleep,
        ns => After::Pause(ns),
    }
}

/// The state of a standby, as other threads see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has no thread.
    Absent,
    /// It sleeps: nothing waits.
    Asleep,
    /// It sleeps, or is about to, although something waits.
    GaveUp,
    /// It sleeps, or is about to, for the time of an [`After::Pause`].
    Paused,
    /// It runs, or waits for its CPU.
    Awake,
}

/// Whether a thread that leaves something waiting in a pool wakes a standby. `examinations`: how
/// often the pool was examined since a worker last took a batch. A standby that pauses, or has given
/// the pool up, could do nothing more for that batch.
#[must_use]
pub fn wakes(state: State, examinations: u32) -> bool {
    match state {
        State::Absent | State::Awake => false,
        State::Asleep => true,
        State::GaveUp => examinations < EXAMINATIONS_MAX,
        State::Paused => examinations == 0,
    }
}

/// Whether a standby finds the workers that block on its CPU. `unseen_ns`: how long ago it last ran.
#[must_use]
pub fn serves(state: State, unseen_ns: u64) -> bool {
    match state {
        State::Absent | State::GaveUp => false,
        State::Asleep => true,
        State::Awake | State::Paused => unseen_ns < STARVED_NS,
    }
}
