//! The queues that exist.

use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::host::Host;
use crate::owner::Owner;
use crate::queue::Wq;
use crate::sync::Lock;

/// Weak entries: being listed keeps no queue.
pub(crate) struct Registry<H: Host>(Lock<Vec<Weak<Owner<H>>>>);

impl<H: Host> Registry<H> {
    pub(crate) fn new() -> Registry<H> {
        Registry(Lock::new(Vec::new()))
    }

    pub(crate) fn register(&self, owner: &Arc<Owner<H>>) {
        self.0.lock().push(Arc::downgrade(owner));
    }

    /// Takes out the entry of an owner that is being dropped.
    pub(crate) fn unregister(&self, owner: *const Owner<H>) {
        self.0.lock().retain(|entry| !std::ptr::eq(entry.as_ptr(), owner));
    }

    /// The owners that live, kept by the caller.
    fn owners(&self) -> Vec<Arc<Owner<H>>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl<H: Host> Engine<H> {
    /// Calls `f` with every queue that exists, the oldest first. No lock is held meanwhile.
    ///
    /// Keeps the memory of the queues for as long as it takes, not their names. A queue that is made
    /// meanwhile may be left out.
    pub(crate) fn for_each_queue(&self, mut f: impl FnMut(&Wq<H>)) {
        for owner in self.registry().owners() {
            f(owner.wq());
        }
    }
}
