//! A worker: it takes batches, runs them, and parks. `step` never sleeps; `main` sleeps on its
//! behalf.

mod batch;
mod caller;
mod declared;
mod hooks;
mod keep;
mod off_cpu;
mod query;
pub(crate) mod rescuer;
pub(crate) mod run;
mod steal;
mod unpinned;

pub(crate) use caller::Caller;
pub use query::Busy;

use std::cell::Cell;
use std::sync::Arc;

use uwork_policy::batch::{TakenBatch, plan_batch};
use uwork_policy::concurrency::{may_start_another, too_many_workers};
use uwork_policy::saving::{LONG_ITEM_NS, works_alone};

use crate::account;
use crate::engine::Engine;
use crate::pool::{CalledBy, NEVER, Pool};
use crate::queue::Wq;
use crate::queue::pwq::{Pwq, Share, Taken};
use crate::slot::{MOVING, Slot};
use crate::words::host::Cpus;
use crate::words::host::Host;
use crate::words::host::ThreadState;
use crate::words::item::word::RUN_MASK;
use crate::words::sync::Link;
use crate::worker::batch::BatchRunner;
use crate::worker::keep::{KEEPS_TO_NONE, KeepsTo};
use crate::worker::off_cpu::OffCpuMeter;

/// What a worker does next.
enum Step {
    /// Another step.
    Again,
    /// No work for now: yield the CPU to other threads, then scan again.
    Yield,
    /// Park until woken or until this time.
    Park(Option<u64>),
    /// End the thread.
    Exit,
}

/// How often a worker without work yields its CPU before it parks.
///
/// A thread that waits for the item that just ended often sits on the same CPU. The yield lets it
/// run and enqueue its next item while this worker is still awake, which saves a wake and a sleep.
/// If no other thread can run on the CPU, the yield costs one system call.
const YIELDS_BEFORE_PARK: u32 = 1;
/// How often a worker that goes on from batch to batch looks for due timers of other pools of its pod.
const BESIDE_NS: u64 = 1_000_000;

/// A worker thread (see the module). It lives on its thread's stack.
pub(crate) struct Worker<H: Host> {
    engine: Arc<Engine<H>>,
    /// The worker's pool. It changes only while the worker is idle.
    pool: Cell<u32>,
    slot: u32,
    /// Yields since the worker last found work.
    yields: Cell<u32>,
    /// For whose work it has come up, until it has taken any.
    called_by: Cell<CalledBy>,
    /// When this worker parked.
    idle_since: Cell<u64>,
    /// When this worker last came up.
    up_since: Cell<u64>,
    /// How long the items of the present batch take on average, in nanoseconds.
    item_ns: Cell<u64>,
    /// When to look for due timers of other pools of the pod again.
    beside_at: Cell<u64>,
    /// The CPU that it keeps to although its pod has others, and the CPUs for which that was chosen.
    keeps_to: Cell<KeepsTo>,
    /// Declared waits that the worker is in; they nest.
    waits: Cell<u32>,
    /// Whether the worker joins the running count again when the outermost wait ends.
    counts_after: Cell<bool>,
    /// Measures the CPU time of its batches.
    meter: account::CpuMeter,
    /// Measures their time off the CPU.
    off_cpu: OffCpuMeter,
}

impl<H: Host> Worker<H> {
    pub(crate) fn new(engine: Arc<Engine<H>>, pool: u32, slot: u32) -> Worker<H> {
        Worker {
            engine,
            pool: Cell::new(pool),
            slot,
            yields: Cell::new(0),
            called_by: Cell::new(CalledBy::Own),
            idle_since: Cell::new(0),
            up_since: Cell::new(0),
            item_ns: Cell::new(0),
            beside_at: Cell::new(0),
            keeps_to: Cell::new(KEEPS_TO_NONE),
            waits: Cell::new(0),
            counts_after: Cell::new(false),
            meter: account::CpuMeter::default(),
            off_cpu: OffCpuMeter::default(),
        }
    }

