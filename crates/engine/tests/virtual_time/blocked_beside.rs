//! Workers that block, together with the other states of a pool: hogs, declared waits, timers,
//! items that begin to compute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::blocking::{Tier, UNDECIDED_MAX};
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

const TIERS: [Tier; 2] = [Tier::Events, Tier::Sampling];

fn put(
    queue: &VirtualQueue,
    engine: &Arc<VirtualEngine>,
    body: impl Fn(&VirtualEngine) + Send + Sync + 'static,
) {
    let engine = engine.clone();
    assert_eq!(Item::new(move || body(&engine)).queue(queue), Queued::Yes);
}

/// Hogs leave the running count however many workers are blocked meanwhile.
#[test]
fn hogs_are_detected_beside_blocked_workers() {
    for declared in [false, true] {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = Tier::Sampling;
            let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
            let queue = make(engine, QueueSpec { max_active: 16, ..spec("q", kind) });
            for _ in 0..4 {
                put(&queue, engine, move |engine| {
                    let doze = || engine.host().doze(5 * SEC);
                    if declared { engine.blocking(doze) } else { doze() }
                });
            }
            engine.host().doze(20 * MS);
            for _ in 0..2 {
                put(&queue, engine, |engine| {
                    (0..10_000).for_each(|_| engine.host().burn(100 * US));
                });
            }
            engine.host().doze(MS);
            let (queued, started) = (engine.host().time(), Arc::new(AtomicU64::new(0)));
            let starts = started.clone();
            put(&queue, engine, move |engine| {
                starts.store(engine.host().time(), Ordering::Relaxed);
            });
            queue.flush().unwrap();
            let waited = started.load(Ordering::Relaxed) - queued;
            assert!(waited <= 12 * MS, "declared {declared}: {waited}");
        });
    }
}

/// Items that declare their waits do not pay for those that do not.
#[test]
fn workers_are_not_sampled_where_all_waits_are_declared() {
    for tier in TIERS {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let queue = make(engine, QueueSpec { max_active: 16, ..spec("q", Kind::PerCpu) });
            for _ in 0..2000 {
                put(&queue, engine, |engine| {
                    engine.blocking(|| engine.host().doze(100 * US));
                    engine.host().burn(20 * US);
                });
            }
            queue.flush().unwrap();
            assert_eq!(engine.host().detecting().asked, 0, "{tier}");
        });
    }
}

/// A queue whose items have always blocked may begin to compute: from the start only few of them
/// run at once.
#[test]
fn few_workers_presumed_blocked_compute_at_once() {
    for tier in TIERS {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
            let queue = make(engine, QueueSpec { max_active: 256, ..spec("q", kind) });
            let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            for _ in 0..1000 {
                put(&queue, engine, |engine| engine.host().doze(10 * MS));
            }
            for _ in 0..300 {
                let (now, most) = (now.clone(), most.clone());
                put(&queue, engine, move |engine| {
                    most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    (0..100).for_each(|_| engine.host().burn(100 * US));
                    now.fetch_sub(1, Ordering::Relaxed);
                });
            }
            queue.flush().unwrap();
            // The pod's two CPUs, in each pool the workers whose block is presumed and not verified, and
            // one that is being replaced.
            let most = most.load(Ordering::Relaxed);
            assert!((2..=3 + 1 + 2 * UNDECIDED_MAX).contains(&most), "{tier}: {most}");
        });
    }
}

/// A pool that has reached its cap, with all workers blocked in waits, still serves its timers.
#[test]
fn timers_of_a_full_pool_reach_the_rescuer() {
    for tier in [Tier::Declared, Tier::Sampling] {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let waits = make(engine, spec("waits", Kind::PerCpu));
            let rescued = QueueSpec { flags: Flags::MEM_RECLAIM, ..spec("r", Kind::PerCpu) };
            let rescued = make(engine, rescued);
            engine.set_pool_workers_max(2);
            for _ in 0..2 {
                put(&waits, engine, |engine| engine.blocking(|| engine.host().doze(10 * SEC)));
            }
            engine.host().doze(20 * MS);
            let (began, ran) = (engine.host().time(), Arc::new(AtomicU64::new(0)));
            let (clock, at) = (engine.clone(), ran.clone());
            let item = Item::new(move || at.store(clock.host().time(), Ordering::Relaxed));
            assert_eq!(item.queue_delayed(&rescued, None, 10 * MS), Queued::Yes);
            engine.host().doze(12 * SEC);
            let late = ran.load(Ordering::Relaxed) - began - 10 * MS;
            assert!(late <= MS, "{tier}: {late}");
        });
    }
}
