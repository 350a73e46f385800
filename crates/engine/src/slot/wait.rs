//! What the run in a slot waits for, as far as it said so, and whether it is fine with taking long.
//!
//! Written by the slot's owner, on its way into a wait; read by the watchdog, once a stall is to be
//! reported, and by who begins another wait. Identities: nothing is followed that they name. The parts are not of
//! one piece. A run that has been stuck for long has said what it waits for long ago, and the reader looks twice.

use super::Slot;
use crate::host::Host;
use crate::sync::{Hint, Ordering};
use crate::word::RunId;

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaitsFor {
    /// Nothing, or nothing that is known.
    Unknown,
    /// The coming or present run of the item at this address, which is of this pwq.
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
    /// Of an item its pwq, of a run its number.
    more: Hint,
    /// The thread that helps, if that is what the slot is for.
    helper: Hint,
    /// How often a run said that it goes on.
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

    /// Owner: the thread that it is, if it is no worker's; 0 when it is none any more.
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
    /// Owner: says what its run waits for.
    pub(crate) fn note_wait(&self, waits_for: WaitsFor) {
        self.wait.set(waits_for);
    }

    /// What the run waits for, if it has said so. A hint.
    pub(crate) fn waits_for(&self) -> WaitsFor {
        self.wait.get()
    }

    /// Owner: the thread that helps here, as the host names it; 0 when it does not any more.
    pub(crate) fn note_helper(&self, thread: u64) {
        self.wait.set_helper(thread);
    }

    /// The thread that runs items here, as the host names it; 0 if that is not known. A hint.
    pub(crate) fn runner(&self) -> u64 {
        match self.thread.load(Ordering::Relaxed) {
            0 => self.wait.helper(),
            thread => thread,
        }
    }

    /// Owner: its run takes long, and goes on.
    pub(crate) fn touch(&self) {
        self.wait.touch();
    }

    /// A number that changes with each run, and when a run says that it goes on. A hint.
    pub(crate) fn progress(&self) -> u64 {
        self.number().wrapping_add(self.wait.touches() as u64)
    }
}
