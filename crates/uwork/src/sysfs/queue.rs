//! The attributes of one queue.

use uwork_engine::{Attrs, Kind, MAX_ACTIVE_LIMIT, scope_names};
use uwork_linux::{Linux, engine};
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScopeChoice;

use super::{Entry, EntryKind, Error, format_mask, mask, nr_cpus};

pub(super) type Wq = uwork_engine::Wq<Linux>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    AffinityScope,
    AffinityStrict,
    Cpumask,
    MaxActive,
    Nice,
    PerCpu,
}

/// Sorted by name.
const ATTRIBUTES: [(&str, Attribute); 6] = [
    ("affinity_scope", Attribute::AffinityScope),
    ("affinity_strict", Attribute::AffinityStrict),
    ("cpumask", Attribute::Cpumask),
    ("max_active", Attribute::MaxActive),
    ("nice", Attribute::Nice),
    ("per_cpu", Attribute::PerCpu),
];

/// A queue's name as that of a directory.
fn device_name(wq: &Wq) -> String {
    wq.name().replace('/', "!")
}

/// Calls `f` with the queue of this name in the tree, if it exists.
pub(super) fn with<R>(device: &str, f: impl FnOnce(&Wq) -> R) -> Option<R> {
    let (mut f, mut result) = (Some(f), None);
    engine().for_each_queue(|wq| {
        let wanted = wq.flags().contains(Flags::SYSFS) && device_name(wq) == device;
        if wanted && let Some(f) = f.take() {
            result = Some(f(wq));
        }
    });
    result
}

/// All queues in the tree.
pub(super) fn devices() -> Vec<Entry> {
    let mut devices = Vec::new();
    engine().for_each_queue(|wq| {
        if wq.flags().contains(Flags::SYSFS) {
            devices.push(Entry::new(device_name(wq), EntryKind::Directory));
        }
    });
    devices.sort();
    devices
}

/// The attributes that this queue has.
pub(super) fn entries(wq: &Wq) -> Vec<Entry> {
    let has = |attribute: Attribute| match attribute {
        Attribute::MaxActive | Attribute::PerCpu => true,
        Attribute::Nice | Attribute::Cpumask => wq.kind().attrs().is_some(),
        Attribute::AffinityScope | Attribute::AffinityStrict => wq.effective_scope().is_some(),
    };
    let present = ATTRIBUTES.iter().filter(|&&(_, attribute)| has(attribute));
    present.map(|&(name, attribute)| Entry::new(name, attribute.kind(wq))).collect()
}

fn attrs(wq: &Wq) -> Option<Attrs> {
    wq.kind().attrs().cloned()
}

impl Attribute {
    pub(super) fn named(name: &str) -> Option<Attribute> {
        ATTRIBUTES.iter().find(|(known, _)| *known == name).map(|&(_, attribute)| attribute)
    }

    fn kind(self, wq: &Wq) -> EntryKind {
        let fixed = wq.is_ordered() || wq.flags().contains(Flags::BH);
        match self {
            Attribute::PerCpu => EntryKind::ReadOnly,
            Attribute::MaxActive if fixed => EntryKind::ReadOnly,
            _ => EntryKind::ReadWrite,
        }
    }

    /// The value. Empty for an attribute that the queue does not have.
    pub(super) fn read(self, wq: &Wq) -> String {
        let digit = |yes: bool| u8::from(yes).to_string();
        let value = match self {
            Attribute::PerCpu => Some(digit(wq.kind() == Kind::PerCpu)),
            Attribute::MaxActive => Some(wq.max_active().to_string()),
            Attribute::Nice => attrs(wq).map(|attrs| attrs.nice.to_string()),
            Attribute::Cpumask => attrs(wq).map(|attrs| format_mask(&attrs.cpumask)),
            Attribute::AffinityScope => wq.effective_scope().map(|scope| scope.to_string()),
            Attribute::AffinityStrict => attrs(wq).map(|attrs| digit(attrs.strict)),
        };
        value.unwrap_or_default()
    }

    /// A description of the permitted values.
    fn allowed(self) -> String {
        match self {
            Attribute::PerCpu => "none".to_owned(),
            Attribute::MaxActive => format!("1 to {MAX_ACTIVE_LIMIT}"),
            Attribute::Nice => "-20 to 19".to_owned(),
            Attribute::AffinityStrict => "0 and 1".to_owned(),
            Attribute::AffinityScope => scope_names(),
            Attribute::Cpumask => mask::allowed(),
        }
    }

    pub(super) fn write(self, wq: &Wq, path: &str, value: &str) -> Result<(), Error> {
        if self.kind(wq) == EntryKind::ReadOnly {
            return Err(Error::ReadOnly { path: path.to_owned() });
        }
        let bad = || Error::BadValue {
            path: path.to_owned(),
            value: value.to_owned(),
            allowed: self.allowed(),
        };
        let outcome = match self {
            Attribute::PerCpu => return Err(Error::ReadOnly { path: path.to_owned() }),
            Attribute::MaxActive => {
                let limit = value.parse().ok().filter(|n| (1..=MAX_ACTIVE_LIMIT).contains(n));
                wq.set_max_active(limit.ok_or_else(bad)?)
            }
            Attribute::Nice => {
                let nice = value.parse().ok().filter(|n| (-20..=19).contains(n)).ok_or_else(bad)?;
                wq.change_attrs(|attrs| attrs.nice = nice)
            }
            Attribute::Cpumask => {
                let mask = mask::parse(value, nr_cpus());
                let usable = mask.filter(|mask| mask.intersects(&engine().cpus().allowed));
                let mask = usable.ok_or_else(bad)?;
                wq.change_attrs(|attrs| attrs.cpumask = mask)
            }
            Attribute::AffinityScope => {
                let scope: AffinityScopeChoice = value.parse().map_err(|_| bad())?;
                wq.change_attrs(|attrs| attrs.scope = scope)
            }
            Attribute::AffinityStrict => {
                let strict = match value {
                    "0" => false,
                    "1" => true,
                    _ => return Err(bad()),
                };
                wq.change_attrs(|attrs| attrs.strict = strict)
            }
        };
        outcome.map_err(|error| Error::Refused { path: path.to_owned(), error: error.into() })
    }
}