    pub(crate) fn pool(&self) -> &Pool<H> {
        self.engine.pool(self.pool.get())
    }

    pub(crate) fn slot(&self) -> &Slot<H> {
        self.engine.slot(self.slot)
    }

    /// The thread's main function. The thread starts on the CPUs that `placed` gave at its
    /// creation.
    pub(crate) fn main(self, placed: Link<Cpus>) {
        let host = self.engine.host();
        // SAFETY: the host keeps the state for as long as this thread lives.
        let thread = unsafe { &*host.thread() };
        thread.set_worker(std::ptr::from_ref(&self).cast(), self.pool().spec().bh);
        self.slot().place_thread(&self.engine, self.pool().spec().places(), placed.0);
        self.slot().set_worker(true);
        self.slot().note_lock_waits(true);
        self.engine.fork.finish(&self.engine);
        self.arrive();
        loop {
            let step = match self.step(thread) {
                Step::Park(deadline) => self.sleep(deadline),
                step => step,
            };
            match step {
                Step::Yield => host.yield_now(),
                Step::Exit => break,
                Step::Again | Step::Park(_) => {}
            }
        }
        self.slot().note_lock_waits(false);
        self.slot().set_worker(false);
        thread.set_worker(std::ptr::null(), false);
        self.slot().forget_thread_number(&self.engine);
        self.engine.slots.release(self.slot);
    }

    fn step(&self, thread: &ThreadState) -> Step {
        let (pool, engine) = (self.pool(), &*self.engine);
        if engine.host().hooks_are_due(thread) {
            self.call_hooks(thread);
        }
        let now = engine.host().now();
        engine.watch.heartbeat(engine, now);
        let mut fires_on = false;
        if pool.has_due_timers(now) {
            fires_on = pool.fire_timers(engine, now);
            if pool.spec().saves {
                engine.fire_saving_pools(pool.id, now);
            }
        }
        pool.expire_raise(now);
        let may_continue = || may_start_another(pool.state.counts(), pool.target());
        if !may_continue() {
            if fires_on {
                return Step::Again;
            }
            if pool.may_find_blocked(engine) && self.yields.get() < YIELDS_BEFORE_PARK {
                // The surplus running worker may be about to block, and may need this CPU to get
                // that far. The query costs more than the yield, so it comes second.
                self.yields.set(self.yields.get() + 1);
                return Step::Yield;
            }
            if !pool.find_blocked_worker(engine, self.slot) {
                return self.go_idle(now);
            }
        }
        let pwq = self.find_pwq(now);
        let Some((pwq, from)) = pwq else {
            if fires_on {
                return Step::Again;
            }
            if self.yields.get() < YIELDS_BEFORE_PARK {
                self.yields.set(self.yields.get() + 1);
                return Step::Yield;
            }
            if pool.take_back_for_caller(engine, now) || self.fire_timers_beside(now) {
                return Step::Again;
            }
            return self.go_idle(now);
        };
        self.yields.set(0);
        self.work_on(thread, pwq, from, now);
        if now >= self.beside_at.get() {
            self.beside_at.set(now.saturating_add(BESIDE_NS));
            self.fire_timers_beside(now);
        }
        Step::Again
    }

