//! The registry of items and their shadows.
//!
//! The registry's lock is the innermost of all locks. Its holder allocates memory, reads an item's
//! word and the program's memory, and takes no other lock. Every `free` takes it, also a `free`
//! under a lock of the engine. So a fork takes it after all other locks of the library
//! (`kernel/src/fork.c`). That cannot deadlock, because no holder of the registry waits for one of
//! those locks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork::Busy;
use uwork::foreign::{self, ItemAndFunction};

use super::frees::Within;
use super::memory;
use super::shadow::{GracedShadow, Owner, TimedShadow};
use crate::item::{Item, Kind, UwWork};

#[derive(Clone, Copy)]
enum Shadow {
    Timed(&'static TimedShadow),
    Graced(&'static GracedShadow),
}

impl Shadow {
    /// Shadows are never freed, because a thread may still read one while its item is initialised
    /// again.
    fn make(owner: Owner, kind: Kind) -> Shadow {
        match kind {
            Kind::Rcu => Shadow::Graced(Box::leak(Box::new(GracedShadow::new(owner)))),
            _ => Shadow::Timed(Box::leak(Box::new(TimedShadow::new(owner)))),
        }
    }

    fn owner(self) -> &'static Owner {
        match self {
            Shadow::Timed(shadow) => &shadow.owner,
            Shadow::Graced(shadow) => &shadow.owner,
        }
    }

    fn busy(self) -> Busy {
        match self {
            Shadow::Timed(shadow) => shadow.plain().busy(),
            Shadow::Graced(shadow) => shadow.plain().busy(),
        }
    }

    fn is_enabled(self) -> bool {
        let is_disabled = match self {
            Shadow::Timed(shadow) => foreign::is_disabled(shadow.plain()),
            Shadow::Graced(shadow) => foreign::is_disabled(shadow.plain()),
        };
        !is_disabled
    }

    fn is_idle(self) -> bool {
        self.busy() == Busy { pending: false, running: false }
    }

    fn item(self) -> Item {
        match self {
            Shadow::Timed(shadow) => Item::Timed(shadow),
            Shadow::Graced(shadow) => Item::Graced(shadow),
        }
    }

    /// Describes the damage of the item's memory, if the item is queued.
    fn damage(self) -> Option<String> {
        let inits = self.owner().inits();
        let text = self.owner().damage().filter(|_| self.busy().pending)?;
        // Meanwhile the item may have run and been freed by its function, and a new item may be at
        // its address. Then the damage that was seen is not an error.
        (self.owner().inits() == inits).then_some(text)
    }

    /// The address of the object that the engine runs.
    fn queued(self) -> usize {
        match self {
            Shadow::Timed(shadow) => std::ptr::from_ref(shadow.plain()).addr(),
            Shadow::Graced(shadow) => std::ptr::from_ref(shadow.plain()).addr(),
        }
    }
}

/// The shadows, by the item's address, and by the address of the object that the engine queues.
struct Registry {
    items: BTreeMap<usize, Shadow>,
    queued: BTreeMap<usize, Shadow>,
}

impl Registry {
    /// Gives a shadow and the pattern to an item that was just initialised.
    fn attach(&mut self, item: NonNull<UwWork>, kind: Kind, slack_ns: u64) -> Shadow {
        let address = item.as_ptr().expose_provenance();
        // SAFETY: the initialising thread has written it.
        let func = unsafe { crate::item::func(item).read() }.map_or(0, |func| func as usize);
        let known = self.items.get(&address).copied().filter(|shadow| {
            shadow.is_idle() && shadow.is_enabled() && shadow.owner().is_for(kind, slack_ns)
        });
        let shadow = known.unwrap_or_else(|| {
            let shadow = Shadow::make(Owner::new(address, func, kind, slack_ns), kind);
            self.items.insert(address, shadow);
            self.queued.insert(shadow.queued(), shadow);
            shadow
        });
        shadow.owner().set_func(func);
        memory::write(item, func);
        shadow
    }
}

/// The registry, locked. Memory that the thread frees meanwhile is the registry's own.
struct Held {
    registry: MutexGuard<'static, Registry>,
    _within: Within,
}

impl Deref for Held {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }
}

