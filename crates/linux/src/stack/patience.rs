//! How long a caller waits for the answer of a thread.
//!
//! A thread that sleeps in a call which no signal ends never answers, so the wait is short. A
//! thread that lacks only a CPU answers as soon as it gets one, which may take seconds on a busy
//! machine: exactly there its stack is wanted. It is runnable, and has not computed since the
//! request.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use uwork_engine::futex::Futex;
use uwork_engine::host::Activity;

use crate::{blocked, futex, thread};

/// How long a thread may take to answer. One that runs takes microseconds.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(100);
/// The same for a thread that waits for a CPU.
pub(super) const RUNNABLE_MAX: Duration = Duration::from_secs(5);
/// A thread that has computed for this long since the request blocks the signal.
const COMPUTED_NS: u64 = 10_000_000;

/// A wait for the answer of one thread.
pub(super) struct Patience {
    thread: u64,
    cpu_time: Option<u64>,
    /// When to give up, unless the thread lacks a CPU then.
    until: Cell<Instant>,
    last: Instant,
}

impl Patience {
    /// Begins with the request.
    pub(super) fn new(thread: u64) -> Patience {
        let now = Instant::now();
        let (until, last) = (Cell::new(now + ANSWER_MAX), now + RUNNABLE_MAX);
        Patience { thread, cpu_time: thread::cpu_time(thread), until, last }
    }

    fn lacks_cpu(&self) -> bool {
        let computed = |before| Some(thread::cpu_time(self.thread)?.saturating_sub(before));
        blocked::activity(self.thread) == Some(Activity::Runs)
            && self.cpu_time.and_then(computed).is_some_and(|computed| computed < COMPUTED_NS)
    }
}

impl Futex for Patience {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        let now = Instant::now();
        if now >= self.until.get() {
            if now >= self.last || !self.lacks_cpu() {
                return false;
            }
            self.until.set((now + ANSWER_MAX).min(self.last));
        }
        futex::wait(word, expected, Some(self.until.get().saturating_duration_since(now)));
        true
    }

    fn wake(&self, word: *const AtomicU32) {
        futex::wake(word);
    }
}