    /// Takes a batch from a pinned pwq and runs it.
    ///
    /// `from` is the pool on whose ready list the pwq was found; it is a neighbour's pool when this
    /// worker steals. `plan_batch` decides which steps a batch needs. The order of the steps is the
    /// protocol:
    ///
    /// 1. Take the batch. If items are left, put the pwq back on the ready list, so that other
    ///    workers can take them while this batch runs.
    /// 2. Publish the batch (`scheduled_batches`, `batch_began`), so that the watcher can take its tail
    ///    back.
    /// 3. Settle the worker's own pool, last of all. From there until the batch ends this worker
    ///    scans no list, so the settlement must see every change made above. It also wakes the next
    ///    worker if more is ready: the chain of wakes (README.md of the pool).
    /// 4. Run the batch, then release the pwq. The release makes the pwq ready again if its items
    ///    waited for this worker's permit.
    fn work_on(&self, thread: &ThreadState, pwq: &Pwq<H>, from: &Pool<H>, now: u64) {
        let (engine, pool, slot) = (&*self.engine, self.pool(), self.slot());
        let host = engine.host();
        let intensive = pwq.cpu_intensive();
        let share = match intensive {
            true => Share::One,
            false => {
                Share::Fair { sharers: pool.target(), others_may_help: pool.others_may_help() }
            }
        };
        let mut ready = |pwq: &Pwq<H>| pwq.make_ready(engine);
        let stolen = !std::ptr::eq(from, pool);
        let brings_from = if stolen { pool.cpu() } else { None };
        let slots = (&engine.slots, (self.slot, slot));
        let taken = pwq.take((host, now), slots, share, brings_from, &mut ready);
        let Taken::Some { count, left, more, estimate, waited_ns } = taken else {
            pwq.release_pin(engine);
            // While the pwq was off the list, another thread may have scanned the pool, found
            // nothing ready, and left it alone. Settle the pool again on that thread's behalf.
            from.settle(engine);
            return;
        };
        let plan = plan_batch(TakenBatch { count, intensive, stolen });
        // Claim and push before the unpin: a pinned pwq cannot be given back to the slab.
        let left_more = (more && pwq.claim_ready()).then(|| from.push_ready(pwq));
        pwq.release_pin(engine);
        slot.batch.set(pwq.id, now, host.current_cpu());
        engine.trace_heartbeat(now);
        pool.note_recent(self.slot);
        self.item_ns.set(estimate.item_ns);
        from.note_progress(now);
        from.note_batch(now);
        from.note_estimate(estimate);
        if plan.publish {
            // First the count, then the batch.
            pool.add_scheduled_batch();
            slot.begin_batch(now);
        }
        // A worker of a CPU-intensive queue leaves the running count for the whole batch.
        if plan.leave_count {
            slot.declare_not_running();
            pool.block().settled_by_caller(engine);
            self.leave_cpu_for_long_items();
        }
        // From here on this worker does not scan until its batch ends. Its own pool is therefore
        // settled last, by the `settle` below, which covers every change left to the caller here.
        match left_more {
            Some(changed) if plan.settle_source => changed.settle(engine),
            Some(changed) => changed.settled_by_caller(engine),
            None => {}
        }
        let called_by = self.called_by.replace(CalledBy::Own);
        if called_by != CalledBy::Own {
            pool.pass_on_help(engine, called_by, from);
        }
        if stolen {
            self.note_steal(from, now);
        }
        if from.looks_ready() {
            if from.spec().saves && !works_alone(now.saturating_sub(self.up_since.get())) {
                from.use_all_workers(engine);
                self.leave_kept_cpu();
            }
            self.share(from, plan.settle_source, left as u64, estimate);
        }
        pwq.events.stolen.add(if stolen { count.into() } else { 0 });
        if estimate.item_ns >= LONG_ITEM_NS {
            self.leave_kept_cpu();
        }
        pool.settle(engine);
        let batch = account::Batch::begin(engine, slot, &self.meter, (now, waited_ns), estimate);
        let before = slot.number();
        // Off the running count, the worker is replaced already.
        let off_cpu = if plan.leave_count {
            None
        } else {
            self.off_cpu.begin(engine, (pool, from), (count, estimate), now)
        };
        let presumes = plan.may_presume && pool.presumes_any(engine, pwq);
        let runner = BatchRunner::new(engine, (self.slot, slot), Some(pool)).presuming(presumes);
        runner.run_batch(thread, pwq, &batch.split);
        // Less than `count` if part of the batch was given back.
        let ran = (slot.number().wrapping_sub(before) & RUN_MASK) as u32;
        // Count first, then clear the mark. See `end_wait`.
        if plan.leave_count {
            pool.state.unblock();
            slot.end_block();
        }
        if plan.publish {
            slot.end_batch_hint(engine);
        }
        self.return_after_batch();
        // Read while this worker still holds the pwq: after the release the queue may be destroyed.
        let next = self.pool_for_more(pwq);
        let ended = batch.end(engine, slot, ran);
        if let Some(begun) = off_cpu.filter(|_| !runner.has_presumed()) {
            self.off_cpu.end(engine, pool, &begun);
        }
        if pwq.release(host, ended, brings_from, &mut ready) {
            let changed = next.push_ready(pwq);
            if std::ptr::eq(next, pool) {
                changed.settled_by_caller(engine);
            } else {
                changed.settle(engine);
            }
        }
    }

