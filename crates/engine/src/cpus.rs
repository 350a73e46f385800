//! The CPUs that the process may use, which change while it runs.
//!
//! A change is applied in this order, and each step is what the next relies on:
//!
//! 1. The new value is published. Workers that begin from here on go where it says.
//! 2. Every worker thread is placed: within its pod as far as that is allowed, anywhere that is
//!    allowed if nothing of the pod is left. From here on no item runs on a forbidden CPU.
//! 3. The pools' targets are set.
//! 4. Every queue gets its routes anew. One that fails to get a worker for a new pool keeps its old
//!    routes, which lead to placed workers, and is tried again later.
//!
//! **A worker that begins meanwhile.** Its thread starts where the value of before said.
//!
//! ```text
//! the change                             a worker that begins
//! publish the value                      `placing`: name the thread in the slot
//! `placing`: place all named threads     published value != where I am? go there, look again
//! ```
//!
//! Whoever has `placing` first is seen by the other: the change finds the thread named, or the
//! worker's look comes after the publication. The worker looks again after it has moved itself: a
//! move to an older value, with a newer one published and applied in between, must not be its last.
//!
//! **A worker that ends** takes its thread's name out under `placing`. So a name that is there is
//! that of a thread that lives, and not of another that the system has given the same number since.

use std::ptr;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::pod_cpumask;
use uwork_policy::topology::Topology;

use crate::engine::Engine;
use crate::host::{Host, Report};
use crate::owner::Owner;
use crate::pool::Pool;
use crate::queue::QueueError;
use crate::slot::Slot;
use crate::sync::{AtomicBool, AtomicPtr, Lock, LockGuard, Ordering, Rank};

/// What the process may use of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The CPUs that the process may use.
    pub allowed: CpuSet,
    /// Those of them that unbound queues use (the kernel's `workqueue/cpumask`).
    pub unbound_cpumask: CpuSet,
    /// How many CPUs' worth of time the process gets (its CPU quota, rounded up), if it is limited.
    pub cpu_limit: Option<u32>,
}

impl Cpus {
    /// These CPUs, of which unbound queues use those that are not isolated, or all if all are.
    pub fn new(topology: &Topology, allowed: CpuSet, cpu_limit: Option<u32>) -> Cpus {
        let unbound = allowed.and_not(topology.isolated());
        let unbound_cpumask = if unbound.is_empty() { allowed.clone() } else { unbound };
        Cpus { allowed, unbound_cpumask, cpu_limit }
    }

    /// The CPUs for the workers of a pod.
    pub(crate) fn place(&self, pod: &CpuSet) -> CpuSet {
        pod_cpumask(pod, &self.allowed, &self.allowed)
    }

    /// How many workers of a shared pod should run while work is pending.
    pub(crate) fn target(&self, pod: &CpuSet) -> u32 {
        let cpus = self.place(pod).len().min(pod.len()) as u32;
        cpus.min(self.cpu_limit.unwrap_or(u32::MAX)).max(1)
    }
}

/// The value in force and those of before.
///
/// Readers take no lock, so no value is freed while the engine lives. Changes are rare, and one
/// that brings an old value back takes that.
pub(crate) struct Versions {
    now: AtomicPtr<Cpus>,
    kept: Lock<Vec<Arc<Cpus>>>,
    /// One change at a time.
    changing: Lock<()>,
    /// The names of threads in the slots stay as they are, but for those that begin.
    placing: Lock<()>,
    /// A queue could not be given its routes.
    unfit: AtomicBool,
}

impl Versions {
    pub(crate) fn new(first: Cpus) -> Versions {
        let first = Arc::new(first);
        Versions {
            now: AtomicPtr::new(Arc::as_ptr(&first).cast_mut()),
            kept: Lock::new(vec![first]),
            changing: Lock::ranked(Rank::Changing, ()),
            placing: Lock::ranked(Rank::Placing, ()),
            unfit: AtomicBool::new(false),
        }
    }

    /// Holds on to the value in force, and to where threads are placed.
    pub(crate) fn hold(&self) -> LockGuard<'_, ()> {
        self.changing.lock()
    }

    /// The same, further down the order of locks.
    pub(crate) fn hold_places(&self) -> (LockGuard<'_, ()>, LockGuard<'_, Vec<Arc<Cpus>>>) {
        (self.placing.lock(), self.kept.lock())
    }

    /// Holds on to where threads are placed.
    pub(crate) fn hold_placing(&self) -> LockGuard<'_, ()> {
        self.placing.lock()
    }

    #[inline]
    pub(crate) fn now(&self) -> &Cpus {
        // SAFETY: a value that `kept` keeps for as long as we live. Acquire: its partner is the
        // publication, without which the value might not be seen whole.
        unsafe { &*self.now.load(Ordering::Acquire) }
    }

    /// Puts a value in force. False if it is already.
    fn publish(&self, cpus: Cpus) -> bool {
        let mut kept = self.kept.lock();
        let known = kept.iter().find(|known| ***known == cpus).cloned();
        let value = known.unwrap_or_else(|| {
            let value = Arc::new(cpus);
            kept.push(value.clone());
            value
        });
        let value = Arc::as_ptr(&value).cast_mut();
        self.now.swap(value, Ordering::AcqRel) != value
    }
}

impl<H: Host> Engine<H> {
    /// What the process may use at present.
    #[inline]
    pub fn cpus(&self) -> &Cpus {
        self.versions().now()
    }