fn registry() -> Held {
    static REGISTRY: Mutex<Registry> =
        Mutex::new(Registry { items: BTreeMap::new(), queued: BTreeMap::new() });
    let within = Within::new();
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    Held { registry, _within: within }
}

thread_local! {
    /// The guard that the forking thread holds from before a fork until after it.
    static FORKING: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// `enum uw_fork` of `kernel/src/fork.h`.
const PREPARE: c_uint = 0;

/// For `kernel/src/fork.c`: locks the registry before a fork, and unlocks it afterwards, in the parent
/// and in the child.
#[unsafe(no_mangle)]
pub extern "C" fn uw_debug_fork(at: c_uint) {
    let held = (at == PREPARE).then(registry);
    // If the thread's variables are destroyed already, this unlocks the registry again immediately:
    // there is no place to keep the guard.
    let _ = FORKING.try_with(|place| *place.borrow_mut() = held);
}

/// Marks, as a slack, an item that was initialised statically. The kind of its shadow is the kind
/// that its first use expected.
const STATICALLY_INITIALISED: u64 = u64::MAX;

impl Owner {
    pub(super) fn was_found(&self) -> bool {
        self.is_for_slack(STATICALLY_INITIALISED)
    }
}

pub(super) fn attach(item: NonNull<UwWork>, kind: Kind, slack_ns: u64) {
    registry().attach(item, kind, slack_ns);
}

/// The shadow of an intact item. A statically initialised item without a shadow gets one, of the
/// kind that this use expects. This is one step under the lock, because several threads may be the
/// first to use an item.
pub(super) fn shadow_at(item: NonNull<UwWork>, kind: Kind) -> Option<Item> {
    let address = item.as_ptr().addr();
    let mut registry = registry();
    let known = registry.items.get(&address).copied();
    let shadow = match known {
        Some(shadow) if memory::damage(address, shadow.owner().func()).is_none() => {
            let of_unknown_kind = matches!(shadow, Shadow::Timed(_)) && shadow.owner().was_found();
            match kind {
                Kind::Rcu if of_unknown_kind && shadow.is_idle() => registry.attach(item, kind, 0),
                _ => shadow,
            }
        }
        Some(shadow) if shadow.busy().pending => return None,
        _ if memory::look(item) == memory::Look::Fresh => {
            let deferrable = kind == Kind::Delayed && memory::is_deferrable(item);
            registry.attach(
                item,
                if deferrable { Kind::Deferrable } else { kind },
                STATICALLY_INITIALISED,
            )
        }
        _ => return None,
    };
    Some(shadow.item())
}

/// Whether an item is or was at this address.
pub(super) fn is_known(address: usize) -> bool {
    registry().items.contains_key(&address)
}

/// The function of the item at this address, if it is queued.
pub(super) fn pending_at(address: usize) -> Option<usize> {
    let shadow = registry().items.get(&address).copied()?;
    shadow.busy().pending.then(|| shadow.owner().func())
}

/// Describes the first damaged queued item in `range`. With `gone`, each queued item in it counts
/// as damaged.
pub(super) fn first_damaged(range: Range<usize>, gone: bool) -> Option<String> {
    let shadows: Vec<Shadow> = registry().items.range(range).map(|(_, &shadow)| shadow).collect();
    shadows.into_iter().filter(|shadow| shadow.busy().pending).find_map(|shadow| {
        if gone {
            return Some(format!("{} is freed while it is queued", shadow.owner().named()));
        }
        shadow.damage()
    })
}

/// The item whose shadow the engine has at this address, and its function.
pub(super) fn item_and_function(queued: usize) -> Option<ItemAndFunction> {
    let shadow = registry().queued.get(&queued).copied()?;
    Some((shadow.owner().user().addr(), shadow.owner().func()))
}

/// The function of the item whose shadow the engine runs at this address.
pub(crate) fn function_of(queued: usize) -> Option<usize> {
    if !super::is_on() {
        return None;
    }
    item_and_function(queued).map(|(_, function)| function)
}

/// The item whose shadow the engine runs at this address.
pub(crate) fn user_of(queued: usize) -> Option<*mut UwWork> {
    if !super::is_on() {
        return None;
    }
    registry().queued.get(&queued).map(|shadow| shadow.owner().user())
}
