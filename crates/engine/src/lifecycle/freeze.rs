//! Freezing: queues that take part start no new item until the thaw.
//!
//! A frozen queue's limits are 0. Queued items wait behind these limits, in the order of queueing;
//! items that a worker has taken run to their end. Flushes, drains and the end of a queue wait for
//! the queued items.

use crate::engine::Engine;
use crate::queue::{BecameReady, Wq};
use crate::words::host::Host;
use crate::words::sync::{AtomicU32, Link, Lock, Ordering, Rank};

/// Why a call to freeze or thaw did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreezeError {
    /// The queues are frozen already.
    AlreadyFrozen,
    /// The queues are not frozen.
    NotFrozen,
}

impl std::fmt::Display for FreezeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FreezeError::AlreadyFrozen => "the queues are frozen already; a thaw comes first",
            FreezeError::NotFrozen => "the queues are not frozen; a freeze must begin first",
        })
    }
}

impl std::error::Error for FreezeError {}

/// Guard: the engine's freeze lock. Rank: before everything of a queue.
pub(crate) struct FreezeState<H: Host> {
    frozen: bool,
    /// The queues with `FREEZABLE`. A queue is in the list from before it has a pwq until it is
    /// permanently empty. In the order of creation, so that freezes and thaws are the same in each
    /// simulated run.
    queues: Vec<Link<Wq<H>>>,
}

/// The freezes and thaws of an engine.
pub(crate) struct Freeze<H: Host> {
    pub(super) state: Lock<FreezeState<H>>,
    /// Odd while frozen. A freeze and a thaw add 1, under the lock of `state`; a pause and a resume of
    /// a queue add 2.
    epoch: AtomicU32,
    /// Queues that are paused.
    paused: AtomicU32,
}

impl<H: Host> Freeze<H> {
    pub(crate) fn new() -> Self {
        let state = Lock::ranked(Rank::Freeze, FreezeState { frozen: false, queues: Vec::new() });
        Freeze { state, epoch: AtomicU32::new(0), paused: AtomicU32::new(0) }
    }

    fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// A queue is about to be paused.
    pub(crate) fn begin_pause(&self) {
        self.paused.fetch_add(1, Ordering::SeqCst);
        self.epoch.fetch_add(2, Ordering::SeqCst);
    }

    /// A queue is about to be resumed. The epoch changes first: see `Engine::may_be_stopped`.
    pub(crate) fn end_pause(&self) {
        self.epoch.fetch_add(2, Ordering::SeqCst);
        self.paused.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<H: Host> FreezeState<H> {
    /// The queues that take part.
    fn freezable_queues(&self) -> impl Iterator<Item = &Wq<H>> {
        // SAFETY: a queue leaves the list, under the lock that guards the list, before it is freed.
        self.queues.iter().map(|queue| unsafe { &*queue.0 })
    }
}

impl<H: Host> Engine<H> {
    /// Changes with each freeze, thaw, pause and resume, before the first queue does. Odd while
    /// frozen.
    ///
    /// A waiter reads it before it tries to help, and again under the pwq's lock before it joins the
    /// chain of waiters. A thaw or resume takes the waiters out under the same lock. So the waiter
    /// sees the change, or the thaw finds the waiter.
    pub fn freeze_epoch(&self) -> u32 {
        self.freeze.epoch.load(Ordering::SeqCst)
    }

    /// Whether a freeze or pause may have kept an item from being helped, by a thread that read
    /// `epoch` before it tried.
    pub fn may_be_stopped(&self, epoch: u32) -> bool {
        // The pauses are read first. A resume changes the epoch first: if its change of the count is
        // visible here, so is its change of the epoch.
        let paused = self.freeze.paused.load(Ordering::SeqCst) > 0;
        let now = self.freeze_epoch();
        paused || now % 2 == 1 || now != epoch
    }

    /// Freezes every queue with `FREEZABLE`: items that their workers have taken run to their end,
    /// no other item starts (the kernel's `freeze_workqueues_begin`).
    ///
    /// # Errors
    /// The queues are frozen already.
    pub fn freeze_begin(&self) -> Result<(), FreezeError> {
        let mut state = self.freeze.state.lock();
        if state.frozen {
            return Err(FreezeError::AlreadyFrozen);
        }
        state.frozen = true;
        self.freeze.next_epoch();
        let mut ready = BecameReady::none();
        state.freezable_queues().for_each(|queue| ready.append(queue.set_frozen(true)));
        drop(state);
        ready.push(self);
        Ok(())
    }

    /// Whether a worker still holds items of a frozen queue (the kernel's `freeze_workqueues_busy`).
    ///
    /// # Errors
    /// The queues are not frozen.
    pub fn freeze_busy(&self) -> Result<bool, FreezeError> {
        let state = self.freeze.state.lock();
        if !state.frozen {
            return Err(FreezeError::NotFrozen);
        }
        Ok(state.freezable_queues().any(Wq::is_held))
    }

    /// Thaws the frozen queues (the kernel's `thaw_workqueues`).
    ///
    /// # Errors
    /// The queues are not frozen.
    pub fn thaw(&self) -> Result<(), FreezeError> {
        let mut state = self.freeze.state.lock();
        if !state.frozen {
            return Err(FreezeError::NotFrozen);
        }
        state.frozen = false;
        self.freeze.next_epoch();
        let mut ready = BecameReady::none();
        state.freezable_queues().for_each(|queue| ready.append(queue.set_frozen(false)));
        drop(state);
        ready.push(self);
        Ok(())
    }
}

impl<H: Host> Freeze<H> {
    /// Makes a queue take part from now on; freezes it if the others are frozen. It has no pwq yet.
    pub(crate) fn enter(&self, engine: &Engine<H>, queue: &Wq<H>) {
        let mut state = self.state.lock();
        let address = std::ptr::from_ref(queue).cast_mut();
        state.queues.push(Link(address));
        let ready = queue.set_frozen(state.frozen);
        drop(state);
        ready.push(engine);
    }

    /// Removes a queue that is permanently empty and about to be freed.
    pub(crate) fn leave(&self, queue: &Wq<H>) {
        self.state.lock().queues.retain(|known| !std::ptr::eq(known.0, queue));
    }
}
