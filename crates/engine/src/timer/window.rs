//! The window of a timer: from its expiry to the time at which a thread must be awake for it.

use uwork_policy::timer::expiry;

use super::Delayed;
use crate::pool::{NEVER, Pool};
use crate::queue::Warned;
use crate::queue::owner::Queue;
use crate::words::host::{Host, Report};

/// The window of a timer that is armed now in this pool. Delays that exceed the clock's range end
/// with it.
pub(super) fn window_in<H: Host>(
    pool: &Pool<H>,
    now: u64,
    delay_ns: u64,
    slack_ns: u64,
) -> (u64, u64) {
    let deadline = now.saturating_add(delay_ns).min(NEVER - 1);
    if pool.spec().saves {
        return (deadline, deadline.saturating_add(slack_ns).min(NEVER - 1));
    }
    let at = expiry(deadline, slack_ns).min(NEVER - 1);
    (at, at)
}

impl<H: Host> Delayed<H> {
    /// Sets the expiry and the latest time.
    ///
    /// # Safety
    /// The item is the caller's; while it is armed, the caller holds the timers' lock.
    pub(super) unsafe fn set_window(&self, (expiry, latest): (u64, u64)) {
        // SAFETY: by this function's contract.
        unsafe {
            self.node.expiry.set(expiry);
            self.latest.set(latest);
        }
    }
}

impl<H: Host> Queue<H> {
    /// The slack of an item that is to be armed on this queue: its own or the queue's, whichever is
    /// longer. Holds no lock, because it may report.
    #[inline]
    pub(super) fn slack_of(&self, item: &Delayed<H>, delay_ns: u64) -> u64 {
        let slack_ns = item.slack_ns.max(self.timer_slack());
        if slack_ns > delay_ns && delay_ns > 0 {
            self.check_period(item, delay_ns, slack_ns);
        }
        slack_ns
    }

    /// An item that arms itself again for the same delay has a period. A slack beyond it is probably
    /// a mistake: the period may more than double.
    #[cold]
    fn check_period(&self, item: &Delayed<H>, period_ns: u64, slack_ns: u64) {
        let caller = self.engine().caller();
        let (_, run) = item.work().word.snapshot();
        let is_in_its_run = run.is_some_and(|run| caller.runs(run, item.work()));
        if is_in_its_run
            && self.is_period(item.work(), period_ns)
            && self.warn_once(Warned::SLACK_BEYOND_PERIOD)
        {
            let queue = self.name().to_owned();
            caller.report(Report::SlackBeyondPeriod { queue, period_ns, slack_ns });
        }
    }
}
