//! Pause and resume of one queue.
//!
//! A pause sets the queue's limits to 0, as a freeze does, and then waits until no worker or helper
//! holds a permit of the queue. Items that were queued before, and items that are queued meanwhile,
//! stay in their lists in order. A resume restores the limits. Pauses are counted.
//!
//! **The wait.** The pauser visits the pwqs one after the other. A pwq whose limit is 0 and of which
//! no permit is taken stays so until the resume, so the visits need no common instant. Where a permit
//! is taken, the pauser joins the pwq's chain of waiters. The limit, the permits and the chain are
//! under the pwq lock:
//!
//! ```text
//! pauser                                 worker, the last of the pwq
//! pwq.lock  limit := 0   unlock
//! pwq.lock                               pwq.lock
//!   permits taken ?                        releases its permit
//!     yes: joins the chain                 limit 0 and no permit taken ?
//!     no:  next pwq                          yes: takes the pausers from the chain
//! unlock                                 unlock
//! sleeps                                 wakes them
//! ```
//!
//! Either section of the lock may be first. If the worker's is, the pauser finds no permit taken; if
//! the pauser's is, the worker finds the pauser in the chain. A worker that took its permit before
//! the limit became 0 is seen by the pauser, whose visit comes later under the same lock.
//!
//! A queue that is never paused pays one comparison, under a lock that its worker holds anyway, when
//! a permit is released at the limit.
//!
//! **Items that wait for items of their own queue.** The pause waits for the outer item. The outer
//! item may help the inner item even while the queue is paused: it lends its own permit, and the pause
//! still waits for both. Where such help is impossible (per-CPU and BH queues), the pause lasts until
//! it times out.
//!
//! **The end of the queue** ends its pauses, since no handle is left that could. In a forked child
//! the queue stays paused, with the items that the child keeps.

use uwork_policy::flags::Flags;

use super::{QueueError, Wq};
use crate::queue::BecameReady;
use crate::queue::pwq::PAUSER;
use crate::slot::WaitsFor;
use crate::words::host::Host;
use crate::words::sync::Ordering;
use crate::words::wake::Waiter;

impl<H: Host> Wq<H> {
    /// Starts no more items, and waits until those that run have ended. The others stay queued.
    ///
    /// # Errors
    /// The caller is in an item of this queue; then nothing is paused.
    pub fn pause(&self) -> Result<(), QueueError> {
        self.pause_within(None).map(drop)
    }

    /// As [`Wq::pause`], but times out when the host's clock reaches `deadline`. Returns false if it
    /// did; the queue is not paused by this call then.
    ///
    /// # Errors
    /// As [`Wq::pause`].
    pub fn pause_until(&self, deadline: u64) -> Result<bool, QueueError> {
        self.pause_within(Some(deadline))
    }

    /// Ends one pause. The last one lets the queue's items start again.
    ///
    /// # Errors
    /// The queue is not paused.
    pub fn resume(&self) -> Result<(), QueueError> {
        self.lower_pauses(1)
    }

    /// Whether the queue is paused, or about to be.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Whether the queue takes part in a freeze that is in effect.
    pub(crate) fn is_frozen(&self) -> bool {
        self.flags().contains(Flags::FREEZABLE) && self.engine.freeze_epoch() % 2 == 1
    }

    /// Ends all pauses, because the queue ends.
    pub(super) fn end_pauses(&self) {
        if self.is_paused() {
            // Another thread may have ended them meanwhile.
            let _ = self.lower_pauses(u32::MAX);
        }
    }

    fn pause_within(&self, deadline: Option<u64>) -> Result<bool, QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        let mut tunable = self.tunable.lock();
        let ready = if tunable.pauses == 0 {
            self.engine.freeze.begin_pause();
            self.paused.store(true, Ordering::SeqCst);
            self.stop_or_start(&mut tunable, |tunable| tunable.pauses = 1)
        } else {
            tunable.pauses += 1;
            BecameReady::none()
        };
        drop(tunable);
        ready.push(&self.engine);
        let quiet = self.wait_for_holders(deadline);
        if !quiet {
            // A resume by another thread may have ended this pause already.
            let _ = self.resume();
        }
        Ok(quiet)
    }

    fn lower_pauses(&self, by: u32) -> Result<(), QueueError> {
        let mut tunable = self.tunable.lock();
        if tunable.pauses == 0 {
            return Err(QueueError::NotPaused);
        }
        if tunable.pauses > by {
            tunable.pauses -= by;
            return Ok(());
        }
        self.engine.freeze.end_pause();
        self.paused.store(false, Ordering::SeqCst);
        let ready = self.stop_or_start(&mut tunable, |tunable| tunable.pauses = 0);
        drop(tunable);
        ready.push(&self.engine);
        Ok(())
    }

    /// Waits until no worker or helper holds a permit of the stopped queue, or until the queue is no
    /// longer stopped. False if it timed out.
    fn wait_for_holders(&self, deadline: Option<u64>) -> bool {
        if !self.is_held() {
            return true;
        }
        let caller = self.engine.caller();
        caller.check_flush_dependency(self);
        caller.before_wait();
        let _noted = caller.note_wait(WaitsFor::Queue(self.identity().addr()));
        let _blocked = caller.block();
        for (id, _) in self.pwq_ids() {
            let pwq = self.engine.pwqs.get(id).expect("a pwq of this queue");
            loop {
                let waiter = Waiter::new(PAUSER);
                // SAFETY: the waiter is new; and `wait_as_pauser` returns after it has left the chain.
                if !unsafe { pwq.join_pausers(&waiter) } {
                    break;
                }
                if !self.wait_as_pauser(&waiter, deadline, || pwq.leave_pausers(&waiter)) {
                    return false;
                }
            }
        }
        true
    }

    /// Waits until the waiter was taken from its chain and woken. False if `leave` removed it because
    /// it timed out.
    fn wait_as_pauser(
        &self,
        waiter: &Waiter<H>,
        deadline: Option<u64>,
        leave: impl FnOnce() -> bool,
    ) -> bool {
        let host = self.engine.host();
        if let Some(deadline) = deadline {
            if waiter.wait_until(host, deadline) {
                return true;
            }
            if leave() {
                return false;
            }
        }
        waiter.wait(host);
        true
    }
}
