//! Queries about items: which item runs here, is an item busy, its description.

use crate::engine::Engine;
use crate::slot::Running;
use crate::words::host::Host;
use crate::words::item::Work;

/// The state of an item. A hint: it may change at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// It is queued or armed, or waits for a grace period.
    pub pending: bool,
    /// Its function runs.
    pub running: bool,
}

impl<H: Host> Engine<H> {
    /// The innermost item that the calling thread runs.
    pub fn current_work(&self) -> Option<Running> {
        let thread = self.caller().thread;
        let frame = thread.frames().next()?;
        // This thread owns the slot, so the run cannot end meanwhile.
        // None while a shutdown releases items: its frame names no slot, as no item runs then.
        self.slots.get(frame.slot)?.running()
    }

    /// Whether the item is pending, and whether it runs.
    pub fn busy(&self, item: &Work) -> Busy {
        let (pending, run) = item.word.snapshot();
        let running = run.is_some_and(|run| {
            self.slots.get(run.slot).is_some_and(|slot| slot.is_running_item(run.run, item))
        });
        Busy { pending, running }
    }

    /// Describes the calling thread's innermost item, until that run ends. Keeps as much of `text`
    /// as fits into [`DESCRIPTION_MAX`](crate::DESCRIPTION_MAX) bytes. False outside of items.
    pub fn describe(&self, text: &str) -> bool {
        let thread = self.caller().thread;
        let Some(frame) = thread.frames().next() else { return false };
        let Some(slot) = self.slots.get(frame.slot) else { return false };
        slot.describe(slot.number(), text);
        true
    }

    /// The description of the item's run, if it runs and has set one. Any thread may call this.
    pub fn description(&self, item: &Work) -> Option<String> {
        let run = item.word.snapshot().1?;
        let slot = self.slots.get(run.slot)?;
        let text = slot.description(run.run)?;
        slot.is_running_item(run.run, item).then_some(text)
    }
}
