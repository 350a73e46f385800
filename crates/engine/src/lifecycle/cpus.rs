//! The CPUs that the process may use, which change while it runs.
//!
//! A change is applied in this order; each step relies on the one before:
//!
//! 1. The new value is published. Workers that start and pools that are made from here on use it.
//! 2. Every worker thread is placed: on the usable CPUs of its pool, else of its pod, else of those that
//!    its queues ask for, else on any usable CPU. From here on no item runs on a forbidden CPU. Per-CPU queues use
//!    all allowed CPUs, unbound queues those of their mask.
//! 3. The pools' targets are set, and whether they are displaced (`pool/displaced.rs`).
//! 4. Every queue gets its routes anew, with a pwq and a worker for each CPU that it may use now. A
//!    queue that fails to get a worker for a pod keeps its old routes, which lead to placed workers,
//!    and is tried again later.
//!
//! The pools stay: a queue has one for each CPU that it could use so far ([`super::reach`]).
//!
//! **Pools that are made meanwhile.** A thread makes them under the lock of the engine's sets, with
//! the value that it reads there. The change takes that lock once, after step 1. Pools made before are
//! visited in step 3; pools made later have the new value.
//!
//! **A worker that starts meanwhile.** Its thread starts on the CPUs of the previous value.
//!
//! ```text
//! the change                             a worker that starts
//! W1: publish the value                  W2: `placing`: store the thread's number in the slot
//! R1: `placing`: place all known threads R2: published value != mine ? move, check again
//! ```
//!
//! The lock `placing` orders the two. If the worker has it first, the change finds the thread's
//! number. If the change has it first, the worker's check comes after the publication. The worker
//! checks again after it has moved itself: a newer value may be published and applied in between,
//! and then its move to the older value must not be the last.
//!
//! **A worker that ends** removes its thread's number under `placing`. So a number in a slot is
//! that of a live thread, and not of another thread that got the same number from the system since.

use std::mem::{Discriminant, discriminant};
use std::ptr;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::lifecycle::housekeeping::Fit;
use crate::lifecycle::reach::Reaches;
use crate::pool::Pool;
use crate::queue::QueueError;
use crate::queue::owner::Owner;
use crate::slot::Slot;
use crate::words::host::{Cpus, Host, Places, Report};
use crate::words::sync::{AtomicBool, AtomicPtr, Lock, LockGuard, Ordering, Rank};

/// The current value and all previous ones.
///
/// Readers take no lock, so no value is freed while the engine lives. Changes are rare, and a
/// change to a known value reuses that value.
pub(crate) struct Versions {
    now: AtomicPtr<Fit>,
    kept: Lock<Vec<Arc<Fit>>>,
    /// Serializes changes.
    changing: Lock<Changing>,
    /// Guards the threads' numbers in the slots, except against threads that start.
    placing: Lock<()>,
    /// Whether a queue could not be given its routes for a reason that may end without a change.
    unfit: AtomicBool,
    /// The CPUs for which queues have pools.
    reaches: Lock<Reaches>,
}

/// What the holder of the lock of all changes knows of them.
#[derive(Default)]
pub(crate) struct Changing {
    /// Visits of all queues so far.
    rounds: u64,
    /// The kinds of failures since the last change. Each is reported once.
    failed: Vec<Discriminant<QueueError>>,
}

/// A visit of all queues, which get their routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// No other round has it.
    pub(crate) number: u64,
    /// Whether it is for the queues that have failed in the first round after a change.
    pub(crate) is_repeated: bool,
}

