//! All queues of an engine, for those who look at them.

use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::host::Host;
use crate::owner::Owner;
use crate::queue::Wq;
use crate::sync::Lock;

/// See the module. Keeps nothing alive: a queue that nobody uses goes as if it were not here.
pub(crate) struct Registry<H: Host>(Lock<Vec<Weak<Owner<H>>>>);

impl<H: Host> Registry<H> {
    pub(crate) fn new() -> Registry<H> {
        Registry(Lock::new(Vec::new()))
    }

    pub(crate) fn add(&self, owner: &Arc<Owner<H>>) {
        self.0.lock().push(Arc::downgrade(owner));
    }

    /// Forgets a queue, by its owner's address, which is still taken while its memory is.
    pub(crate) fn remove(&self, owner: *const Owner<H>) {
        let removed = {
            let mut owners = self.0.lock();
            let at = owners.iter().position(|known| std::ptr::eq(known.as_ptr(), owner));
            at.map(|at| owners.remove(at))
        };
        // Its memory may go with it: not under the lock.
        drop(removed);
    }

    fn owners(&self) -> Vec<Arc<Owner<H>>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl<H: Host> Engine<H> {
    /// Visits every queue that is in use, in the order in which they were made. No lock is held
    /// while `f` runs.
    ///
    /// A queue whose last handle goes meanwhile is kept until the end of the visit. It is never
    /// waited for here, even if it still has items that run.
    pub fn for_each_queue(&self, mut f: impl FnMut(&Wq<H>)) {
        for owner in self.registry().owners() {
            f(owner.wq());
            Owner::let_go(owner);
        }
    }
}
