//! Waits that are declared: uwork's own, and `blocking(..)`.

use crate::engine::Engine;
use crate::host::{Host, Report};
use crate::queue::{Warned, Wq};
use crate::thread::ThreadState;
use crate::worker::Worker;

/// What a thread is to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// One of its workers.
    pub worker: bool,
    /// In an item of a BH queue.
    pub bh: bool,
    /// The stretch of items that it runs, while it does; another number in an item inside of an item. 0 outside.
    pub stretch: usize,
}

/// While it lives, the calling worker does not count as running. Stays on its thread.
pub(crate) struct Blocked<H: Host> {
    worker: *const Worker<H>,
    thread: *const ThreadState,
    /// As `ThreadState::forks` when the wait began.
    forks: u32,
}

impl<H: Host> Engine<H> {
    /// Runs `f`, during which the calling worker does not count as running: another one takes what
    /// is queued. Outside of work items it just runs `f`. Costs four locked instructions,
    /// and a wake where work is waiting.
    pub fn blocking<R>(&self, f: impl FnOnce() -> R) -> R {
        self.before_wait();
        let _blocked = self.block();
        f()
    }

    /// For calls that may have to wait, before they have done anything.
    ///
    /// # Panics
    /// In debug builds, in an item of a BH queue, which must not wait.
    #[inline]
    pub fn assert_may_wait(&self) {
        if cfg!(debug_assertions) {
            assert!(!self.is_in_bh(), "an item of a BH queue was about to wait, which it must not");
        }
    }

    /// Where the calling thread is.
    pub fn context(&self) -> Context {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        // SAFETY: the worker of this thread lives on the thread's stack below us.
        let worker = unsafe { thread.worker().cast::<Worker<H>>().as_ref() };
        let bh = worker.is_some_and(|worker| worker.pool().spec().bh);
        let stretch = thread.frame().addr();
        Context { worker: worker.is_some(), bh: bh && stretch != 0, stretch }
    }

    fn is_in_bh(&self) -> bool {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        // SAFETY: the worker of this thread lives on the thread's stack below us.
        let worker = unsafe { thread.worker().cast::<Worker<H>>().as_ref() };
        let is_bh = worker.is_some_and(|worker| worker.pool().spec().bh);
        if is_bh {
            self.complain_of_bh(thread);
        }
        is_bh
    }

    /// The caller may have to wait. What it has begun must not be unwound here, so this only reports.
    pub(crate) fn before_wait(&self) {
        let _ = self.is_in_bh();
    }

    #[cold]
    fn complain_of_bh(&self, thread: &ThreadState) {
        let Some(frame) = thread.frames().next() else { return };
        // SAFETY: null, or a queue, which stays while one of its items runs.
        let Some(wq) = (unsafe { frame.wq.cast::<Wq<H>>().as_ref() }) else { return };
        if wq.warn_once(Warned::BH_WAITS) {
            self.host().report(Report::BhWaits { queue: wq.name().to_owned() });
        }
    }

    pub(crate) fn block(&self) -> Blocked<H> {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        let worker = thread.worker().cast::<Worker<H>>();
        // SAFETY: the worker of this thread lives on the thread's stack below us.
        if let Some(worker) = unsafe { worker.as_ref() } {
            worker.begin_wait();
        }
        let forks = thread.forks();
        Blocked { worker, thread, forks }
    }
}

impl<H: Host> Drop for Blocked<H> {
    fn drop(&mut self) {
        // SAFETY: the host keeps the state for as long as the thread lives, which this guard does not
        // leave.
        if unsafe { &*self.thread }.forks() != self.forks {
            // In a child that was forked during the wait. Nobody waits for its end there.
            return;
        }
        // SAFETY: as in `block`.
        if let Some(worker) = unsafe { self.worker.as_ref() } {
            worker.end_wait();
        }
    }
}
