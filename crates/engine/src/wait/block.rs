//! Declared waits: those of uwork's own calls, and `blocking(..)`.

use crate::engine::Engine;
use crate::queue::Warned;
use crate::words::host::ThreadState;
use crate::words::host::{Host, Report};
use crate::worker::Caller;
use crate::worker::Worker;

/// The calling thread's role in the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// It is a worker.
    pub worker: bool,
    /// It is in an item of a BH queue.
    pub bh: bool,
    /// It is in a thread hook.
    pub hook: bool,
    /// An identity of the frame of items that it runs; a nested item has another one. 0 outside of
    /// items.
    pub frame: usize,
}

/// While it lives, the calling worker is off the running count. It stays on its thread.
pub(crate) struct Blocked<H: Host> {
    worker: *const Worker<H>,
    thread: *const ThreadState,
    /// The value of `ThreadState::forks` when the wait began.
    forks: u32,
}

impl<H: Host> Engine<H> {
    /// Runs `f` with the calling worker off the running count: another worker takes the queued
    /// items. Outside of work items it only runs `f`. Costs four locked instructions, and a wake if
    /// items wait.
    pub fn blocking<R>(&self, f: impl FnOnce() -> R) -> R {
        self.caller().before_wait();
        let _blocked = self.caller().block();
        f()
    }

    /// [`Engine::blocking`] for a block that the program declares. It waits for no item, so a thread
    /// hook may do it: there this only runs `f`.
    pub fn declared_block<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.caller().thread.is_in_hook() {
            return f();
        }
        self.blocking(f)
    }

    /// Asserts that the caller may do what it declares.
    ///
    /// # Panics
    /// In debug builds, in an item of a BH queue, but not in a thread hook there.
    #[inline]
    pub fn assert_may_block(&self) {
        if cfg!(debug_assertions) && !self.caller().thread.is_in_hook() {
            self.assert_outside_bh();
        }
    }

    /// Asserts that the caller may wait for items. For calls that may have to wait, before they have any
    /// effect.
    ///
    /// # Panics
    /// In a thread hook, because the awaited item may need that thread. In debug builds also in an
    /// item of a BH queue, which must not wait.
    #[inline]
    pub fn assert_may_wait(&self) {
        self.assert_outside_hooks();
        if cfg!(debug_assertions) {
            self.assert_outside_bh();
        }
    }

    fn assert_outside_bh(&self) {
        assert!(
            !self.caller().is_in_bh(),
            "an item of a BH queue was about to wait, which it must not"
        );
    }

    /// The part of [`Engine::assert_may_wait`] for calls that an item of a BH queue may make, because
    /// they wait for a run in progress at most, or fail in items.
    ///
    /// # Panics
    /// In a thread hook.
    #[inline]
    pub fn assert_outside_hooks(&self) {
        assert!(
            !self.caller().thread.is_in_hook(),
            "a thread hook was about to wait for items, which it must not; it may queue them"
        );
    }

    /// Whether the caller may wait: it is in no thread hook and in no item of a BH queue. Takes three
    /// loads of the thread's state.
    #[inline]
    pub fn may_wait(&self) -> bool {
        let thread = self.caller().thread;
        !thread.is_in_hook() && !thread.is_in_bh()
    }

    /// Calls `f`, in which the drop of the last handle of a queue does not wait: another thread does.
    /// For calls that must not wait and run destructors of the user's.
    pub fn without_last_waits<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Restores the thread's state, also if `f` unwinds.
        struct Restore<'a>(&'a ThreadState, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set_hands_over(self.1);
            }
        }
        let thread = self.caller().thread;
        let _restore = Restore(thread, thread.set_hands_over(true));
        f()
    }

    /// Sets whether waits of the calling thread are reported while it is no worker. Returns what it
    /// was.
    pub fn report_waits(&self, reports_waits: bool) -> bool {
        self.caller().thread.set_reports_waits(reports_waits)
    }

    /// Whether the caller is a worker.
    #[inline]
    pub fn is_worker(&self) -> bool {
        self.caller().worker().is_some()
    }

    /// The role and position of the calling thread.
    pub fn context(&self) -> Context {
        let thread = self.caller().thread;
        let (worker, frame) = (self.is_worker(), thread.frame().addr());
        Context { worker, bh: thread.is_in_bh(), hook: thread.is_in_hook(), frame }
    }
}

impl<'a, H: Host> Caller<'a, H> {
    fn is_in_bh(self) -> bool {
        let is_bh = self.thread.is_in_bh();
        if is_bh {
            self.report_bh_wait();
        }
        is_bh
    }

    /// For calls that are about to wait and have already begun. They must not be unwound, so this
    /// only reports. The caller is in no list of waiters yet, because the reporter is user code.
    pub(crate) fn before_wait(self) {
        debug_assert!(
            !self.thread.is_in_hook(),
            "a wait begins in a thread hook: its call lacks `Engine::assert_outside_hooks`"
        );
        let _ = self.is_in_bh();
        self.engine.fork.finish(self.engine);
        if self.worker().is_none() && self.thread.take_wait_to_report() {
            let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
            self.report(Report::WaitInFuture { thread });
        }
    }

    #[cold]
    fn report_bh_wait(self) {
        let Some(wq) = self.queue() else { return };
        if wq.warn_once(Warned::BH_WAITS) {
            self.report(Report::BhWaits { queue: wq.name().to_owned() });
        }
    }

    pub(crate) fn block(self) -> Blocked<H> {
        let thread = self.thread;
        let worker = self.worker();
        if let Some(worker) = worker {
            worker.begin_wait();
        }
        let (worker, forks) = (worker.map_or(std::ptr::null(), std::ptr::from_ref), thread.forks());
        Blocked { worker, thread, forks }
    }
}

impl<H: Host> Drop for Blocked<H> {
    fn drop(&mut self) {
        // SAFETY: the host keeps the state while the thread lives, and this guard does not leave
        // the thread.
        if unsafe { &*self.thread }.forks() != self.forks {
            // In a child that was forked during the wait. There, no thread waits for its end.
            return;
        }
        // SAFETY: the worker of this thread lives on the thread's stack below us.
        if let Some(worker) = unsafe { self.worker.as_ref() } {
            worker.end_wait();
        }
    }
}
