//! fork(2): which locks and depots there are, and what becomes of them in a child. `docs/percpu.md` argues it.
//! Nothing here calls the allocator between the taking of the locks and the end of the fork: see `linux/fork.rs`.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::percpu::{CpuLock, Place, Sections, Token};
use uwork_engine::{PageList, Pages};

use super::cache::depot::{Depot, Depots, Flushed};
use super::calls;
use super::mode::chosen;
use crate::linux::Linux;

/// What a child does with a part whose holder it does not have: puts right what the lock guards, and gives the
/// lock up.
///
/// To be called by the child's only thread, with a lock of the row that it was registered for, which is held.
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
    /// In a child: it is gone, and its registration is never dropped.
    Gone,
}

// SAFETY: the locks are atomic; what is behind them is for the child only, which has one thread. Depots are
// reached by their mutexes.
unsafe impl Send for Entry {}

/// By the address of what is registered.
type Registry = BTreeMap<usize, Entry>;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

fn registry() -> MutexGuard<'static, Registry> {
    // Nothing of a user's runs under it.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that forks know of, until this is dropped.
#[derive(Debug)]
pub struct Registration(usize);

impl Registration {
    fn new(address: usize, entry: Entry) -> Registration {
        let before = registry().insert(address, entry);
        let is_free = before.is_none_or(|before| matches!(before, Entry::Gone));
        debug_assert!(is_free, "nothing is registered twice");
        Registration(address)
    }

    /// Locks that a child gives up by `lost` where another thread than the forking one held them.
    ///
    /// # Safety
    /// The locks stay where they are while this is there. `lost` may be called by a child's only
    /// thread with any of them that is held, and gives it up.
    pub unsafe fn locks(place: Place, lost: Lost) -> Registration {
        Registration::new(place.first.addr().get(), Entry::Locks { place, lost })
    }

    /// Something that `child` puts right in a child, and says whether it is there still: if not, what this function
    /// returns is never dropped there.
    ///
    /// # Safety
    /// It stays where it is while this is there. `child` may be called with it by a child's only thread, which
    /// may be in the middle of using it.
    pub unsafe fn other<T>(it: NonNull<T>, child: unsafe fn(NonNull<()>) -> bool) -> Registration {
        Registration::new(it.addr().get(), Entry::Other { address: it.cast(), child })
    }

    /// # Safety
    /// They stay where they are while this is there.
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

/// For data that nothing is known of: gives the lock up.
///
/// # Safety
/// Called by a child's only thread, with a lock that is held.
pub unsafe fn give_up(lock: NonNull<CpuLock>) {
    // SAFETY: its holder is not there, and has left it to us.
    unsafe { lock.as_ref().release() };
}

/// The registry, all depots and the calls under way, held by the forking thread: nothing in them is half done.
pub(crate) struct Held {
    calls: calls::Held,
    // Given up before the registry.
    depots: PageList<'static, Linux, (MutexGuard<'static, Flushed>, MutexGuard<'static, Depot>)>,
    registry: MutexGuard<'static, Registry>,
}

/// Takes them.
pub(crate) fn hold(pages: &'static Pages<Linux>) -> Held {
    let registry = registry();
    let all = registry.values().filter_map(|entry| match entry {
        // SAFETY: registered, so it is there; it stays while we have the registry.
        Entry::Depots(depots) => Some(unsafe { depots.as_ref() }),
        Entry::Locks { .. } | Entry::Other { .. } | Entry::Gone => None,
    });
    let mut depots = PageList::new(pages);
    depots.extend(all.map(Depots::lock));
    Held { calls: calls::hold(), depots, registry }
}

impl Held {
    /// In the child: the locks of threads that it does not have are given up.
    pub(crate) fn child(mut self) {
        self.calls.child();
        self.depots.iter_mut().for_each(|(_, depot)| depot.recover());
        if self.registry.is_empty() {
            return;
        }
        let own = chosen().rseq.token();
        for entry in self.registry.values_mut() {
            // SAFETY: we are the child's only thread, and it is registered, so it is there.
            if !unsafe { entry.child(own) } {
                // Not taken out, which would free memory.
                *entry = Entry::Gone;
            }
        }
    }
}

impl Entry {
    /// Puts it right. Whether it is there still.
    ///
    /// # Safety
    /// The caller is the only thread of a child, `own`, and it is there.
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
                // SAFETY: as above, and the lock is one of those.
                unsafe { lost(lock) };
            }
        }
        true
    }
}
