//! The queues that exist.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::fork::PageList;
use crate::host::Host;
use crate::owner::Owner;
use crate::queue::Wq;
use crate::sync::{Lock, LockGuard, Ordering};

/// Weak entries: being listed keeps no queue.
pub(crate) struct Registry<H: Host>(Lock<Entries<H>>);

struct Entries<H: Host> {
    /// By the order in which they were made.
    entries: BTreeMap<u64, Weak<Owner<H>>>,
    next: u64,
}

/// The registry, held.
pub(crate) struct HeldRegistry<'a, H: Host>(
    #[expect(dead_code, reason = "held")] LockGuard<'a, Entries<H>>,
);

impl<H: Host> Registry<H> {
    pub(crate) fn new() -> Registry<H> {
        Registry(Lock::new(Entries { entries: BTreeMap::new(), next: 1 }))
    }

    /// Holds on to which queues exist. How many ever did.
    pub(crate) fn hold(&self) -> (HeldRegistry<'_, H>, u64) {
        let entries = self.0.lock();
        let next = entries.next;
        (HeldRegistry(entries), next)
    }

    pub(crate) fn register(&self, owner: &Arc<Owner<H>>) {
        let entry = Arc::downgrade(owner);
        let mut listed = self.0.lock();
        let place = listed.next;
        listed.next += 1;
        owner.wq().registered.store(place, Ordering::Relaxed);
        listed.entries.insert(place, entry);
    }

    /// Takes out the entry of an owner that is being dropped.
    pub(crate) fn unregister(&self, owner: &Owner<H>) {
        self.0.lock().entries.remove(&owner.wq().registered.load(Ordering::Relaxed));
    }

    /// As [`Registry::owners`], without an allocation.
    pub(crate) fn owners_into(&self, owners: &mut PageList<'_, H, Arc<Owner<H>>>) {
        owners.extend(self.0.lock().entries.values().filter_map(Weak::upgrade));
    }

    /// The owners that live, kept by the caller.
    pub(crate) fn owners(&self) -> Vec<Arc<Owner<H>>> {
        self.0.lock().entries.values().filter_map(Weak::upgrade).collect()
    }
}

impl<H: Host> Engine<H> {
    /// Calls `f` with every queue that exists, the oldest first. No lock is held meanwhile.
    ///
    /// A queue that is made meanwhile may be left out. One whose last handle goes meanwhile keeps its
    /// memory until the end of the visit, not its name. It is never waited for here, even if it still
    /// has items that run.
    pub fn for_each_queue(&self, mut f: impl FnMut(&Wq<H>)) {
        self.release_left();
        for owner in self.registry().owners() {
            f(owner.wq());
            Owner::let_go(owner);
        }
    }
}
