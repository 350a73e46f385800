//! A worker pool: threads that share counters, a ready list and an idle stack.
//!
//! README.md has the park and kick protocol.

mod beside;
mod bits;
mod blocking;
mod bring;
pub(crate) mod cap;
mod conserve;
mod displaced;
mod fork;
mod hints;
mod pick;
pub(crate) mod progress;
pub(crate) mod ready;
mod retire;
pub(crate) mod room;
mod saving;
mod sets;
pub(crate) mod state;
mod target;
pub(crate) mod target_word;
mod timers;
mod transfer;

use std::ops::Range;
use std::sync::Arc;

use uwork_policy::batch::UNKNOWN_RUN_NS;
use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::queue::Name;
use crate::queue::pwq::Pwq;
use crate::slot::IdleStack;
use crate::timer::TimerBase;
use crate::words::host::{Cpus, Host, Places, Runner, ThreadKind};
use crate::words::inbox::Inbox;
use crate::words::sync::{
    AtomicBool, AtomicU32, AtomicU64, Hint, Line, Lock, LockGuard, Ordering, Rank,
};
use crate::words::wake::WakeToken;
use bits::PoolBits;
pub(crate) use blocking::BlockingState;
pub use cap::POOL_WORKERS_LIMIT;
pub(crate) use conserve::{give_back, put_back};
use displaced::{NO_CPU, Near};
pub(crate) use hints::{CalledBy, ComingHelp};
use progress::Unsettled;
use ready::ReadyList;
use room::RoomMap;
pub(crate) use sets::{Context, PoolSet, PoolSets, SetKey};
use state::PoolState;
use target::OffCpuSums;
use target_word::Target;
pub(crate) use uwork_policy::progress::NEVER;

/// Workers that are remembered as having taken a batch lately.
const RECENT: usize = 8;
/// No worker.
const NO_SLOT: u32 = u32::MAX;

/// The most ready pwqs that are listed of one pool.
const READY_MAX: usize = 64;
/// Room for workers that are created between the allocation of a list and the lock.
const WORKERS_SPARE: usize = 8;

/// What a pool is for; constant.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolSpec {
    /// The CPUs of its workers: one CPU of the pod, or all. It uses those that its queues may use at
    /// present (`displaced.rs`).
    pub(crate) cpus: CpuSet,
    /// The CPUs of the pod.
    pub(crate) pod: CpuSet,
    /// The CPUs that its queues ask for; for per-CPU queues, which have different ones, only the pod's.
    pub(crate) wanted: Arc<CpuSet>,
    /// Whether its queues may use all CPUs of the process, as per-CPU ones, or those of unbound queues.
    pub(crate) bound: bool,
    pub(crate) nice: i32,
    /// For the threads' names.
    pub(crate) label: String,
    /// Whether only its own workers may run its items: pools of per-CPU queues.
    pub(crate) confined: bool,
    /// Whether it has exactly one worker: its items run in one context, in order.
    pub(crate) single: bool,
    /// Whether its items must not wait.
    pub(crate) bh: bool,
    /// Whether other pools may steal its work and borrow its workers.
    pub(crate) shares: bool,
    /// Whether it saves wakes, at the price of latency.
    pub(crate) saves: bool,
    /// The pools with which it shares work: those of its pod first, the nearest first.
    pub(crate) neighbours: Vec<u32>,
    /// The first of the pools that share work, which may be this one.
    pub(crate) first: u32,
    /// How many of these are in its pod.
    pub(crate) nr_beside: usize,
    /// These, if there are any beyond the nearest.
    pub(crate) wide: Option<WideSet>,
}

