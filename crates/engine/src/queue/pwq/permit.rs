//! Permits under `max_active`: how many workers may hold a pwq.
//!
//! A pwq that is alone on its node has its own limit; several pwqs share the node's. Everything
//! here is under the pwq lock. README.md has the protocol.

use super::node::{NO_EPOCH, Node};
use super::{Inner, PAUSER, Pwq, SATURATED};
use crate::words::host::Host;
use crate::words::sync::{LockGuard, Ordering};
use crate::words::wake::{Waiter, Waiters};

impl<H: Host> Inner<H> {
    /// The node with which the limit is shared, or None.
    fn shared<'a>(&self) -> Option<&'a Node<H>> {
        // SAFETY: null, or the queue's node, which lives at least until the pwq is detached under
        // the lock that the caller holds. A thread that uses it longer counts in `nr_active`, which
        // keeps the queue alive.
        unsafe { self.node.as_ref() }
    }

    /// The node with which the limit is shared, as an identity.
    pub(super) fn node_id(&self) -> Option<usize> {
        (!self.node.is_null()).then(|| self.node.addr())
    }

    /// Takes out the threads that wait for the pause of the queue, if the last permit of a stopped
    /// pwq was released: no item of it runs, and none starts before the limit is raised.
    pub(super) fn take_pausers(&mut self) -> Waiters<H> {
        match self.nr_active == 0 && self.is_frozen() {
            true => self.waiters.take_matching(PAUSER),
            false => Waiters::new(),
        }
    }

    /// Whether the queue is frozen or paused.
    pub(crate) fn is_frozen(&self) -> bool {
        self.max_active == 0
    }

    /// Whether no further worker could take a permit now: all of the pwq, or of its node if they are
    /// shared, are taken. SATURATED is set later, by a worker that looks for one.
    pub(crate) fn lacks_permits(&self) -> bool {
        match self.shared() {
            None => self.nr_active >= self.max_active,
            Some(node) => self.granted == 0 && node.free() == 0 && !node.keeps_any(),
        }
    }

    /// The same, unless there are none because the queue is frozen or paused.
    pub(crate) fn is_saturated(&self) -> bool {
        !self.is_frozen() && self.lacks_permits()
    }

    /// Takes a permit of the node if one is free, or one that another pwq keeps. `id`: the pwq's.
    fn try_take(&mut self, node: &Node<H>, id: u32) -> bool {
        let epoch = node.try_take().or_else(|| node.take_over(id));
        self.epoch = epoch.unwrap_or(self.epoch);
        epoch.is_some()
    }

    /// Takes the permit that another pwq of the node keeps, without its lock. As in `try_take`, first
    /// the epoch is read, then the limit; where more are taken, a kept one is to be given back.
    fn borrow(&mut self, node: &Node<H>, lender: &Pwq<H>) -> bool {
        let epoch = node.epoch();
        let taken = epoch != NO_EPOCH && !node.is_exceeded() && lender.take_kept();
        self.epoch = if taken { epoch } else { self.epoch };
        taken
    }

    /// Workers that share the queued items: the one that has just taken its permit, and those that
    /// still may take one.
    pub(super) fn sharers(&self) -> u32 {
        let more = match self.shared() {
            None => self.max_active.saturating_sub(self.nr_active),
            // Many may be kept, or none.
            Some(node) if node.is_tight() => node.max(),
            Some(node) => match node.free() + self.granted {
                // A worker may take over what other pwqs keep.
                0 => node.kept(),
                free => free,
            },
        };
        more + 1
    }
}

impl<H: Host> Pwq<H> {
    /// The pwq of the same queue and node whose permit a worker brings along: that of its own CPU,
    /// `cpu`. `inner`: this pwq, in which an item waits or which the worker holds, so that the queue
    /// exists.
    pub(super) fn lender(&self, inner: &Inner<H>, cpu: Option<u32>) -> Option<&Pwq<H>> {
        let (cpu, node) = (cpu?, inner.shared()?);
        // SAFETY: as above.
        let own = unsafe { &*self.wq() }.known_route(cpu)?;
        (!std::ptr::eq(own, self) && own.shares(node)).then_some(own)
    }

