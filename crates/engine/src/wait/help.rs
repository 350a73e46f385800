//! A helper: a thread that waits for an item may run it itself, which saves a switch and a wake.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use uwork_policy::batch::RunEstimate;

use crate::account;
use crate::engine::Engine;
use crate::pool::put_back;
use crate::queue::pwq::Pwq;
use crate::slot::Slot;
use crate::slot::{Next, WaitsFor};
use crate::wait::cancel::{Located, locate};
use crate::words::host::Wanted;
use crate::words::host::thread::Frame;
use crate::words::host::{Host, ThreadState};
use crate::words::item::word::{RUN_MASK, RunId};
use crate::words::item::{Location, Work};
use crate::words::wake::Waiters;
use crate::worker::run::{Tally, end_panicked_run, run_ticket};

/// The result of an attempt to help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helped {
    /// The item ran on the calling thread.
    Ran,
    /// The item cannot be run here and now; the caller must wait.
    No,
    /// It ran, and returned in a child that it forked. Never returned to the engine's users.
    #[doc(hidden)]
    Forked,
}

/// An item that a helper took over, with the state that comes with it.
struct Taken<'a, H: Host> {
    pwq: &'a Pwq<H>,
    waiters: Waiters<H>,
    /// Whether it runs under the permit of an item that waits for it.
    borrowed: bool,
    /// How long the items of its queue take.
    estimate: RunEstimate,
}

/// How often a helper prepares itself for one item: demands may be added meanwhile.
const PREPARATIONS_MAX: u32 = 16;

impl<H: Host> Engine<H> {
    /// Runs a queued item that has not started on the calling thread, if its queue permits that:
    /// the queue is unbound, a permit of `max_active` is free, and the item is first in line if
    /// the queue is ordered.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn help(&self, work: NonNull<Work>) -> Helped {
        // SAFETY: by this function's contract.
        let at = unsafe { work.as_ref() }.location();
        // SAFETY: as above.
        if matches!(at, Location::Disposal(_)) && unsafe { self.disposal.dispose_of(self, work) } {
            return Helped::Ran;
        }
        let cpu = self.host().current_cpu();
        let Some(id) = self.spare_slots.take(cpu).or_else(|| Slot::allocate(&self.slots)) else {
            return Helped::No;
        };
        // SAFETY: by this function's contract.
        match unsafe { help_in(self, id, work) } {
            // In the child the slot stays allocated.
            Helped::Forked => Helped::Ran,
            helped => {
                if !self.spare_slots.put(cpu, id) {
                    self.slots.release(id);
                }
                helped
            }
        }
    }
}

unsafe fn help_in<H: Host>(engine: &Engine<H>, id: u32, work: NonNull<Work>) -> Helped {
    let thread = engine.caller().thread;
    let mut preparations = 0;
    let taken = loop {
        // SAFETY: the caller's promise, passed on.
        match unsafe { take_over(engine, thread, work, preparations) } {
            Ok(taken) => break taken,
            Err(Some(wanted)) if preparations < PREPARATIONS_MAX => {
                // In no list and not begun, the item would keep other threads spinning meanwhile.
                engine.host().prepare(thread, wanted);
                preparations += 1;
            }
            Err(_) => return Helped::No,
        }
    };
    let Taken { pwq, waiters, borrowed, estimate } = taken;
    let began = engine.host().now();
    engine.trace_heartbeat(began);
    let slot = engine.slot(id);
    let forks = thread.forks();
    let run = slot.number().wrapping_add(1) & RUN_MASK;
    let _noted = engine.caller().note_help(WaitsFor::Run(RunId { slot: id, run }));
    let frame = Frame { slot: id, wq: pwq.wq().cast(), outer: thread.frame() };
    thread.set_frame(&frame);
    slot.batch.set(pwq.id, began, engine.host().current_cpu());
    slot.note_helper(thread.number(|| engine.host().thread_id()));
    let meter = account::CpuMeter::default();
    let batch = account::Batch::begin(engine, slot, &meter, (began, None), estimate);
    let tally = Tally::new(engine, pwq, slot, &batch.split);
    // SAFETY: taken over, hence live and ours.
    let item = unsafe { work.as_ref() };
    let run = match waiters.is_empty() {
        true => slot.begin(item),
        false => slot.begin_waited_for(waiters, item),
    };
    // SAFETY: taken over, hence live and ours, and its run has begun.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe {
        let ticket = work.as_ref().ticket();
        tally.note(work.as_ref().func(), ticket.colour(), run);
        run_ticket(engine, RunId { slot: id, run }, work.as_ptr(), ticket);
    }));
    if let Err(payload) = outcome {
        end_panicked_run(engine, slot, pwq, payload);
    }
    while let Next::AtRunEnd(aside) = slot.next(engine.host(), run) {
        put_back(engine, aside);
    }
    if thread.forks() != forks {
        // In a child that the item forked. There is nothing to settle there.
        return Helped::Forked;
    }
    thread.set_frame(frame.outer);
    slot.note_helper(0);
    let batch = batch.end(engine, slot, 1);
    if !borrowed && pwq.release(engine.host(), batch, None, &mut |pwq| pwq.make_ready(engine)) {
        pwq.make_ready(engine);
    }
    tally.publish();
    if !thread.is_inside_items() {
        engine.host().outside_items(thread);
    }
    Helped::Ran
}

