//! Whether a target lets others have a turn on its CPU before it waits.
//!
//! Threads that hand each other work are often on one CPU. If the target sleeps at once, whoever adds next has to
//! wake it: a sleep and a wake for each item. If it yields first, it is found awake, and nobody is woken. It does so
//! where its last wait came to an end by task work; and not for a while after a turn that took long, for then the CPU
//! is busy with something else, and a thread that was asleep would have been let in sooner.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Longer turns are somebody's slice of CPU time, not a hand-over.
const TURN_MAX: Duration = Duration::from_micros(100);
/// Waits without a turn after one that took longer.
const PAUSE: u8 = 64;

/// See the module. The target's thread's alone.
pub(super) struct Turn {
    was_told: AtomicBool,
    pause: AtomicU8,
}

impl Turn {
    pub(super) const fn new() -> Turn {
        Turn { was_told: AtomicBool::new(false), pause: AtomicU8::new(0) }
    }

    /// Whether others are to have one before the wait that comes.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        if !self.was_told.load(Ordering::Relaxed) {
            return false;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        self.pause.store(pause.saturating_sub(1), Ordering::Relaxed);
        pause == 0
    }

    /// Lets others have it.
    pub(super) fn take(&self) {
        let begin = Instant::now();
        std::thread::yield_now();
        if begin.elapsed() > TURN_MAX {
            self.pause.store(PAUSE, Ordering::Relaxed);
        }
    }

    /// The wait is over.
    #[inline]
    pub(super) fn waited(&self, was_told: bool) {
        self.was_told.store(was_told, Ordering::Relaxed);
    }
}