/// The placement of threads, all values, and the CPUs of pools, locked.
pub(crate) type HeldPlaces<'a> =
    (LockGuard<'a, ()>, LockGuard<'a, Vec<Arc<Fit>>>, LockGuard<'a, Reaches>);

impl Versions {
    pub(crate) fn new(first: Fit) -> Versions {
        let first = Arc::new(first);
        Versions {
            now: AtomicPtr::new(Arc::as_ptr(&first).cast_mut()),
            kept: Lock::new(vec![first]),
            changing: Lock::ranked(Rank::Changing, Changing::default()),
            placing: Lock::ranked(Rank::Placing, ()),
            unfit: AtomicBool::new(false),
            reaches: Lock::new(Reaches::default()),
        }
    }

    /// Locks the current value, and the placement of threads.
    pub(crate) fn hold(&self) -> LockGuard<'_, Changing> {
        self.changing.lock()
    }

    /// The same, at its later position in the lock order.
    pub(crate) fn hold_places(&self) -> HeldPlaces<'_> {
        (self.placing.lock(), self.kept.lock(), self.reaches.lock())
    }

    /// Locks the placement of threads.
    pub(crate) fn hold_placing(&self) -> LockGuard<'_, ()> {
        self.placing.lock()
    }

    #[inline]
    pub(crate) fn now(&self) -> &Fit {
        // SAFETY: `kept` keeps the value for as long as `self` lives. Acquire: the partner is the
        // publication; it makes the whole value visible.
        unsafe { &*self.now.load(Ordering::Acquire) }
    }

    /// Makes a value current. False if it is already.
    pub(crate) fn publish(&self, fit: Fit) -> bool {
        let mut kept = self.kept.lock();
        let known = kept.iter().find(|known| ***known == fit).cloned();
        let value = known.unwrap_or_else(|| {
            let value = Arc::new(fit);
            kept.push(value.clone());
            value
        });
        let value = Arc::as_ptr(&value).cast_mut();
        self.now.swap(value, Ordering::AcqRel) != value
    }
}

impl<H: Host> Engine<H> {
    /// The CPUs that the process may use at present.
    #[inline]
    pub fn cpus(&self) -> &Cpus {
        &self.versions.now().cpus
    }

    /// The CPUs of the pools of per-CPU queues (`bound`) or of unbound ones, in a process with these
    /// CPUs.
    pub(crate) fn reach(&self, cpus: &Cpus, bound: bool) -> CpuSet {
        let possible = self.config().topology.possible();
        self.versions.reaches.lock().extend(bound, cpus, possible)
    }

    /// Applies a change of the CPUs or of the CPU time that the process may use. False if there was
    /// nothing to change.
    ///
    /// When the call returns, no worker runs on a CPU that is no longer allowed. Items that are
    /// queued there run elsewhere; new items use the new value. CPUs that the engine's topology
    /// does not have are ignored, and a value without any other CPU is rejected.
    ///
    /// A queue for which no thread could be created stays as it was, on workers that are moved, and
    /// is tried again later. A queue for which the engine has no pools left stays as it was too. It
    /// is tried again after the next change only, because pools are never freed.
    ///
    /// Creates threads, and reports the change. Must not be called inside a work item.
    pub fn set_cpus(&self, cpus: Cpus) -> bool {
        let allowed = cpus.allowed.and(self.config().topology.possible());
        let unbound = cpus.unbound_cpumask.and(&allowed);
        if allowed.is_empty() {
            return false;
        }
        let unbound_cpumask = if unbound.is_empty() { allowed.clone() } else { unbound };
        let report = Report::CpusChanged { allowed: allowed.clone(), limit: cpus.cpu_limit };
        let versions = &self.versions;
        let change = self.reports.begin_change(self);
        let mut changing = versions.changing.lock();
        let given = Cpus { allowed, unbound_cpumask, ..cpus };
        let before = versions.now();
        if !versions.publish(Fit::new(given, before.housekeeping.clone())) {
            return false;
        }
        let after = versions.now();
        // The same mask as before the change, as both are made under one lock.
        let masked = after.mask_without_cpu().filter(|_| before.mask_without_cpu().is_none());
        let masked = masked.map(|cpumask| Report::CpumaskWithoutCpu {
            cpumask: cpumask.clone(),
            used: after.cpus.unbound_cpumask.clone(),
        });
        // Dropped only after the lock is released: dropping the last owner of a queue waits for its
        // items.
        let owners = self.registry.owners();
        self.versions.move_workers(self, &owners);
        let unfit = self.versions.refit_all(&mut changing, &owners);
        drop(changing);
        drop(change);
        owners.into_iter().for_each(Owner::let_go);
        self.caller().report(report);
        if let Some(masked) = masked {
            self.caller().report(masked);
        }
        self.report_unfit(unfit);
        true
    }