    /// The pool for the rest of a pwq that this worker holds. The pwq of an ordered queue stays in
    /// this worker's pool, unless the queue's attributes have changed meanwhile.
    fn pool_for_more<'a>(&'a self, pwq: &'a Pwq<H>) -> &'a Pool<H> {
        // SAFETY: the queue outlives what holds its pwqs.
        let wq: &Wq<H> = unsafe { &*pwq.wq() };
        let own = if wq.is_ordered() { self.pool().cpu() } else { None };
        own.map_or_else(|| pwq.home(), |cpu| wq.pool_of(cpu))
    }

    /// Joins the idle stack, unless work arrived meanwhile.
    fn go_idle(&self, now: u64) -> Step {
        let (pool, engine) = (self.pool(), &*self.engine);
        if pool.spec().saves {
            pool.begin_alone();
            self.choose_cpu_to_sleep_on();
        }
        let cpu = engine.host().current_cpu();
        engine.host().about_to_park();
        let mut inner = pool.lock();
        let counts = pool.state.running_to_idle();
        // The worker changes the counters first and reads the lists second. A thread that makes a
        // pwq ready pushes it first and reads the counters second. All four accesses are SeqCst, so
        // at least one side sees the other (README.md of the pool).
        if pool.is_ready(&inner) && counts.running < pool.target() {
            pool.state.idle_to_running();
            return Step::Again;
        }
        if pool.state.is_retired() {
            let step = self.exit(&mut inner);
            drop(inner);
            // Items that are ready now wait behind running workers; the watcher must know of them.
            pool.settle(engine);
            return step;
        }
        self.yields.set(0);
        self.idle_since.set(now);
        let keeps_timers = pool.push_idle(engine, &mut inner, self.slot, cpu);
        let deadline = self.deadline(keeps_timers);
        drop(inner);
        pool.note_room();
        // Items that are ready now wait behind running workers, which may run for long. Settling calls
        // the watcher for them.
        pool.settle(engine);
        // An item may have become ready in a neighbour's pool since this worker last looked there. Its
        // submitter then still counted this worker as running, and woke none.
        pool.wake_for_neighbours(engine);
        Step::Park(deadline)
    }

    /// When a parked worker must wake without being picked: for a timer, or to retire.
    fn deadline(&self, keeps_timers: bool) -> Option<u64> {
        let pool = self.pool();
        let timer =
            if keeps_timers { self.wake_for_timer(pool.keep_until(&self.engine)) } else { NEVER };
        let retire = self.retires_at().unwrap_or(NEVER);
        let deadline = timer.min(retire);
        (deadline != NEVER).then_some(deadline)
    }

    /// When this idle worker may retire; None while the pool does not have too many workers.
    fn retires_at(&self) -> Option<u64> {
        let timeout = self.engine.config().idle_timeout_ns;
        let (pool, since) = (self.pool(), self.idle_since.get());
        let is_surplus = too_many_workers(pool.state.counts()) || pool.needs_no_worker();
        is_surplus.then(|| since.saturating_add(timeout))
    }

