//! Which item has which shadow.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use uwork::Busy;

use super::frees::Within;
use super::shadow::{GracedShadow, Owner, TimedShadow};
use super::{memory, named};
use crate::item::{Item, Kind, UwWork};

#[derive(Clone, Copy)]
enum Shadow {
    Timed(&'static TimedShadow),
    Graced(&'static GracedShadow),
}

impl Shadow {
    /// Shadows stay: whoever looks at one may do so while its item is initialised again.
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
        // Nothing else says so: the text is that of the depth.
        let text = match self {
            Shadow::Timed(shadow) => format!("{:?}", shadow.plain()),
            Shadow::Graced(shadow) => format!("{:?}", shadow.plain()),
        };
        text.contains("disable_depth: 0")
    }

    /// The address of what the engine runs.
    fn queued(self) -> usize {
        match self {
            Shadow::Timed(shadow) => std::ptr::from_ref(shadow.plain()).addr(),
            Shadow::Graced(shadow) => std::ptr::from_ref(shadow.plain()).addr(),
        }
    }
}

/// By the item's address, and by that of what is queued for it.
#[derive(Default)]
struct Registry {
    items: BTreeMap<usize, Shadow>,
    queued: HashMap<usize, Shadow>,
}

/// The registry, held. What is freed meanwhile is its own.
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
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    let within = Within::new();
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    Held { registry, _within: within }
}

/// As slack: the item was made by an initialiser, and its kind is what its first use has said.
pub(super) const FOUND: u64 = u64::MAX;

/// Whether the item there was found so, is taken for one of another kind, and is idle.
pub(super) fn was_found(address: usize) -> bool {
    let shadow = registry().items.get(&address).copied();
    shadow.is_some_and(|shadow| {
        let idle = shadow.busy() == Busy { pending: false, running: false };
        matches!(shadow, Shadow::Timed(_)) && shadow.owner().was_found() && idle
    })
}

pub(super) fn attach(item: NonNull<UwWork>, kind: Kind, slack_ns: u64) {
    let address = item.as_ptr().expose_provenance();
    // SAFETY: the item's maker has written it.
    let func = unsafe { crate::item::func(item).read() }.map_or(0, |func| func as usize);
    let mut registry = registry();
    let known = registry.items.get(&address).copied().filter(|shadow| {
        let idle = shadow.busy() == Busy { pending: false, running: false };
        idle && shadow.is_enabled() && shadow.owner().is_for(kind, slack_ns)
    });
    match known {
        Some(shadow) => shadow.owner().set_func(func),
        None => {
            let shadow = Shadow::make(Owner::new(address, func, kind, slack_ns), kind);
            registry.items.insert(address, shadow);
            registry.queued.insert(shadow.queued(), shadow);
        }
    }
    drop(registry);
    memory::write(item, func);
}

/// The shadow and the function of the item there.
pub(super) fn find(address: usize) -> Option<(Item, usize)> {
    let shadow = registry().items.get(&address).copied()?;
    let item = match shadow {
        Shadow::Timed(shadow) => Item::Timed(shadow),
        Shadow::Graced(shadow) => Item::Graced(shadow),
    };
    Some((item, shadow.owner().func()))
}

/// The function of the item there, if it is queued.
pub(super) fn pending_at(address: usize) -> Option<usize> {
    let shadow = registry().items.get(&address).copied()?;
    shadow.busy().pending.then(|| shadow.owner().func())
}

/// What is wrong with the first queued item of those in `range`; with `gone`, that it is there at all.
pub(super) fn first_damaged(range: Range<usize>, gone: bool) -> Option<String> {
    let shadows: Vec<(usize, Shadow)> = {
        let registry = registry();
        registry.items.range(range).map(|(&address, &shadow)| (address, shadow)).collect()
    };
    shadows.into_iter().filter(|(_, shadow)| shadow.busy().pending).find_map(|(address, shadow)| {
        if gone {
            return Some(format!(
                "{} is freed while it is queued",
                named(address, shadow.owner().func())
            ));
        }
        shadow.owner().damage()
    })
}

/// The function of the item whose shadow the engine runs at this address.
pub(crate) fn function_of(queued: usize) -> Option<usize> {
    if !super::is_on() {
        return None;
    }
    registry().queued.get(&queued).map(|shadow| shadow.owner().func())
}

/// The item whose shadow the engine runs at this address.
pub(crate) fn user_of(queued: usize) -> Option<*mut UwWork> {
    if !super::is_on() {
        return None;
    }
    registry().queued.get(&queued).map(|shadow| shadow.owner().user())
}
