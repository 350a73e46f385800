//! Seeded runs: threads that do whatever the interface allows to items that do the same.

use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, MAX_ACTIVE_DEFAULT, QueueSpec, Queued, Rearmed};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::Scope;

use crate::chance::{Chance, Chaos};
use crate::item::Item;
use crate::ledger::{ItemNo, Limit, QueueNo};
use crate::setup::{MS, Setup, US, attrs, make, spec, with_engine};
use crate::world::{BOUND, NODES, ORDERED, PODS, QUEUES, WHOLE, World};

/// Enough for a look at each kind of trouble; `UWORK_SIM_SEEDS=N` runs more.
const SEEDS: u64 = 2_000;
const THREADS: u64 = 4;
const STEPS: u64 = 40;
const MACHINES: [&str; 5] = ["core:1", "core:2", "core:4", "llc:2 core:2", "node:2 llc:2 core:1"];

/// One thread's delayed item: nobody else arms it, so the thread knows when it is due.
struct Timer {
    no: ItemNo,
    item: Arc<Item>,
}

impl Timer {
    fn new(world: &Arc<World>) -> Timer {
        let no = world.ledger.add_item(None);
        let weak = Arc::downgrade(world);
        let item = Item::new(move || {
            let world = weak.upgrade().expect("the world outlives its items");
            world.ledger.run(no, world.host(), || world.pass_time());
        });
        Timer { no, item }
    }

    fn step(&self, world: &World) {
        let queue = &world.queues[world.below(QUEUES) as QueueNo];
        let delay = world.below(3) * world.below(2 * MS);
        let due = world.host().time() + delay;
        match world.below(5) {
            0..2 => {
                let cpu = (world.below(2) == 0).then(|| world.any_cpu());
                let arm = || self.item.queue_delayed(queue, cpu, delay);
                if world.ledger.queue(self.no, arm) == Queued::Yes {
                    world.ledger.set_due(self.no, due);
                }
            }
            2 => {
                world.ledger.lower_due(self.no, due);
                let moving = || self.item.mod_delayed(queue, delay).expect("no CPU was named");
                // Of the queueing that is moved, nothing is left but the new time.
                let armed = |outcome: &Rearmed| *outcome == Rearmed::Armed;
                let outcome = world.ledger.offer(self.no, moving, armed);
                if matches!(outcome, Rearmed::Armed | Rearmed::Moved) {
                    world.ledger.set_due(self.no, due);
                }
            }
            3 => {
                let cancel = || self.item.cancel(&world.engine);
                if world.ledger.cancel(self.no, cancel) {
                    world.ledger.set_due(self.no, 0);
                }
            }
            _ => {
                world.ledger.set_due(self.no, 0);
                let flush = || self.item.flush_delayed(&world.engine);
                world.ledger.flush_item(self.no, &self.item, flush);
            }
        }
    }
}

fn step(world: &Arc<World>, timer: &Timer) {
    let known = world.any();
    match world.below(28) {
        0..7 => {
            let _ = world.queue(&known);
        }
        7..10 => queue_once(world, ORDERED, None),
        10 => {
            let cpu = world.any_cpu();
            queue_once(world, BOUND, Some(cpu));
        }
        11 => {
            let _ = world.ledger.cancel(known.no, || known.item.cancel(&world.engine));
        }
        12 => world.cancel_sync(&known),
        13 => world.flush_item(&known),
        14 => world.flush(world.below(QUEUES) as QueueNo),
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
            0 => world.drain(world.below(QUEUES) as QueueNo),
            _ => temporary_queue(world),
        },
        21 => retune(world),
        22 => freeze(world),
        23..26 => {
            let cpu = world.any_cpu();
            queue_once(world, NODES, Some(cpu));
        }
        _ => world.host().doze(world.below(300 * US)),
    }
}

fn queue_once(world: &Arc<World>, home: QueueNo, cpu: Option<u32>) {
    let once = world.once(home, cpu);
    let queue = &world.queues[home];
    let _ = world.ledger.queue(once.no, || match cpu {
        Some(cpu) => once.item.queue_on(queue, cpu),
        None => once.item.queue(queue),
    });
    if world.below(4) == 0 {
        let _ = once.item.help(&world.engine);
    }
}

