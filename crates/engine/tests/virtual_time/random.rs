//! Seeded runs: threads that perform random operations of the interface on items that do the same.

use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, MAX_ACTIVE_DEFAULT, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::{Chance, Chaos};
use crate::delayed_items::{Timer, arm_once, arm_once_on};
use crate::idle_end;
use crate::item::Item;
use crate::ledger::{Limit, QueueNo};
use crate::machine::Counts;
use crate::setup::{Setup, US, attrs, make, spec, with_engine};
use crate::world::{ALL, BOUND, NODES, ORDERED, PODS, RECLAIM, RECLAIM_ORDERED, WHOLE, World};

/// Enough to exercise each kind of fault; `UWORK_SIM_SEEDS=N` changes the number.
const SEEDS: u64 = 2_000;
const THREADS: u64 = 4;
const STEPS: u64 = 40;
const MACHINES: [&str; 5] = ["core:1", "core:2", "core:4", "llc:2 core:2", "node:2 llc:2 core:1"];

fn step(world: &Arc<World>, timer: &Timer) {
    let known = world.any();
    match world.below(36) {
        0..7 => {
            let _ = world.queue(&known);
        }
        7..10 => queue_once(world, ORDERED),
        10 => queue_once(world, BOUND),
        11 => {
            let _ = world.ledger.cancel(known.no, || known.item.cancel(&world.engine));
        }
        12 => world.cancel_sync(&known),
        13 => world.flush_item(&known),
        14 if world.below(2) == 0 => world.flush(world.below(ALL) as QueueNo),
        14 => world.flush_in(world.below(ALL) as QueueNo, world.below(400 * US)),
        15..18 => timer.step(world),
        18 => {
            let disable = || known.item.disable(&world.engine).expect("not that deep");
            let _ = world.ledger.cancel(known.no, disable);
            world.ledger.disabled(known.no);
            world.host().doze(world.below(100 * US));
            world.ledger.enabling(known.no);
            known.item.enable(&world.engine).expect("disabled just now");
        }
        19 => {
            let _ = known.item.help(&world.engine);
        }
        20 => match world.below(3) {
            0 => world.drain(world.below(ALL) as QueueNo),
            _ => temporary_queue(world),
        },
        21 => retune(world),
        22 => freeze(world),
        23..26 => queue_once(world, NODES),
        26..32 => queue_once(world, RECLAIM + world.below(ALL - RECLAIM as u64) as QueueNo),
        32 => arm_once(world),
        33 => look_on(world),
        _ => world.host().doze(world.below(300 * US)),
    }
}

fn queue_once(world: &Arc<World>, home: QueueNo) {
    let (once, _) = world.once_on(home);
    if world.below(4) == 0 {
        let _ = once.item.help(&world.engine);
    }
}

/// Queries the engine. The answers are compared with the ledger where no time passes in between.
fn look_on(world: &World) {
    let (known, cpu, home) = (world.any(), world.any_cpu(), world.below(ALL) as QueueNo);
    let runs = world.ledger.is_running(known.no);
    assert!(!runs || known.item.busy(&world.engine).running, "item {} runs", known.no);
    // These queues have only items of their own.
    let empty = home >= NODES && world.ledger.is_empty(home);
    if let Ok(congested) = world.queues[home].is_congested(Some(cpu)) {
        assert!(!(empty && congested), "queue {home} is congested and empty");
    }
    for pool in world.engine.dump().pools {
        assert!(pool.nr_running + pool.nr_idle <= pool.nr_workers, "{pool:?}");
    }
}

/// A queue that lives for a few items. Its drop waits for them.
fn temporary_queue(world: &Arc<World>) {
    let host = world.host();
    let kind = match world.below(5) {
        0..2 => Kind::PerCpu,
        2 => Kind::Dedicated(attrs(&world.engine, AffinityScope::System, false)),
        _ => Kind::Ordered(world.any_attrs()),
    };
    let freezable = world.below(2) == 0;
    let freezes = if freezable { Flags::FREEZABLE } else { Flags::empty() };
    let dedicated = matches!(kind, Kind::Dedicated(_));
    let reclaims = !dedicated && world.below(4) == 0;
    let flags = if reclaims { freezes | Flags::MEM_RECLAIM } else { freezes };
    let queue = QueueSpec { flags, ..spec(&world.fresh_name(), kind) };
    let queue = make(&world.engine, queue);
    let limit = Limit::InAll(MAX_ACTIVE_DEFAULT);
    let home = world.ledger.add_queue(limit, world.engine.config().allowed.len(), freezable);
    for _ in 0..world.below(6) {
        let once = world.once(home, None);
        let queued = world.ledger.queue(once.no, || once.item.queue(&queue));
        assert!(queued == Queued::Yes || world.ledger.is_shut());
    }
    if world.below(4) == 0 {
        // The queue may be destroyed before the item is due.
        arm_once_on(world, &queue, home);
    }
    host.doze(world.below(50 * US));
    let before = world.ledger.queued_on(home);
    drop(queue);
    world.ledger.check_over(&before, "the end of a queue");
}

