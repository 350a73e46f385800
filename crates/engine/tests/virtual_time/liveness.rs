//! No runnable item waits for long while its pool is below its target, in any history
//! ([`crate::oracle`]).

use std::sync::Arc;

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;

use crate::chance::{Chance, Chaos};
use crate::histories::History;
use crate::oracle::{Oracle, Rules};
use crate::seeds::{failures, number};
use crate::setup::{MS, SEC, Setup, US, with_engine};

/// Histories of one run of the tests; `UWORK_SIM_SEEDS=N` runs more.
const SEEDS: u64 = 20_000;
/// The last one has more pools in a set than a worker looks at one by one.
const MACHINES: [&str; 7] =
    ["core:1", "core:2", "core:2", "core:4", "llc:2 core:1", "llc:2 core:2", "llc:3 core:4"];

/// Runs one history.
fn run(seed: u64) {
    let mut chance = Chance::new(!seed);
    let chaos = Chaos {
        drawn_order: chance.below(2) == 0,
        preempt_one_in: *chance.pick(&[0, 0, 5, 40]),
        early_one_in: *chance.pick(&[0, 0, 0, 10]),
        spawn_fails_one_in: *chance.pick(&[0, 0, 0, 0, 0, 0, 0, 3]),
        wake_ns: *chance.pick(&[0, 5 * US, 50 * US]),
        spawn_ns: *chance.pick(&[0, 20 * US, 100 * US]),
        slice_ns: MS,
        ..Chaos::STEADY
    };
    let tier = *chance.pick(&Tier::ALL);
    let machine = *chance.pick(&MACHINES);
    let queues = 1 + chance.below(4) as usize;
    let shuts_down = chance.below(6) == 0;
    let watchdog_ns = *chance.pick(&[30 * SEC, 30 * SEC, 5 * MS]);
    let submitters = 1 + chance.below(2);
    let is_administrated = !shuts_down && chance.below(4) == 0;
    with_engine(Setup { machine, chaos, seed }, move |engine| {
        let host = engine.host();
        host.detecting().tier = tier;
        engine.set_watchdog_thresh(watchdog_ns);
        let threshold_ns = engine.cpu_intensive_thresh();
        let oracle = Oracle::new(Rules { tier, threshold_ns });
        host.machine().oracle = Some(Box::new(oracle));
        let history = History::new(engine, queues);
        // Where threads cannot be created, a queue may keep its old pools.
        if is_administrated && chaos.spawn_fails_one_in == 0 {
            history.expect_changes_of_cpus();
        }
        let cpus = engine.config().allowed.len() as u64;
        let threads: Vec<_> = (0..submitters)
            .map(|_| {
                let cpu = host.machine().chance.below(cpus) as u32;
                let theirs: Arc<History> = history.clone();
                host.start(&CpuSet::single(cpu), move || theirs.submit())
            })
            .collect();
        if shuts_down {
            history.shut_down();
        }
        if is_administrated {
            history.administrate();
        }
        threads.into_iter().for_each(|thread| thread.join(host));
        if shuts_down {
            history.shut_down_for_good();
        } else {
            history.wait_until_idle();
        }
        assert_eq!(engine.rescues(), 0, "the watcher spawned workers that were missing");
    });
}

#[test]
fn no_runnable_item_waits_in_a_pool_below_its_target() {
    if let Some(seed) = number("UWORK_SIM_SEED") {
        run(seed);
        return;
    }
    let seeds = number("UWORK_SIM_SEEDS").unwrap_or(SEEDS);
    let first = number("UWORK_SIM_FIRST").unwrap_or(0);
    let failed = failures(first..first + seeds, run);
    assert!(failed.is_empty(), "{} histories failed: seeds {failed:?}", failed.len());
}
