//! What a slot keeps across a fork.

use super::parking::{NO_BATCH, UNRESTRICTED};
use super::{FORKED, Lists, NotRunning, RemoteSlot, Slot, WaitsFor};
use crate::words::host::{Event, Host};
use crate::words::item::WorkList;
use crate::words::sync::Ordering;
use crate::words::wake::Waiters;

impl<H: Host> Slot<H> {
    /// In a child after a fork, once no thread holds the slot: resets it, except that run numbers
    /// continue. `in_use`: the child's only thread is in an item that the parent began in this
    /// slot.
    pub(crate) fn forget(&self, in_use: bool) {
        // All fields by name: whoever adds one decides here what the child finds in it. What a run
        // has left is read by its number, and `home` is set before a worker uses the slot.
        let Slot {
            run: _,
            now: _,
            attention,
            // `RemoteSlot::forget`.
            lists: _,
            mutex: _,
            batch_began,
            batch: _,
            event,
            thread,
            waits,
            waits_for_lock,
            picked,
            restricted_to,
            unpinned,
            home: _,
            idle,
            description: _,
            wait,
            functions: _,
        } = self;
        self.leave(self.number());
        attention.store(if in_use { FORKED } else { 0 }, Ordering::Relaxed);
        batch_began.store(NO_BATCH, Ordering::Relaxed);
        event.renew();
        thread.store(0, Ordering::Relaxed);
        waits.store(false, Ordering::Relaxed);
        // The fork itself makes the parent's workers wait: it holds every lock. Only a worker that
        // meets a held lock writes this again.
        waits_for_lock.store(false, Ordering::SeqCst);
        picked.store(false, Ordering::Relaxed);
        restricted_to.store(UNRESTRICTED, Ordering::Relaxed);
        unpinned.store(false, Ordering::Relaxed);
        idle.forget();
        wait.set(WaitsFor::Unknown);
        wait.set_helper(0);
    }
}

impl<H: Host> RemoteSlot<'_, H> {
    /// In a child after a fork: takes all items, and drops the waiters, whose threads do not exist.
    pub(crate) fn forget(&mut self) -> WorkList {
        // All fields by name, as in `Slot::forget`.
        let Lists { scheduled, deferred, waiters, fenced_runs, not_running, is_worker } =
            self.lists();
        let mut items = scheduled.take();
        items.append(deferred.take());
        *waiters = Waiters::new();
        *fenced_runs = 0;
        *not_running = NotRunning::No;
        *is_worker = false;
        items
    }
}

#[cfg(all(test, loom))]
impl<H: Host> Slot<H> {
    /// For models: what an owner and those who wake it may have left at a fork.
    pub(crate) fn leave_traces(&self) {
        self.attention.fetch_or(super::FENCED, Ordering::SeqCst);
        for mark in [&self.waits, &self.waits_for_lock, &self.picked] {
            mark.store(true, Ordering::SeqCst);
        }
        self.thread.store(1, Ordering::SeqCst);
        self.restricted_to.store(0, Ordering::SeqCst);
        self.batch_began.store(1, Ordering::SeqCst);
        self.note_wait(WaitsFor::Queue(1));
        self.note_helper(1);
        self.set_worker(true);
        assert!(self.presume_block().is_some(), "the owner counts as running");
    }

    /// For models: whether any of that is left.
    pub(crate) fn has_traces(&self) -> bool {
        let marks = [&self.waits, &self.waits_for_lock, &self.picked];
        let guard = self.mutex.lock();
        // SAFETY: guarded by the mutex.
        let is_worker = unsafe { (*self.lists.get()).is_worker };
        drop(guard);
        is_worker
            || marks.into_iter().any(|mark| mark.load(Ordering::SeqCst))
            || self.attention.load(Ordering::SeqCst) != 0
            || self.thread() != 0
            || self.is_restricted()
            || self.batch_began() != NO_BATCH
            || self.waits_for() != WaitsFor::Unknown
            || self.runner() != 0
            || self.not_running() != NotRunning::No
    }
}
