//! The end of seeded runs: idle, or shut down. Then the ledger must balance, and the pools'
//! counters must be right.

use std::sync::Arc;

use uwork_engine::dump::{PoolDump, WorkerState};
use uwork_engine::{Queued, Shutdown};

use crate::delayed_items::{Timer, let_all_expire};
use crate::setup::{MS, SEC};
use crate::world::{BH, DEDICATED, NODES, ORDERED, RECLAIM_ORDERED, World};

/// How often the pools are checked, a millisecond apart, until idle workers must have parked.
const LOOKS: u32 = 200;

/// Waits for all items, and checks that the ledger balances.
pub(crate) fn wait_until_idle(world: &Arc<World>, timers: &[Arc<Timer>]) {
    for timer in timers {
        let cancel = || timer.item.cancel_sync(&world.engine).expect("not that deep");
        let _ = world.ledger.cancel_sync(timer.no, cancel);
    }
    let_all_expire(world);
    // Items queue items of other queues, so one round of flushes is not enough.
    while !world.queues.iter().all(|queue| queue.is_idle()) {
        (0..world.queues.len()).for_each(|queue| world.flush(queue));
    }
    assert!(world.shared.iter().all(|known| !known.item.is_pending()));
    check_books(world);
    check_pools(world, |pool| !pool.retired || pool.nr_workers == 0);
}

/// Shuts the engine down while other threads still use it.
pub(crate) fn begin_shutdown(world: &World) {
    world.host().doze(world.below(4 * MS));
    world.ledger.shutting_down();
    shut_down(world, [0, MS, 100 * SEC][world.below(3) as usize]);
}

/// No other thread uses the engine any more: everything that a first shutdown left ends now.
pub(crate) fn end_shutdown(world: &Arc<World>) {
    assert!(shut_down(world, 100 * SEC), "{}", world.engine.dump());
    for home in 0..world.queues.len() {
        let (_, queued) = world.once_on(home);
        assert_eq!(queued, Queued::Refused);
    }
    check_books(world);
    check_pools(world, |pool| pool.nr_workers == 0);
}

/// Shuts down; whether everything ended within the time.
fn shut_down(world: &World, limit_ns: u64) -> bool {
    let how = if world.below(2) == 0 { Shutdown::Drain } else { Shutdown::Cancel };
    let began = world.host().time();
    let report = world.engine.shutdown(how, limit_ns).expect("not inside of an item");
    let in_time = world.host().time() >= began + limit_ns;
    assert!(report.is_complete() || in_time, "it gave up early: {report}");
    report.is_complete()
}

fn check_books(world: &World) {
    world.ledger.check_all_over();
    for queue in [ORDERED, RECLAIM_ORDERED, DEDICATED] {
        world.ledger.check_order(queue);
    }
    world.ledger.check_order_on_each_cpu(BH);
    assert!(world.queues[NODES..].iter().all(|queue| queue.is_idle()));
}

/// Every worker parks in the end, and then none counts as running.
fn check_pools(world: &World, is_right: impl Fn(&PoolDump) -> bool) {
    let is_at_rest = |pool: &PoolDump| {
        let idle = pool.workers.iter().all(|worker| worker.state == WorkerState::Idle);
        let counted = pool.nr_running == 0 && !pool.waking && pool.nr_idle == pool.nr_workers;
        let listed = pool.workers.len() == pool.nr_workers as usize;
        // A pwq whose items were all cancelled may stay ready in a pool without workers.
        let empty = (pool.nr_ready == 0 || pool.nr_workers == 0) && pool.nr_armed == 0;
        idle && counted && listed && empty && is_right(pool)
    };
    for _ in 0..LOOKS {
        if world.engine.dump().pools.iter().all(is_at_rest) {
            return;
        }
        world.host().doze(MS);
    }
    panic!("a pool does not come to rest: {}", world.engine.dump());
}
