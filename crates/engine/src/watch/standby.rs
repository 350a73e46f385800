//! Standby threads: one for each CPU on which a worker has blocked undeclared.
//!
//! README.md in this folder has the protocol, and what may be missed. `uwork_policy::standby`
//! decides. A standby may be kept from its CPU at any instruction and for any time. So it takes no
//! lock, allocates nothing, and calls no user code: it loads a few words, and wakes other threads.

use std::sync::Arc;

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::standby::{
    After, PoolFacts, PoolPlan, Round, State, after_round, plan_pool, respawns_after_ns, serves,
    wakes,
};
use uwork_policy::topology::Cpu;

use crate::engine::Engine;
use crate::pool::Pool;
use crate::watch::COOL_DOWN_NS;
use crate::words::host::{Event, Host, Observer};
use crate::words::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::words::wake::WakeToken;

/// How many pools one standby knows at most: of each residue class the one that called last.
const POOLS: usize = 8;
/// No pool.
const NONE: u32 = u32::MAX;

/// One CPU's standby. Its thread writes `ran_at`. README.md has the table of the other words.
#[repr(align(128))]
struct Standby<H: Host> {
    /// A [`State`].
    state: AtomicU32,
    /// When it last ran. A hint.
    ran_at: AtomicU64,
    /// When the watcher may spawn its thread again, after a failure or a move; 0 if neither happened.
    /// Written by the watcher, and by the thread before it ends.
    again_at: AtomicU64,
    /// How often it was found on another CPU. Its thread alone writes it.
    moves: AtomicU32,
    /// Pools in which something waits behind workers of this CPU. Hints.
    pools: [AtomicU32; POOLS],
    event: H::Event,
}

/// See the module.
pub(crate) struct Standbys<H: Host> {
    /// Indexed by CPU.
    by_cpu: Box<[Standby<H>]>,
    /// The threads are to end.
    retired: AtomicBool,
}

impl<H: Host> Standby<H> {
    fn new() -> Standby<H> {
        Standby {
            state: AtomicU32::new(State::Absent as u32),
            ran_at: AtomicU64::new(0),
            again_at: AtomicU64::new(0),
            moves: AtomicU32::new(0),
            pools: std::array::from_fn(|_| AtomicU32::new(NONE)),
            event: H::Event::default(),
        }
    }

    fn state(&self) -> State {
        let state = self.state.load(Ordering::SeqCst);
        [State::Absent, State::Asleep, State::GaveUp, State::Paused, State::Awake][state as usize]
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::SeqCst);
    }

    /// Makes sure that it runs when its CPU is idle. Returns false if it has no thread, or has given
    /// the pool up until the next batch.
    fn call(&self, engine: &Engine<H>, pool: &Pool<H>) -> bool {
        let known = &self.pools[pool.id as usize % POOLS];
        if known.load(Ordering::Relaxed) != pool.id {
            // SeqCst: part of W1 of the README's diagram, as is the caller's push. A standby that
            // reads an older entry after W2 would sleep although it was not woken.
            known.store(pool.id, Ordering::SeqCst);
        }
        // SeqCst: R1 of the diagram.
        let state = self.state();
        if wakes(state, pool.blocking.examinations(pool.last_taken_at(), 0).0) {
            // Not starved before it has had time to run.
            self.ran_at.store(engine.host().now(), Ordering::Relaxed);
            let (from, to) = (state as u32, State::Awake as u32);
            // One of several callers wakes it.
            if self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.wake(engine);
            }
            return true;
        }
        matches!(state, State::Awake | State::Paused)
    }

    /// Whether it looks at this pool: no other pool has taken its place since the last call.
    fn knows(&self, pool: u32) -> bool {
        self.pools[pool as usize % POOLS].load(Ordering::Relaxed) == pool
    }

    fn wake(&self, engine: &Engine<H>) {
        // SAFETY: standbys live as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const self.event) }.send(engine.host());
    }

    /// One round: has the pools examined that may need it.
    fn round(&self, engine: &Engine<H>) -> Round {
        let now = engine.host().now();
        self.ran_at.store(now, Ordering::Relaxed);
        let mut round = Round::NOTHING;
        for known in &self.pools {
            // SeqCst: part of R2 of the diagram.
            let id = known.load(Ordering::SeqCst);
            let Some(pool) = engine.pools.get(id).filter(|_| id != NONE) else { continue };
            let plan = plan_pool(pool.standby_facts(engine, now));
            if matches!(plan, PoolPlan::Examine { .. }) {
                pool.call_examiner(engine, now);
            }
            round = round.with(plan);
        }
        round
    }
}