    /// Sleeps on the idle stack until the worker is picked, or until a timer or retirement is due.
    fn sleep(&self, mut deadline: Option<u64>) -> Step {
        let (pool, engine, slot) = (self.pool(), &*self.engine, self.slot());
        self.meter.forget();
        loop {
            let has_hooks = engine.host().hooks_are_due(engine.caller().thread);
            if !has_hooks {
                let _ = engine.host().park(&slot.event, deadline);
            }
            if !slot.is_picked() && pool.blocking.take_request() {
                // A standby runs on this CPU: the thread that had it may have blocked. If it has,
                // this wakes its replacement, which may be the caller.
                pool.examine(engine);
            }
            if slot.is_picked() {
                break;
            }
            if pool.spec().saves && !pool.has_due_timers(engine.host().now()) {
                // Another timer may be the next one now, with less slack.
                self.choose_cpu_to_sleep_on();
            }
            let mut inner = pool.lock();
            if slot.is_picked_locked() {
                break;
            }
            let now = engine.host().now();
            if pool.state.is_retired() || self.retires_at().is_some_and(|at| at <= now) {
                pool.remove_idle(engine, &mut inner, self.slot);
                let step = self.exit(&mut inner);
                // The next idle worker may have to retire as well, or to become the keeper instead.
                let next = inner.idle.top();
                drop(inner);
                if let Some(id) = next {
                    pool.wake_parked(engine, id);
                }
                pool.settle(engine);
                return step;
            }
            if has_hooks || pool.has_unfired_timers(now) {
                pool.note_progress(now);
                self.up_since.set(now);
                pool.remove_idle(engine, &mut inner, self.slot);
                pool.state.idle_to_running();
                return Step::Again;
            }
            let keeps_timers = pool.adopt_timers(&mut inner, self.slot);
            deadline = self.deadline(keeps_timers);
        }
        slot.unpick();
        let pool = self.move_home();
        // A sign of progress: the watcher must not take this pool for stuck now.
        let now = engine.host().now();
        pool.note_progress(now);
        self.up_since.set(now);
        // Arrive first, scan second (the next step). A submitter that still read WAKING pushed
        // before, and relies on that scan.
        self.arrive();
        Step::Again
    }

    /// Joins the running count, for the claim that brought this worker up.
    fn arrive(&self) {
        let pool = self.pool();
        pool.state.arrive();
        // Arrive first, take the calls second (`ComingHelp`).
        self.called_by.set(pool.comes_to_help.take());
        pool.note_room();
    }

    /// The pool that the worker was picked for: its own, or one that it moves to now.
    fn move_home(&self) -> &Pool<H> {
        let (engine, slot) = (&*self.engine, self.slot());
        let mut home = slot.home_after_move();
        while home == MOVING {
            // The worker woke by itself during the move. The mover wakes it at the end.
            let _ = engine.host().park(&slot.event, None);
            home = slot.home_after_move();
        }
        let moved = self.pool.replace(home) != home;
        let spec = self.pool().spec();
        if moved {
            slot.go_to(engine, spec.places());
            engine.host().rename_thread(&spec.thread_name());
        }
        match (spec.saves, slot.is_restricted()) {
            (true, true) => self.keep_to_cpu_of_waker(),
            // The item need not be the one for which the worker chose the CPU to sleep on.
            (true, false) => self.leave_kept_cpu(),
            (false, _) => slot.lift_restriction(engine, spec.places()),
        }
        self.pool()
    }

    /// Leaves the pool. The worker is counted as idle, and is on no list.
    fn exit(&self, inner: &mut crate::pool::PoolInner<H>) -> Step {
        inner.workers.retain(|&worker| worker != self.slot);
        self.pool().state.exit_idle();
        Step::Exit
    }
}
