//! When the periodic commands of a committer are due. Pure: times in, times out.

use std::time::{Duration, Instant};

/// The interval at which delayed jobs of other producers are noticed.
pub(super) const PROMOTE_EVERY: Duration = Duration::from_millis(100);
/// The longest interval between two looks for dead consumers' jobs.
const RECLAIM_EVERY_MAX: Duration = Duration::from_millis(500);
/// The interval at which dead consumers without jobs are removed.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long a consumer whose heartbeat was late takes nothing over. What has delayed it, an outage of
/// the server, has delayed those of the others as well. All connect again within a second, and give a
/// heartbeat first.
const HOLD: Duration = Duration::from_secs(2);
/// A heartbeat is never late before: a busy machine delays those of a short interval.
const LATE_MIN: Duration = Duration::from_secs(1);

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
    /// When the server has granted the last heartbeat.
    beaten: Instant,
    /// The time since then from which on the next one is late.
    late: Duration,
    /// The earliest time of the next look for dead consumers' jobs.
    reclaim_from: Instant,
}

impl Schedule {
    pub(super) fn new(now: Instant, heartbeat: Duration, streams: usize) -> Schedule {
        Schedule {
            beaten: now,
            late: (heartbeat * 2 / 3).max(LATE_MIN),
            reclaim_from: now,
            beat: now + heartbeat / 3,
            spare: now,
            reclaim: vec![now; streams],
            promote: vec![now; streams],
            sweep: now + SWEEP_EVERY,
        }
    }

    /// When the first of them is due. In a stop only heartbeats are: a time that no command moves
    /// on would be over for ever, and the committer would not wait at all.
    pub(super) fn due(&self, now: Instant, is_stopping: bool) -> Instant {
        if is_stopping {
            return self.beat;
        }
        let first =
            self.promote.iter().fold(self.beat.min(self.sweep), |first, &next| first.min(next));
        match self.reclaim.iter().min() {
            Some(&reclaim) if !self.is_late(now) => first.min(reclaim.max(self.reclaim_from)),
            _ => first,
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.beaten) >= self.late
    }

    /// Whether the jobs of other consumers may be taken over: not while a heartbeat of this one is late,
    /// and for a while after.
    pub(super) fn may_reclaim(&self, now: Instant) -> bool {
        now >= self.reclaim_from && !self.is_late(now)
    }

    /// The server has granted a heartbeat of an exchange that began at this time. One that is late while
    /// nothing is taken over prolongs that time no more: heartbeats that are always late must not
    /// prevent each takeover.
    pub(super) fn has_beaten(&mut self, begun: Instant, now: Instant) {
        if self.is_late(now) && begun >= self.reclaim_from {
            self.reclaim_from = now + HOLD;
        }
        self.beaten = now;
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
        assert_eq!(schedule.due(now, false), now, "the first look for jobs is due at once");
        assert_eq!(schedule.due(now, true), now + heartbeat / 3, "a sweep that is due is left out");
    }

    #[test]
    fn a_late_heartbeat_delays_takeovers_and_nothing_else() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(9));
        let mut schedule = Schedule::new(start, heartbeat, 1);
        let at = |ms| start + Duration::from_millis(ms);
        for beat in [3_000, 6_000] {
            schedule.has_beaten(at(beat - 1), at(beat));
            assert!(schedule.may_reclaim(at(beat)), "the others have had their time");
        }
        // The server is away until 20 s.
        assert!(schedule.may_reclaim(at(11_999)) && !schedule.may_reclaim(at(12_000)));
        schedule.promote[0] = at(30_000);
        (schedule.beat, schedule.sweep) = (at(12_500), at(40_000));
        assert_eq!(schedule.due(at(12_000), false), at(12_500), "no time that is over for ever");
        schedule.has_beaten(at(19_990), at(20_000));
        schedule.beat = at(23_000);
        assert_eq!(schedule.due(at(20_000), false), at(22_000));
        assert!(!schedule.may_reclaim(at(21_999)) && schedule.may_reclaim(at(22_000)));
        // Each further one is late, too: takeovers are only rarer.
        schedule.has_beaten(at(20_001), at(27_000));
        assert!(schedule.may_reclaim(at(27_000)));
        schedule.has_beaten(at(27_000), at(34_000));
        assert!(!schedule.may_reclaim(at(35_999)) && schedule.may_reclaim(at(36_000)));
    }
}
