//! Cancel, disable, enable.
//!
//! `grab` makes the caller the owner of the item, wherever it is. README.md beside the pwq lists
//! the places and their guards.

use std::ptr::NonNull;

use crate::engine::Engine;
use crate::lifecycle::disposal::Kept;
use crate::queue::Wq;
use crate::queue::pwq::{Inner, Pwq};
use crate::slot::{RemoteSlot, WaitsFor};
use crate::timer::delayed::disarm;
use crate::words::host::Host;
use crate::words::item::word::{Acquire, DepthChange, Owned, RunId};
use crate::words::item::{Location, Work};
use crate::words::sync::LockGuard;
use crate::words::wake::{Waiter, Waiters};
use crate::worker::Caller;

/// The result of a grab.
#[must_use = "the caller owns the item and must release its word"]
pub(crate) struct Grabbed<H: Host> {
    pub(crate) owned: Owned,
    /// Whether the item was pending: queued or armed.
    pub(crate) was_pending: bool,
    /// Dropped with this, which happens after the release of the word: the drop may take long.
    _kept: Kept<H>,
}

/// The disable depth would leave its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthError {
    /// The depth of disables without an enable is at its maximum.
    TooDeep,
    /// The item is not disabled.
    NotDisabled,
}

impl std::fmt::Display for DepthError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DepthError::TooDeep => write!(
                f,
                "the item is disabled {} times already, which is the limit",
                crate::words::item::word::DISABLE_DEPTH_MAX
            ),
            DepthError::NotDisabled => f.write_str("the item is enabled; there is no disable left"),
        }
    }
}

impl std::error::Error for DepthError {}

/// A queued item's list, with its guards.
pub(crate) struct Located<'a, H: Host> {
    pub(crate) pwq: &'a Pwq<H>,
    pub(crate) inner: LockGuard<'a, Inner<H>>,
    pub(crate) remote: Option<RemoteSlot<'a, H>>,
    pub(crate) location: Location,
}

impl<H: Host> Located<'_, H> {
    /// Removes the item from its list; the caller holds it detached.
    ///
    /// # Safety
    /// `work` is the item that was located.
    pub(crate) unsafe fn unlink(&mut self, work: NonNull<Work>) {
        // SAFETY: the item's location and pwq were read under the guards that we hold.
        unsafe {
            match (self.location, &mut self.remote) {
                (Location::Scheduled(_), Some(slot)) => slot.remove_scheduled(work.as_ptr()),
                (Location::Deferred(_), Some(slot)) => slot.remove_deferred(work.as_ptr()),
                _ => {
                    self.inner.worklist.remove(work.as_ptr());
                    self.inner.queued -= 1;
                }
            }
            work.as_ref().set_location(Location::Detached);
        }
    }

    /// Takes the threads that wait for the item's pending run.
    pub(crate) fn take_waiters(&mut self, work: NonNull<Work>) -> Waiters<H> {
        // SAFETY: located, hence live.
        let item = unsafe { work.as_ref() };
        if !item.ticket().waited_for() {
            return Waiters::new();
        }
        item.set_ticket(item.ticket().with_waited_for(false));
        self.inner.waiters.take_matching(work.as_ptr().addr())
    }
}

impl<H: Host> Engine<H> {
    /// Removes a pending item from wherever it is, without waiting for its function. True if it was
    /// pending: then the caller owns it again, as before it was queued.
    ///
    /// # Safety
    /// `work` is live, and has only been queued on queues of this engine.
    pub unsafe fn cancel(&self, work: NonNull<Work>) -> bool {
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        if !item.is_pending() {
            return false;
        }
        // SAFETY: by this function's contract.
        let grabbed = unsafe { self.grab(work) };
        item.word.release(grabbed.owned);
        grabbed.was_pending
    }

    /// As [`Engine::cancel`], and waits for a run in progress. Queueing the item during the
    /// wait is refused. From inside the item itself there is nothing to wait for.
    ///
    /// # Errors
    /// The disable depth is at its maximum; nothing was done.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn cancel_sync(&self, work: NonNull<Work>) -> Result<bool, DepthError> {
        // SAFETY: by this function's contract.
        unsafe {
            let was_pending = self.disable_sync(work)?;
            self.enable(work)?;
            Ok(was_pending)
        }
    }

    /// Keeps the item from being queued until as many `enable` calls have followed, and cancels it
    /// if it is pending. True if it was pending: then the caller owns it again.
    ///
    /// # Errors
    /// The disable depth is at its maximum; nothing was done.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn disable(&self, work: NonNull<Work>) -> Result<bool, DepthError> {
        // SAFETY: by this function's contract.
        let grabbed = unsafe { self.grab(work) };
        // SAFETY: by this function's contract.
        match unsafe { work.as_ref() }.word.release_disabled(grabbed.owned) {
            DepthChange::Now(_) => Ok(grabbed.was_pending),
            DepthChange::Refused => Err(DepthError::TooDeep),
        }
    }

    /// As [`Engine::disable`], and waits for a run in progress.
    ///
    /// # Errors
    /// As [`Engine::disable`].
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn disable_sync(&self, work: NonNull<Work>) -> Result<bool, DepthError> {
        // SAFETY: by this function's contract.
        let was_pending = unsafe { self.disable(work) }?;
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        if let (_, Some(run)) = item.word.snapshot() {
            self.caller().wait_for_run(run, item);
        }
        Ok(was_pending)
    }

    /// Undoes one disable. True if the item can be queued again. Does not queue it.
    ///
    /// # Errors
    /// The item is not disabled.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn enable(&self, work: NonNull<Work>) -> Result<bool, DepthError> {
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        let mut round = 0;
        loop {
            if let Acquire::Owned(owned) = item.word.acquire() {
                return match item.word.release_enabled(owned) {
                    DepthChange::Now(depth) => Ok(depth == 0),
                    DepthChange::Refused => Err(DepthError::NotDisabled),
                };
            }
            // A disabled item is in no list: another thread owns it for a few instructions. If
            // another enable was the last, the item is enabled, and its being pending does not
            // concern this call.
            if item.disable_depth() == 0 {
                return Err(DepthError::NotDisabled);
            }
            self.host().relax(round);
            round += 1;
        }
    }

    /// Makes the caller the owner of the item, removing it from wherever it is.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub(crate) unsafe fn grab(&self, work: NonNull<Work>) -> Grabbed<H> {
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        let (mut round, mut kept) = (0, Kept::nothing());
        loop {
            if let Acquire::Owned(owned) = item.word.acquire() {
                return Grabbed { owned, was_pending: false, _kept: kept };
            }
            let taken = match item.location() {
                Location::Detached => false,
                // SAFETY: by this function's contract.
                Location::Timer(pool) => unsafe { disarm(self, work, pool) },
                // SAFETY: by this function's contract.
                Location::Grace(_) => unsafe { self.grace.leave(self, work) },
                // SAFETY: by this function's contract.
                Location::Disposal(_) => unsafe { self.disposal.leave(self, work, &mut kept) },
                // SAFETY: by this function's contract.
                _ => unsafe { remove_queued(self, work) },
            };
            if taken {
                return Grabbed { owned: item.word.owned(), was_pending: true, _kept: kept };
            }
            // Another thread holds it detached, for a few instructions unless that thread is
            // preempted.
            self.host().relax(round);
            round += 1;
        }
    }
}