    /// Reports why queues could not be given their routes.
    pub(crate) fn report_unfit(&self, unfit: Vec<QueueError>) {
        for error in unfit {
            self.caller().report(match error {
                QueueError::NoThread(reason) => Report::SpawnFailed { reason },
                error => Report::RoutesKept { reason: error.to_string() },
            });
        }
    }
}

impl Versions {
    /// Tries again to give queues their routes, after a failure.
    pub(crate) fn refit_again<H: Host>(&self, engine: &Engine<H>) {
        if self.unfit.load(Ordering::Relaxed) {
            let change = engine.reports.begin_change(engine);
            let mut changing = self.changing.lock();
            let owners = engine.registry.owners();
            let unfit = self.refit_each(&mut changing, &owners, true);
            drop(changing);
            drop(change);
            owners.into_iter().for_each(Owner::let_go);
            engine.report_unfit(unfit);
        }
    }

    /// Steps 2 and 3 of the module's list, after a change of the CPUs.
    pub(crate) fn move_workers<H: Host>(&self, engine: &Engine<H>, owners: &[Arc<Owner<H>>]) {
        // Pools that another thread makes with the previous value exist from here on.
        drop(engine.sets.lock());
        self.place_all(engine, owners);
        engine.for_each_pool(|pool| pool.retarget(engine));
        engine.for_each_pool(Pool::choose_near);
    }

    /// Gives every queue its routes, after a change. Returns the failures, the first of each kind.
    pub(crate) fn refit_all<H: Host>(
        &self,
        changing: &mut Changing,
        owners: &[Arc<Owner<H>>],
    ) -> Vec<QueueError> {
        changing.failed.clear();
        self.refit_each(changing, owners, false)
    }

    /// Gives every queue its routes. Returns the failures of kinds that have not failed since the change.
    /// Pools are never freed, so a queue that lacks them is not tried again.
    fn refit_each<H: Host>(
        &self,
        changing: &mut Changing,
        owners: &[Arc<Owner<H>>],
        is_repeated: bool,
    ) -> Vec<QueueError> {
        changing.rounds += 1;
        let round = Round { number: changing.rounds, is_repeated };
        let (mut failures, mut may_end) = (Vec::new(), false);
        for owner in owners {
            let Err(error) = owner.wq().refit(Some(round)) else { continue };
            may_end |= !matches!(error, QueueError::TooManyPools);
            if !changing.failed.contains(&discriminant(&error)) {
                changing.failed.push(discriminant(&error));
                failures.push(error);
            }
        }
        self.unfit.store(may_end, Ordering::Relaxed);
        failures
    }

    /// Moves every thread to the CPUs that the current value gives it.
    fn place_all<H: Host>(&self, engine: &Engine<H>, owners: &[Arc<Owner<H>>]) {
        let (cpus, host) = (engine.cpus(), engine.host());
        // Without `placing`, because this reads queues' attributes. A rescuer that is not listed
        // yet sees the new value by itself. A slot that gets another owner meanwhile is placed
        // again below, as a worker's.
        let mut rescuers = Vec::new();
        for wq in owners.iter().map(|owner| owner.wq()) {
            let places = || cpus.place_in(wq.places_of_rescuer(&wq.cpus()));
            rescuers.extend(wq.rescuer().map(|rescuer| (rescuer.slot(), places())));
        }
        let _placing = self.placing.lock();
        let place = |thread: u64, cpus: &CpuSet| {
            if thread != 0 {
                host.set_cpus(thread, cpus);
            }
        };
        for (slot, mask) in &rescuers {
            place(engine.slot(*slot).thread(), mask);
        }
        engine.for_each_pool(|pool| {
            let workers = pool.list_workers();
            let places = cpus.place_in(pool.spec().places());
            for slot in workers.into_iter().map(|id| engine.slot(id)) {
                // Relaxed: both are written under `placing`.
                match slot.is_unpinned() {
                    true => place(slot.thread(), &cpus.place_in(pool.spec().places_in_pod())),
                    false => place(slot.thread(), &places),
                }
            }
        });
        place(engine.watch.thread(), &cpus.allowed);
    }
}

