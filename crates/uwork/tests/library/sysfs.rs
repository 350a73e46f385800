//! The attribute tree: names, formats, and refused writes with their errors.

use std::time::Duration;

use crate::support::child::alone;
use crate::support::machine::cpus;
use crate::support::queue;
use uwork::sysfs::{EntryKind, Error, describe, get, list, set};
use uwork::{AffinityScope, AffinityScopeChoice, Queue};

fn names(path: &str) -> Vec<String> {
    list(path).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn text(error: Result<impl std::fmt::Debug, Error>) -> String {
    let text = error.unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text:?}");
    text
}

fn path(queue: &Queue, attribute: &str) -> String {
    format!("devices/{}/{attribute}", queue.name())
}

/// Every attribute below a directory, with its kind.
fn attributes(folder: &str) -> Vec<(String, EntryKind)> {
    let at = |name: &str| match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    };
    let below = |entry: uwork::sysfs::Entry| match entry.kind {
        EntryKind::Directory => attributes(&at(&entry.name)),
        kind => vec![(at(&entry.name), kind)],
    };
    list(folder).unwrap().into_iter().flat_map(below).collect()
}

// Catches: an attribute that the page for operators leaves out, or explains otherwise than the tree.
// A queue of another test could end while the tree is read: a process of its own.
#[test]
fn the_page_for_operators_explains_every_attribute() {
    alone("the_page_for_operators_explains_every_attribute", || {
        let page = include_str!("../../../../docs/operations.md");
        let queue = queue("explained").sysfs().build().unwrap();
        let (folder, mut rows) = (path(&queue, ""), 0);
        for (path, kind) in attributes("") {
            let name = match path.strip_prefix(&folder) {
                Some(attribute) => format!("devices/NAME/{attribute}"),
                None => path.clone(),
            };
            let known = describe(&path).unwrap();
            let access = if kind == EntryKind::ReadWrite { "rw" } else { "ro" };
            let unit = match known.unit {
                "" | "seconds" => String::new(),
                unit => format!(", {unit}"),
            };
            let text = known.to_string();
            let value_type =
                text.lines().find_map(|line| line.strip_prefix("type")).unwrap().trim();
            let row = format!("| `{name}` | {access} | {value_type}{unit} | {} |", known.doc);
            assert!(page.contains(&row), "docs/operations.md lacks the row\n{row}");
            rows += 1;
        }
        assert_eq!(
            page.matches("\n| `module/").count() + page.matches("\n| `devices/").count() + 3,
            rows
        );
    });
}

#[test]
fn the_tree_has_the_kernels_names() {
    assert_eq!(
        names(""),
        ["cpumask", "cpumask_isolated", "cpumask_requested", "devices", "module"]
    );
    assert_eq!(names("module"), ["parameters"]);
    let parameters = [
        "cache_shard_size",
        "cpu_intensive_thresh_us",
        "cpu_intensive_warning_thresh",
        "default_affinity_scope",
        "pool_workers_max",
        "power_efficient",
        "watchdog_thresh",
    ];
    assert_eq!(names("module/parameters"), parameters);
    assert_eq!(names("/module/parameters/"), parameters, "slashes at the ends do not matter");
    let unbound = queue("tree-u").sysfs().build().unwrap();
    let per_cpu = queue("tree-p").per_cpu().sysfs().build().unwrap();
    let ordered = queue("tree-o").ordered().sysfs().build().unwrap();
    let hidden = queue("tree-h").build().unwrap();
    let devices = names("devices");
    assert!([&unbound, &per_cpu, &ordered].iter().all(|q| devices.contains(&q.name().to_owned())));
    assert!(!devices.contains(&hidden.name().to_owned()), "without the flag it is not there");
    for path in [path(&hidden, ""), path(&hidden, "max_active")] {
        let path = path.trim_end_matches('/');
        let refused =
            [list(path).unwrap_err(), get(path).unwrap_err(), set(path, "3").unwrap_err()];
        for error in refused {
            assert!(matches!(error, Error::WithoutSysfs { .. }), "{error:?}");
            assert!(error.to_string().contains("was built without `sysfs()`"), "{error}");
        }
    }
    assert_eq!(names(&path(&per_cpu, "")), ["max_active", "per_cpu"]);
    let all = ["affinity_scope", "affinity_strict", "cpumask", "max_active", "nice", "per_cpu"];
    assert_eq!(names(&path(&unbound, "")), all);
    let kind = |queue: &Queue| {
        let entries = list(&path(queue, "")).unwrap();
        entries.iter().find(|entry| entry.name == "max_active").unwrap().kind
    };
    assert_eq!((kind(&unbound), kind(&ordered)), (EntryKind::ReadWrite, EntryKind::ReadOnly));
    let gone = path(&unbound, "nice");
    drop(unbound);
    assert!(matches!(get(&gone), Err(Error::NoSuchQueue { .. })));
}

