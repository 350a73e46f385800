//! Rare events, counted for each queue in one pool.

use crate::engine::Engine;
use crate::slot::Slot;
use crate::words::host::Host;
use crate::words::sync::Count;

/// See the module. Written without a lock.
pub(crate) struct Events {
    /// Workers that left the running count inside an item, so that another one may take over: in a
    /// declared wait, found asleep, or computing for too long.
    pub(crate) replaced: Count,
    /// Items that workers of another pool took.
    pub(crate) stolen: Count,
    /// Calls of the rescuer.
    pub(crate) maydays: Count,
    /// Items that the rescuer ran.
    pub(crate) rescued: Count,
}

impl Events {
    pub(crate) fn new() -> Events {
        Events {
            replaced: Count::new(),
            stolen: Count::new(),
            maydays: Count::new(),
            rescued: Count::new(),
        }
    }

    /// The pwq serves another queue from here on.
    pub(crate) fn clear(&self) {
        [&self.replaced, &self.stolen, &self.maydays, &self.rescued]
            .into_iter()
            .for_each(Count::clear);
    }
}

impl<H: Host> Engine<H> {
    /// The owner of this slot leaves the running count in an item. A race with the next batch counts
    /// for the wrong queue.
    pub(crate) fn note_replaced(&self, slot: &Slot<H>) {
        if let Some(pwq) = slot.batch.get().0.and_then(|id| self.pwqs.get(id)) {
            pwq.events.replaced.add(1);
        }
    }
}
