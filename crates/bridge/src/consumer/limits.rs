//! The time limit of attempts, and runs that go on beyond it. A run in Rust or C cannot be killed: it
//! keeps its permit until it returns.

use std::time::{Duration, Instant};

use super::link::Link;
use super::outcome::End;
use crate::job::{Ticket, too_long};
use crate::scripts::ms;

/// The interval at which time limits are checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Runs beyond their limit may have all permits for so long. A command is killed by then.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// The time limits of the attempts of a shard.
pub(super) struct Limits {
    /// When they are checked next.
    pub(super) next: Instant,
    /// Since when runs that hang have all permits.
    stuck_since: Option<Instant>,
}

impl Limits {
    pub(super) fn new(now: Instant) -> Limits {
        Limits { next: now, stuck_since: None }
    }

    /// Decides attempts that run for too long.
    pub(super) fn check(&mut self, link: &Link) {
        let Some(limit) = link.shared.config.limit else { return };
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + CHECK_EVERY.min(limit / 2);
        let limit_ms = ms(limit);
        let is_over = |ticket: &Ticket| {
            ticket.running_ms().is_some_and(|ms| ms >= limit_ms) && ticket.settle()
        };
        let hung = link.settle(is_over, || End::Failed(too_long(limit)));
        link.shared.has_hung(hung);
        self.hand_back_if_stuck(link, now);
    }

    /// Hands back what has not begun when runs that hang have all permits. Those jobs would wait
    /// here, kept alive by heartbeats, while other consumers have room.
    fn hand_back_if_stuck(&mut self, link: &Link, now: Instant) {
        if link.shared.permits() > 0 {
            self.stuck_since = None;
            return;
        }
        if now - *self.stuck_since.get_or_insert(now) >= STUCK_AFTER {
            link.shared.report_stuck();
            link.settle(|ticket| ticket.settle_unstarted(), || End::HandBack);
        }
    }
}
