//! When the watcher scans, when it rests, and what a scan does for a pool in which something waits.
//!
//! Facts go in, a decision comes out. `watch/mod.rs` of the engine has the protocol by which the
//! watcher publishes that it rests.

use crate::progress::NEVER;

/// How long a batch may run, or a ready pwq wait, before another worker takes over.
pub const STUCK_NS: u64 = 200_000;
/// The next scan after a worker was counted out comes this soon, unless standbys serve its pool: its
/// replacement may block as well.
pub const SOON_NS: u64 = 50_000;
/// The longest interval between two scans. The watcher sees a run that computes for too long within
/// this time, and counts it out when the run has used up its threshold from then on.
pub const INTERVAL_MAX_NS: u64 = 2_000_000;
/// The same while something waits in a suspect pool.
pub const INTERVAL_SUSPECT_NS: u64 = 1_000_000;
/// For how long the watcher leaves records of switches unread after a scan that they have led to, and
/// that has found no sleep: the first time, and the longest.
pub const UNREAD_FIRST_NS: u64 = 100_000;
/// The longest: see [`UNREAD_FIRST_NS`].
pub const UNREAD_MAX_NS: u64 = 400_000;
/// The watcher sleeps when nothing has waited for this long.
pub const LINGER_NS: u64 = 2 * INTERVAL_MAX_NS;

/// A pool at the beginning of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Whether a queue has items here that a worker could take.
    pub ready: bool,
    /// Whether items were taken into a batch and wait behind its running item.
    pub scheduled: bool,
    /// Whether the pool could not get a worker when it last tried.
    pub starved: bool,
    /// Whether the watcher can help items that wait behind running workers.
    pub watcher_helps: bool,
}

/// Whether something waits in this pool that the watcher can help.
#[must_use]
pub fn something_waits(pool: Backlog) -> bool {
    (pool.ready || pool.scheduled) && (pool.starved || pool.watcher_helps)
}

/// A pool that may have failed to get a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved {
    /// When it tries again; 0 if it did not fail.
    pub again_at: u64,
    /// Whether a queue has items here that a worker could take.
    pub ready: bool,
    /// The time of the scan.
    pub now: u64,
}

/// What a pool gets that could not get a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Retry {
    /// Nothing: it did not fail, or no item is ready.
    Nothing,
    /// Another attempt.
    Settle,
    /// The rescuers, until the next attempt.
    Mayday,
}

/// What to do for a pool that may have failed to get a worker.
pub fn retry(pool: Starved) -> Retry {
    match pool.again_at {
        0 => Retry::Nothing,
        _ if !pool.ready => Retry::Nothing,
        again_at if again_at <= pool.now => Retry::Settle,
        _ => Retry::Mayday,
    }
}

/// A pool at the end of a scan, with all blocked workers and hogs replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Whether workers of other pools may take its items.
    pub shares: bool,
    /// Whether any of those runs fewer workers than it should.
    pub room: bool,
    /// Whether a queue still has items here that a worker could take.
    pub ready: bool,
    /// How long ago a worker last took items here.
    pub since_progress_ns: u64,
}

/// Whether the watcher wakes a worker of a neighbouring pool: the pool's own workers take nothing.
#[must_use]
pub fn wakes_neighbour(pool: Leftover) -> bool {
    pool.shares && pool.ready && pool.since_progress_ns >= STUCK_NS
}

/// When the watcher scans this pool again at the latest: when its items have waited for [`STUCK_NS`],
/// if a neighbour then has a worker for them.
#[must_use]
pub fn looks_again_at(pool: Leftover, now: u64) -> u64 {
    if !(pool.shares && pool.ready && pool.room) {
        return NEVER;
    }
    // If they are stuck, a neighbour is woken now, but that wake may be used up elsewhere.
    let left_ns = STUCK_NS.checked_sub(pool.since_progress_ns).filter(|&ns| ns > 0);
    now.saturating_add(left_ns.unwrap_or(STUCK_NS))
}

/// The result of a scan of all pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Whether anything waits.
    pub waiting: bool,
    /// Whether anything waits in a suspect pool.
    pub suspect: bool,
    /// The latest time at which the next scan is worthwhile; [`NEVER`].
    pub next: u64,
}

/// Whether the watcher stops scanning after a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Rest {
    /// It scans on as before.
    No,
    /// Nothing waits. It scans on at growing intervals, and says so.
    Linger,
    /// Nothing has waited for [`LINGER_NS`]: it sleeps.
    Sleep,
}

/// When the watcher reads records of switches. One that says that a worker was preempted, or has its CPU
/// again, is of no use; and the watcher itself preempts a worker if it shares a CPU with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    unread_ns: u64,
    /// It waits for records from this time on.
    pub from: u64,
}

/// How a wait of the watcher for records has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has not waited for them until the next scan was due: it was called, or its wait was interrupted.
    Nothing,
    /// There was no record until the next scan was due.
    Silence,
    /// There was one.
    Records,
}

impl Listening {
    /// After a scan at `now`. `has_slept`: the scan has found a worker that sleeps, or has slept.
    #[must_use]
    pub fn after(self, heard: Heard, has_slept: bool, now: u64) -> Listening {
        match heard {
            _ if has_slept => Listening::default(),
            Heard::Silence => Listening::default(),
            Heard::Nothing => self,
            Heard::Records => {
                let unread_ns = (2 * self.unread_ns).clamp(UNREAD_FIRST_NS, UNREAD_MAX_NS);
                Listening { unread_ns, from: now.saturating_add(unread_ns) }
            }
        }
    }
}

/// What the watcher remembers from one scan to the next, while it is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    interval_ns: u64,
    last_waiting: u64,
    was_waiting: bool,
}

impl Pace {
    /// The watcher was woken at `now`. The items that woke it have only just begun to wait.
    #[must_use]
    pub fn woken(now: u64) -> Pace {
        Pace { interval_ns: STUCK_NS, last_waiting: now, was_waiting: false }
    }

    /// When the first scan is due: at once (None) if any pool is suspect.
    #[must_use]
    pub fn first_scan_at(self, suspect: bool) -> Option<u64> {
        (!suspect).then(|| self.last_waiting.saturating_add(self.interval_ns))
    }

    /// Whether the watcher rests after a scan at `now`. `lingers`: it has said so already, and was
    /// not called since. A rest must be published first and confirmed by one more scan.
    pub fn rest(self, waiting: bool, lingers: bool, now: u64) -> Rest {
        if waiting {
            Rest::No
        } else if now.saturating_sub(self.last_waiting) >= LINGER_NS {
            Rest::Sleep
        } else if lingers {
            Rest::No
        } else {
            Rest::Linger
        }
    }

    /// The pace after a scan at `now`, and the time of the next one.
    ///
    /// The intervals double up to a maximum. They begin anew when something begins to wait.
    #[must_use]
    pub fn after(self, scan: Scanned, now: u64) -> (Pace, u64) {
        let Pace { interval_ns, last_waiting, was_waiting } = self;
        let begins = scan.waiting && !was_waiting;
        let (first, longest) = match scan.suspect {
            true => (SOON_NS, INTERVAL_SUSPECT_NS),
            false => (STUCK_NS, INTERVAL_MAX_NS),
        };
        let interval_ns = if scan.next <= now.saturating_add(SOON_NS) {
            SOON_NS
        } else if begins {
            first
        } else {
            (2 * interval_ns).min(longest)
        };
        let last_waiting = if scan.waiting { now } else { last_waiting };
        let next = scan.next.min(now.saturating_add(interval_ns));
        (Pace { interval_ns, last_waiting, was_waiting: scan.waiting }, next)
    }
}