impl<H: Host> Standby<H> {
    /// Publishes that it sleeps. Returns false if something waits that it can help.
    fn begin_sleep(&self, engine: &Engine<H>, state: State) -> bool {
        // W2 before R2 (README.md): publish the state first, then look once more.
        self.set_state(state);
        let round = self.round(engine);
        match state {
            State::Asleep => round == Round::NOTHING,
            // Only a pool of which a worker has taken a batch meanwhile is a reason to stay awake.
            _ => !round.fresh,
        }
    }
}

impl<H: Host> Standbys<H> {
    pub(crate) fn new(cpus: &[Cpu]) -> Standbys<H> {
        let count = cpus.iter().map(|cpu| cpu.id as usize + 1).max().unwrap_or(0);
        Standbys {
            by_cpu: (0..count).map(|_| Standby::new()).collect(),
            retired: AtomicBool::new(false),
        }
    }

    fn of(&self, cpu: u32) -> Option<&Standby<H>> {
        self.by_cpu.get(cpu as usize)
    }

    /// Something waits behind running workers of this pool, in which blocks are expected: calls the
    /// standbys of their CPUs. Returns whether all of these serve.
    pub(crate) fn call(&self, engine: &Engine<H>, pool: &Pool<H>) -> bool {
        if engine.observer().tier() != Tier::Standby {
            return false;
        }
        let mut all = true;
        pool.for_each_busy_cpu(engine, |cpu| {
            all &= self.of(cpu).is_some_and(|standby| standby.call(engine, pool));
        });
        // A block in a pool that shares its work may be all that keeps its CPU from this pool's items.
        let near = pool.spec().near().map(|id| engine.pool(id));
        near.filter(|near| near.may_block_help()).for_each(|near| self.call_own(engine, near));
        all
    }

    /// A worker of this pool takes a batch from a neighbour in which something is left: calls the
    /// standbys of this pool's CPUs. If the worker blocks, another one can take what is left.
    pub(crate) fn call_own(&self, engine: &Engine<H>, pool: &Pool<H>) {
        if engine.observer().tier() != Tier::Standby {
            return;
        }
        pool.for_each_busy_cpu(engine, |cpu| {
            if let Some(standby) = self.of(cpu) {
                standby.call(engine, pool);
            }
        });
    }

    /// The watcher: spawns the standbys that a pool lacks in which blocks are expected.
    pub(super) fn ensure(&self, engine: &Engine<H>, pool: &Pool<H>, now: u64) {
        if engine.observer().tier() != Tier::Standby || self.retired.load(Ordering::SeqCst) {
            return;
        }
        pool.for_each_busy_cpu(engine, |cpu| {
            let is_due = |standby: &&Standby<H>| standby.again_at.load(Ordering::Relaxed) <= now;
            let absent = self.of(cpu).filter(|standby| standby.state() == State::Absent);
            let Some(standby) = absent.filter(is_due) else { return };
            let Some(me) = engine.me() else { return };
            standby.set_state(State::Awake);
            let mut cpus = CpuSet::new();
            cpus.insert(cpu);
            let spec = engine.service(format!("uw/standby{cpu}"), cpus);
            let main = Box::new(move || standby_main(&me, cpu));
            if engine.host().spawn(&spec, main).is_err() {
                standby.again_at.store(now.saturating_add(COOL_DOWN_NS), Ordering::Relaxed);
                standby.set_state(State::Absent);
            }
        });
    }

