//! How long a request waits for an answer.
//!
//! A thread that has a CPU answers within microseconds, and a thread that blocks the signal never
//! does. On a busy machine a thread may wait for a CPU much longer than a thread that blocks the
//! signal should delay the caller.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use uwork_engine::futex::Futex;
use uwork_engine::host::Activity;

use crate::blocked::kept::activity;
use crate::futex::Until;
use crate::thread::cpu_time;

/// How long a thread may take to answer. If it still waits for a CPU, it gets this time again, until the
/// deadline of the request.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// A thread that has used more CPU time than this since the request could have answered.
const CPU_MAX_NS: u64 = 1_000_000;

/// The wait for an answer of a thread.
pub(super) struct Patience {
    thread: u64,
    /// The thread's CPU time at the request.
    used_ns: Option<u64>,
    until: Cell<Instant>,
    last: Instant,
}

impl Patience {
    /// For a thread that is asked at this moment, by a request with this deadline.
    pub(super) fn new(thread: u64, last: Instant) -> Patience {
        let until = Cell::new(last.min(Instant::now() + ANSWER_MAX));
        Patience { thread, used_ns: cpu_time(thread), until, last }
    }

    /// Sets the next deadline. False if the caller must give up.
    fn extend(&self) -> bool {
        let now = Instant::now();
        let goes_on = now < self.last && self.is_starved();
        if goes_on {
            self.until.set(self.last.min(now + ANSWER_MAX));
        }
        goes_on
    }

    /// Whether the thread is runnable, and has had no CPU since the request.
    fn is_starved(&self) -> bool {
        let used = cpu_time(self.thread).zip(self.used_ns);
        used.is_some_and(|(now, before)| now.saturating_sub(before) <= CPU_MAX_NS)
            && activity(self.thread) == Ok(Activity::Runs)
    }
}

impl Futex for Patience {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        Until(self.until.get()).wait(word, expected) || self.extend()
    }

    fn wake(&self, word: *const AtomicU32) {
        Until(self.last).wake(word);
    }
}
