//! Decides whether a target yields its CPU before it waits.
//!
//! Threads that pass each other work often share a CPU. If the target sleeps at once, the next
//! adder must wake it: a sleep and a wake for each round. If it yields first, adders find it awake,
//! and no wake is needed. It yields if task work ended its last wait. After a yield that took long
//! it stops for a number of waits: then the CPU is busy with other work, and a thread that had
//! slept would have been scheduled sooner.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A longer yield means that another thread used its time slice. A shorter one is a round of
/// threads that pass each other work.
const TURN_MAX: Duration = Duration::from_millis(1);
/// The number of waits without a yield after a long one; multiplied by four if the next yield is
/// long too.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 16_384;

/// See the module. Accessed by the target's thread alone.
pub(super) struct Turn {
    ended_by_task_work: AtomicBool,
    /// Remaining waits without a yield.
    pause: AtomicU32,
    /// The last pause; 0 after a short yield.
    last_pause: AtomicU32,
}

/// The number of waits without a yield after one that took this long.
fn pause_after(took: Duration, last_pause: u32) -> u32 {
    if took <= TURN_MAX { 0 } else { (last_pause * 4).clamp(PAUSE_MIN, PAUSE_MAX) }
}

impl Turn {
    pub(super) const fn new() -> Turn {
        Turn {
            ended_by_task_work: AtomicBool::new(false),
            pause: AtomicU32::new(0),
            last_pause: AtomicU32::new(0),
        }
    }

    /// Whether to yield before the coming wait.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        if !self.ended_by_task_work.load(Ordering::Relaxed) {
            return false;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        self.pause.store(pause.saturating_sub(1), Ordering::Relaxed);
        pause == 0
    }

    /// Yields, and measures how long that takes.
    pub(super) fn take(&self) {
        let begin = Instant::now();
        std::thread::yield_now();
        let pause = pause_after(begin.elapsed(), self.last_pause.load(Ordering::Relaxed));
        self.pause.store(pause, Ordering::Relaxed);
        self.last_pause.store(pause, Ordering::Relaxed);
    }

    /// Records that a wait has ended, and whether task work ended it.
    #[inline]
    pub(super) fn waited(&self, ended_by_task_work: bool) {
        self.ended_by_task_work.store(ended_by_task_work, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_yields_are_attempted_ever_less_often() {
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
    fn a_yield_is_due_if_task_work_ended_the_last_wait() {
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