    /// Whether the standbys find the workers of this pool that block.
    pub(super) fn serve(&self, engine: &Engine<H>, pool: &Pool<H>, now: u64) -> bool {
        if engine.observer().tier() != Tier::Standby {
            return false;
        }
        let mut all = true;
        pool.for_each_busy_cpu(engine, |cpu| {
            all &= self.of(cpu).is_some_and(|standby| {
                let ran_at = standby.ran_at.load(Ordering::Relaxed);
                standby.knows(pool.id) && serves(standby.state(), now.saturating_sub(ran_at))
            });
        });
        all
    }

    /// Ends all threads.
    pub(crate) fn retire(&self, engine: &Engine<H>) {
        self.retired.store(true, Ordering::SeqCst);
        let present = self.by_cpu.iter().filter(|standby| standby.state() != State::Absent);
        present.for_each(|standby| standby.wake(engine));
    }

    /// In a forked child, where the threads do not exist.
    pub(crate) fn forget(&self) {
        for standby in &self.by_cpu {
            // All fields by name, as in `Watch::forget`.
            let Standby { state: _, ran_at: _, again_at, moves, pools, event } = standby;
            // Also of one that is absent: the parent's failures are not the child's.
            again_at.store(0, Ordering::Relaxed);
            moves.store(0, Ordering::Relaxed);
            pools.iter().for_each(|known| known.store(NONE, Ordering::SeqCst));
            if standby.state() != State::Absent {
                event.renew();
                standby.set_state(State::Absent);
            }
        }
    }
}

fn standby_main<H: Host>(engine: &Arc<Engine<H>>, cpu: u32) {
    let (host, standbys) = (engine.host(), &engine.standbys);
    let Some(me) = standbys.of(cpu) else { return };
    // If the system refuses, the host chooses another tier, and nothing calls standbys any more.
    if host.become_standby() {
        let mut rounds = 0;
        while !standbys.retired.load(Ordering::SeqCst) {
            if host.current_cpu() != cpu {
                // The system has moved it, or has refused to pin it: the CPU is offline, or not allowed
                // any more. Here it would run while the worker computes. The watcher spawns another one
                // when it is needed, and later each time.
                let moves = me.moves.fetch_add(1, Ordering::Relaxed);
                let again_at = host.now().saturating_add(respawns_after_ns(moves));
                me.again_at.store(again_at, Ordering::Relaxed);
                break;
            }
            let round = me.round(engine);
            rounds = if round.fresh { 1 } else { rounds + 1 };
            let (state, deadline) = match after_round(round, rounds) {
                After::Yield => {
                    host.yield_now();
                    continue;
                }
                After::Pause(ns) => (State::Paused, Some(host.now().saturating_add(ns))),
                After::Sleep => (State::Asleep, None),
                After::GiveUp => (State::GaveUp, None),
            };
            if me.begin_sleep(engine, state) {
                let _ = host.park(&me.event, deadline);
            }
            me.set_state(State::Awake);
            rounds = 0;
        }
    }
    me.set_state(State::Absent);
}

impl<H: Host> Pool<H> {
    fn standby_facts(&self, engine: &Engine<H>, now: u64) -> PoolFacts {
        let counts = self.state.counts();
        let waits_here = self.looks_ready() || self.has_scheduled_batches();
        // Below its target, this pool's own workers come for its neighbours' work by another rule.
        let waits_near =
            || counts.running >= self.target() && self.overloaded_neighbour(engine).is_some();
        let (examinations, since_ns) = self.blocking.examinations(self.last_taken_at(), now);
        PoolFacts {
            waits: waits_here || waits_near(),
            running: counts.running,
            target: self.target(),
            examinations,
            since_ns,
        }
    }

