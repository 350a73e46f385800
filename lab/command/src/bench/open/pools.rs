//! The runners: uwork's queues, and the other pools.
//!
//! The variants of uwork are the scopes `default`, `system` and `cpu` with intrusive items, and
//! `spawn` and `execute`: the default scope with a closure for each item, whose handle is dropped,
//! or which has none. The second queue of case `mixed` is `highpri`. Other pools have no
//! priorities: there a second pool of as many threads serves the latency-critical items, with the
//! niceness of uwork's `highpri` workers.

use uwork::{AffinityScopeChoice, Queue};
use uwork_rivals::open::{self, OpenPool};

use super::item::Item;
use crate::UserError;
use crate::bench::contestant::cpus;
use crate::bench::uwork_pool;

/// The variants of uwork.
pub(super) const VARIANTS: [&str; 7] =
    ["default", "system", "numa", "cache", "cpu", SPAWN, EXECUTE];
const SPAWN: &str = "spawn";
const EXECUTE: &str = "execute";
/// The niceness of threads for latency-critical items.
const HIGHPRI_NICE: i32 = -20;

/// Starts a pool that lives until the process ends.
pub(super) fn start(
    runner: &str,
    variant: &str,
    critical: bool,
) -> Result<&'static dyn OpenPool<Item>, UserError> {
    let pool: Option<Box<dyn OpenPool<Item>>> = match runner {
        uwork_pool::RUNNER if variant == SPAWN => {
            Some(Box::new(Closures(queue("default", critical)?)))
        }
        uwork_pool::RUNNER if variant == EXECUTE => {
            Some(Box::new(Executed(queue("default", critical)?)))
        }
        uwork_pool::RUNNER => Some(Box::new(Intrusive(queue(variant, critical)?))),
        rival => open::start(rival, cpus(), critical.then_some(HIGHPRI_NICE)),
    };
    let missing = || UserError(format!("runner '{runner}' '{variant}' does not exist"));
    pool.map(|pool| &*Box::leak(pool)).ok_or_else(missing)
}

fn queue(scope: &str, critical: bool) -> Result<Queue, UserError> {
    let name = if critical { "bench-critical" } else { "bench-open" };
    let scope: AffinityScopeChoice =
        scope.parse().map_err(|_| UserError(format!("scope '{scope}' does not exist")))?;
    let builder = Queue::builder(name).unbound().affinity_scope(scope);
    let builder = if critical { builder.highpri() } else { builder };
    builder.build().map_err(|error| UserError(error.to_string()))
}

struct Intrusive(Queue);

impl OpenPool<Item> for Intrusive {
    fn submit(&self, item: &'static Item) {
        let queued = self.0.enqueue(item);
        debug_assert!(queued.is_queued(), "an item is submitted once");
    }
}

struct Closures(Queue);

impl OpenPool<Item> for Closures {
    fn submit(&self, item: &'static Item) {
        drop(self.0.spawn(move || open::Item::run(item)));
    }
}

struct Executed(Queue);

impl OpenPool<Item> for Executed {
    fn submit(&self, item: &'static Item) {
        let queued = self.0.execute(move || open::Item::run(item));
        debug_assert!(queued.is_ok(), "the queue is open");
        let _ = queued;
    }
}
