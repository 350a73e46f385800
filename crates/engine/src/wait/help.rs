//! A helper: a thread that waits for an item may run it itself, which saves a switch and a wake.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::engine::Engine;
use crate::host::Host;
use crate::host::thread::Frame;
use crate::item::word::{RUN_MASK, RunId};
use crate::item::{Place, Work};
use crate::queue::pwq::Pwq;
use crate::slot::{Next, WaitsFor};
use crate::wait::cancel::Located;
use crate::wake::Waiters;
use crate::worker::run::{Tally, report_panic, run_item};

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
}

impl<H: Host> Engine<H> {
    /// Runs a queued item that has not started on the calling thread, if its queue permits that:
    /// the queue is unbound, a permit under `max_active` is free, and the item is first in line if
    /// the queue is ordered.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn help(&self, work: NonNull<Work>) -> Helped {
        // SAFETY: by this function's contract.
        let place = unsafe { work.as_ref() }.place();
        // SAFETY: as above.
        if matches!(place, Place::Disposal(_)) && unsafe { self.dispose_of(work) } {
            return Helped::Ran;
        }
        let Some(id) = self.allocate_slot() else { return Helped::No };
        // SAFETY: by this function's contract.
        match unsafe { self.help_in(id, work) } {
            // In the child the slot stays allocated.
            Helped::Forked => Helped::Ran,
            helped => {
                self.slots().release(id);
                helped
            }
        }
    }

    unsafe fn help_in(&self, id: u32, work: NonNull<Work>) -> Helped {
        // SAFETY: the caller's promise, passed on.
        let Some(Taken { pwq, waiters, borrowed }) = (unsafe { self.take_over(work) }) else {
            return Helped::No;
        };
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        let began = self.host().now();
        let slot = self.slot(id);
        let forks = thread.forks();
        let run = slot.number().wrapping_add(1) & RUN_MASK;
        let _noted = self.note_help(WaitsFor::Run(RunId { slot: id, run }));
        let frame = Frame { slot: id, wq: pwq.wq().cast(), outer: thread.frame() };
        thread.set_frame(&frame);
        slot.batch.set(pwq.id, began);
        slot.note_helper(thread.number(|| self.host().thread_id()));
        let tally = Tally::new(self, pwq, slot);
        // SAFETY: taken over, hence live and ours.
        let item = unsafe { work.as_ref() };
        let run = match waiters.is_empty() {
            true => slot.begin(item),
            false => slot.begin_waited_for(waiters, item),
        };
        // SAFETY: taken over, hence live and ours, and its run has begun.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe {
            tally.note(work.as_ref().ticket().colour(), run);
            run_item(id, work.as_ptr(), run);
        }));
        if let Err(payload) = outcome {
            report_panic(self, pwq, payload);
        }
        while let Next::AtRunEnd(aside) = slot.next(self.host(), run) {
            self.put_back(aside);
        }
        if thread.forks() != forks {
            // In a child that the item forked. There is nothing to settle there.
            return Helped::Forked;
        }
        thread.set_frame(frame.outer);
        slot.note_helper(0);
        let took = self.host().now().saturating_sub(began);
        if !borrowed && pwq.release(took, 1, &mut |pwq| self.make_ready(pwq)) {
            self.make_ready(pwq);
        }
        tally.publish();
        Helped::Ran
    }

    /// Whether an item of a worklist, whose lock the caller holds, is running. An item that was
    /// taken into a slot's scheduled list is not: `cut_batch` checked it.
    fn still_runs(&self, item: &Work) -> bool {
        if !item.ticket().collision() {
            return false;
        }
        let Some(run) = item.word.owned().last_run() else { return false };
        let slot = self.slots().get(run.slot).filter(|slot| slot.is_running(run.run));
        slot.is_some_and(|slot| slot.lock_remote(self.host()).is_running_item(run.run, item))
    }

    /// Takes a queued item out of its list, with a permit under `max_active`.
    unsafe fn take_over(&self, work: NonNull<Work>) -> Option<Taken<'_, H>> {
        // SAFETY: the caller's promise that the item is live.
        let item = unsafe { work.as_ref() };
        if !item.is_pending() {
            return None;
        }
        // SAFETY: the caller's promise, passed on.
        let mut found = unsafe { self.locate(work) }?;
        let inner = &mut found.inner;
        if inner.is_frozen()
            || !found.pwq.home().admits_caller(self)
            || (found.pwq.is_ordered() && inner.worklist.front() != work.as_ptr())
            || matches!(found.place, Place::Deferred(_))
            || (found.place == Place::Worklist && self.still_runs(item))
        {
            return None;
        }
        // An item that waits for another item of its own queue lends it its permit.
        let borrowed = !found.pwq.take_permit_to_help(inner);
        if borrowed && (found.pwq.is_ordered() || !self.runs_queue(found.pwq.wq().cast())) {
            return None;
        }
        // SAFETY: it was located in that list, whose guards are held.
        unsafe { found.unlink(work) };
        let waiters = found.take_waiters(work);
        let Located { pwq, inner, remote, .. } = found;
        drop(remote);
        drop(pwq.return_unused(inner, &mut |pwq| self.make_ready(pwq)));
        Some(Taken { pwq, waiters, borrowed })
    }
}
