//! What the run in a slot waits for, as declared by the run, and its sign that a long run is
//! normal.
//!
//! Written by the slot's owner before a wait. Read by the watchdog before it reports a stall, and
//! by a thread that begins another wait. The values are identities and are never dereferenced. The
//! parts are not written atomically. A run that has been stuck for long has written its parts long
//! ago, and the reader checks twice.

use super::Slot;
use crate::words::host::Host;
use crate::words::item::word::RunId;
use crate::words::sync::Hint;

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaitsFor {
    /// Nothing, or nothing that is known.
    Unknown,
    /// The next or present run of the item at this address, which belongs to this pwq.
    Item { address: usize, pwq: u32 },
    /// The end of this run.
    Run(RunId),
    /// The items of the queue with this identity.
    Queue(usize),
}

const UNKNOWN: usize = 0;
const ITEM: usize = 1;
const RUN: usize = 2;
const QUEUE: usize = 3;

/// See the module.
pub(super) struct WaitNote {
    kind: Hint,
    target: Hint,
    /// The pwq of an item, or the number of a run.
    more: Hint,
    /// The helper thread that borrows the slot, if any.
    helper: Hint,
    /// How often the run declared that it makes progress.
    touches: Hint,
}

impl WaitNote {
    pub(super) fn new() -> WaitNote {
        let [kind, target, more, helper, touches] = [const { 0 }; 5].map(Hint::new);
        WaitNote { kind, target, more, helper, touches }
    }

    /// Owner.
    pub(super) fn set(&self, waits_for: WaitsFor) {
        let (kind, target, more) = match waits_for {
            WaitsFor::Unknown => (UNKNOWN, 0, 0),
            WaitsFor::Item { address, pwq } => (ITEM, address, pwq as usize),
            WaitsFor::Run(RunId { slot, run }) => (RUN, slot as usize, run as usize),
            WaitsFor::Queue(identity) => (QUEUE, identity, 0),
        };
        self.target.set(target);
        self.more.set(more);
        self.kind.set(kind);
    }

    pub(super) fn get(&self) -> WaitsFor {
        let (kind, target, more) = (self.kind.get(), self.target.get(), self.more.get());
        match kind {
            ITEM => WaitsFor::Item { address: target, pwq: more as u32 },
            RUN => WaitsFor::Run(RunId { slot: target as u32, run: more as u64 }),
            QUEUE => WaitsFor::Queue(target),
            _ => WaitsFor::Unknown,
        }
    }

    /// Owner: sets the helper's thread if no worker owns the slot; 0 when the helper leaves.
    pub(super) fn set_helper(&self, thread: u64) {
        self.helper.set(thread as usize);
    }

    pub(super) fn helper(&self) -> u64 {
        self.helper.get() as u64
    }

    /// Owner.
    pub(super) fn touch(&self) {
        self.touches.set(self.touches.get().wrapping_add(1));
    }

    pub(super) fn touches(&self) -> usize {
        self.touches.get()
    }
}

impl<H: Host> Slot<H> {
    /// Owner: declares what its run waits for.
    pub(crate) fn note_wait(&self, waits_for: WaitsFor) {
        self.wait.set(waits_for);
    }

    /// What the run declared that it waits for. A hint.
    pub(crate) fn waits_for(&self) -> WaitsFor {
        self.wait.get()
    }

    /// Owner: sets the helper's thread, as the host names it; 0 when the helper leaves.
    pub(crate) fn note_helper(&self, thread: u64) {
        self.wait.set_helper(thread);
    }

    /// The thread that runs items here, as the host names it; 0 if unknown. A hint.
    pub(crate) fn runner(&self) -> u64 {
        match self.thread() {
            0 => self.wait.helper(),
            thread => thread,
        }
    }

    /// Owner: declares that its long run makes progress.
    pub(crate) fn touch(&self) {
        self.wait.touch();
    }

    /// A number that changes with each run, and with each declaration of progress. A hint.
    pub(crate) fn progress(&self) -> u64 {
        self.number().wrapping_add(self.wait.touches() as u64)
    }
}