    /// Whether blocks are expected here, and all workers run that should run.
    fn may_block_help(&self) -> bool {
        self.blocking.expects_any() && self.state.counts().running >= self.target()
    }

    /// Calls `f` with each CPU on which a worker of this pool runs an item, as far as known. A hint.
    fn for_each_busy_cpu(&self, engine: &Engine<H>, mut f: impl FnMut(u32)) {
        if let Some(cpu) = self.spec().single_cpu().filter(|_| !self.is_displaced()) {
            return f(cpu);
        }
        let in_run = |slot: &&crate::slot::Slot<H>| slot.present_run().is_some();
        let workers = self.recent().map(|id| engine.slot(id)).filter(in_run);
        workers.filter_map(|slot| slot.batch.cpu()).for_each(f);
    }

    /// Wakes a parked worker to examine this pool; if none is parked, the watcher. Takes no lock.
    fn call_examiner(&self, engine: &Engine<H>, now: u64) {
        self.blocking.request_examination(self.last_taken_at(), now);
        match self.parked_worker() {
            Some(id) => self.wake_parked(engine, id),
            None => engine.watch.wake_present(engine),
        }
    }
}

/// Access for the models, which run the steps of a standby on a thread of their own.
#[cfg(all(test, loom))]
mod model {
    use uwork_policy::standby::{After, State, after_round};

    use crate::engine::Engine;
    use crate::models::LoomHost;
    use crate::words::sync::Ordering;

    impl Engine<LoomHost> {
        /// The standby of CPU 0 exists, and is awake.
        pub(crate) fn standby_begins(&self) {
            let standby = self.standbys.of(0).expect("the model has CPU 0");
            // loom takes initial values for relaxed stores: see `sync::AtomicBool`.
            standby.pools.iter().for_each(|pool| pool.store(super::NONE, Ordering::SeqCst));
            standby.set_state(State::Awake);
        }

        /// A round of that standby, and the steps with which it goes to sleep if nothing waits.
        pub(crate) fn standby_sleeps(&self) {
            let standby = self.standbys.of(0).expect("the model has CPU 0");
            if after_round(standby.round(self), 1) == After::Sleep {
                self.standby_begins_sleep(State::Asleep);
            }
        }

        /// The steps with which that standby pauses or gives up, or goes to sleep.
        pub(crate) fn standby_begins_sleep(&self, state: State) {
            let standby = self.standbys.of(0).expect("the model has CPU 0");
            if !standby.begin_sleep(self, state) {
                standby.set_state(State::Awake);
            }
        }

        /// Whether it is awake, or was woken.
        pub(crate) fn standby_is_called(&self) -> bool {
            let standby = self.standbys.of(0).expect("the model has CPU 0");
            standby.state() == State::Awake
        }

        /// That standby is absent, and is to be spawned later.
        pub(crate) fn standby_fails(&self) {
            let standby = self.standbys.of(0).expect("the model has CPU 0");
            standby.set_state(State::Absent);
            standby.again_at.store(u64::MAX, Ordering::SeqCst);
            standby.moves.store(9, Ordering::SeqCst);
        }

        /// Whether the watcher may spawn it now, and spawns it no later than a new one after a move.
        pub(crate) fn is_standby_due(&self) -> bool {
            let standby = self.standbys.of(0).expect("the model has CPU 0");
            let moves = standby.moves.load(Ordering::SeqCst);
            standby.again_at.load(Ordering::SeqCst) == 0 && moves == 0
        }

        /// Takes a request to examine a pool.
        pub(crate) fn take_examination(&self, pool: u32) -> bool {
            self.pool(pool).blocking.take_request()
        }

        /// Blocks are expected in a pool.
        pub(crate) fn expect_blocks(&self, pool: u32) {
            self.pool(pool).blocking.expect_more(crate::models::host::NOW);
        }
    }
}
