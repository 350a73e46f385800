//! Workers that block undeclared in an item are replaced in the tiers that detect it, and not in
//! the tier that does not. Each scene is a process of its own, because a process chooses its tier
//! once. Latencies are asserted in virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::support::blocks::{every_kind, gates};
use crate::support::child::{alone_each, alone_with};
use crate::support::items::Later;
use crate::support::left_out::not_here;
use crate::support::tiers::{
    Blocked, VARIABLE, are_replaced, collect_reports, declare_and_are_replaced, perf_files,
    reported, scene, workers_of,
};
use crate::support::{queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Queue};

/// Items that block at once.
const BLOCKED: usize = 8;

/// Queues that allow one item more, with pools of their own: the cap of a pool is the sum of its
/// queues' limits.
fn queues() -> [Queue; 4] {
    let scope = |scope| queue("blocks").affinity_scope(AffinityScopeChoice::Explicit(scope));
    [
        queue("blocks").nice(1),
        queue("blocks").per_cpu(),
        scope(AffinityScope::Cpu).affinity_strict(true).nice(2),
        scope(AffinityScope::System).nice(3),
    ]
    .map(|builder| builder.max_active(BLOCKED as u32 + 1).build().unwrap())
}

// Catches: a block that is not detected, in some kind of wait or of pool; an item that runs twice
// or never because it was given to another worker; one more worker for each block.
#[test]
fn workers_that_block_undeclared_are_replaced() {
    let test = "workers_that_block_undeclared_are_replaced";
    alone_each(test, VARIABLE, &["standby", "events", "sampling"], VARIABLE, |tier| {
        let _watchdog = watchdog();
        collect_reports();
        for queue in queues() {
            for round in 0..3 {
                for (what, obstacle) in every_kind(BLOCKED) {
                    eprintln!("{tier}: {what}, round {round}, {queue:?}");
                    are_replaced(&queue, obstacle, BLOCKED);
                }
            }
        }
        match (tier, &reported()[..]) {
            ("sampling", reported) => assert_eq!((perf_files(), reported), (0, &[][..])),
            ("standby", reported) => assert_eq!(reported, [], "it needs no records"),
            (_, []) => until("a worker is observed", || {
                scene();
                perf_files() > 0
            }),
            (_, reported) => not_here(&format!("{test}: events"), format!("{reported:?}")),
        }
    });
}

/// A timer's delay that is long compared with the watcher's scans for blocked workers.
const LONG: Duration = Duration::from_millis(50);

// Catches: workers that are replaced although the tier is `declared`.
#[test]
fn tier_declared_replaces_no_undeclared_block() {
    let test = "tier_declared_replaces_no_undeclared_block";
    let declared = |command: &mut std::process::Command| _ = command.env(VARIABLE, "declared");
    alone_with(test, declared, || {
        let _watchdog = watchdog();
        collect_reports();
        let queue = queue("blocks").per_cpu().max_active(BLOCKED as u32 + 1).build().unwrap();
        let before = workers_of(&queue);
        let blocked = Blocked::queue(&queue, Arc::new(gates(BLOCKED)), BLOCKED);
        blocked.until_inside(1);
        let elsewhere = crate::support::queue("clock").dedicated().build().unwrap();
        let later = Later::counting();
        assert!(elsewhere.enqueue_delayed(later.clone(), LONG).is_queued());
        until("the time is over", || later.tally.finished() == 1);
        let (entered, workers) = (blocked.entered(), workers_of(&queue));
        blocked.release();
        assert_eq!((entered, workers), (1, before), "no worker was replaced");
        assert_eq!((perf_files(), &reported()[..]), (0, &[][..]));

        declare_and_are_replaced(&queue, BLOCKED);
    });
}
