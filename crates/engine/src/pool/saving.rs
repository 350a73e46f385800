//! Pools that save wakes: those of power-efficient queues. README.md has the design.

use uwork_policy::cpu_choice::{Habit, Waker};
use uwork_policy::saving::{Sleeper, joins_waker, sleep_on, spares_watcher, works_alone};

use super::Pool;
use crate::engine::Engine;
use crate::words::host::Host;
use crate::words::sync::Ordering;

/// The most workers that are asked for an awake CPU.
const ASKED_MAX: u32 = 256;

impl<H: Host> Pool<H> {
    /// Whether the watcher is not called for what waits here: its next check of the CPUs, which is
    /// planned while any worker is busy, finds it.
    #[cold]
    pub(crate) fn spares_watcher(&self) -> bool {
        self.spec().saves && spares_watcher(self.estimate().item_ns, self.blocking.expects_any())
    }

    /// Lets as many workers run as in a pool that does not save wakes: a saving pool begins with one
    /// worker, and this is not enough. The caller settles the pool.
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

    /// The CPU on which the calling worker should sleep, which is on `cpu` and is this pool's keeper
    /// next; `None` if any will do.
    pub(crate) fn cpu_to_sleep_on(&self, engine: &Engine<H>, cpu: u32) -> Option<u32> {
        let (slack_ns, item_ns) = (self.slack_of_next_wake(), self.estimate().item_ns);
        let topology = &engine.config().topology;
        let usable = engine.cpus().place_in(self.spec().places());
        let awake = cpus_in_use(engine).filter(|&cpu| usable.contains(cpu));
        let capacity = |cpu: u32| topology.cpu(cpu).map_or(0, |known| known.capacity);
        sleep_on(Sleeper { cpu, slack_ns, item_ns }, awake.map(|cpu| (cpu, capacity(cpu))))
    }

    /// The calling thread, if the worker that it wakes is to run on its CPU, which is awake. `None`
    /// if the system places the worker.
    pub(super) fn waker_to_join(&self, engine: &Engine<H>) -> Option<Waker> {
        // A pool that needs more than one worker needs other CPUs for them.
        if self.target() > 1 {
            return None;
        }
        let caller = engine.caller();
        let soon_parks = caller
            .worker()
            .map(|worker| worker.pool())
            .is_some_and(|pool| pool.spec().saves && works_alone(pool.estimate().item_ns));
        let waits = caller.note_wake() == Habit::Waits || soon_parks;
        let cpu = engine.host().current_cpu();
        // A waker that waits leaves its CPU to a worker that is in an item there, if there is one.
        let frees_cpu = waits && cpus_in_use(engine).all(|used| used != cpu);
        let slack_ns = self.slack_of_ready.load(Ordering::Relaxed);
        if !joins_waker(frees_cpu, slack_ns, self.estimate().item_ns) {
            return None;
        }
        // Beside a real-time thread that goes on computing, the item would wait for longer than its
        // slack.
        if !frees_cpu && engine.host().is_caller_real_time() {
            return None;
        }
        self.uses(engine, cpu).then_some(Waker { habit: Habit::Waits, cpu })
    }

    /// A queue with this slack is about to make a pwq ready.
    pub(crate) fn note_slack(&self, slack_ns: u64) {
        if self.slack_of_ready.load(Ordering::Relaxed) != slack_ns {
            self.slack_of_ready.store(slack_ns, Ordering::Relaxed);
        }
    }
}

/// The CPUs on which workers are in items, except for those that the calling thread is in. Hints.
fn cpus_in_use<H: Host>(engine: &Engine<H>) -> impl Iterator<Item = u32> {
    let caller = engine.caller();
    let slots = (0..ASKED_MAX).map_while(|id| engine.slots.get(id).map(|slot| (id, slot)));
    let busy = slots.filter(|(_, slot)| slot.present_run().is_some() && !slot.waits());
    let others = busy.filter(move |&(id, _)| !caller.thread.runs_slot(id));
    others.filter_map(|(_, slot)| slot.batch.cpu())
}

impl<H: Host> Engine<H> {
    /// Queues what may expire in the other saving pools: the calling worker, of the saving pool `mine`,
    /// is awake, so they need no wake of their own. At most a slice of each: the rest is left to the
    /// pool's own workers, which come up for the items of the slice.
    pub(crate) fn fire_saving_pools(&self, mine: u32, now: u64) {
        for at in 0.. {
            // One at a time: the lock of the list is not held while timers expire.
            let Some(id) = self.sets.saving_pool(at) else { return };
            let pool = self.pool(id);
            if id != mine && pool.has_due_timers(now) && !pool.state.is_retired() {
                let _is_left = pool.fire_timers(self, now);
                // The next timer, or what is left, is covered by a thread again.
                pool.settle(self);
            }
        }
    }

    /// Whether items wait in a saving pool, which does not call the watcher for them.
    pub(crate) fn saving_pools_wait(&self) -> bool {
        let ids = (0..).map_while(|at| self.sets.saving_pool(at));
        ids.map(|id| self.pool(id)).any(|pool| pool.looks_ready() || pool.has_scheduled_batches())
    }
}