impl<H: Host> Slot<H> {
    /// The calling thread starts to serve this slot, on the CPUs that `placed` gives to `places`.
    pub(crate) fn place_thread(
        &self,
        engine: &Engine<H>,
        places: Places<'_>,
        mut placed: *const Cpus,
    ) {
        let thread = engine.host().thread_id();
        if thread == 0 {
            return;
        }
        // W2, then R2 (see the module).
        let placing = engine.versions.placing.lock();
        self.set_thread(thread);
        drop(placing);
        while !ptr::eq(engine.cpus(), placed) {
            placed = engine.cpus();
            // SAFETY: from `cpus`; it lives as long as the engine.
            engine.host().set_cpus(thread, &unsafe { &*placed }.place_in(places));
        }
    }

    /// Moves the calling thread, which serves this slot, to these CPUs.
    pub(crate) fn go_to(&self, engine: &Engine<H>, places: Places<'_>) {
        let thread = self.thread();
        // Repeat if a change was published meanwhile: it may have moved this thread before our own
        // move. A change that is published after the last check moves this thread afterwards.
        let mut placed: *const Cpus = ptr::null();
        while thread != 0 && !ptr::eq(engine.cpus(), placed) {
            placed = engine.cpus();
            // SAFETY: from `cpus`; it lives as long as the engine.
            engine.host().set_cpus(thread, &unsafe { &*placed }.place_in(places));
        }
    }

    /// Restricts the worker, which was picked, to some of its pool's CPUs until it arrives. In a
    /// saving pool it stays on the first of them until it parks (`worker/keep.rs`).
    ///
    /// A change of the CPUs that is applied in between is not lost: before the worker runs anything
    /// it lifts or renews the restriction, with the current value.
    pub(crate) fn restrict(&self, engine: &Engine<H>, cpus: &CpuSet) {
        // Only unbound pools have several CPUs to choose from.
        let (thread, cpus) = (self.thread(), cpus.and(&engine.cpus().unbound_cpumask));
        if thread != 0 && !cpus.is_empty() {
            self.set_restricted(cpus.first());
            engine.host().set_cpus(thread, &cpus);
        }
    }

    /// Lifts the restriction of the calling thread, if there is one.
    pub(crate) fn lift_restriction(&self, engine: &Engine<H>, places: Places<'_>) {
        if self.is_restricted() {
            self.set_restricted(None);
            self.go_to(engine, places);
        }
    }

    /// The owner's item leaves the pool's CPUs for those of the pod, or returns. The thread moves next.
    pub(crate) fn set_unpinned(&self, engine: &Engine<H>, unpinned: bool) {
        let _placing = engine.versions.placing.lock();
        self.note_unpinned(unpinned);
    }

    /// Removes the calling thread's number: it ends.
    pub(crate) fn forget_thread_number(&self, engine: &Engine<H>) {
        // Relaxed: only this thread has written it.
        if self.thread() != 0 {
            let _placing = engine.versions.placing.lock();
            self.set_thread(0);
        }
    }
}

impl<H: Host> Pool<H> {
    /// The CPUs have changed.
    fn retarget(&self, engine: &Engine<H>) {
        self.place(self.spec(), engine.cpus());
        // A submitter that read the old target may have woken no worker. A submitter that has read the
        // new one wakes too few at worst, and the next batch wakes the rest. Items that
        // wait in this pool while another one gets its CPU back are found by the watcher, which this calls.
        if self.needs_no_worker() { self.wake_all_parked(engine) } else { self.settle(engine) }
    }
}
