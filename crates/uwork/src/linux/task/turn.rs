//! Whether a target lets others have a turn on its CPU before it waits.
//!
//! Threads that hand each other work are often on one CPU. If the target sleeps at once, whoever adds next has to
//! wake it: a sleep and a wake for each batch. If it yields first, it is found awake, and nobody is woken. It does so
//! where its last wait came to an end by task work; and not for a while after a turn that took long, for then the CPU
//! is busy with something else, and a thread that was asleep would have been let in sooner.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer turns are somebody's slice of CPU time. Shorter ones are a round of threads that hand each other work.
const TURN_MAX: Duration = Duration::from_millis(1);
/// Waits without a turn after one that took longer; four times as many each time that the next one does so too.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 16_384;

/// See the module. The target's thread's alone.
pub(super) struct Turn {
    was_told: AtomicBool,
    /// Waits that are left without one.
    pause: AtomicU32,
    /// The last pause; 0 after a turn that was short.
    last_pause: AtomicU32,
}

/// How long to do without after a turn.
fn pause_after(took: Duration, last_pause: u32) -> u32 {
    if took <= TURN_MAX { 0 } else { (last_pause * 4).clamp(PAUSE_MIN, PAUSE_MAX) }
}

impl Turn {
    pub(super) const fn new() -> Turn {
        Turn {
            was_told: AtomicBool::new(false),
            pause: AtomicU32::new(0),
            last_pause: AtomicU32::new(0),
        }
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
        let pause = pause_after(begin.elapsed(), self.last_pause.load(Ordering::Relaxed));
        self.pause.store(pause, Ordering::Relaxed);
        self.last_pause.store(pause, Ordering::Relaxed);
    }

    /// The wait is over.
    #[inline]
    pub(super) fn waited(&self, was_told: bool) {
        self.was_told.store(was_told, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turns_are_tried_ever_more_seldom() {
        let (short, long) = (TURN_MAX, TURN_MAX + Duration::from_nanos(1));
        assert_eq!(pause_after(short, 4_096), 0);
        let mut pause = 0;
        let pauses: Vec<u32> = std::iter::repeat_with(|| {
            pause = pause_after(long, pause);
            pause
        })
        .take(6)
        .collect();
        assert_eq!(pauses, [64, 256, 1_024, 4_096, 16_384, 16_384]);
    }

    #[test]
    fn a_turn_is_due_where_the_last_wait_was_ended_by_task_work() {
        let turn = Turn::new();
        assert!(!turn.is_due());
        turn.waited(true);
        assert!(turn.is_due());
        turn.pause.store(2, Ordering::Relaxed);
        assert_eq!([turn.is_due(), turn.is_due(), turn.is_due()], [false, false, true]);
        turn.waited(false);
        assert!(!turn.is_due());
    }
}
