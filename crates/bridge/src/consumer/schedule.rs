//! When the periodic commands of a committer are due. Pure: times in, times out.

use std::time::{Duration, Instant};

use crate::scripts::ms;

/// The interval at which delayed jobs of other producers are noticed.
pub(super) const PROMOTE_EVERY: Duration = Duration::from_millis(100);
/// The longest interval between two looks for dead consumers' jobs.
const RECLAIM_EVERY_MAX: Duration = Duration::from_millis(250);
/// The interval at which dead consumers without jobs are removed.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long a consumer takes nothing over after a heartbeat that was late. What has delayed it, an
/// outage of the server, has delayed those of the others as well. All connect again within a second, and
/// give a heartbeat first. The first heartbeat counts as late: the outage may have ended with it.
const HOLD: Duration = Duration::from_secs(2);
/// A heartbeat is never late before: a busy machine delays those of a short interval.
const LATE_MIN: Duration = Duration::from_secs(1);
/// Heartbeats in a row that prolong this time. If each is late, the next one ends it: such a server or
/// network must not prevent each takeover.
const HOLDS_MAX: u32 = 3;

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
    /// The last heartbeat that the server has granted: when its answer came, and the milliseconds of the
    /// server's clock when it was executed.
    beaten: Option<(Instant, u64)>,
    /// The time since then from which on the next one is late.
    late: Duration,
    heartbeat: Duration,
    /// The earliest time of the next look for dead consumers' jobs.
    reclaim_from: Instant,
    /// Heartbeats in a row that have put it off.
    holds: u32,
}

