//! Pools that save wakes: those of power-efficient queues. README.md has the design.

use uwork_policy::saving::{Sleeper, sleep_on, spares_watcher, works_alone};

use super::Pool;
use crate::engine::Engine;
use crate::host::Host;

/// The most workers that are asked for an awake CPU.
const ASKED_MAX: u32 = 256;

impl<H: Host> Pool<H> {
    /// Whether the watcher is not called for what waits here: its next check of the CPUs, which is
    /// planned while any worker is busy, finds it.
    #[cold]
    pub(crate) fn spares_watcher(&self) -> bool {
        self.spec().saves && spares_watcher(self.estimate().item_ns, self.blocking.expects_any())
    }

    /// Items still wait after a worker has taken a batch; it has been awake for `busy_ns`. A saving
    /// pool begins with one worker, and gets as many as any other pool if that is not enough.
    pub(crate) fn reconsider_target(&self, engine: &Engine<H>, busy_ns: u64) {
        if !works_alone(busy_ns) {
            self.use_all_workers(engine);
        }
    }

    /// Lets as many workers run as in a pool that does not save wakes. The caller settles the pool.
    pub(crate) fn use_all_workers(&self, engine: &Engine<H>) {
        let target = engine.cpus().target(&self.spec().cpus);
        if self.spec().saves && self.target() != target {
            self.set_target(target);
        }
    }

    /// The last running worker parks: the next item is left to one worker again.
    pub(crate) fn begin_alone(&self) {
        if self.target() != 1 && self.state.counts().running <= 1 {
            self.set_target(1);
        }
    }

    /// The CPU on which this pool's keeper should sleep, which is on `cpu`; `None` if any will do.
    pub(crate) fn cpu_to_sleep_on(&self, engine: &Engine<H>, me: u32, cpu: u32) -> Option<u32> {
        let (open, next) = (self.timers.open(), self.next_wake());
        let (slack_ns, item_ns) = (next.saturating_sub(open), self.estimate().item_ns);
        let topology = &engine.config().topology;
        let usable = engine.cpus().place(&self.spec().cpus);
        let slots = (0..ASKED_MAX).map_while(|id| engine.slots.get(id).map(|slot| (id, slot)));
        let busy =
            slots.filter(|&(id, slot)| id != me && slot.present_run().is_some() && !slot.waits());
        let awake =
            busy.filter_map(|(_, slot)| slot.batch.cpu()).filter(|&cpu| usable.contains(cpu));
        let capacity = |cpu: u32| topology.cpu(cpu).map_or(0, |known| known.capacity);
        sleep_on(Sleeper { cpu, slack_ns, item_ns }, awake.map(|cpu| (cpu, capacity(cpu))))
    }
}

impl<H: Host> Engine<H> {
    /// Queues what may expire in all saving pools: the calling worker, of the saving pool `mine`,
    /// is awake, so the others need no wake of their own.
    pub(crate) fn fire_saving_pools(&self, mine: u32, now: u64) {
        for at in 0.. {
            // One at a time: the lock of the list is not held while timers expire.
            let Some(id) = self.sets.saving_pool(at) else { return };
            let pool = self.pool(id);
            if id != mine && pool.has_due_timers(now) && !pool.state.is_retired() {
                pool.fire_timers(self, now);
            }
        }
    }

    /// Whether items wait in a saving pool, which does not call the watcher for them.
    pub(crate) fn saving_pools_wait(&self) -> bool {
        let ids = (0..).map_while(|at| self.sets.saving_pool(at));
        ids.map(|id| self.pool(id)).any(|pool| pool.looks_ready() || pool.has_scheduled_batches())
    }
}