    /// Takes a permit: one that `lender` keeps, if there is a lender. If there is none, the pwq is
    /// SATURATED from here on.
    pub(super) fn take_permit(&self, inner: &mut Inner<H>, lender: Option<&Pwq<H>>) -> bool {
        let taken = match inner.shared() {
            None => self.has_room(inner),
            Some(_) if inner.granted > 0 => {
                inner.granted -= 1;
                true
            }
            Some(node) if lender.is_some_and(|lender| inner.borrow(node, lender)) => true,
            Some(_) if self.take_kept() => true,
            // Retry: another pwq may have taken the permit that was seen.
            Some(node) => loop {
                if inner.try_take(node, self.id) {
                    break true;
                }
                if !self.has_room(inner) {
                    break false;
                }
            },
        };
        inner.nr_active += u32::from(taken);
        taken
    }

    /// Takes a permit for a helper, if one is free.
    pub(crate) fn take_permit_to_help(&self, inner: &mut Inner<H>) -> bool {
        let taken = match inner.shared() {
            None => inner.nr_active < inner.max_active,
            Some(_) if self.take_kept() => true,
            Some(node) => inner.try_take(node, self.id),
        };
        inner.nr_active += u32::from(taken);
        taken
    }

    /// Whether one more worker may hold the pwq. If not, the pwq is SATURATED from here on, and the
    /// next release of a permit makes it ready again.
    pub(super) fn has_room(&self, inner: &mut Inner<H>) -> bool {
        let room = match inner.shared() {
            None => inner.nr_active < inner.max_active,
            Some(_) if inner.granted > 0 || self.keeps_permit() => true,
            Some(node) => {
                node.free() > 0 || {
                    // Join the row first, then read the count again. `Node::give` changes the count
                    // first and reads the row second. All SeqCst, so at least one side sees the
                    // other.
                    node.enqueue(self);
                    node.free() > 0
                }
            }
        };
        if !room {
            self.state.fetch_or(SATURATED, Ordering::SeqCst);
        }
        room
    }

    /// Whether a worker that looks may find a permit. Where pwqs may keep most of them, one that looks
    /// finds out.
    pub(super) fn may_have_room(&self, inner: &mut Inner<H>) -> bool {
        inner.shared().is_some_and(Node::is_tight) || self.has_room(inner)
    }

    /// After a batch was taken: whether another worker may take more items now.
    pub(super) fn look_ahead(&self, inner: &mut Inner<H>) -> bool {
        if inner.queued > 0 {
            return self.may_have_room(inner);
        }
        if inner.shared().is_none() {
            // Marks a limit that is reached, which spares the next submitter a useless wake. A row
            // only holds pwqs in which an item waits.
            self.has_room(inner);
        }
        false
    }

