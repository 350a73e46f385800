//! The job of a shard that runs alone, the last attempt after deaths: for how long the consumer waits
//! until nothing else runs, and for how long nothing else may run beside it. Pure: times in, decisions
//! out.

use std::time::{Duration, Instant};

use super::link::Place;

/// The first wait, in heartbeats.
const WAIT: u32 = 2;
/// The longest wait: no run is waited for longer.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The time between two waits, as a multiple of the first of them.
const REST: u32 = 10;
/// How long nothing runs beside the job, in heartbeats.
const RUN: u32 = 10;

/// The job that has been chosen.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) place: Place,
    /// Since when it waits, or runs.
    since: Instant,
    has_begun: bool,
    run_max: Duration,
    heartbeat: Duration,
    /// Since when the server has to learn that its run has ended, or that others run beside it.
    untold_since: Option<Instant>,
    /// Others run beside it, although the server does not know.
    others_run: bool,
}

/// When a consumer that holds other jobs may choose one.
#[derive(Debug)]
pub(super) struct Turns {
    first: Duration,
    wait: Duration,
    next: Instant,
}

impl Turns {
    pub(super) fn new(now: Instant, heartbeat: Duration) -> Turns {
        let first = (heartbeat * WAIT).min(WAIT_MAX);
        Turns { first, wait: first, next: now }
    }

    /// Whether to take over a job that must run alone. A consumer that holds no other always does.
    pub(super) fn takes_one(&self, now: Instant, held: usize) -> bool {
        held == 0 || now >= self.next
    }

    /// The others did not end in time. The next wait is twice as long, so that one is long enough.
    pub(super) fn waited_in_vain(&mut self, now: Instant) {
        self.next = now + self.wait * REST;
        self.wait = (self.wait * 2).min(WAIT_MAX);
    }

    pub(super) fn has_run(&mut self) {
        self.wait = self.first;
    }
}

impl Alone {
    /// `surplus` attempts have begun beyond the last one: each doubles the time, so that a job which
    /// kills its consumer late is alone at last.
    pub(super) fn new(now: Instant, place: Place, heartbeat: Duration, surplus: u32) -> Alone {
        let run_max = heartbeat.saturating_mul(RUN).saturating_mul(1 << surplus.min(20));
        let (has_begun, others_run) = (false, false);
        Alone { place, since: now, has_begun, run_max, heartbeat, untold_since: None, others_run }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn begins(&mut self, now: Instant) {
        (self.since, self.has_begun) = (now, true);
    }

    /// It has waited for the others as long as it may, and is handed back.
    pub(super) fn is_in_vain(&self, now: Instant, turns: &Turns) -> bool {
        !self.has_begun && now - self.since >= turns.wait
    }

    /// True once: the server has not learnt for a heartbeat that the run has ended, or that it is long.
    /// Others run from now on, since a server that is away must not stop the jobs of all others.
    pub(super) fn lets_others_run(&mut self, now: Instant, has_ended: bool) -> bool {
        if !has_ended && !self.is_long(now) {
            return false;
        }
        let untold_since = *self.untold_since.get_or_insert(now);
        let is_over = now.saturating_duration_since(untold_since) >= self.heartbeat;
        is_over && !std::mem::replace(&mut self.others_run, true)
    }

    pub(super) fn others_run(&self) -> bool {
        self.others_run
    }

    /// It has run alone as long as it may: others may run beside it.
    pub(super) fn is_long(&self, now: Instant) -> bool {
        self.has_begun && now - self.since >= self.run_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::EntryId;

    const HEARTBEAT: Duration = Duration::from_secs(10);

    #[test]
    fn waits_become_longer_and_take_a_tenth_of_the_time() {
        let start = Instant::now();
        let mut turns = Turns::new(start, HEARTBEAT);
        let (mut now, mut waited) = (start, Duration::ZERO);
        for nth in 0..20 {
            assert!(turns.takes_one(now, 5));
            let alone = Alone::new(now, (0, EntryId(1, 0)), HEARTBEAT, 0);
            let wait = (HEARTBEAT * 2 * 2_u32.pow(nth)).min(WAIT_MAX);
            assert!(!alone.is_in_vain(now + wait - HEARTBEAT, &turns));
            now += wait;
            waited += wait;
            assert!(alone.is_in_vain(now, &turns));
            turns.waited_in_vain(now);
            assert!(!turns.takes_one(now, 1) && turns.takes_one(now, 0), "it holds no other");
            now = turns.next;
        }
        assert!(waited * 10 <= now - start);
        turns.has_run();
        assert_eq!(turns.wait, HEARTBEAT * 2);
    }

    #[test]
    fn a_long_run_is_alone_for_a_time_that_doubles_with_each_death() {
        let now = Instant::now();
        for (surplus, heartbeats) in [(0, 10), (1, 20), (3, 80)] {
            let mut alone = Alone::new(now, (0, EntryId(1, 0)), HEARTBEAT, surplus);
            assert!(!alone.is_long(now + HEARTBEAT * 1_000), "it has not begun");
            alone.begins(now);
            assert!(!alone.is_long(now + HEARTBEAT * (heartbeats - 1)));
            assert!(alone.is_long(now + HEARTBEAT * heartbeats));
        }
    }

    #[test]
    fn a_server_that_is_not_told_in_a_heartbeat_delays_no_other_job() {
        let now = Instant::now();
        for has_ended in [true, false] {
            let mut alone = Alone::new(now, (0, EntryId(1, 0)), HEARTBEAT, 0);
            alone.begins(now);
            assert!(!alone.lets_others_run(now + HEARTBEAT, false), "it runs");
            let told = now + if has_ended { HEARTBEAT } else { HEARTBEAT * 10 };
            assert!(!alone.lets_others_run(told, has_ended));
            let later = told + HEARTBEAT;
            assert!(!alone.lets_others_run(later - Duration::from_millis(1), has_ended));
            assert!(!alone.others_run() && alone.lets_others_run(later, has_ended));
            assert!(!alone.lets_others_run(later, has_ended) && alone.others_run());
        }
    }
}