#[test]
fn a_slash_in_a_name_shows_as_an_exclamation_mark() {
    let queue = queue("crypt/253:0").sysfs().build().unwrap();
    let shown = queue.name().replace('/', "!");
    assert!(names("devices").contains(&shown));
    assert_eq!(get(&format!("devices/{shown}/max_active")).unwrap(), "1024");
}

#[test]
fn global_values_are_those_of_the_machine() {
    let isolated = get("cpumask_isolated").unwrap();
    let width = get("cpumask").unwrap().len();
    assert_eq!((isolated.len(), get("cpumask_requested").unwrap().len()), (width, width));
    let cpu = cpus()[0];
    let digit = |mask: &str| {
        let digits: Vec<char> = mask.chars().rev().filter(|&c| c != ',').collect();
        digits[cpu as usize / 4].to_digit(16).unwrap()
    };
    let bits = digit(&get("cpumask").unwrap()) | digit(&isolated);
    assert_eq!(bits >> (cpu % 4) & 1, 1, "a CPU of the process is in the mask, or isolated");
    assert_eq!(get("module/parameters/default_affinity_scope").unwrap(), "cache");
    assert_eq!(get("module/parameters/cache_shard_size").unwrap(), "8");
    for path in ["cpumask_requested", "cpumask_isolated"] {
        assert_eq!(text(set(path, "1")), format!("{path:?}: can only be read"));
    }
}

/// Catches: a setting that changes queues of another kind, new queues only, or is lost; a bad value
/// that changes something. The settings are process-wide: a process of its own.
#[test]
fn the_settings_of_all_queues_can_be_set() {
    alone("the_settings_of_all_queues_can_be_set", || {
        let efficient = queue("hk-pe").power_efficient().sysfs().build().unwrap();
        let unbound = queue("hk-u").sysfs().build().unwrap();
        let parameter = |name: &str| format!("module/parameters/{name}");
        let power = parameter("power_efficient");
        for (value, kept) in [("Y", "Y"), ("0", "N"), ("on\n", "Y"), ("n", "N"), ("1", "Y")] {
            set(&power, value).unwrap();
            assert_eq!(get(&power).unwrap(), kept);
            let per_cpu = if kept == "Y" { "0" } else { "1" };
            assert_eq!(get(&path(&efficient, "per_cpu")).unwrap(), per_cpu);
            assert_eq!(efficient.spawn(|| 1).join().unwrap(), 1);
        }
        assert_eq!(get(&path(&efficient, "affinity_scope")).unwrap(), "default (system)");
        assert_ne!(get(&path(&unbound, "affinity_scope")).unwrap(), "default (system)");

        set(&parameter("default_affinity_scope"), "numa").unwrap();
        assert!(get(&path(&unbound, "affinity_scope")).unwrap().starts_with("default (numa"));
        set(&parameter("cache_shard_size"), "0").unwrap();
        assert_eq!(get(&parameter("cache_shard_size")).unwrap(), "1");

        let all = get("cpumask").unwrap();
        uwork::housekeeping::set_cpumask(uwork::CpuSet::single(cpus()[0])).unwrap();
        assert_eq!(get("cpumask").unwrap(), get("cpumask_requested").unwrap());
        assert_eq!(unbound.spawn(|| 2).join().unwrap(), 2);
        set("cpumask", &all).unwrap();
        assert_eq!(get("cpumask").unwrap(), all, "what is read can be written");
        let values = || {
            let of = |name: &String| get(&parameter(name)).unwrap();
            names("module/parameters").iter().map(of).collect::<Vec<_>>()
        };
        let before = values();
        for (path, value, allowed) in [
            ("cpumask".to_owned(), "0", "hexadecimal masks with CPUs of"),
            ("cpumask".to_owned(), "0x1", "hexadecimal masks with CPUs of"),
            (parameter("power_efficient"), "yes", "1, y, Y, on, 0, n, N and off"),
            (parameter("power_efficient"), "", "1, y, Y, on, 0, n, N and off"),
            (parameter("default_affinity_scope"), "default", "smt, cluster"),
            (parameter("cache_shard_size"), "-1", "0 to 4294967295"),
        ] {
            let text = text(set(&path, value));
            assert!(text.contains("is not a value of it") && text.contains(allowed), "{text}");
        }
        assert_eq!((values(), get("cpumask").unwrap()), (before, all), "nothing was changed");
    });
}

