//! The calling thread, as the engine knows it: the items that it is in, and the worker that it is.

use uwork_policy::cpu_choice::Habit;

use crate::engine::Engine;
use crate::queue::Wq;
use crate::words::host::{Host, ThreadState};
use crate::words::item::Work;
use crate::words::item::word::RunId;
use crate::worker::Worker;

/// See the module. It stays on its thread.
pub(crate) struct Caller<'a, H: Host> {
    pub(crate) engine: &'a Engine<H>,
    pub(crate) thread: &'a ThreadState,
}

impl<H: Host> Clone for Caller<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Caller<'_, H> {}

impl<'a, H: Host> Caller<'a, H> {
    #[inline]
    pub(crate) fn of(engine: &'a Engine<H>) -> Caller<'a, H> {
        // SAFETY: the host's promise for the calling thread. A caller is not `Send`, so the
        // reference stays on that thread.
        Caller { engine, thread: unsafe { &*engine.host().thread() } }
    }

    /// The worker that the thread is.
    #[inline]
    pub(crate) fn worker(self) -> Option<&'a Worker<H>> {
        // SAFETY: the worker of this thread lives on the thread's stack below us.
        unsafe { self.thread.worker().cast::<Worker<H>>().as_ref() }
    }

    /// What the thread does next, after the wake that it is about to send. A worker is known to
    /// compute, unless it has just begun a declared wait. The watcher waits, but any CPU may be its
    /// own: no worker is moved there.
    pub(crate) fn note_wake(self) -> Habit {
        match self.worker() {
            Some(worker) if worker.waits.get() > 0 => Habit::Waits,
            Some(_) => Habit::Computes,
            None if self.is_watcher() => Habit::Unknown,
            None => self.thread.note_wake(|| self.engine.host().waits()),
        }
    }

    fn is_watcher(self) -> bool {
        self.thread.number(|| self.engine.host().thread_id()) == self.engine.watch.thread()
    }

    /// The queue of the innermost item that the thread is in. `None` outside of items, and while it
    /// releases an item of a queue that no longer exists.
    pub(crate) fn queue(self) -> Option<&'a Wq<H>> {
        let frame = self.thread.frames().next()?;
        // SAFETY: null, or a queue, which lives while one of its items runs.
        unsafe { frame.wq.cast::<Wq<H>>().as_ref() }
    }

    /// Whether the calling thread is inside any item.
    pub(crate) fn is_inside_an_item(self) -> bool {
        self.thread.is_inside_items()
    }

    /// Whether the calling thread is inside this run, which `item` names.
    pub(crate) fn runs(self, run: RunId, item: &Work) -> bool {
        // A slot in which this thread runs items can only be in a run that the thread is in.
        self.thread.runs_slot(run.slot) && self.engine.slot(run.slot).is_running_item(run.run, item)
    }
}