    /// Releases a permit, which `lender` or the pwq may keep. Returns true if the pwq has become ready
    /// and the caller must put it on a ready list. Other pwqs that became ready are passed to `ready`.
    #[must_use]
    pub(super) fn let_go<'a>(
        &'a self,
        host: &H,
        mut inner: LockGuard<'a, Inner<H>>,
        lender: Option<&Pwq<H>>,
        ready: &mut impl FnMut(&Pwq<H>),
    ) -> bool {
        let Some(node) = inner.shared() else {
            inner.nr_active -= 1;
            if inner.nr_active < inner.max_active {
                return self.state.load(Ordering::Relaxed) & SATURATED != 0
                    && self.unsaturate(&inner);
            }
            let pausers = inner.take_pausers();
            drop(inner);
            pausers.complete(host);
            return false;
        };
        let keeper = lender.filter(|lender| !lender.keeps_permit()).unwrap_or(self);
        if keeper.keep_permit(node, inner.epoch) {
            // `nr_active` is lowered last: it keeps the queue, and with it the node.
            drop(inner);
            node.pass_on(ready);
            inner = self.lock();
        }
        inner.nr_active -= 1;
        let pausers = inner.take_pausers();
        drop(inner);
        pausers.complete(host);
        false
    }

    /// Gives back the permits that the node has granted and that are not needed.
    pub(super) fn return_granted<'a>(
        &'a self,
        host: &H,
        mut inner: LockGuard<'a, Inner<H>>,
        ready: &mut impl FnMut(&Pwq<H>),
    ) {
        while inner.granted > 0 {
            inner.granted -= 1;
            inner.nr_active += 1;
            if self.let_go(host, inner, None, ready) {
                ready(self);
            }
            inner = self.lock();
        }
    }

    /// A thread that is no worker of this pool took an item off. If it was the last one, the granted
    /// permits go back to the node at once: the pool's workers may be busy for long. `ready` is
    /// called without locks held.
    pub(crate) fn return_unused<'a>(
        &'a self,
        host: &H,
        inner: LockGuard<'a, Inner<H>>,
        ready: &mut impl FnMut(&Pwq<H>),
    ) -> LockGuard<'a, Inner<H>> {
        if inner.granted == 0 || !inner.worklist.is_empty() {
            return inner;
        }
        self.return_granted(host, inner, ready);
        self.lock()
    }

    /// Clears SATURATED, under the lock. Returns true if the caller must put the pwq on a ready
    /// list.
    pub(super) fn unsaturate(&self, inner: &Inner<H>) -> bool {
        // SeqCst: clear the flag first, read the inbox second. A submitter pushes first and reads
        // the flag second (`claim_ready`), so at least one of the two sees the other.
        self.state.fetch_and(!SATURATED, Ordering::SeqCst);
        let pending = !inner.worklist.is_empty() || !self.inbox.is_empty();
        pending && self.claim_ready()
    }

    /// Sets the limit; 0 while the queue is frozen or paused. Returns true if the pwq has become ready and
    /// the caller must put it on a ready list. If the limit is shared, the node's limit was set
    /// before.
    #[must_use]
    pub(crate) fn set_max_active(&self, max_active: u32) -> bool {
        let mut inner = self.lock();
        inner.max_active = max_active;
        if let Some(node) = inner.shared() {
            if max_active == 0 {
                // A frozen pwq must not use its grants. The next thread that finds it ready puts it
                // into the node's row.
                let granted = std::mem::take(&mut inner.granted);
                let _ = node.give(granted);
            }
            return false;
        }
        inner.nr_active < max_active
            && self.state.load(Ordering::Relaxed) & SATURATED != 0
            && self.unsaturate(&inner)
    }

    /// The queue was thawed or resumed: takes out the waiters of its items. One of them may be in an item of
    /// this queue that holds the last permit, which it could not lend before.
    pub(crate) fn take_waiters_of_frozen(&self) -> Waiters<H> {
        self.lock().waiters.take_to_recheck()
    }

    /// Puts a waiter in the chain of those that wait for a pause, if a worker or helper holds the
    /// stopped pwq. False if none does, or if the pwq is not stopped any more.
    ///
    /// # Safety
    /// The waiter has the key `PAUSER` and is in no chain, and the caller waits for it if this returns true.
    pub(crate) unsafe fn join_pausers(&self, waiter: &Waiter<H>) -> bool {
        let mut inner = self.lock();
        let held = inner.is_frozen() && inner.nr_active > 0;
        if held {
            // SAFETY: by this function's contract.
            unsafe { inner.waiters.push(waiter) };
        }
        held
    }

    /// Removes a waiter that timed out. False if it is not in the chain any more.
    pub(crate) fn leave_pausers(&self, waiter: &Waiter<H>) -> bool {
        self.lock().waiters.remove(waiter)
    }

    /// Whether items wait because the limit is reached.
    pub(crate) fn is_congested(&self) -> bool {
        let mut inner = self.lock();
        self.splice(&mut inner);
        inner.lacks_permits() && inner.queued > 0
    }

    /// How many workers and helpers hold it.
    pub(crate) fn holders(&self) -> u32 {
        self.lock().nr_active
    }

    /// Whether a worker or helper holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.holders() > 0
    }

    /// Detaches the pwq from its node, because the queue is destroyed. Returns false, and does
    /// nothing, while a worker holds the pwq.
    #[must_use]
    pub(crate) fn detach(&self) -> bool {
        let mut inner = self.lock();
        if inner.nr_active > 0 {
            return false;
        }
        if let Some(node) = inner.shared() {
            node.remove(self);
        }
        inner.node = std::ptr::null();
        self.shared_with.store(std::ptr::null_mut(), Ordering::Relaxed);
        inner.granted = 0;
        inner.epoch = NO_EPOCH;
        true
    }
}

#[cfg(all(test, loom))]
impl<H: Host> Pwq<H> {
    /// A batch, of no item, of a worker that brings the permit which `lender` keeps. False if it keeps
    /// none. Calls `inside` with the permit.
    pub(crate) fn visit(
        &self,
        host: &H,
        (node, lender): (&Node<H>, &Pwq<H>),
        inside: impl FnOnce(),
        ready: &mut impl FnMut(&Pwq<H>),
    ) -> bool {
        let mut inner = self.lock();
        if !inner.borrow(node, lender) {
            return false;
        }
        inner.nr_active += 1;
        drop(inner);
        inside();
        if self.let_go(host, self.lock(), Some(lender), ready) {
            ready(self);
        }
        true
    }
}