/// The threshold is process-wide: a process of its own.
#[test]
fn the_threshold_of_the_watchdog_can_be_set() {
    alone("the_threshold_of_the_watchdog_can_be_set", || {
        let path = "module/parameters/watchdog_thresh";
        assert_eq!(get(path).unwrap(), "30", "the kernel's default");
        for (value, kept) in [("0", "0"), ("4294967295\n", "4294967295"), ("0.250", "0.25")] {
            set(path, value).unwrap();
            assert_eq!(get(path).unwrap(), kept);
        }
        assert_eq!(uwork::watchdog::thresh(), Duration::from_millis(250));
        for (most, kept) in [(Duration::MAX, "4294967295"), (Duration::from_nanos(1), "0.001")] {
            uwork::watchdog::set_thresh(most);
            assert_eq!(get(path).unwrap(), kept);
            let thresh = uwork::watchdog::thresh();
            set(path, kept).unwrap();
            assert_eq!(uwork::watchdog::thresh(), thresh, "what is shown can be set");
        }
        for wrong in ["", "-1", "4294967296", "10s", "1e3", "0.0000000001", "0.0001"] {
            let text = text(set(path, wrong));
            let allowed = "allowed are 0, and 0.001 to 4294967295, with up to nine decimals";
            assert!(text.ends_with(allowed), "{text}");
        }
        assert_eq!(get(path).unwrap(), "0.001", "nothing was changed by those");
        set(path, "30").unwrap();
    });
}

/// In a process of its own: the thresholds are process-wide.
#[test]
fn the_thresholds_of_hogs_can_be_set() {
    alone("the_thresholds_of_hogs_can_be_set", || {
        let names = ["cpu_intensive_thresh_us", "cpu_intensive_warning_thresh"];
        let [thresh, warning] = names.map(|name| format!("module/parameters/{name}"));
        let values = || (get(&thresh).unwrap(), get(&warning).unwrap());
        assert_eq!(values(), ("10000".to_owned(), "4".to_owned()), "the kernel's defaults");
        for (value, kept) in [("0", "0"), ("4294967295\n", "4294967295"), ("2500", "2500")] {
            set(&thresh, value).unwrap();
            assert_eq!(get(&thresh).unwrap(), kept);
        }
        set(&warning, "7").unwrap();
        for wrong in ["", "-1", "4294967296", "10ms", "1\n\n"] {
            for path in [&thresh, &warning] {
                let text = text(set(path, wrong));
                assert!(text.ends_with("allowed are 0 to 4294967295"), "{text}");
            }
        }
        assert_eq!(values(), ("2500".to_owned(), "7".to_owned()), "nothing was changed by those");
        for entry in list("module/parameters").unwrap() {
            assert_eq!(entry.kind, EntryKind::ReadWrite, "{}", entry.name);
        }
    });
}

