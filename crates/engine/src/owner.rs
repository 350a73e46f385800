//! Who keeps a queue alive, and what happens when nobody does any more.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::host::{Host, Report, WorkerSpec};
use crate::queue::{QueueError, QueueSpec, Wq};

/// A handle to a queue. The last one to go waits until the queue is empty and takes it down; if
/// that is inside a work item, a thread of its own does the waiting.
pub struct Queue<H: Host>(Arc<Owner<H>>);

/// Owns the queue. Timers hold it weakly: they do not keep a queue alive.
pub(crate) struct Owner<H: Host>(ManuallyDrop<Box<Wq<H>>>);

impl<H: Host> Owner<H> {
    pub(crate) fn wq(&self) -> &Wq<H> {
        &self.0
    }
}

impl<H: Host> Clone for Queue<H> {
    fn clone(&self) -> Self {
        Queue(self.0.clone())
    }
}

impl<H: Host> std::ops::Deref for Queue<H> {
    type Target = Wq<H>;

    #[inline]
    fn deref(&self) -> &Wq<H> {
        self.0.wq()
    }
}

impl<H: Host> Queue<H> {
    /// Makes a queue.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing is left behind.
    pub fn new(engine: &Arc<Engine<H>>, spec: QueueSpec) -> Result<Queue<H>, QueueError> {
        Ok(Queue(Arc::new(Owner(ManuallyDrop::new(Wq::new(engine, spec)?)))))
    }

    pub(crate) fn owner(&self) -> &Arc<Owner<H>> {
        &self.0
    }

    /// Takes no more items, waits until the queue is empty, and stays so. Later items are refused.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn destroy(&self) -> Result<(), QueueError> {
        self.drain()?;
        self.close_gate();
        self.settle();
        Ok(())
    }
}

impl<H: Host> Drop for Owner<H> {
    fn drop(&mut self) {
        // SAFETY: taken once, here; nobody looks at the owner after its drop.
        let wq = unsafe { ManuallyDrop::take(&mut self.0) };
        let engine = wq.engine().clone();
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*engine.host().thread() };
        if thread.worker().is_null() && thread.frame().is_null() {
            drop(wq);
            return;
        }
        // A worker must not wait here: what it waits for may be behind it.
        wq.close_gate();
        let spec = WorkerSpec { name: "uw/reaper".to_owned(), cpus: CpuSet::new(), nice: 0 };
        let leaked = Box::into_raw(wq);
        let address = leaked.addr();
        let reap = Box::new(move || {
            let wq = std::ptr::with_exposed_provenance_mut::<Wq<H>>(address);
            // SAFETY: leaked for this closure, which runs once.
            drop(unsafe { Box::from_raw(wq) });
        });
        let _ = leaked.expose_provenance();
        if let Err(error) = engine.host().spawn(&spec, reap) {
            // The queue stays, closed and working off what it has; its memory is not given back.
            engine.host().report(Report::SpawnFailed { reason: error.0 });
        }
    }
}