/// A set of more pools than a thread looks at one by one, as one of its pools sees it.
#[derive(Clone, Debug)]
pub(crate) struct WideSet {
    /// The pool's position among the others.
    at: usize,
    /// The positions of the pools of its pod.
    pod: Range<usize>,
    /// All pools, in the order of the pods.
    pools: Arc<[u32]>,
    /// Which of them may have room.
    room: Arc<RoomMap>,
    /// Which of them are in place. Hints: they spare a thread that looks at all pools the reading of the
    /// others, which run their own items and call for help.
    in_place: Arc<PoolBits>,
    /// The nearest ones that are in place.
    near: Arc<Near>,
}

impl PoolSpec {
    /// The name of the pool's threads.
    pub(crate) fn thread_name(&self) -> String {
        format!("uw/{}", self.label)
    }

    /// How a new worker runs items. `queue` is the pool's queue, if it has a single one.
    pub(crate) fn runner(&self, queue: Name) -> Runner {
        let kind = match (self.single, self.bh) {
            (false, _) => ThreadKind::Worker,
            (true, false) => ThreadKind::Dedicated,
            (true, true) => ThreadKind::Bh,
        };
        let queue = (queue != Name::EMPTY).then(|| queue.to_string());
        Runner { kind, queue }
    }

    /// The other pools of its pod.
    pub(crate) fn beside(&self) -> &[u32] {
        &self.neighbours[..self.nr_beside]
    }

    /// Where its workers run: on its CPUs, or on those of the pod if its queues may use none of
    /// them, or else on all that its queues may use.
    pub(crate) fn places(&self) -> Places<'_> {
        Places { cpus: &self.cpus, pod: &self.pod, wanted: &self.wanted, bound: self.bound }
    }

    /// Where its workers run that may leave its CPUs.
    pub(crate) fn places_in_pod(&self) -> Places<'_> {
        Places { cpus: &self.pod, ..self.places() }
    }

    /// The CPU of a pool of one CPU.
    pub(crate) fn single_cpu(&self) -> Option<u32> {
        self.cpus.first().filter(|_| self.cpus.first() == self.cpus.last())
    }
}

/// A worker pool (see the module). The fields are in this order: those that all threads write,
/// those that no thread writes, those that workers write.
#[repr(C, align(128))]
pub(crate) struct Pool<H: Host> {
    /// Pwqs that became ready and are not yet in `inner.ready`.
    ready_inbox: Inbox<Pwq<H>>,
    pub(crate) state: PoolState,
    /// How many workers should run while work is pending.
    target: Target,
    pub(crate) id: u32,
    /// One of the CPUs that it uses, or `NO_CPU`. A hint.
    cpu: Hint,
    spec: std::sync::OnceLock<PoolSpec>,
    /// Whether `inner.ready` is non-empty. A hint for threads without the lock.
    has_ready: Line<AtomicBool>,
    /// When a worker may be spawned again after a failure; 0 if no spawn has failed. A hint.
    create_again_at: AtomicU64,
    /// When the rescuers are called next. A hint.
    mayday_at: AtomicU64,
    /// When work was last taken, or a worker last came up for it. A hint.
    last_progress_at: AtomicU64,
    /// When work was last taken; unlike `last_progress_at`, a worker's arrival does not count. A hint.
    last_batch_at: Hint,
    /// When a worker of this pool last took work from a neighbour. A hint.
    last_steal_at: Hint,
    /// When a submitter that goes on computing was last seen on the CPU. A hint.
    occupied_at: Hint,
    /// For which neighbours' work the worker on its way up is woken. Set by the thread that wakes it
    /// for that work, taken by the worker.
    pub(crate) comes_to_help: ComingHelp,
    /// Pool sets in use that contain this pool. Guard: the lock of the engine's list of sets.
    sets_in_use: AtomicU32,
    /// How long an item takes of the queue from which a worker took last. A hint.
    item_ns: AtomicU64,
    /// How long the batch still takes that an arriving item meets. A hint.
    residual_ns: AtomicU64,
    /// Workers with items scheduled behind the one that they run. A hint.
    scheduled_batches: AtomicU32,
    pub(crate) blocking: BlockingState,
    off_cpu: OffCpuSums,
    /// Workers that took a batch lately: the latest one of each residue class. Hints.
    recent: [AtomicU32; RECENT],
    /// The sum of its queues' limits: the number of their items that may run at once.
    limits: AtomicU64,
    /// Whether the report was made that the pool, with those that share its work, has as many workers as
    /// it may have, and all block. That of the first of these pools counts.
    full_reported: AtomicBool,
    /// How long the keeper sleeps; `NEVER` if unknown. Written by the keeper, under the pool lock.
    keeper_until: AtomicU64,
    /// In a saving pool: the timer slack of the queue that made a pwq ready last. A hint.
    slack_of_ready: AtomicU64,
    /// Whether its timers were left to the watcher lately. A hint.
    left_timers: AtomicBool,
    /// Whether a wake is claimed for a worker that the watcher is to spawn.
    is_spawn_requested: AtomicBool,
    /// Since when the watcher has found the pool stranded, without a worker that it is owed; 0 if
    /// it is not stranded.
    stranded_since: AtomicU64,
    /// The worker that parked last, or `NO_SLOT`. A hint for threads without the lock.
    parked: AtomicU32,
    /// Queues that send new items here. Without any, only its timers bring a worker up.
    routed: AtomicU32,
    /// Deferrable timers: they never wake a parked worker.
    pub(crate) deferrable: TimerBase<H>,
    /// Ordinary timers: the keeper or the watcher covers them.
    pub(crate) timers: TimerBase<H>,
    inner: Lock<PoolInner<H>>,
}