/// A queue that lives for some items. To drop it is to wait for them.
fn temporary_queue(world: &Arc<World>) {
    let host = world.host();
    let kind = if world.below(2) == 0 { Kind::PerCpu } else { Kind::Ordered(world.any_attrs()) };
    let freezable = world.below(2) == 0;
    let flags = if freezable { Flags::FREEZABLE } else { Flags::empty() };
    let queue = QueueSpec { flags, ..spec(&world.fresh_name(), kind) };
    let queue = make(&world.engine, queue);
    let limit = Limit::InAll(MAX_ACTIVE_DEFAULT);
    let home = world.ledger.add_queue(limit, world.engine.config().allowed.len(), freezable);
    for _ in 0..world.below(6) {
        let once = world.once(home, None);
        let queued = world.ledger.queue(once.no, || once.item.queue(&queue));
        assert_eq!(queued, Queued::Yes);
    }
    host.doze(world.below(50 * US));
    let before = world.ledger.queued_on(home);
    drop(queue);
    world.ledger.check_over(&before, "the end of a queue");
}

/// Changes attributes of queues in use, or the CPUs under them. Where threads are created under the
/// queue's locks, nothing may preempt the caller.
fn retune(world: &World) {
    let max = 1 + world.below(4) as u32;
    let queue = if world.below(2) == 0 { PODS } else { ORDERED };
    let attrs = world.any_attrs();
    match world.below(if world.moves { 6 } else { 4 }) {
        4.. => world.move_cpus(),
        0 => {
            world.ledger.raise_limit(WHOLE, max);
            world.queues[WHOLE].set_max_active(max).expect("in range");
        }
        1 => {
            let (max, min) = (max * 2, world.below(4) as u32);
            // While both change, the minimum may be that of before.
            world.ledger.raise_node_limits(NODES, max, 3);
            world.queues[NODES].set_max_active(max).expect("in range");
            world.queues[NODES].set_min_active(min).expect("it is unbound");
        }
        _ => {
            // Items of before may run on in pods of before.
            world.ledger.raise_limit(PODS, MAX_ACTIVE_DEFAULT);
            let change = || world.queues[queue].change_attrs(|now| *now = attrs);
            world.host().unpreempted(change).expect("attributes that fit the machine");
        }
    }
}

/// Freezes, watches for a while that nothing moves, and thaws. Another thread may have been first.
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

fn run(seed: u64) {
    let mut chance = Chance::new(!seed);
    let spawn_fails_one_in = if chance.one_in(3) { 1 + chance.below(4) } else { 0 };
    let chaos = Chaos {
        drawn_order: true,
        preempt_one_in: *chance.pick(&[0, 3, 10, 40]),
        early_one_in: *chance.pick(&[0, 0, 4]),
        spawn_fails_one_in,
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
        threads.into_iter().for_each(|thread| thread.join(world.host()));
        end(&world, &timers);
    });
}

/// Comes to rest, and checks that the books agree.
fn end(world: &Arc<World>, timers: &[Arc<Timer>]) {
    for timer in timers {
        let cancel = || timer.item.cancel_sync(&world.engine).expect("not that deep");
        let _ = world.ledger.cancel_sync(timer.no, cancel);
    }
    // Items queue items of other queues.
    while !world.queues.iter().all(|queue| queue.is_idle()) {
        (0..=NODES).for_each(|queue| world.flush(queue));
    }
    for timer in timers {
        world.ledger.check_end(timer.no, timer.item.released());
    }
    for known in &world.shared {
        assert!(!known.item.is_pending());
        world.ledger.check_end(known.no, known.item.released());
    }
    world.ledger.check_order(ORDERED);
}

#[test]
fn promises_hold_for_every_seed() {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
    };
    match number("UWORK_SIM_SEED") {
        Some(seed) => run(seed),
        None => (0..number("UWORK_SIM_SEEDS").unwrap_or(SEEDS)).for_each(run),
    }
}

/// The same seed is the same run, to the last wake-up: else a seed would be worth nothing.
#[test]
fn a_seed_repeats_itself() {
    let trace = |seed| {
        let chaos = Chaos { drawn_order: true, preempt_one_in: 5, ..Chaos::default() };
        with_engine(Setup { machine: "llc:2 core:2", chaos, seed }, |engine| {
            let host = engine.host().clone();
            let kind = Kind::Unbound(attrs(engine, Scope::Cache, false));
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
