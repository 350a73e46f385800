//! Delayed items of the seeded runs: on time or later, with slack, or when some worker is awake
//! anyway.

use std::sync::Arc;

use uwork_engine::{Queued, Rearmed};

use crate::item::Item;
use crate::ledger::{ItemNo, QueueNo};
use crate::setup::{MS, VirtualQueue};
use crate::world::{ALL, BH, NODES, ORDERED, PER_CPU, PODS, QUEUES, RECLAIM_ORDERED, World};

/// The longest delay and the longest slack.
const DELAY_MAX: u64 = 4 * MS;
const SLACK_MAX: u64 = 3 * MS;

/// A delayed item that only one thread arms, so that the thread knows when it is due.
pub(crate) struct Timer {
    pub(crate) no: ItemNo,
    pub(crate) item: Arc<Item>,
}

impl Timer {
    pub(crate) fn new(world: &Arc<World>) -> Timer {
        let no = world.ledger.add_item(None);
        let weak = Arc::downgrade(world);
        let item = any_kind(world, true, move || {
            let world = weak.upgrade().expect("the world outlives its items");
            world.ledger.run(no, world.host(), || world.pass_time(BH));
        });
        world.ledger.watch_releases(no, &item);
        Timer { no, item }
    }

    pub(crate) fn step(&self, world: &World) {
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
                // Of the queueing that is moved, only the new time remains.
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

/// A delayed item with slack, a deferrable one where that is possible, or one with neither.
fn any_kind(world: &World, defers: bool, body: impl Fn() + Send + Sync + 'static) -> Arc<Item> {
    match world.below(4) {
        0 => Item::with_slack(world.below(SLACK_MAX), body),
        1 if defers => Item::deferrable(body),
        _ => Item::new(body),
    }
}

/// Arms an item once, on any queue.
pub(crate) fn arm_once(world: &Arc<World>) {
    let home = world.below(ALL) as QueueNo;
    // The limits of nodes count items on the node where they were queued, which is not known here.
    if home != NODES {
        arm_once_on(world, &world.queues[home], home);
    }
}

/// Arms an item once, on this queue.
pub(crate) fn arm_once_on(world: &Arc<World>, queue: &VirtualQueue, home: QueueNo) {
    let cpu = (world.below(2) == 0).then(|| world.any_cpu());
    let delay = 1 + world.below(DELAY_MAX);
    let stays = cpu.filter(|_| PER_CPU.contains(&home));
    let no = world.ledger.add_late(home, stays, world.host().time() + delay);
    let weak = Arc::downgrade(world);
    // No worker wakes any more in the pool of a CPU that went offline, or of previous attributes.
    let pools_stay = home < ALL as QueueNo && ![PODS, ORDERED, RECLAIM_ORDERED].contains(&home);
    let item = any_kind(world, pools_stay && !world.moves, move || {
        let world = weak.upgrade().expect("the world outlives its items");
        world.ledger.run(no, world.host(), || world.pass_time(home));
    });
    world.ledger.watch_releases(no, &item);
    let _ = world.ledger.queue(no, || item.queue_delayed(queue, cpu, delay));
}

/// Waits until every timer is overdue, and wakes every pool for the deferrable ones.
pub(crate) fn let_all_expire(world: &Arc<World>) {
    world.host().doze(DELAY_MAX + SLACK_MAX);
    for home in 0..ALL as QueueNo {
        for cpu in world.engine.cpus().allowed.iter() {
            let stays = PER_CPU.contains(&home) || home == NODES;
            let once = world.once(home, stays.then_some(cpu));
            let queue = || once.item.queue_on(&world.queues[home], cpu);
            let _ = world.ledger.queue(once.no, queue);
            world.flush(home);
        }
    }
}
