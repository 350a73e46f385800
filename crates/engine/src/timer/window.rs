//! The window of a timer: from its expiry to the time at which a thread must be awake for it.

use uwork_policy::timer::expiry;

use super::Delayed;
use crate::host::Host;
use crate::pool::{NEVER, Pool};
use crate::queue::Wq;

impl<H: Host> Delayed<H> {
    /// The window of a timer that is armed now on this queue, in this pool. Delays that exceed the
    /// clock's range end with it. The slack is the item's or the queue's, whichever is longer.
    pub(super) fn window_in(
        &self,
        wq: &Wq<H>,
        pool: &Pool<H>,
        now: u64,
        delay_ns: u64,
    ) -> (u64, u64) {
        let deadline = now.saturating_add(delay_ns).min(NEVER - 1);
        let slack_ns = self.slack_ns.max(wq.timer_slack());
        if pool.spec().saves {
            return (deadline, deadline.saturating_add(slack_ns).min(NEVER - 1));
        }
        let at = expiry(deadline, slack_ns).min(NEVER - 1);
        (at, at)
    }

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
