//! The attributes of one queue.

use uwork_engine::{Attrs, Kind, MAX_ACTIVE_LIMIT, path_char, scope_names};
use uwork_linux::{Linux, engine};
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScopeChoice;

use super::definition::{Definition, ValueType, Written};
use super::{Entry, EntryKind, Tree, format_mask, mask, nr_cpus};

pub(super) type Wq = uwork_engine::Wq<Linux>;

/// Sorted by name.
pub(super) const ATTRIBUTES: [Definition<Wq>; 6] = [
    Definition {
        folder: "",
        name: "affinity_scope",
        value_type: ValueType::Scope,
        unit: "",
        doc: "The pods that items stay in: those of this scope",
        allowed: scope_names,
        get: |wq| wq.effective_scope().map(|scope| scope.to_string()),
        set: Some(|wq, text| {
            let scope: AffinityScopeChoice = text.parse().map_err(|_| None)?;
            wq.change_attrs(|attrs| attrs.scope = scope).map_err(Some)
        }),
    },
    Definition {
        folder: "",
        name: "affinity_strict",
        value_type: ValueType::Switch,
        unit: "",
        doc: "Whether pods run only their own items",
        allowed: || "0 and 1".to_owned(),
        get: |wq| wq.effective_scope().and_then(|_| attrs(wq)).map(|attrs| digit(attrs.strict)),
        set: Some(|wq, text| {
            let strict = match text {
                "0" => false,
                "1" => true,
                _ => return Err(None),
            };
            wq.change_attrs(|attrs| attrs.strict = strict).map_err(Some)
        }),
    },
    Definition {
        folder: "",
        name: "cpumask",
        value_type: ValueType::CpuMask,
        unit: "",
        doc: "The CPUs that were asked for",
        allowed: || {
            let allowed = format_mask(&engine().cpus().allowed);
            format!("hexadecimal masks with CPUs of {allowed} in them")
        },
        get: |wq| attrs(wq).map(|attrs| format_mask(&attrs.cpumask)),
        set: Some(|wq, text| {
            let mask = mask::parse(text, nr_cpus());
            let usable = mask.filter(|mask| mask.intersects(&engine().cpus().allowed));
            let mask = usable.ok_or(None)?;
            wq.change_attrs(|attrs| attrs.cpumask = mask).map_err(Some)
        }),
    },
    Definition {
        folder: "",
        name: "max_active",
        value_type: ValueType::Number,
        unit: "items",
        doc: "The most items that are active at once on a CPU; if unbound on the machine, in shares of its nodes",
        allowed: || format!("1 to {MAX_ACTIVE_LIMIT}"),
        get: |wq| Some(wq.max_active().to_string()),
        set: Some(|wq, text| {
            let limit = text.parse().ok().filter(|n| (1..=MAX_ACTIVE_LIMIT).contains(n));
            wq.set_max_active(limit.ok_or(None)?).map_err(Some)
        }),
    },
    Definition {
        folder: "",
        name: "nice",
        value_type: ValueType::Number,
        unit: "",
        doc: "The niceness of the workers; at first the process's",
        allowed: || "-20 to 19".to_owned(),
        get: |wq| attrs(wq).map(|attrs| attrs.nice.to_string()),
        set: Some(set_nice),
    },
    Definition {
        folder: "",
        name: "per_cpu",
        value_type: ValueType::Switch,
        unit: "",
        doc: "Whether it is a per-CPU queue",
        allowed: || "none".to_owned(),
        get: |wq| Some(digit(wq.kind() == Kind::PerCpu)),
        set: None,
    },
];

fn set_nice(wq: &Wq, text: &str) -> Written {
    let nice = text.parse().ok().filter(|n| (-20..=19).contains(n)).ok_or(None)?;
    wq.change_attrs(|attrs| attrs.nice = nice).map_err(Some)
}

fn digit(yes: bool) -> String {
    u8::from(yes).to_string()
}

fn attrs(wq: &Wq) -> Option<Attrs> {
    wq.kind().attrs().cloned()
}

/// A queue's name as that of a directory. A space would end the path in a line of the control
/// protocol.
pub(crate) fn device_name(name: &str) -> String {
    name.chars().map(path_char).collect()
}

fn is_shown(tree: Tree, wq: &Wq) -> bool {
    tree.has_every_queue || wq.flags().contains(Flags::SYSFS)
}

/// Calls `f` with the queue of this name in the tree, if it exists: the oldest of several.
pub(super) fn with<R>(tree: Tree, device: &str, f: impl FnOnce(&Wq) -> R) -> Option<R> {
    let (mut f, mut result) = (Some(f), None);
    engine().for_each_queue_at(device, |wq| {
        if is_shown(tree, wq) {
            result = result.take().or_else(|| f.take().map(|f| f(wq)));
        }
    });
    result
}

/// All queues in the tree.
pub(super) fn devices(tree: Tree) -> Vec<Entry> {
    let mut devices = Vec::new();
    engine().for_each_queue(|wq| {
        if is_shown(tree, wq) {
            devices.push(Entry::new(device_name(wq.name()), EntryKind::Directory));
        }
    });
    devices.sort();
    devices
}

/// The attributes that this queue has.
pub(super) fn entries(wq: &Wq) -> Vec<Entry> {
    let present = ATTRIBUTES.iter().filter(|attribute| (attribute.get)(wq).is_some());
    present.map(|attribute| Entry::new(attribute.name, kind(attribute, wq))).collect()
}

/// How the attribute of this queue can be used.
pub(super) fn kind(attribute: &Definition<Wq>, wq: &Wq) -> EntryKind {
    let is_fixed = wq.is_ordered() || wq.flags().contains(Flags::BH);
    match attribute.set {
        None => EntryKind::ReadOnly,
        Some(_) if attribute.name == "max_active" && is_fixed => EntryKind::ReadOnly,
        Some(_) => EntryKind::ReadWrite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(path: &str) -> Vec<String> {
        let mut names = Vec::new();
        engine().for_each_queue_at(path, |wq| names.push(wq.name().to_owned()));
        names
    }

    // Catches: a tree whose attributes take a time that is quadratic in the number of queues.
    #[test]
    fn a_path_leads_to_its_queues_and_to_no_others() {
        let build = |name: &str| crate::Queue::builder(name).build().unwrap();
        let many: Vec<_> = (0..100).map(|number| build(&format!("pathed-{number}"))).collect();
        assert!(many.iter().all(|queue| visited(queue.name()) == [queue.name()]));
        let alike = ["pathed/x", "pathed x", "pathed!x"].map(build);
        for path in ["pathed!x", "pathed x"] {
            assert_eq!(visited(path), ["pathed/x", "pathed x", "pathed!x"]);
        }
        let all = Tree { has_every_queue: true };
        let first = || with(all, "pathed!x", |wq| wq.name().to_owned());
        assert_eq!(first().as_deref(), Some("pathed/x"));
        let [first_of_all, ..] = alike;
        drop(first_of_all);
        assert_eq!(first().as_deref(), Some("pathed x"));
        assert!(visited("pathed").is_empty() && visited("").is_empty());
    }
}
