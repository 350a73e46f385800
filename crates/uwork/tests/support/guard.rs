//! Detection of hangs: when a test gives up a wait.
//!
//! The clock alone cannot decide: on a loaded machine a test may take many times as long as alone.
//! A wait is a hang if, for the whole of its limit, the process neither made progress nor used CPU
//! time; and in any case after [`CAP`] limits. The CPU time of threads that only poll for the end
//! of a wait does not count.
//!
//! Tests of other crates include this file by its path, so it uses the standard library and libc
//! only.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A wait that lasts this many limits is a hang, whatever the process does: threads that spin use CPU time for ever.
pub(crate) const CAP: u32 = 10;
/// CPU time below this part of a limit counts as none: idle threads wake up now and then.
const IDLE_PART: u32 = 100;
/// How often a wait reads the meter in one limit. The number is small because each reading wakes a
/// thread that should sleep.
const LOOKS: u32 = 4;
/// The same for a wait that polls.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Events that show progress of the whole process.
static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// The CPU time spent polling, in nanoseconds.
static POLLED_NS: AtomicU64 = AtomicU64::new(0);

/// Notes an event that a test waits for: the limits of all waits start anew.
pub(crate) fn progress() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

/// Why a wait was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// Neither progress nor use of CPU time for this long.
    Stuck(Duration),
    /// Not over after this long, although the process was active.
    Endless(Duration),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hang::Stuck(limit) => write!(f, "hangs: no progress and no CPU time used in {limit:?}"),
            Hang::Endless(cap) => write!(f, "hangs: not over after {cap:?}"),
        }
    }
}

/// The activity of a process up to some time.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Both durations have an arbitrary origin.
    pub(crate) at: Duration,
    pub(crate) cpu: Duration,
    pub(crate) progress: u64,
}

/// The decision, from samples only.
pub(crate) struct Judge {
    limit: Duration,
    began: Duration,
    /// The last sample that showed activity.
    moved: Sample,
}

impl Judge {
    pub(crate) fn new(limit: Duration, now: Sample) -> Judge {
        Judge { limit, began: now.at, moved: now }
    }

    pub(crate) fn judge(&mut self, now: Sample) -> Result<(), Hang> {
        let cap = self.limit * CAP;
        if now.at - self.began >= cap {
            return Err(Hang::Endless(cap));
        }
        let used = now.cpu.saturating_sub(self.moved.cpu);
        if now.progress != self.moved.progress || used >= self.limit / IDLE_PART {
            self.moved = now;
        }
        if now.at - self.moved.at >= self.limit {
            return Err(Hang::Stuck(self.limit));
        }
        Ok(())
    }
}

/// The process whose CPU time counts.
#[derive(Clone, Copy)]
enum Of {
    ThisProcess,
    Child(libc::pid_t),
}

impl Of {
    fn cpu(self) -> Duration {
        match self {
            Of::ThisProcess => {
                let polled = Duration::from_nanos(POLLED_NS.load(Ordering::Relaxed));
                used(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(polled)
            }
            // The kernel's encoding of a process's CPU clock (CPUCLOCK_SCHED).
            Of::Child(pid) => used((!pid << 3) | 2),
        }
    }
}

/// The guard of one wait.
pub(crate) struct Guard {
    start: Instant,
    of: Of,
    judge: Judge,
    /// The CPU time of this thread at the last reading, for waits that poll.
    own: Duration,
    next_check: Instant,
}

impl Guard {
    /// For a wait for threads of this process.
    pub(crate) fn new(limit: Duration) -> Guard {
        Guard::with(limit, Of::ThisProcess)
    }

    /// For a wait for a child process.
    pub(crate) fn of_child(limit: Duration, child: libc::pid_t) -> Guard {
        Guard::with(limit, Of::Child(child))
    }

    fn with(limit: Duration, of: Of) -> Guard {
        let start = Instant::now();
        let judge = Judge::new(limit, sample(start, of));
        let own = used(libc::CLOCK_THREAD_CPUTIME_ID);
        Guard { start, of, judge, own, next_check: start + POLL_EVERY }
    }

    /// How long to wait until the next [`Guard::look`].
    pub(crate) fn turn(&self) -> Duration {
        self.judge.limit / LOOKS
    }

    pub(crate) fn look(&mut self) -> Result<(), Hang> {
        self.judge.judge(sample(self.start, self.of))
    }

    /// Call it in each round of a loop that polls.
    pub(crate) fn poll(&mut self) -> Result<(), Hang> {
        let now = Instant::now();
        if now < self.next_check {
            return Ok(());
        }
        self.next_check = now + POLL_EVERY;
        let own = used(libc::CLOCK_THREAD_CPUTIME_ID);
        let polled = own.saturating_sub(self.own);
        self.own = own;
        POLLED_NS.fetch_add(polled.as_nanos() as u64, Ordering::Relaxed);
        self.look()
    }
}

/// Waits in rounds until `turn` returns a value. Each round waits for at most the time passed to
/// it.
pub(crate) fn in_turns<R>(
    limit: Duration,
    mut turn: impl FnMut(Duration) -> Option<R>,
) -> Result<R, Hang> {
    let mut guard = Guard::new(limit);
    loop {
        if let Some(result) = turn(guard.turn()) {
            return Ok(result);
        }
        guard.look()?;
    }
}

fn sample(start: Instant, of: Of) -> Sample {
    Sample { at: start.elapsed(), cpu: of.cpu(), progress: PROGRESS.load(Ordering::Relaxed) }
}

/// Zero if the clock no longer exists.
fn used(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}