/// Finds the list that a queued item is in, and takes its guards. `None` if it is in no list at
/// the moment.
///
/// # Safety
/// As [`Engine::cancel`].
pub(crate) unsafe fn locate<H: Host>(
    engine: &Engine<H>,
    work: NonNull<Work>,
) -> Option<Located<'_, H>> {
    // SAFETY: by this function's contract.
    let item = unsafe { work.as_ref() };
    // The ticket may be stale by the time we have the lock of the pwq that it names. Pwqs are
    // never freed, so the access is safe, and the ticket is checked again under the lock.
    let pwq = engine.pwqs.get(item.ticket().pwq())?;
    let mut inner = pwq.lock();
    pwq.splice(&mut inner);
    let (location, ticket) = item.placement();
    if ticket.pwq() != pwq.id {
        return None;
    }
    let remote = match location {
        Location::Worklist => None,
        Location::Scheduled(slot) | Location::Deferred(slot) => {
            Some(engine.slots.get(slot)?.lock_remote(engine.host()))
        }
        // Not pushed yet, started, or detached.
        Location::Detached
        | Location::Inbox
        | Location::Timer(_)
        | Location::Grace(_)
        | Location::Disposal(_) => {
            return None;
        }
    };
    // Check again under the slot's lock: the item may have started, and be queued again on
    // another pwq.
    let (now, ticket) = item.placement();
    if now != location || ticket.pwq() != pwq.id {
        return None;
    }
    Some(Located { pwq, inner, remote, location })
}

impl<H: Host> Caller<'_, H> {
    /// Waits until a run, which `item` names, has ended. Returns at once if it has, or if the
    /// caller is inside it.
    pub(crate) fn wait_for_run(self, run: RunId, item: &Work) -> bool {
        let Some(slot) = self.engine.slots.get(run.slot) else { return false };
        if !slot.is_running(run.run) || self.runs(run, item) {
            return false;
        }
        self.before_wait();
        let waiter = Waiter::new(0);
        // SAFETY: the waiter is in no chain, and waited for below if it was put into one.
        let waits =
            unsafe { slot.lock_remote(self.engine.host()).wait_for(run.run, item, &waiter) };
        if waits {
            let _noted = self.note_wait(WaitsFor::Run(run));
            let _blocked = self.block();
            waiter.wait(self.engine.host());
        }
        waits
    }
}

/// Removes a queued item from its list. False if it is not in one at the moment.
unsafe fn remove_queued<H: Host>(engine: &Engine<H>, work: NonNull<Work>) -> bool {
    // SAFETY: the caller's promise, handed on.
    let Some(mut found) = (unsafe { locate(engine, work) }) else { return false };
    // SAFETY: located in that list, whose guards are held.
    unsafe { found.unlink(work) };
    let mut waiters = found.take_waiters(work);
    let Located { pwq, inner, remote, location } = found;
    drop(remote);
    // The item counts until `finish`, and so keeps the queue alive.
    let mut inner = pwq.return_unused(engine.host(), inner, &mut |pwq| pwq.make_ready(engine));
    let plugged = pwq.is_ordered() && matches!(location, Location::Deferred(_));
    let ready = plugged && pwq.unplug(&mut inner, &mut waiters);
    // SAFETY: the caller's promise that the item is live; and it is ours now.
    let colour = unsafe { work.as_ref() }.ticket().colour();
    let wq: *const Wq<H> = pwq.wq();
    // The queue lives at least until this, because it counts the item.
    let over = pwq.finish(colour, 1);
    drop(inner);
    if ready {
        pwq.make_ready(engine);
    }
    if over {
        // SAFETY: a flush waits for this colour, so the queue exists.
        unsafe { &*wq }.end_colour(engine, pwq, colour);
    }
    waiters.complete(engine.host());
    true
}
