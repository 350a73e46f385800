//! Timers that are due at one moment: they all run, once, and make no threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::item::Item;
use crate::saving::{efficient, save};
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

const TIMERS: usize = 5_000;
/// The number of the queue whose pool has all CPUs.
const ALL: usize = 2;

/// A machine whose threads lose their CPU at any point, to a thread that computes.
fn crowded(machine: &'static str, seed: u64) -> Setup {
    let chaos = Chaos {
        preempt_one_in: 20,
        wake_ns: 5 * US,
        spawn_ns: 20 * US,
        slice_ns: MS,
        ..Chaos::STEADY
    };
    Setup { machine, chaos, seed }
}

/// The queues of each kind of pool.
fn queues(engine: &Arc<VirtualEngine>) -> Vec<VirtualQueue> {
    let in_all = |scope| Kind::Unbound(attrs(engine, scope, false));
    let dedicated = Kind::Dedicated(attrs(engine, AffinityScope::System, false));
    let bh = QueueSpec { flags: Flags::BH | Flags::PERCPU, ..spec("bh", Kind::PerCpu) };
    save(engine, true);
    vec![
        make(engine, spec("cpu", Kind::PerCpu)),
        make(engine, spec("pods", in_all(AffinityScope::Cpu))),
        make(engine, spec("all", in_all(AffinityScope::System))),
        make(engine, spec("dedicated", dedicated)),
        make(engine, bh),
        efficient(engine, "saving", Flags::empty()),
    ]
}

/// Arms timers for one moment on CPU 0, where another thread computes, and returns the most threads
/// that were created for them.
fn most_spawned(setup: Setup, kind: usize, is_deferrable: bool) -> u64 {
    with_engine(setup, move |engine| {
        let host = engine.host().clone();
        host.detecting().tier = Tier::Declared;
        let queue = queues(engine).swap_remove(kind);
        let runs: Arc<Vec<AtomicUsize>> =
            Arc::new((0..TIMERS).map(|_| AtomicUsize::new(0)).collect());
        let moment = host.time() + 10 * MS;
        let items: Vec<_> = (0..TIMERS)
            .map(|index| {
                let runs = runs.clone();
                let body = move || _ = runs[index].fetch_add(1, Ordering::Relaxed);
                if is_deferrable { Item::deferrable(body) } else { Item::new(body) }
            })
            .collect();
        for item in &items {
            let delay = moment.saturating_sub(host.time()).max(1);
            assert_eq!(item.queue_delayed(&queue, Some(0), delay), Queued::Yes);
        }
        let before = host.counts().spawns;
        let busy = host.clone();
        let burner = host.start(&CpuSet::single(0), move || busy.burn(200 * MS));
        host.doze(20 * MS);
        if is_deferrable {
            assert_eq!(Item::new(|| {}).queue_on(&queue, 0), Queued::Yes);
        }
        burner.join(&host);
        host.doze(SEC);
        queue.flush().unwrap();
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "each runs once");
        host.counts().spawns - before
    })
}

#[test]
fn timers_at_one_moment_make_no_threads() {
    for (machine, cpus) in [("core:2", 2), ("core:64", 64), ("llc:2 core:64", 128)] {
        for kind in 0..6 {
            for is_deferrable in [false, true] {
                let spawned = most_spawned(crowded(machine, kind as u64), kind, is_deferrable);
                // Only the pool of all CPUs has fewer workers than its target before.
                let missing = if kind == ALL { cpus - 1 } else { 0 };
                assert!(spawned <= missing + 2, "{machine}, queue {kind}: {spawned} threads");
            }
        }
    }
}