#[test]
fn attributes_are_those_of_the_queue() {
    let queue = queue("attrs").sysfs().build().unwrap();
    let at = |attribute: &str| path(&queue, attribute);
    assert_eq!(get(&at("per_cpu")).unwrap(), "0");
    assert_eq!(get(&at("affinity_scope")).unwrap(), queue.affinity_scope().unwrap().to_string());
    assert!(get(&at("affinity_scope")).unwrap().starts_with("default (cache"));
    set(&at("affinity_scope"), "numa\n").unwrap();
    assert_eq!(
        queue.affinity_scope().unwrap().choice,
        AffinityScopeChoice::Explicit(AffinityScope::Numa)
    );
    set(&at("affinity_strict"), "1").unwrap();
    assert_eq!(get(&at("affinity_strict")).unwrap(), "1");
    set(&at("nice"), "5").unwrap();
    assert_eq!((get(&at("nice")).unwrap(), queue.dump().nice), ("5".to_owned(), 5));
    set(&at("max_active"), "7").unwrap();
    assert_eq!(queue.max_active(), 7);
    let first = cpus()[0];
    set(&at("cpumask"), &format!("{:x}", 1_u128 << (first % 32)).repeat(1)).ok();
    let all = get(&at("cpumask")).unwrap();
    set(&at("cpumask"), &all).unwrap();
    assert_eq!(get(&at("cpumask")).unwrap(), all, "what is read can be written");
    assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
}

/// The path and the queue in the error of a path whose queue is missing. The error's list of queues
/// changes with the queues of other tests.
fn missing_queue(path: &str) -> (String, String) {
    match get(path).unwrap_err() {
        Error::NoSuchQueue { path, queue, .. } => (path, queue),
        other => panic!("{other}"),
    }
}

#[test]
fn invalid_values_are_refused_with_the_valid_ones() {
    let queue = queue("wrong").sysfs().build().unwrap();
    let ordered = crate::support::queue("wrong-o").ordered().sysfs().build().unwrap();
    let at = |attribute: &str| path(&queue, attribute);
    let before: Vec<_> = names(&at("")).iter().map(|name| get(&at(name)).unwrap()).collect();
    for (attribute, value, allowed) in [
        ("max_active", "0", "1 to 2048"),
        ("max_active", "2049", "1 to 2048"),
        ("max_active", "", "1 to 2048"),
        ("nice", "-21", "-20 to 19"),
        ("nice", "much", "-20 to 19"),
        (
            "affinity_scope",
            "socket",
            "default, cpu, smt, cluster, cache_shard, cache, numa, system",
        ),
        ("affinity_strict", "2", "0 and 1"),
        ("cpumask", "0", "hexadecimal masks with CPUs of"),
        ("cpumask", "x", "hexadecimal masks with CPUs of"),
        ("cpumask", "ffffffffffffffff", "hexadecimal masks with CPUs of"),
    ] {
        let text = text(set(&at(attribute), value));
        let begins = format!("{:?}: {value:?} is not a value of it; allowed are ", at(attribute));
        assert!(text.starts_with(&begins) && text.contains(allowed), "{text}");
    }
    assert_eq!(text(set(&at("per_cpu"), "1")), format!("{:?}: can only be read", at("per_cpu")));
    let limit = path(&ordered, "max_active");
    assert_eq!(text(set(&limit, "1")), format!("{limit:?}: can only be read"));
    assert_eq!(
        text(get("module/parameter")),
        "\"module/parameter\": no such attribute; there are parameters"
    );
    let text_of = text(get(&at("color")));
    assert!(text_of.ends_with(
        "there are affinity_scope, affinity_strict, cpumask, max_active, nice, per_cpu"
    ));
    let nowhere = text(get("devices/no-such-queue/nice"));
    assert!(
        nowhere.contains(": there is no queue \"no-such-queue\" here; there are "),
        "{nowhere}"
    );
    assert!(nowhere.contains(queue.name()));
    assert!(text(get("")).starts_with("\"\": a directory"));
    assert_eq!(missing_queue("//devices///no-such//nice"), missing_queue("devices/no-such/nice"));
    assert_eq!(get(&at("//max_active")), get(&at("max_active")));
    assert!(text(set("devices", "1")).contains("a directory"));
    assert!(text(list("cpumask")).contains("not a directory"));
    let after: Vec<_> = names(&at("")).iter().map(|name| get(&at(name)).unwrap()).collect();
    assert_eq!(before, after, "nothing was changed");
}