    /// The process may use other CPUs, or more or less CPU time, from now on. False if there was
    /// nothing to change.
    ///
    /// When the call returns no worker runs on a CPU that is not allowed any more. What is queued
    /// there is run elsewhere; new items go by the new value. CPUs that the engine's topology does
    /// not have are left out, and a value that leaves none is not taken. A queue for which no
    /// thread could be made stays as it was, on workers that are moved; it is tried again later.
    ///
    /// Creates threads, and reports what was changed. Not to be called inside a work item.
    pub fn set_cpus(&self, cpus: Cpus) -> bool {
        let allowed = cpus.allowed.and(self.config().topology.possible());
        let unbound = cpus.unbound_cpumask.and(&allowed);
        if allowed.is_empty() {
            return false;
        }
        let unbound_cpumask = if unbound.is_empty() { allowed.clone() } else { unbound };
        let report = Report::CpusChanged { allowed: allowed.clone(), limit: cpus.cpu_limit };
        let versions = self.versions();
        let change = self.begin_change();
        let changing = versions.changing.lock();
        if !versions.publish(Cpus { allowed, unbound_cpumask, ..cpus }) {
            return false;
        }
        // Kept until the lock is released: the last owner of a queue waits for what is left in it.
        let owners = self.registry().owners();
        self.place_all(&owners);
        self.for_each_pool(|pool| self.retarget(pool));
        let failed = self.refit_all(&owners);
        drop(changing);
        drop(change);
        owners.into_iter().for_each(Owner::let_go);
        self.report(report);
        if let Some(QueueError::NoThread(reason)) = failed {
            self.report(Report::SpawnFailed { reason });
        }
        true
    }

    /// Gives queues their routes for which that has failed.
    pub(crate) fn refit_again(&self) {
        let versions = self.versions();
        if versions.unfit.load(Ordering::Relaxed) {
            let _change = self.begin_change();
            let changing = versions.changing.lock();
            let owners = self.registry().owners();
            let _ = self.refit_all(&owners);
            drop(changing);
            owners.into_iter().for_each(Owner::let_go);
        }
    }

    /// Gives every queue its routes. What the first failure was.
    fn refit_all(&self, owners: &[Arc<Owner<H>>]) -> Option<QueueError> {
        let mut failed = None;
        for owner in owners {
            if let Err(error) = owner.wq().refit() {
                failed.get_or_insert(error);
            }
        }
        self.versions().unfit.store(failed.is_some(), Ordering::Relaxed);
        failed
    }

    /// Moves every thread to where the value in force wants it.
    fn place_all(&self, owners: &[Arc<Owner<H>>]) {
        let (cpus, host) = (self.cpus(), self.host());
        // Without the lock, as a queue's attributes are looked at. A rescuer that is not
        // listed yet sees the new value by itself; a slot that changes hands meanwhile is placed
        // again, as a worker's.
        let mut rescuers = Vec::new();
        for wq in owners.iter().map(|owner| owner.wq()) {
            rescuers.extend(wq.rescuer().map(|rescuer| (rescuer.slot(), cpus.place(&wq.cpus()))));
        }
        let _placing = self.versions().placing.lock();
        let place = |thread: u64, cpus: &CpuSet| {
            if thread != 0 {
                host.set_cpus(thread, cpus);
            }
        };
        for (slot, mask) in &rescuers {
            place(self.slot(*slot).thread.load(Ordering::Relaxed), mask);
        }
        self.for_each_pool(|pool| {
            let workers = pool.list_workers();
            let pod = cpus.place(&pool.spec().cpus);
            for id in workers {
                // Relaxed: written under `placing`.
                place(self.slot(id).thread.load(Ordering::Relaxed), &pod);
            }
        });
        place(self.watch_state().thread.load(Ordering::Relaxed), &cpus.allowed);
    }

    fn retarget(&self, pool: &Pool<H>) {
        let spec = pool.spec();
        if spec.confined {
            return;
        }
        pool.set_target(self.cpus().target(&spec.cpus));
        // A submitter that looked at the old target may have woken no worker. One that looks between the
        // two lines wakes too few at worst, and the next batch brings up the rest.
        self.settle(pool);
    }

    /// The calling thread begins to serve `slot`, on the CPUs that `placed` said for `pod`.
    pub(crate) fn enter_thread(&self, slot: &Slot<H>, pod: &CpuSet, mut placed: *const Cpus) {
        let thread = self.host().thread_id();
        if thread == 0 {
            return;
        }
        let placing = self.versions().placing.lock();
        slot.thread.store(thread, Ordering::Relaxed);
        drop(placing);
        while !ptr::eq(self.cpus(), placed) {
            placed = self.cpus();
            // SAFETY: from `cpus`: lives as long as the engine.
            self.host().set_cpus(thread, &unsafe { &*placed }.place(pod));
        }
    }

    /// The calling thread, which serves `slot`, goes to the CPUs of this pod.
    pub(crate) fn go_to(&self, slot: &Slot<H>, pod: &CpuSet) {
        let thread = slot.thread.load(Ordering::Relaxed);
        // Once more where a change was published meanwhile: it may have moved us before we did. One that
        // is published after the last look moves us afterwards.
        let mut placed: *const Cpus = ptr::null();
        while thread != 0 && !ptr::eq(self.cpus(), placed) {
            placed = self.cpus();
            // SAFETY: from `cpus`: lives as long as the engine.
            self.host().set_cpus(thread, &unsafe { &*placed }.place(pod));
        }
    }

    /// The calling thread ends.
    pub(crate) fn leave_thread(&self, slot: &Slot<H>) {
        // Relaxed: only this thread has written it.
        if slot.thread.load(Ordering::Relaxed) != 0 {
            let _placing = self.versions().placing.lock();
            slot.thread.store(0, Ordering::Relaxed);
        }
    }

    /// The calling thread is the watch's, or stops to be.
    pub(crate) fn name_watch(&self, thread: u64) {
        let _placing = self.versions().placing.lock();
        self.watch_state().thread.store(thread, Ordering::Relaxed);
    }
}