/// Guard: the pool lock.
pub(crate) struct PoolInner<H: Host> {
    pub(crate) ready: ReadyList<H>,
    pub(crate) idle: IdleStack,
    /// The keeper: the parked worker that sleeps no longer than until the next timer.
    pub(crate) keeper: Option<u32>,
    /// The slots of all workers.
    pub(crate) workers: Vec<u32>,
    /// The queue of a dedicated pool, `EMPTY` for other pools.
    pub(crate) queue: Name,
}

impl<H: Host> Pool<H> {
    pub(crate) fn new(id: u32) -> Pool<H> {
        Pool {
            ready_inbox: Inbox::new(),
            state: PoolState::new(),
            target: Target::new(),
            cpu: Hint::new(NO_CPU),
            has_ready: Line(AtomicBool::new(false)),
            create_again_at: AtomicU64::new(0),
            mayday_at: AtomicU64::new(0),
            last_progress_at: AtomicU64::new(0),
            last_batch_at: Hint::new(0),
            last_steal_at: Hint::new(0),
            occupied_at: Hint::new(0),
            comes_to_help: ComingHelp::new(),
            item_ns: AtomicU64::new(UNKNOWN_RUN_NS),
            residual_ns: AtomicU64::new(UNKNOWN_RUN_NS / 2),
            scheduled_batches: AtomicU32::new(0),
            blocking: BlockingState::new(),
            off_cpu: OffCpuSums::new(),
            recent: std::array::from_fn(|_| AtomicU32::new(NO_SLOT)),
            limits: AtomicU64::new(0),
            full_reported: AtomicBool::new(false),
            sets_in_use: AtomicU32::new(0),
            keeper_until: AtomicU64::new(NEVER),
            slack_of_ready: AtomicU64::new(0),
            left_timers: AtomicBool::new(false),
            is_spawn_requested: AtomicBool::new(false),
            stranded_since: AtomicU64::new(0),
            parked: AtomicU32::new(NO_SLOT),
            routed: AtomicU32::new(0),
            deferrable: TimerBase::new(),
            timers: TimerBase::new(),
            id,
            inner: Lock::ranked(
                Rank::Pool,
                PoolInner {
                    ready: ReadyList::new(),
                    idle: IdleStack::new(),
                    keeper: None,
                    workers: Vec::new(),
                    queue: Name::EMPTY,
                },
            ),
            spec: std::sync::OnceLock::new(),
        }
    }