/// Changes attributes of queues in use, or the allowed CPUs. Where threads are spawned under the
/// queue's locks, nothing may preempt the caller.
fn retune(world: &World) {
    let max = 1 + world.below(4) as u32;
    let queue = [PODS, ORDERED, RECLAIM_ORDERED][world.below(3) as usize];
    let attrs = world.any_attrs();
    match world.below(if world.moves { 6 } else { 4 }) {
        4.. => world.move_cpus(),
        0 => {
            world.ledger.raise_limit(WHOLE, max);
            let queue = &world.queues[WHOLE];
            world.host().unpreempted(|| queue.set_max_active(max)).expect("in range");
        }
        1 => {
            let (max, min) = (max * 2, world.below(4) as u32);
            // While both values change, the minimum may still be the previous one.
            world.ledger.raise_node_limits(NODES, max, 3);
            let queue = &world.queues[NODES];
            world.host().unpreempted(|| queue.set_max_active(max)).expect("in range");
            world.queues[NODES].set_min_active(min).expect("it is unbound");
        }
        _ => {
            // Items queued before may run on in the previous pods.
            world.ledger.raise_limit(PODS, MAX_ACTIVE_DEFAULT);
            let change = || world.queues[queue].change_attrs(|now| *now = attrs);
            world.host().unpreempted(change).expect("attributes that fit the machine");
        }
    }
}

/// Freezes, checks for a while that no freezable item runs, and thaws. Another thread may have
/// frozen first.
fn freeze(world: &World) {
    if world.engine.freeze_begin().is_err() {
        return;
    }
    world.host().doze(world.below(600 * US));
    if !world.engine.freeze_busy().expect("frozen by us") {
        world.ledger.frozen();
        world.host().doze(world.below(600 * US));
        world.ledger.thawing();
    }
    world.engine.thaw().expect("frozen by us");
}

/// Runs a seed. Returns when it ended, and its counters.
fn run(seed: u64) -> (u64, Counts) {
    let mut chance = Chance::new(!seed);
    let spawn_fails_one_in = if chance.one_in(3) { 1 + chance.below(4) } else { 0 };
    let chaos = Chaos {
        drawn_order: true,
        preempt_one_in: *chance.pick(&[0, 3, 10, 40]),
        early_one_in: *chance.pick(&[0, 0, 4]),
        spawn_fails_one_in,
        ..Chaos::STEADY
    };
    let moves = chance.one_in(3);
    let machine = MACHINES[chance.below(MACHINES.len() as u64) as usize];
    let setup = Setup { machine, chaos, seed };
    with_engine(setup, move |engine| {
        let world = World::new(engine, spawn_fails_one_in == 0, moves);
        let timers: Vec<Arc<Timer>> = (0..THREADS).map(|_| Arc::new(Timer::new(&world))).collect();
        let threads: Vec<_> = timers
            .iter()
            .map(|timer| {
                let (theirs, timer) = (world.clone(), timer.clone());
                let anywhere = world.below(2) == 0;
                let cpu = CpuSet::single(world.any_cpu());
                let cpus = if anywhere { CpuSet::new() } else { cpu };
                world.host().start(&cpus, move || (0..STEPS).for_each(|_| step(&theirs, &timer)))
            })
            .collect();
        // An item accepted just before the end needs a worker that may have retired already.
        let shuts_down = spawn_fails_one_in != 1 && world.below(4) == 0;
        if shuts_down {
            idle_end::begin_shutdown(&world);
        }
        threads.into_iter().for_each(|thread| thread.join(world.host()));
        if shuts_down {
            idle_end::end_shutdown(&world)
        } else {
            idle_end::wait_until_idle(&world, &timers)
        }
        assert_eq!(engine.rescues(), 0, "the watcher spawned workers that were missing");
        (world.host().time(), world.host().counts())
    })
}

#[test]
fn promises_hold_for_every_seed() {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
    };
    match number("UWORK_SIM_SEED") {
        Some(seed) => {
            let _ = run(seed);
        }
        None => (0..number("UWORK_SIM_SEEDS").unwrap_or(SEEDS)).for_each(|seed| {
            let _ = run(seed);
        }),
    }
}

/// The same in a world in which every feature is used.
#[test]
fn a_seed_of_a_world_repeats_itself() {
    for seed in 0..40 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// The same seed gives the same run, to the last wake-up; otherwise a failure could not be
/// reproduced.
#[test]
fn a_seed_repeats_itself() {
    let trace = |seed| {
        let chaos = Chaos { drawn_order: true, preempt_one_in: 5, ..Chaos::default() };
        with_engine(Setup { machine: "llc:2 core:2", chaos, seed }, |engine| {
            let host = engine.host().clone();
            let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, false));
            let queue = make(engine, QueueSpec { max_active: 2, ..spec("q", kind) });
            let runs = Arc::new(Mutex::new(Vec::new()));
            for index in 0..200 {
                let (host, runs) = (host.clone(), runs.clone());
                let item = Item::new(move || {
                    runs.lock().unwrap().push((index, host.time(), host.cpu()));
                    host.burn(US * (index % 7));
                });
                assert_eq!(item.queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            let runs = runs.lock().unwrap().clone();
            (runs, host.time(), host.counts())
        })
    };
    assert!(trace(1) == trace(1));
    assert!(trace(1) != trace(2));
}
