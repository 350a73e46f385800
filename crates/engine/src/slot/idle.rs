//! The stack of a pool's idle workers, linked through their slots. Guard of everything here: the
//! pool lock, whose guarded data holds the stack.

use super::Slot;
use crate::words::host::Host;
use crate::words::slab::Slab;
use crate::words::sync::Cell;

/// See the module.
pub(crate) struct IdleStack {
    /// The worker that parked last.
    top: Option<u32>,
}

/// A worker's part in the stack. Guard: the lock of its pool.
pub(super) struct IdleLink {
    /// The idle worker below this one.
    below: Cell<Option<u32>>,
    /// Whether the worker is on the stack.
    is_idle: Cell<bool>,
    /// The CPU on which the worker ran when it parked.
    cpu: Cell<u32>,
}

impl IdleLink {
    pub(super) fn new() -> IdleLink {
        IdleLink { below: Cell::new(None), is_idle: Cell::new(false), cpu: Cell::new(0) }
    }

    /// In a child after a fork, in its only thread: the worker is on no stack.
    pub(super) fn forget(&self) {
        // SAFETY: the child has no other thread.
        unsafe {
            self.below.set(None);
            self.is_idle.set(false);
        }
    }
}

impl IdleStack {
    pub(crate) const fn new() -> IdleStack {
        IdleStack { top: None }
    }

    /// The worker that parked last.
    pub(crate) fn top(&self) -> Option<u32> {
        self.top
    }

    /// The idle worker below this one.
    pub(crate) fn below<H: Host>(&self, slot: &Slot<H>) -> Option<u32> {
        // SAFETY: guarded by the pool lock, whose guarded data the caller shows.
        unsafe { slot.idle.below.get() }
    }

    /// Whether the worker is on the stack.
    pub(crate) fn has<H: Host>(&self, slot: &Slot<H>) -> bool {
        // SAFETY: guarded by the pool lock, whose guarded data the caller shows.
        unsafe { slot.idle.is_idle.get() }
    }

    /// The CPU on which the worker ran when it parked.
    pub(crate) fn cpu_of<H: Host>(&self, slot: &Slot<H>) -> u32 {
        // SAFETY: guarded by the pool lock, whose guarded data the caller shows.
        unsafe { slot.idle.cpu.get() }
    }

    /// Puts a worker on top that runs on `cpu`.
    pub(crate) fn push<H: Host>(&mut self, slot: &Slot<H>, id: u32, cpu: u32) {
        // SAFETY: the cells are guarded by the pool lock, whose guarded data the caller shows.
        unsafe {
            slot.idle.below.set(self.top);
            slot.idle.is_idle.set(true);
            slot.idle.cpu.set(cpu);
        }
        self.top = Some(id);
    }

    /// Takes a worker off the stack, from any position.
    pub(crate) fn remove<H: Host>(&mut self, slots: &Slab<Slot<H>>, id: u32) {
        let Some(slot) = slots.get(id) else { return };
        let below = self.below(slot);
        if self.top == Some(id) {
            self.top = below;
        } else {
            let mut above = self.top;
            while let Some(upper) = above.and_then(|upper| slots.get(upper)) {
                let next = self.below(upper);
                if next == Some(id) {
                    // SAFETY: guarded by the pool lock, whose guarded data the caller shows.
                    unsafe { upper.idle.below.set(below) };
                    break;
                }
                above = next;
            }
        }
        // SAFETY: as above.
        unsafe { slot.idle.is_idle.set(false) };
    }
}