    /// Sets what a fresh pool is for, in a process with these CPUs.
    pub(crate) fn configure(&self, spec: PoolSpec, cpus: &Cpus) {
        self.place(&spec, cpus);
        let fresh = self.spec.set(spec).is_ok();
        assert!(fresh, "a pool is configured once");
    }

    pub(crate) fn is_configured(&self) -> bool {
        self.spec.get().is_some()
    }

    pub(crate) fn spec(&self) -> &PoolSpec {
        self.spec.get().expect("a pool is configured before it is published")
    }

    /// Whether it has more work than its workers can handle: the target runs already, or no idle
    /// worker could come up soon.
    #[track_caller]
    pub(crate) fn is_overloaded(&self) -> bool {
        let counts = self.state.counts();
        self.looks_ready() && (counts.running >= self.target() || counts.idle == 0)
    }

    /// This worker takes a batch.
    #[inline]
    pub(crate) fn note_recent(&self, slot: u32) {
        let cell = &self.recent[slot as usize % RECENT];
        // Usually it is the same worker again, and the load spares the store.
        if cell.load(Ordering::Relaxed) != slot {
            cell.store(slot, Ordering::Relaxed);
        }
    }

    /// A parked worker, as far as known.
    #[track_caller]
    pub(crate) fn parked_worker(&self) -> Option<u32> {
        Some(self.parked.load(Ordering::Relaxed)).filter(|&slot| slot != NO_SLOT)
    }

    /// Workers that took a batch lately.
    pub(crate) fn recent(&self) -> impl Iterator<Item = u32> {
        self.recent.iter().map(|cell| cell.load(Ordering::Relaxed)).filter(|&slot| slot != NO_SLOT)
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockGuard<'_, PoolInner<H>> {
        self.inner.lock()
    }

    /// Whether a pwq is ready, as seen without the lock. A pwq on neither list has been taken.
    #[inline]
    #[track_caller]
    pub(crate) fn looks_ready(&self) -> bool {
        // The inbox first: `gather_ready` sets the mark before it empties the inbox.
        !self.ready_inbox.is_empty() || self.has_ready.0.load(Ordering::SeqCst)
    }

    /// Whether a pwq is ready. Exact under the pool lock.
    pub(crate) fn is_ready(&self, inner: &PoolInner<H>) -> bool {
        !inner.ready.is_empty() || !self.ready_inbox.is_empty()
    }

    /// How long the keeper sleeps; [`NEVER`] if it has not published a time.
    #[track_caller]
    pub(crate) fn keeper_until(&self) -> u64 {
        self.keeper_until.load(Ordering::SeqCst)
    }

    /// One more queue sends new items here.
    pub(crate) fn add_route(&self) {
        self.routed.fetch_add(1, Ordering::SeqCst);
    }

    /// One queue less sends items here. Returns true if it was the last: then the caller must wake
    /// the parked workers, so that one of them becomes the keeper of all timers.
    #[must_use]
    pub(crate) fn remove_route(&self) -> bool {
        self.routed.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Whether no queue sends new items here.
    pub(crate) fn has_no_routes(&self) -> bool {
        self.routed.load(Ordering::SeqCst) == 0
    }

    /// Puts a pwq on the ready list. The caller has claimed its readiness.
    pub(crate) fn push_ready(&self, pwq: &Pwq<H>) -> Unsettled<'_, H> {
        // The push is the submitter's half of the handshake with a worker that parks: push, then
        // read the counters (in `settle`). SeqCst in `Inbox::push`.
        // SAFETY: the claim on READY makes the link ours; pwqs are never freed while ready.
        unsafe { self.ready_inbox.push(std::ptr::from_ref(pwq).cast_mut()) };
        Unsettled::new(self)
    }

