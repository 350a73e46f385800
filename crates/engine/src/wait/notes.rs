//! Runs declare what they wait for, so that the watchdog can tell a deadlock from a long wait.

use std::ptr::NonNull;

use crate::engine::Engine;
use crate::slot::{Slot, WaitsFor};
use crate::words::host::Host;
use crate::words::item::Work;
use crate::worker::Caller;

/// While it lives, the run that the calling thread is in is marked as waiting.
pub(crate) struct NotedWait<'a, H: Host>(Option<&'a Slot<H>>);

impl<H: Host> Engine<H> {
    /// As [`Engine::blocking`], for a wait that ends when the item has run.
    ///
    /// # Safety
    /// `work` is live when the call is made.
    pub unsafe fn blocking_on<R>(&self, work: NonNull<Work>, f: impl FnOnce() -> R) -> R {
        // SAFETY: by this function's contract.
        let _noted = unsafe { self.caller().note_wait_for_item(work) };
        self.blocking(f)
    }

    /// The calling item takes long, and that is normal (the kernel's `wq_watchdog_touch`): items
    /// that wait for it count as stalled only after the threshold has passed again. From outside of
    /// items, this applies to all items.
    pub fn watchdog_touch(&self) {
        let thread = self.caller().thread;
        let mut inside = false;
        for frame in thread.frames() {
            // An item that waits for the outer run waits for the inner run as well.
            if let Some(slot) = self.slots.get(frame.slot) {
                slot.touch();
                inside = true;
            }
        }
        if !inside {
            self.watch.watchdog.touch(self.host().now());
        }
    }
}

impl<'a, H: Host> Caller<'a, H> {
    /// Declares what the innermost run of the calling thread waits for from here on, and calls the
    /// watchdog if the run may wait for itself. Costs a few stores and a check of the slots;
    /// outside of items it does nothing. The caller holds no lock.
    pub(crate) fn note_wait(self, waits_for: WaitsFor) -> NotedWait<'a, H> {
        let noted = self.note_help(waits_for);
        if let Some(slot) = noted.0 {
            slot.check_wait(self.engine);
        }
        noted
    }

    /// The same for a wait in which the calling thread itself runs the item that it waits for.
    pub(crate) fn note_help(self, waits_for: WaitsFor) -> NotedWait<'a, H> {
        let frame = self.thread.frames().next();
        // None while a shutdown disposes of items: no slot runs those.
        let slot = frame.and_then(|frame| self.engine.slots.get(frame.slot));
        if let Some(slot) = slot {
            slot.note_wait(waits_for);
        }
        NotedWait(slot)
    }

    /// The same, for the item at this address.
    ///
    /// # Safety
    /// `work` is live.
    pub(crate) unsafe fn note_wait_for_item(self, work: NonNull<Work>) -> NotedWait<'a, H> {
        // SAFETY: by this function's contract.
        let pwq = unsafe { work.as_ref() }.ticket().pwq();
        // Exposed: while the item's pwq has a waiter for it, the watchdog reads the item.
        self.note_wait(WaitsFor::Item { address: work.as_ptr().expose_provenance(), pwq })
    }
}

impl<H: Host> Drop for NotedWait<'_, H> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.note_wait(WaitsFor::Unknown);
        }
    }
}
