//! Questions about items: what runs here, is it busy, what does it say of itself.

use crate::engine::Engine;
use crate::host::Host;
use crate::slot::Running;
use crate::work::Work;

/// What an item is doing. Out of date as soon as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// It is queued or armed, or waits for a grace period.
    pub pending: bool,
    /// Its function runs.
    pub running: bool,
}

impl<H: Host> Engine<H> {
    /// The innermost item that the calling thread runs.
    pub fn current_work(&self) -> Option<Running> {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        let frame = thread.frames().next()?;
        // This thread owns the slot, so the run cannot end meanwhile.
        // None in what a shutdown lets go of: no item runs then.
        self.slots().get(frame.slot)?.running()
    }

    /// Whether the item is pending, and whether it runs.
    pub fn busy(&self, item: &Work) -> Busy {
        let (pending, run) = item.word.snapshot();
        let running = run.is_some_and(|run| {
            self.slots().get(run.slot).is_some_and(|slot| slot.is_running_item(run.run, item))
        });
        Busy { pending, running }
    }

    /// Says what the calling thread's innermost item is about, until that run ends. Of `text` as much
    /// is kept as fits into [`DESCRIPTION_MAX`](crate::DESCRIPTION_MAX) bytes. False outside of items.
    pub fn describe(&self, text: &str) -> bool {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        let Some(frame) = thread.frames().next() else { return false };
        let Some(slot) = self.slots().get(frame.slot) else { return false };
        slot.describe(slot.number(), text);
        true
    }

    /// What the item's run says of itself, if it runs and has said something. From any thread.
    pub fn description(&self, item: &Work) -> Option<String> {
        let run = item.word.snapshot().1?;
        let slot = self.slots().get(run.slot)?;
        let text = slot.description(run.run)?;
        slot.is_running_item(run.run, item).then_some(text)
    }
}
