//! Running the items that are scheduled in a slot.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::account::Split;
use crate::engine::Engine;
use crate::pool::Pool;
use crate::pool::put_back;
use crate::queue::Warned;
use crate::queue::pwq::Pwq;
use crate::slot::{Next, NotRunning, Slot};
use crate::words::host::ThreadState;
use crate::words::host::thread::Frame;
use crate::words::host::{Host, Report};
use crate::words::item::word::RunId;
use crate::words::item::{ItemFn, Ticket, Work};
use crate::worker::run::{Tally, end_panicked_run, run_ticket};

/// The worker or rescuer that runs a batch.
pub(crate) struct BatchRunner<'a, H: Host> {
    engine: &'a Engine<H>,
    id: u32,
    slot: &'a Slot<H>,
    /// The worker's pool; None for a rescuer.
    pool: Option<&'a Pool<H>>,
    /// Some functions of the batch may be presumed to block.
    presumes: bool,
    /// A run of the batch was presumed to block.
    has_presumed: Cell<bool>,
}

impl<'a, H: Host> BatchRunner<'a, H> {
    /// A worker of this pool, or a rescuer.
    pub(crate) fn new(
        engine: &'a Engine<H>,
        (id, slot): (u32, &'a Slot<H>),
        pool: Option<&'a Pool<H>>,
    ) -> BatchRunner<'a, H> {
        BatchRunner { engine, id, slot, pool, presumes: false, has_presumed: Cell::new(false) }
    }

    /// Some functions of the batch may be presumed to block.
    pub(crate) fn presuming(self, presumes: bool) -> BatchRunner<'a, H> {
        BatchRunner { presumes, ..self }
    }

    /// Whether a run of the batch was presumed to block.
    pub(crate) fn has_presumed(&self) -> bool {
        self.has_presumed.get()
    }

    /// Runs every item that is scheduled in the caller's slot. All of them belong to one pwq.
    pub(crate) fn run_batch(&self, thread: &ThreadState, pwq: &Pwq<H>, split: &Split) {
        let BatchRunner { engine, slot, .. } = *self;
        before_items(engine, thread, pwq);
        let (forks, read_sides) = (thread.forks(), thread.read_sides());
        let frame = Frame { slot: self.id, wq: pwq.wq().cast(), outer: thread.frame() };
        thread.set_frame(&frame);
        let tally = Tally::new(engine, pwq, slot, split);
        // One `catch_unwind` around the batch rather than one for each item: an item that does not
        // panic pays nothing for it.
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.run_items(&tally))) {
            end_panicked_run(engine, slot, pwq, payload);
        }
        if thread.forks() != forks {
            // The item forked and returned in the child. There, no thread waits for this worker.
            engine.host().end_forked_thread();
        }
        if thread.read_sides() > read_sides {
            engine.end_read_sides(read_sides);
        }
        thread.set_frame(frame.outer);
        tally.publish();
    }
}

/// The calling thread, which holds the pwq, is about to run items of it.
#[inline(always)]
pub(crate) fn before_items<H: Host>(engine: &Engine<H>, thread: &ThreadState, pwq: &Pwq<H>) {
    // SAFETY: the caller holds the pwq, so its queue is live.
    engine.host().before_items(thread, unsafe { &*pwq.wq() }.demands());
}

impl<H: Host> Engine<H> {
    /// Ends the RCU read sides beyond `keep`, and reports them: an item of the caller's frame
    /// returned inside a read side, which would block every later grace period forever.
    ///
    /// Called after a batch, where the check is almost free, and by a later item of the same batch
    /// that is about to wait for a grace period.
    #[cold]
    pub fn end_read_sides(&self, keep: u32) {
        let function = self.host().end_read_sides(keep);
        let Some(wq) = self.caller().queue() else { return };
        if wq.warn_once(Warned::READ_SIDE_LEFT) {
            self.caller().report(Report::ReadSideLeft { queue: wq.name().to_owned(), function });
        }
    }
}

impl<H: Host> BatchRunner<'_, H> {
    fn run_items(&self, tally: &Tally<'_, H>) {
        let host = self.engine.host();
        let mut number = self.slot.number();
        loop {
            match self.slot.next(host, number) {
                Next::Run(item, run, ticket) => {
                    number = run;
                    // SAFETY: the item came off this slot's list, so it is live and the runner's;
                    // its run has begun.
                    unsafe { self.run_item(tally, item, run, ticket) };
                }
                Next::AtRunEnd(aside) => {
                    if let Some(pool) = self.pool {
                        pool.count_again(aside.was, self.engine.host().now());
                    }
                    if let NotRunning::FoundBlocked(_) = aside.was {
                        tally.pwq.block_scores.note(self.slot.last_function(), true);
                    }
                    put_back(self.engine, aside);
                }
                Next::WaitedFor(item) => number = self.run_waited_for(tally, item),
                Next::Empty => return,
            }
        }
    }

    /// Runs an item that has waiters; they are woken when the run has ended.
    #[cold]
    fn run_waited_for(&self, tally: &Tally<'_, H>, item: *mut Work) -> u64 {
        // SAFETY: the item came off this slot's list, so it is live and the runner's.
        let work = unsafe { &*item };
        let run = self.slot.begin_waited_for(tally.pwq.take_waiters(item), work);
        // SAFETY: as above, and its run has begun.
        unsafe { self.run_item(tally, item, run, (*item).ticket()) };
        run
    }

    /// Runs one item.
    ///
    /// # Safety
    /// `item` is live and the runner's, `ticket` is its ticket, and its run `run` has begun.
    #[inline(always)]
    unsafe fn run_item(&self, tally: &Tally<'_, H>, item: *mut Work, run: u64, ticket: Ticket) {
        // SAFETY: by this function's contract.
        let func = unsafe { (*item).func() };
        tally.note(func, ticket.colour(), run);
        let run = RunId { slot: self.id, run };
        if self.presumes {
            // SAFETY: by this function's contract.
            unsafe { self.run_presuming(tally.pwq, (func, item, run), ticket) };
            return;
        }
        // SAFETY: by this function's contract.
        unsafe { run_ticket(self.engine, run, item, ticket) };
    }

    /// As [`BatchRunner::run_item`], in a batch some of whose functions may be presumed to block.
    ///
    /// # Safety
    /// As of `run_item`.
    #[cold]
    #[inline(never)]
    unsafe fn run_presuming(
        &self,
        pwq: &Pwq<H>,
        (func, item, run): (ItemFn, *mut Work, RunId),
        ticket: Ticket,
    ) {
        // SAFETY: by this function's contract.
        let run_it = || unsafe { run_ticket(self.engine, run, item, ticket) };
        match self.pool {
            Some(pool) if pool.presumes_block(self.engine, pwq, func.identity()) => {
                self.has_presumed.set(true);
                pool.run_presumed_to_block(self.engine, (self.id, self.slot), pwq, run_it);
            }
            _ => run_it(),
        }
    }
}