/// Whether an item of a worklist, whose lock the caller holds, is running. An item that was
/// taken into a slot's scheduled list is not: `cut_batch` checked it.
fn still_runs<H: Host>(engine: &Engine<H>, item: &Work) -> bool {
    if !item.ticket().collision() {
        return false;
    }
    let Some(run) = item.word.owned().last_run() else { return false };
    let slot = engine.slots.get(run.slot).filter(|slot| slot.is_running(run.run));
    slot.is_some_and(|slot| slot.lock_remote(engine.host()).is_running_item(run.run, item))
}

/// Whether the caller is in an item of this pwq's paused queue. Its pause waits for that item, which
/// may in turn wait for this one.
fn lends_while_paused<H: Host>(pwq: &Pwq<H>) -> bool {
    // SAFETY: the caller holds the pwq's lock, and found an item of the queue under it; the item
    // keeps the queue.
    let wq = unsafe { &*pwq.wq() };
    wq.is_paused() && !wq.is_frozen() && wq.runs_here()
}

/// Takes a queued item out of its list, with a permit under `max_active`. If the host wants something
/// done on this thread before, it takes nothing and says what. `preparations`: how often that was so.
unsafe fn take_over<'a, H: Host>(
    engine: &'a Engine<H>,
    thread: &ThreadState,
    work: NonNull<Work>,
    preparations: u32,
) -> Result<Taken<'a, H>, Option<Wanted>> {
    // SAFETY: the caller's promise that the item is live.
    let item = unsafe { work.as_ref() };
    if !item.is_pending() {
        return Err(None);
    }
    // SAFETY: the caller's promise, passed on.
    let mut found = unsafe { locate(engine, work) }.ok_or(None)?;
    let inner = &mut found.inner;
    if (inner.is_frozen() && !lends_while_paused(found.pwq))
        || !found.pwq.home().admits_caller(engine)
        || (found.pwq.is_ordered() && inner.worklist.front() != work.as_ptr())
        || matches!(found.location, Location::Deferred(_))
        || (found.location == Location::Worklist && still_runs(engine, item))
    {
        return Err(None);
    }
    // SAFETY: the item, found under the lock of its pwq, keeps the queue.
    let demands = unsafe { &*found.pwq.wq() }.demands();
    // What is no demand of the queue may not be possible now, and is asked for once.
    let asks = |wanted: &Wanted| preparations == 0 || !wanted.numbers().is_empty();
    if let Some(wanted) = engine.host().wanted(thread, demands).filter(asks) {
        return Err(Some(wanted));
    }
    // An item that waits for another item of its own queue lends it its permit.
    let borrowed = !found.pwq.take_permit_to_help(inner);
    if borrowed && (found.pwq.is_ordered() || !engine.runs_queue(found.pwq.wq().cast())) {
        return Err(None);
    }
    found.pwq.note_helped(true);
    // SAFETY: it was located in that list, whose guards are held.
    unsafe { found.unlink(work) };
    let waiters = found.take_waiters(work);
    let estimate = found.inner.run_times.estimate();
    let Located { pwq, inner, remote, .. } = found;
    drop(remote);
    drop(pwq.return_unused(engine.host(), inner, &mut |pwq| pwq.make_ready(engine)));
    Ok(Taken { pwq, waiters, borrowed, estimate })
}
