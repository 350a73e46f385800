//! Waits that are declared: uwork's own, and `blocking(..)`.

use crate::engine::Engine;
use crate::host::Host;
use crate::worker::Worker;

/// While it lives, the calling worker does not count as running. Stays on its thread.
pub(crate) struct Blocked<H: Host>(*const Worker<H>);

impl<H: Host> Engine<H> {
    /// Runs `f`, during which the calling worker does not count as running: another one takes what
    /// is queued. Outside of work items it just runs `f`. Costs four locked instructions,
    /// and a wake where work is waiting.
    pub fn blocking<R>(&self, f: impl FnOnce() -> R) -> R {
        let _blocked = self.block();
        f()
    }

    pub(crate) fn block(&self) -> Blocked<H> {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        let worker = thread.worker().cast::<Worker<H>>();
        // SAFETY: the worker of this thread lives on the thread's stack below us.
        if let Some(worker) = unsafe { worker.as_ref() } {
            worker.begin_wait();
        }
        Blocked(worker)
    }
}

impl<H: Host> Drop for Blocked<H> {
    fn drop(&mut self) {
        // SAFETY: as in `block`; this guard does not leave the thread.
        if let Some(worker) = unsafe { self.0.as_ref() } {
            worker.end_wait();
        }
    }
}
