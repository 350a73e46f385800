//! When the periodic commands of a committer are due. Pure: times in, times out.

use std::time::{Duration, Instant};

/// The interval at which delayed jobs of other producers are noticed.
pub(super) const PROMOTE_EVERY: Duration = Duration::from_millis(100);
/// The longest interval between two looks for dead consumers' jobs.
const RECLAIM_EVERY_MAX: Duration = Duration::from_millis(500);
/// The interval at which dead consumers without jobs are removed.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The next times of the periodic commands.
pub(super) struct Schedule {
    pub(super) beat: Instant,
    /// The earliest time of the next sign of life for jobs that were lost.
    pub(super) spare: Instant,
    /// Of each stream.
    pub(super) reclaim: Vec<Instant>,
    /// Of each stream.
    pub(super) promote: Vec<Instant>,
    pub(super) sweep: Instant,
}

impl Schedule {
    pub(super) fn new(now: Instant, heartbeat: Duration, streams: usize) -> Schedule {
        Schedule {
            beat: now + heartbeat / 3,
            spare: now,
            reclaim: vec![now; streams],
            promote: vec![now; streams],
            sweep: now + SWEEP_EVERY,
        }
    }

    /// When the first of them is due. In a stop only heartbeats are: a time that no command moves
    /// on would be over for ever, and the committer would not wait at all.
    pub(super) fn due(&self, is_stopping: bool) -> Instant {
        if is_stopping {
            return self.beat;
        }
        let fetches = self.reclaim.iter().chain(&self.promote);
        fetches.fold(self.beat.min(self.sweep), |first, &next| first.min(next))
    }
}

/// The interval between two looks for dead consumers' jobs.
pub(super) fn reclaim_every(heartbeat: Duration) -> Duration {
    RECLAIM_EVERY_MAX.min(heartbeat / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_waits_for_nothing_but_heartbeats() {
        let (now, heartbeat) = (Instant::now(), Duration::from_secs(3_000));
        let schedule = Schedule::new(now, heartbeat, 2);
        assert_eq!(schedule.due(false), now, "the first look for jobs is due at once");
        assert_eq!(schedule.due(true), now + heartbeat / 3, "a sweep that is due is left out");
    }
}