impl Schedule {
    pub(super) fn new(now: Instant, heartbeat: Duration, streams: usize) -> Schedule {
        Schedule {
            beaten: None,
            // An entry of a consumer that lives was idle for a third of the heartbeat when an outage began.
            late: (heartbeat / 2).max(LATE_MIN),
            heartbeat,
            reclaim_from: now,
            holds: 0,
            beat: now,
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

    /// Whether the next heartbeat is late, or the first one is not granted yet.
    fn is_late(&self, now: Instant) -> bool {
        self.beaten.is_none_or(|(at, _)| now.saturating_duration_since(at) >= self.late)
    }

    /// Whether the jobs of other consumers may be taken over: not while a heartbeat of this one is late,
    /// and for a while after.
    pub(super) fn may_reclaim(&self, now: Instant) -> bool {
        now >= self.reclaim_from && !self.is_late(now)
    }

    /// The time of the server's clock, in milliseconds, from which on the server refuses a takeover that
    /// is sent now: by then a heartbeat of this consumer is late. The command may be on its way for as
    /// long as an outage lasts.
    pub(super) fn reclaim_until_ms(&self) -> u64 {
        self.beaten.map_or(0, |(_, at_ms)| at_ms.saturating_add(ms(self.late)))
    }

    /// The server has refused a takeover that came too late. A heartbeat shows what has happened.
    pub(super) fn came_too_late(&mut self, now: Instant) {
        self.beat = now;
    }

    /// The server has granted a heartbeat, at this time of its clock.
    pub(super) fn has_beaten(&mut self, now: Instant, at_ms: u64) {
        let jumped =
            |(_, before_ms): (Instant, u64)| at_ms.saturating_sub(before_ms) >= ms(self.late);
        let hold = if self.is_late(now) {
            Some(HOLD)
        } else if self.beaten.is_some_and(jumped) {
            // Nothing was away, so the others give theirs when they are due.
            Some(HOLD.max(self.heartbeat / 3 + LATE_MIN))
        } else {
            None
        };
        self.beaten = Some((now, at_ms));
        match hold {
            Some(hold) if self.holds < HOLDS_MAX => {
                self.holds += 1;
                self.reclaim_from = now + hold;
            }
            _ => self.holds = 0,
        }
    }
}

/// The interval between two looks for dead consumers' jobs.
pub(super) fn reclaim_every(heartbeat: Duration) -> Duration {
    RECLAIM_EVERY_MAX.min(heartbeat / 4)
}

/// How long after the heartbeat a look leaves the jobs of dead consumers to those that have room in their
/// window.
pub(super) fn patience(heartbeat: Duration, has_room: bool) -> Duration {
    if has_room { Duration::ZERO } else { reclaim_every(heartbeat) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: looks of a full consumer that leave a job that it takes over no time to wait for a permit.
    #[test]
    fn a_full_consumer_takes_over_within_half_a_second_after_the_heartbeat() {
        for (heartbeat_ms, look_ms) in [(100, 25), (600, 150), (1_000, 250), (3_600_000, 250)] {
            let heartbeat = Duration::from_millis(heartbeat_ms);
            assert_eq!(reclaim_every(heartbeat), Duration::from_millis(look_ms));
            assert_eq!(patience(heartbeat, true), Duration::ZERO);
            // Each other consumer has looked once.
            assert_eq!(patience(heartbeat, false), Duration::from_millis(look_ms));
        }
    }

    /// A schedule whose first heartbeat was granted at `start`, when the server's clock showed 0.
    fn begun(start: Instant, heartbeat: Duration) -> Schedule {
        let mut schedule = Schedule::new(start, heartbeat, 1);
        schedule.has_beaten(start, 0);
        schedule
    }

    #[test]
    fn a_stop_waits_for_nothing_but_heartbeats() {
        let (now, heartbeat) = (Instant::now(), Duration::from_secs(3_000));
        let mut schedule = Schedule::new(now, heartbeat, 2);
        assert_eq!(schedule.due(now, true), now, "the first heartbeat");
        schedule.has_beaten(now, 0);
        schedule.beat = now + heartbeat / 3;
        assert_eq!(schedule.due(now, false), now, "the first look for delayed jobs is due at once");
        assert_eq!(schedule.due(now, true), now + heartbeat / 3, "a sweep that is due is left out");
    }

    #[test]
    fn a_consumer_takes_nothing_over_until_all_have_given_a_heartbeat_after_its_first() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(9));
        let at = |ms| start + Duration::from_millis(ms);
        let mut schedule = Schedule::new(start, heartbeat, 1);
        assert!(!schedule.may_reclaim(at(0)) && !schedule.may_reclaim(at(60_000)));
        assert_eq!(schedule.reclaim_until_ms(), 0, "the server would refuse it");
        schedule.has_beaten(at(100), 5_000);
        assert!(!schedule.may_reclaim(at(2_099)) && schedule.may_reclaim(at(2_100)));
        assert_eq!(schedule.reclaim_until_ms(), 9_500);
    }

    #[test]
    fn a_late_heartbeat_delays_takeovers_and_nothing_else() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(9));
        let at = |ms| start + Duration::from_millis(ms);
        let mut schedule = begun(start, heartbeat);
        for beat in [3_000, 6_000] {
            schedule.has_beaten(at(beat), beat);
            assert!(schedule.may_reclaim(at(beat)), "the others have had their time");
        }
        // The server is away until 20 s.
        assert!(schedule.may_reclaim(at(10_499)) && !schedule.may_reclaim(at(10_500)));
        schedule.promote[0] = at(30_000);
        (schedule.beat, schedule.sweep) = (at(12_500), at(40_000));
        assert_eq!(schedule.due(at(12_000), false), at(12_500), "no time that is over for ever");
        schedule.has_beaten(at(20_000), 20_000);
        schedule.beat = at(23_000);
        assert_eq!(schedule.due(at(20_000), false), at(22_000));
        assert!(!schedule.may_reclaim(at(21_999)) && schedule.may_reclaim(at(22_000)));
        // Each further one is late, too: takeovers are only rarer.
        for beat in [27_000, 34_000] {
            schedule.has_beaten(at(beat), beat);
            assert!(
                !schedule.may_reclaim(at(beat + 1_999)) && schedule.may_reclaim(at(beat + 2_000))
            );
        }
        schedule.has_beaten(at(41_000), 41_000);
        assert!(schedule.may_reclaim(at(41_000)));
        schedule.has_beaten(at(48_000), 48_000);
        assert!(!schedule.may_reclaim(at(49_999)) && schedule.may_reclaim(at(50_000)));
    }

    #[test]
    fn a_server_that_is_away_twice_delays_takeovers_twice() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(9));
        let at = |ms| start + Duration::from_millis(ms);
        let mut schedule = begun(start, heartbeat);
        schedule.has_beaten(at(10_000), 10_000);
        // It goes again before the first time is over.
        schedule.has_beaten(at(18_000), 18_000);
        assert!(!schedule.may_reclaim(at(19_999)) && schedule.may_reclaim(at(20_000)));
    }

    #[test]
    fn a_clock_that_jumps_ahead_delays_takeovers_until_all_have_given_a_heartbeat() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(9));
        let at = |ms| start + Duration::from_millis(ms);
        let mut schedule = begun(start, heartbeat);
        schedule.has_beaten(at(3_000), 3_000);
        assert_eq!(schedule.reclaim_until_ms(), 7_500, "a look that the jump overtakes is refused");
        schedule.beat = at(6_000);
        schedule.came_too_late(at(3_500));
        assert_eq!(schedule.beat, at(3_500));
        schedule.has_beaten(at(3_600), 7_203_600);
        assert!(!schedule.may_reclaim(at(7_599)), "a third of the heartbeat and a second");
        assert!(schedule.may_reclaim(at(7_600)));
        // It jumps back: that delays takeovers by itself.
        schedule.has_beaten(at(7_700), 7_700);
        assert!(schedule.may_reclaim(at(7_700)));
    }
}
