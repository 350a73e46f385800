//! An item that leaves its CPU: the worker may use all CPUs of its pod, as programs do that the item
//! starts.
//!
//! A worker of a pool with one CPU is pinned to it, and a program inherits that. A change of the CPUs
//! places all workers. The lock `placing` orders it with the flag in the slot:
//!
//! ```text
//! change of the CPUs, under `placing`      the item's thread
//! the flag ? Yes: all CPUs of the pod      U1: `placing`: sets the flag
//!            no: those of the pool         U2: goes to all CPUs of the pod
//! ```
//!
//! If the change comes first, U2 follows it. Otherwise it finds the flag.

use crate::engine::Engine;
use crate::host::{Host, Places};
use crate::slot::Slot;

/// While it lives, the slot's thread may use all CPUs of its pod.
struct Unpinned<'a, H: Host> {
    engine: &'a Engine<H>,
    slot: &'a Slot<H>,
}

impl<H: Host> Engine<H> {
    /// Runs `f` with the calling worker on all CPUs of its pod. Elsewhere, and inside of another call,
    /// it only runs `f`. Costs two system calls where a pod has several pools.
    pub fn unpinned<R>(&self, f: impl FnOnce() -> R) -> R {
        let slots = self.caller().thread.frames().filter_map(|frame| self.slots.get(frame.slot));
        // A helper's slot names no thread: the thread is that of the worker which helps.
        let slot = slots.filter(|slot| slot.thread() != 0).last();
        let _unpinned = slot.and_then(|slot| Unpinned::begin(self, slot));
        f()
    }
}

impl<'a, H: Host> Unpinned<'a, H> {
    fn begin(engine: &'a Engine<H>, slot: &'a Slot<H>) -> Option<Self> {
        let spec = engine.pool(slot.home()).spec();
        if spec.cpus == spec.pod || slot.is_unpinned() {
            return None;
        }
        slot.set_unpinned(engine, true);
        slot.go_to(engine, Places::all(&spec.pod));
        Some(Unpinned { engine, slot })
    }
}

impl<H: Host> Drop for Unpinned<'_, H> {
    fn drop(&mut self) {
        self.slot.set_unpinned(self.engine, false);
        self.slot.go_to(self.engine, self.engine.pool(self.slot.home()).spec().places());
    }
}