    /// Takes the calling worker off the running count.
    pub(crate) fn block(&self) -> Unsettled<'_, H> {
        self.state.block();
        self.note_room();
        Unsettled::new(self)
    }

    /// Gives up a claimed wake that failed. Other threads relied on the claim, hence the
    /// settlement.
    pub(crate) fn give_up_wake(&self) -> Unsettled<'_, H> {
        self.state.abort_wake();
        self.note_room();
        Unsettled::new(self)
    }

    /// A timer was armed that expires before all others.
    pub(crate) fn armed_earlier_timer(&self) -> Unsettled<'_, H> {
        Unsettled::new(self)
    }

    /// Notes that its timers were left to the watcher, which then goes on checking them.
    fn note_left_timers(&self) {
        if !self.left_timers.load(Ordering::Relaxed) {
            self.left_timers.store(true, Ordering::Relaxed);
        }
    }

    /// Whether they were left to the watcher since the last call.
    pub(crate) fn take_left_timers(&self) -> bool {
        self.left_timers.load(Ordering::Relaxed) && self.left_timers.swap(false, Ordering::Relaxed)
    }

    /// Whether another existing worker could run the items that wait here.
    pub(crate) fn others_may_help(&self) -> bool {
        self.target() > 1 || self.spec().shares
    }

    /// Visits every ready pwq.
    pub(crate) fn for_each_ready(&self, inner: &mut PoolInner<H>, f: impl FnMut(&Pwq<H>)) {
        self.gather_ready(inner);
        self.note_readiness(inner);
        inner.ready.for_each(f);
    }

    /// The first ready pwqs, by id, and the number of all.
    pub(crate) fn list_ready(&self) -> (Vec<u32>, usize) {
        let (mut ready, mut count) = (Vec::with_capacity(READY_MAX), 0);
        self.for_each_ready(&mut self.lock(), |pwq| {
            count += 1;
            if ready.len() < READY_MAX {
                ready.push(pwq.id);
            }
        });
        (ready, count)
    }

    /// Moves the inbox to the list. `note_readiness` must follow, under the same hold of the lock.
    ///
    /// The mark is set before the move, both SeqCst. A thread without the lock that finds the inbox
    /// empty because of the move finds the mark afterwards. In the other order it would see
    /// neither:
    ///
    /// ```text
    /// mover, under the lock                 worker that begins a wait
    /// empties the inbox
    ///                                       running -= 1
    ///                                       inbox non-empty, or marked ? No: waits
    /// sets the mark
    /// ```
    fn gather_ready(&self, inner: &mut PoolInner<H>) {
        if self.ready_inbox.is_empty() {
            return;
        }
        if !self.has_ready.0.load(Ordering::Relaxed) {
            self.has_ready.0.store(true, Ordering::SeqCst);
        }
        inner.ready.append(self.ready_inbox.take_all_in_order());
    }

    /// Makes `has_ready` agree with the list.
    fn note_readiness(&self, inner: &PoolInner<H>) {
        let any = !inner.ready.is_empty();
        // Only written under the lock; usually it is right already, and the load spares the store.
        if self.has_ready.0.load(Ordering::Relaxed) != any {
            self.has_ready.0.store(any, Ordering::SeqCst);
        }
    }

    /// Takes this pwq off the ready list and pins it. Returns false if it is not on the list.
    pub(crate) fn take_ready(&self, inner: &mut PoolInner<H>, pwq: &Pwq<H>) -> bool {
        self.gather_ready(inner);
        let found = inner.ready.remove(pwq);
        self.note_readiness(inner);
        if found {
            pwq.pin();
        }
        found
    }

    /// Takes the first ready pwq, and pins it.
    pub(crate) fn pop_ready<'a>(&self, inner: &mut PoolInner<H>) -> Option<&'a Pwq<H>> {
        self.gather_ready(inner);
        let pwq = inner.ready.pop_front();
        self.note_readiness(inner);
        // SAFETY: a ready pwq is live, and the pin keeps it so.
        let pwq = unsafe { pwq.as_ref() }?;
        pwq.pin();
        Some(pwq)
    }

    /// Puts a worker that runs on `cpu` on the idle stack. Returns true if it is the keeper.
    pub(crate) fn push_idle(
        &self,
        engine: &Engine<H>,
        inner: &mut PoolInner<H>,
        id: u32,
        cpu: u32,
    ) -> bool {
        inner.idle.push(engine.slot(id), id, cpu);
        self.parked.store(id, Ordering::Relaxed);
        self.adopt_timers(inner, id)
    }

    /// Makes this parked worker the keeper, if there is none. Returns true if it is the keeper.
    pub(crate) fn adopt_timers(&self, inner: &mut PoolInner<H>, id: u32) -> bool {
        if inner.keeper.is_none() {
            inner.keeper = Some(id);
            self.state.set_kept(true);
        }
        inner.keeper == Some(id)
    }

    /// Takes a worker off the idle stack, from any position.
    pub(crate) fn remove_idle(&self, engine: &Engine<H>, inner: &mut PoolInner<H>, id: u32) {
        inner.idle.remove(&engine.slots, id);
        self.parked.store(inner.idle.top().unwrap_or(NO_SLOT), Ordering::Relaxed);
        if inner.keeper == Some(id) {
            inner.keeper = None;
            self.state.set_kept(false);
        }
    }

    /// The slots of all workers at this moment.
    pub(crate) fn list_workers(&self) -> Vec<u32> {
        // Reserve first, so that usually nothing is allocated under the lock.
        let mut workers = Vec::with_capacity(self.state.counts().workers as usize + 1);
        workers.extend_from_slice(&self.lock().workers);
        workers
    }

    /// Copies slots of workers into `buffer`, from position `first` of the pool's list on, and
    /// returns those copied: fewer than the buffer holds at the end of the list. A caller that
    /// reads the list in several calls can miss a worker that has moved meanwhile.
    pub(crate) fn copy_workers<'b>(&self, first: usize, buffer: &'b mut [u32]) -> &'b [u32] {
        let inner = self.lock();
        let rest = inner.workers.get(first..).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        &buffer[..n]
    }

    /// The slots of all workers at this moment, and whether each is idle.
    pub(crate) fn list_idle_and_busy(&self, engine: &Engine<H>) -> Vec<(u32, bool)> {
        // Nothing is allocated under the lock.
        let room = self.state.counts().workers as usize + WORKERS_SPARE;
        let mut workers = Vec::with_capacity(room);
        let inner = self.lock();
        let listed = inner.workers.iter().take(room);
        workers.extend(listed.map(|&id| (id, inner.idle.has(engine.slot(id)))));
        workers
    }

    /// Whether the calling thread may run this pool's items: any thread if the pool is not
    /// confined, otherwise only its own workers.
    pub(crate) fn admits_caller(&self, engine: &Engine<H>) -> bool {
        !self.spec().confined || self.is_run_by_caller(engine)
    }

    /// Whether the caller is a worker of this pool.
    pub(crate) fn is_run_by_caller(&self, engine: &Engine<H>) -> bool {
        let worker = engine.caller().worker();
        worker.is_some_and(|worker| std::ptr::eq(worker.pool(), self))
    }

    /// Whether the caller is a worker of this pool and in no item: it will scan the ready list
    /// before it does anything else.
    pub(crate) fn is_served_by_caller(&self, engine: &Engine<H>) -> bool {
        let thread = engine.caller().thread;
        thread.frame().is_null() && self.is_run_by_caller(engine)
    }

    /// Wakes a parked worker without picking it: it checks its timers and retirement, and parks
    /// again.
    pub(crate) fn wake_parked(&self, engine: &Engine<H>, id: u32) {
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::new(&raw const engine.slot(id).event) }.send(engine.host());
    }
}
