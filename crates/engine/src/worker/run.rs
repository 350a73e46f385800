//! Running one item, and the accounting and reports that follow its end or its panic.

use std::any::Any;
use std::cell::Cell;
use std::ptr::NonNull;

use crate::account::Split;
use crate::engine::Engine;
use crate::queue::Wq;
use crate::queue::pwq::Pwq;
use crate::slot::Slot;
use crate::words::host::{Host, ItemPoint, ItemProbe, Report};
use crate::words::item::word::{RUN_MASK, RunId};
use crate::words::item::{ItemFn, Ticket, Work};
use crate::words::payload::{drop_payload, payload_text};
use crate::words::sync::assert_nothing_held;

/// Runs one item whose run has begun, and records the run if the item's ticket asks for it.
///
/// # Safety
/// As of [`run_item`]; `ticket` is the item's.
#[inline(always)]
pub(crate) unsafe fn run_ticket<H: Host>(
    engine: &Engine<H>,
    run: RunId,
    item: *mut Work,
    ticket: Ticket,
) {
    if ticket.traced() {
        // SAFETY: by this function's contract.
        unsafe { run_traced(engine, run, item) };
    } else {
        // SAFETY: by this function's contract.
        unsafe { start(engine, run, &*item) };
        // SAFETY: by this function's contract, and it is started.
        unsafe { run_item(item) };
    }
    // The slot has the values, so that no register keeps them during the run.
    engine.host().probe_item(ItemPoint::Ended, || engine.slot(run.slot).last_run());
}

#[cold]
#[inline(never)]
unsafe fn run_traced<H: Host>(engine: &Engine<H>, run: RunId, item: *mut Work) {
    // SAFETY: live until its function is called.
    let _recorded = engine.trace_run(run.slot, unsafe { &*item });
    // SAFETY: by the caller's contract.
    unsafe { start(engine, run, &*item) };
    // SAFETY: by the caller's contract, and it is started.
    unsafe { run_item(item) };
}

/// The item is no longer pending.
#[inline(always)]
fn start<H: Host>(engine: &Engine<H>, run: RunId, item: &Work) {
    item.word.start(run);
    assert_nothing_held("an item's function");
    // After that, as the kernel's.
    engine.host().probe_item(ItemPoint::Started, || ItemProbe::of(item));
}

/// Runs one started item. Reports cut call stacks at this function, which they find by its name.
///
/// # Safety
/// `item` is live and the caller's, and was just started in the run that its slot has begun.
#[inline(always)]
unsafe fn run_item(item: *mut Work) {
    // SAFETY: live until its function is called. From here on it belongs to its function.
    unsafe { (*item).func().run(NonNull::new_unchecked(item)) };
}

/// Counts started items that flushes do not know of yet: consecutive runs of one colour.
///
/// The count is published when the colour changes, which is before the next item starts, and at the
/// end of the batch.
pub(crate) struct Tally<'a, H: Host> {
    engine: &'a Engine<H>,
    pub(crate) pwq: &'a Pwq<H>,
    slot: &'a Slot<H>,
    colour: Cell<usize>,
    /// The last run that is not part of the count.
    before: Cell<u64>,
    /// Tells the functions of the batch apart.
    split: &'a Split,
}

impl<'a, H: Host> Tally<'a, H> {
    /// Counts the runs that `slot` begins from here on.
    pub(crate) fn new(
        engine: &'a Engine<H>,
        pwq: &'a Pwq<H>,
        slot: &'a Slot<H>,
        split: &'a Split,
    ) -> Self {
        Tally { engine, pwq, slot, colour: Cell::new(0), before: Cell::new(slot.number()), split }
    }

    /// A run of this function and this colour has begun.
    #[inline(always)]
    pub(crate) fn note(&self, func: ItemFn, colour: usize, run: u64) {
        self.split.note(self.engine.host(), func, run);
        if colour != self.colour.get() {
            self.change(colour, run.wrapping_sub(1) & RUN_MASK);
        }
    }

    #[cold]
    fn change(&self, colour: usize, last: u64) {
        self.publish_to(last);
        self.colour.set(colour);
    }

    /// Publishes the rest. Every run that began has ended.
    pub(crate) fn publish(&self) {
        self.publish_to(self.slot.number());
    }

    fn publish_to(&self, last: u64) {
        let count = (last.wrapping_sub(self.before.replace(last)) & RUN_MASK) as u32;
        if count > 0 && self.pwq.finish(self.colour.get(), count) {
            // SAFETY: a flush waits for this colour, so the queue is live.
            let wq: &Wq<H> = unsafe { &*self.pwq.wq() };
            wq.end_colour(self.engine, self.pwq, self.colour.get());
        }
    }
}

/// Ends the last run of `slot`, whose item, of `pwq`, panicked: probes and reports it. The caller
/// holds the pwq. Does not unwind.
#[cold]
pub(crate) fn end_panicked_run<H: Host>(
    engine: &Engine<H>,
    slot: &Slot<H>,
    pwq: &Pwq<H>,
    payload: Box<dyn Any + Send>,
) {
    engine.host().probe_item(ItemPoint::Ended, || slot.last_run());
    // SAFETY: the caller holds the pwq, so its queue is live.
    engine.report_panic_of(unsafe { &*pwq.wq() }.name(), payload);
}

impl<H: Host> Engine<H> {
    /// Reports a panic that was caught inside the item that the calling thread is in. Does not
    /// unwind.
    pub fn report_panic_here(&self, payload: &(dyn Any + Send)) {
        report_message(self, self.queue_name_here(), payload);
    }

    /// The name of the queue of the item that the calling thread is in; empty outside of items.
    pub fn queue_name_here(&self) -> &str {
        self.caller().queue().map_or("", Wq::name)
    }

    /// Reports the panic of an item of that queue, and drops the payload. Does not unwind.
    pub fn report_panic_of(&self, queue: &str, payload: Box<dyn Any + Send>) {
        report_message(self, queue, &*payload);
        drop_payload(payload);
    }
}

fn report_message<H: Host>(engine: &Engine<H>, queue: &str, payload: &(dyn Any + Send)) {
    let message = payload_text(payload).unwrap_or_default().to_owned();
    engine.caller().report(Report::ItemPanicked { queue: queue.to_owned(), message });
}
