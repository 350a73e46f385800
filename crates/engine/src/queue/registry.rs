//! The list of existing queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::queue::Wq;
use crate::queue::name::Name;
use crate::queue::owner::Owner;
use crate::queue::owner::release_unreleased_queues;
use crate::words::host::Host;
use crate::words::host::PageList;
use crate::words::sync::{Lock, LockGuard, Ordering};

/// Weak entries: an entry does not keep its queue alive.
pub(crate) struct Registry<H: Host>(Lock<Entries<H>>);

struct Entries<H: Host> {
    /// In the order of creation.
    entries: BTreeMap<u64, Weak<Owner<H>>>,
    /// The names in paths, of which several queues may have one, and the numbers of `entries`.
    paths: BTreeSet<(Name, u64)>,
    next: u64,
}

/// The registry, locked.
pub(crate) struct HeldRegistry<'a, H: Host>(
    #[expect(dead_code, reason = "held")] LockGuard<'a, Entries<H>>,
);

impl<H: Host> Registry<H> {
    pub(crate) fn new() -> Registry<H> {
        Registry(Lock::new(Entries { entries: BTreeMap::new(), paths: BTreeSet::new(), next: 1 }))
    }

    /// Locks the set of queues. Returns also how many were ever created.
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
        listed.paths.extend(path_of(owner).map(|path| (path, place)));
    }

    /// Removes the entry of an owner that is being dropped.
    pub(crate) fn unregister(&self, owner: &Owner<H>) {
        let place = owner.wq().registered.load(Ordering::Relaxed);
        let mut listed = self.0.lock();
        listed.entries.remove(&place);
        if let Some(path) = path_of(owner) {
            listed.paths.remove(&(path, place));
        }
    }

    /// The live owners with this name in paths, the oldest first.
    fn owners_at(&self, path: Name) -> Vec<Arc<Owner<H>>> {
        let listed = self.0.lock();
        let places = listed.paths.range((path, 0)..=(path, u64::MAX));
        places.filter_map(|(_, place)| listed.entries.get(place)?.upgrade()).collect()
    }

    /// As [`Registry::owners`], without the allocator.
    pub(crate) fn owners_into(&self, owners: &mut PageList<'_, H, Arc<Owner<H>>>) {
        owners.extend(self.0.lock().entries.values().filter_map(Weak::upgrade));
    }

    /// The live owners. The caller keeps them alive.
    pub(crate) fn owners(&self) -> Vec<Arc<Owner<H>>> {
        self.0.lock().entries.values().filter_map(Weak::upgrade).collect()
    }
}

fn path_of<H: Host>(owner: &Owner<H>) -> Option<Name> {
    Name::in_a_path(owner.wq().name())
}

impl<H: Host> Engine<H> {
    /// As [`Engine::for_each_queue`], for those whose names are this part of a path, as [`path_char`]
    /// writes them: mostly one. Takes a time that hardly depends on how many others exist.
    ///
    /// [`path_char`]: crate::path_char
    pub fn for_each_queue_at(&self, path: &str, mut f: impl FnMut(&Wq<H>)) {
        release_unreleased_queues(self);
        let Some(path) = Name::in_a_path(path) else { return };
        for owner in self.registry.owners_at(path) {
            f(owner.wq());
            Owner::let_go(owner);
        }
    }

    /// Calls `f` with every existing queue, the oldest first. No lock is held meanwhile.
    ///
    /// A queue that is created meanwhile may be missing. A queue whose last handle is dropped
    /// meanwhile keeps its memory until the end of the visit, but not its name. The visit never
    /// waits for it, even if it still has running items.
    pub fn for_each_queue(&self, mut f: impl FnMut(&Wq<H>)) {
        release_unreleased_queues(self);
        for owner in self.registry.owners() {
            f(owner.wq());
            Owner::let_go(owner);
        }
    }
}
