//! `uwork::unpinned`: programs that items start.

use std::process::Command;

use crate::support::{queue, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice};

/// The CPUs in the status of a thread, as the kernel prints them.
fn cpus_in(status: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("every thread has CPUs").trim().to_owned()
}

fn cpus_here() -> String {
    cpus_in(&std::fs::read_to_string("/proc/thread-self/status").unwrap())
}

fn cpus_of_child() -> String {
    let child = Command::new("cat").arg("/proc/self/status").output().unwrap();
    cpus_in(&String::from_utf8(child.stdout).unwrap())
}

// Catches: a call inside of another one that pins the worker again.
#[test]
fn a_program_that_an_item_starts_gets_all_cpus_of_the_pod() {
    let _watchdog = watchdog();
    let scope = AffinityScopeChoice::Explicit(AffinityScope::System);
    let queue = queue("unpinned").affinity_scope(scope).build().unwrap();
    let all = queue.cpumask().to_string();
    let seen = queue.spawn(|| {
        let before = cpus_here();
        let inside = uwork::unpinned(|| {
            let nested = uwork::unpinned(cpus_here);
            [nested, cpus_here(), cpus_of_child()]
        });
        (before, inside, cpus_here())
    });
    let (before, inside, after) = seen.join_waiting().unwrap();
    // Where the process may use less CPU time than it has CPUs, the pod has one pool for all of them.
    assert!(before == all || before.parse::<u32>().is_ok(), "one CPU: {before}");
    assert_eq!(inside, [all.as_str(); 3]);
    assert_eq!(after, before);
}

#[test]
fn a_panic_ends_it() {
    let _watchdog = watchdog();
    let scope = AffinityScopeChoice::Explicit(AffinityScope::System);
    let queue = queue("unpinned").affinity_scope(scope).build().unwrap();
    let seen = queue.spawn(|| {
        let before = cpus_here();
        let panics = || uwork::unpinned(|| panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        (before, cpus_here())
    });
    let (before, after) = seen.join_waiting().unwrap();
    assert_eq!(after, before);
}

#[test]
fn outside_of_items_it_only_calls_the_function() {
    let before = cpus_here();
    assert_eq!(uwork::unpinned(cpus_here), before);
}
