//! fork(2): the registry of locks and depots, and their treatment in a child. The README has
//! the argument. Nothing here calls the allocator between the taking of the locks and the end of
//! the fork: see `fork.rs` of `uwork-linux`.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::percpu::{CpuLock, Place, Sections, Token};
use uwork_engine::{PageList, Pages};
use uwork_linux::Linux;
use uwork_linux::fork::{self, AcrossForks, Slot};

use super::cache::depot::{Depot, Depots, Flushed};
use super::calls;
use super::mode::chosen;

/// How a child treats a part whose holder does not exist there: repairs the data that the lock
/// guards, and releases the lock.
///
/// Called by the child's only thread, with a lock that is held and belongs to the registered row.
pub(crate) type Lost = unsafe fn(NonNull<CpuLock>);

enum Entry {
    Locks {
        place: Place,
        lost: Lost,
    },
    Depots(NonNull<Depots>),
    Other {
        address: NonNull<()>,
        child: unsafe fn(NonNull<()>) -> bool,
    },
    /// In a child: the object no longer exists, and its registration is never dropped.
    Gone,
}

// SAFETY: the locks are atomic; only the child, which has one thread, accesses the data behind
// them. Depots are accessed through their mutexes.
unsafe impl Send for Entry {}

/// Keyed by the address of the registered object.
type Registry = BTreeMap<usize, Entry>;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

fn registry() -> MutexGuard<'static, Registry> {
    // No user code runs under this lock.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an object known to forks, until this is dropped.
#[derive(Debug)]
pub struct Registration(usize);

impl Registration {
    fn new(address: usize, entry: Entry) -> Registration {
        include();
        let before = registry().insert(address, entry);
        let is_free = before.is_none_or(|before| matches!(before, Entry::Gone));
        debug_assert!(is_free, "nothing is registered twice");
        Registration(address)
    }

    /// Registers locks. A child releases those that a thread other than the forking one held, by
    /// `lost`.
    ///
    /// # Safety
    /// The locks stay in place while the registration lives. A child's only thread may call `lost`
    /// with any of them that is held, and `lost` releases it.
    pub unsafe fn locks(place: Place, lost: Lost) -> Registration {
        Registration::new(place.first.addr().get(), Entry::Locks { place, lost })
    }

    /// Registers an object that `child` repairs in a child. `child` returns whether the object
    /// still exists there; if not, the registration that this function returns is never dropped in
    /// the child.
    ///
    /// # Safety
    /// The object stays in place while the registration lives. A child's only thread may call
    /// `child` with it, even if that thread was using the object at the fork.
    pub unsafe fn other<T>(it: NonNull<T>, child: unsafe fn(NonNull<()>) -> bool) -> Registration {
        Registration::new(it.addr().get(), Entry::Other { address: it.cast(), child })
    }

    /// # Safety
    /// The depots stay in place while the registration lives.
    pub(super) unsafe fn depots(depots: &Depots) -> Registration {
        let depots = NonNull::from(depots);
        Registration::new(depots.addr().get(), Entry::Depots(depots))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        registry().remove(&self.0);
    }
}

/// For data of unknown type: releases the lock.
///
/// # Safety
/// Called by a child's only thread, with a lock that is held.
pub unsafe fn give_up(lock: NonNull<CpuLock>) {
    // SAFETY: its holder does not exist in the child, so this thread may release it.
    unsafe { lock.as_ref().release() };
}

/// The locks of the registry, all depots and the recorded calls, held by the forking thread: none
/// of them is in the middle of a change.
struct Held {
    calls: calls::Held,
    // Released before the registry.
    depots: PageList<'static, Linux, (MutexGuard<'static, Flushed>, MutexGuard<'static, Depot>)>,
    registry: MutexGuard<'static, Registry>,
}

/// Lets every fork from now on hold these locks. Called before the first of them is taken.
pub(super) fn include() {
    fork::include(&Parts);
}

struct Parts;

static HELD: Slot<Held> = Slot::new();

impl AcrossForks for Parts {
    fn hold(&self, pages: &'static Pages<Linux>) {
        // SAFETY: called by the forking thread, in a handler.
        unsafe { HELD.put(hold(pages)) };
    }

    fn parent(&self) {
        // SAFETY: as above.
        drop(unsafe { HELD.take() });
    }

    fn child(&self) {
        // SAFETY: as above.
        if let Some(held) = unsafe { HELD.take() } {
            held.child();
        }
    }
}

/// Takes these locks.
fn hold(pages: &'static Pages<Linux>) -> Held {
    let registry = registry();
    let all = registry.values().filter_map(|entry| match entry {
        // SAFETY: registered, so it is live, and stays so while the registry is locked.
        Entry::Depots(depots) => Some(unsafe { depots.as_ref() }),
        Entry::Locks { .. } | Entry::Other { .. } | Entry::Gone => None,
    });
    let mut depots = PageList::new(pages);
    depots.extend(all.map(Depots::lock));
    Held { calls: calls::hold(), depots, registry }
}

impl Held {
    /// In the child: releases the locks of threads that do not exist there.
    fn child(mut self) {
        self.calls.child();
        self.depots.iter_mut().for_each(|(_, depot)| depot.recover());
        if self.registry.is_empty() {
            return;
        }
        let own = chosen().rseq.token();
        for entry in self.registry.values_mut() {
            // SAFETY: this is the child's only thread, and a registered object is live.
            if !unsafe { entry.child(own) } {
                // Not removed from the map, as that would free memory.
                *entry = Entry::Gone;
            }
        }
    }
}

impl Entry {
    /// Repairs the object. Returns whether it still exists.
    ///
    /// # Safety
    /// The caller is the only thread of a child, `own`, and the object is live.
    unsafe fn child(&self, own: Token) -> bool {
        let (place, lost) = match *self {
            Entry::Locks { place, lost } => (place, lost),
            Entry::Depots(_) | Entry::Gone => return true,
            // SAFETY: by this function's contract.
            Entry::Other { address, child } => return unsafe { child(address) },
        };
        for cpu in 0..place.len as usize {
            // SAFETY: as above.
            let lock = unsafe { place.first.byte_add(place.stride * cpu) };
            // SAFETY: as above.
            let held = unsafe { lock.as_ref() };
            if held.is_held() && !held.is_held_by(own) {
                // SAFETY: as above, and the lock belongs to the registered row.
                unsafe { lost(lock) };
            }
        }
        true
    }
}
