//! Workers that leave their CPU: they may use all CPUs of their pod.
//!
//! A worker of a pool with one CPU is pinned to it. It leaves in three cases:
//!
//! - **its item asks** ([`Engine::unpinned`]): programs that the item starts inherit the CPUs;
//! - **another worker takes its CPU**, while it computes for long: as a worker of a CPU-intensive
//!   queue, as a hog, or as one more than the target after a declared wait. It would share that CPU
//!   with the other worker while CPUs of the pod idle. It returns at the end of its batch.
//!
//! A change of the CPUs places all workers. The lock `placing` orders it with the flag in the slot:
//!
//! ```text
//! change of the CPUs, under `placing`      the thread that lets the worker leave
//! the flag ? Yes: all CPUs of the pod      U1: `placing`: sets the flag
//!            no: those of the pool         U2: moves the worker to all CPUs of the pod
//! ```
//!
//! If the change comes first, U2 follows it. Otherwise it finds the flag. The watcher, which lets a hog
//! leave, makes both steps under `placing`: then the thread exists. If the hog's run ends meanwhile, the
//! worker returns at the end of its next batch.

use uwork_policy::concurrency::leaves_cpu;

use super::Worker;
use crate::engine::Engine;
use crate::pool::Pool;
use crate::slot::Slot;
use crate::words::host::Host;

/// While it lives, the slot's thread may use all CPUs of its pod.
struct Unpinned<'a, H: Host> {
    engine: &'a Engine<H>,
    slot: &'a Slot<H>,
}

impl<H: Host> Engine<H> {
    /// Runs `f` with the calling worker on all CPUs of its pod. Elsewhere, and inside of another call,
    /// it only runs `f`. Costs two system calls where a pod has several pools.
    pub fn unpinned<R>(&self, f: impl FnOnce() -> R) -> R {
        // Not a rescuer, which has no CPU of its own. A worker that helps is still that worker.
        let worker = self.caller().worker();
        let _unpinned = worker.and_then(|worker| Unpinned::begin(self, worker.slot()));
        f()
    }
}

impl<'a, H: Host> Unpinned<'a, H> {
    fn begin(engine: &'a Engine<H>, slot: &'a Slot<H>) -> Option<Self> {
        slot.leave_cpu(engine).then(|| Unpinned { engine, slot })
    }
}

impl<H: Host> Drop for Unpinned<'_, H> {
    fn drop(&mut self) {
        self.slot.return_to_cpu(self.engine);
    }
}

impl<H: Host> Slot<H> {
    /// Owner: leaves its CPU. Returns false if the pod has no others, or if it has left before.
    fn leave_cpu(&self, engine: &Engine<H>) -> bool {
        let spec = engine.pool(self.home()).spec();
        if spec.nr_beside == 0 || self.is_unpinned() {
            return false;
        }
        self.set_unpinned(engine, true);
        self.go_to(engine, spec.places_in_pod());
        true
    }

    /// Owner: returns.
    #[cold]
    fn return_to_cpu(&self, engine: &Engine<H>) {
        self.set_unpinned(engine, false);
        self.go_to(engine, engine.pool(self.home()).spec().places());
    }

    /// The watcher: a worker of this pool is a hog in `run`.
    pub(crate) fn let_hog_leave(&self, engine: &Engine<H>, pool: &Pool<H>, run: u64) {
        if pool.spec().nr_beside == 0 {
            return;
        }
        let _placing = engine.versions.hold_placing();
        let thread = self.thread();
        if thread != 0 && self.is_running(run) && !self.is_unpinned() {
            self.note_unpinned(true);
            let places = pool.spec().places_in_pod();
            engine.host().set_cpus(thread, &engine.cpus().place_in(places));
        }
    }
}

impl<H: Host> Worker<H> {
    /// This worker computes while another one takes its CPU: leaves it, if its items take long.
    pub(super) fn leave_cpu_for_long_items(&self) {
        if self.pool().spec().nr_beside > 0 && leaves_cpu(self.item_ns.get()) {
            self.slot().leave_cpu(&self.engine);
        }
    }

    /// At the end of a batch: returns to its CPU.
    #[inline]
    pub(super) fn return_after_batch(&self) {
        if self.slot().is_unpinned() {
            self.slot().return_to_cpu(&self.engine);
        }
    }
}
