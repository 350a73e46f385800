//! Waits for an item: until the last queueing of it has run.

use std::ptr::NonNull;

use crate::engine::Engine;
use crate::wait::Helped;
use crate::wait::cancel::locate;
use crate::words::host::Host;
use crate::words::item::word::RunId;
use crate::words::item::{Location, Work};
use crate::words::wake::{RECHECK, Waiter};

impl<H: Host> Engine<H> {
    /// Waits until the last queueing of the item has run. False if it was idle. It returns at once
    /// if the item is idle, if the caller is inside the very run that it would wait for, or if the
    /// caller is ahead of the item in its ordered queue. A cancel of the item ends the wait.
    ///
    /// # Safety
    /// `work` is live, and has only been queued on queues of this engine.
    pub unsafe fn flush_work(&self, work: NonNull<Work>) -> bool {
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        let (mut round, mut waited) = (0, false);
        loop {
            let (pending, run) = item.word.snapshot();
            let running =
                |run: RunId| self.slots.get(run.slot).is_some_and(|s| s.is_running(run.run));
            if round == 0
                && (pending || run.is_some_and(running))
                && let Some(pwq) = self.pwqs.get(item.ticket().pwq())
            {
                self.caller().check_item_dependency(pwq);
            }
            if !pending {
                return run.is_some_and(|run| self.caller().wait_for_run(run, item)) || waited;
            }
            if run.is_some_and(|run| self.caller().runs(run, item)) {
                // The pending run starts after the caller's run has ended.
                return waited;
            }
            match item.location() {
                // Armed, not queued: the only thing to wait for is a run in progress.
                Location::Timer(_) | Location::Grace(_) => {
                    return run.is_some_and(|run| self.caller().wait_for_run(run, item)) || waited;
                }
                Location::Disposal(_) => {
                    // SAFETY: by this function's contract.
                    if unsafe { self.disposal.dispose_of(self, work) } {
                        return true;
                    }
                }
                Location::Detached => {}
                _ => {
                    let epoch = self.freeze_epoch();
                    let inside = self.caller().is_inside_an_item();
                    // SAFETY: by this function's contract.
                    if inside && unsafe { self.help(work) } == Helped::Ran {
                        // Helping is needed: its queue's only permit may be the one that the
                        // caller's item holds.
                        return true;
                    }
                    self.caller().before_wait();
                    let waiter = Waiter::new(work.as_ptr().addr());
                    // SAFETY: by this function's contract; the waiter is waited for if it was put
                    // in.
                    match unsafe { wait_behind(self, work, &waiter, epoch) } {
                        Some(true) => {
                            // SAFETY: by this function's contract.
                            let _noted = unsafe { self.caller().note_wait_for_item(work) };
                            let _blocked = self.caller().block();
                            waiter.wait(self.host());
                            // SAFETY: the waiter has left its chain, so it is ours again.
                            if unsafe { waiter.key.get() } != RECHECK {
                                return true;
                            }
                            // Its queue was thawed: from now on help can run the item.
                            waited = true;
                        }
                        Some(false) => return waited,
                        None => {}
                    }
                }
            }
            self.host().relax(round);
            round += 1;
        }
    }
}

/// Puts a waiter behind a queued item. `None` if the item is in no list at the moment, or if
/// its queue may have been thawed since `epoch`, so that help may run it now; false if it is
/// behind the caller in an ordered queue, and the caller would wait for itself.
unsafe fn wait_behind<H: Host>(
    engine: &Engine<H>,
    work: NonNull<Work>,
    waiter: &Waiter<H>,
    epoch: u32,
) -> Option<bool> {
    // SAFETY: the caller's promise, handed on.
    let mut found = unsafe { locate(engine, work) }?;
    if found.pwq.is_ordered() && engine.runs_queue(found.pwq.wq().cast()) {
        return Some(false);
    }
    // The guards include the lock under which a thaw takes the waiters. A thaw that did so
    // before is visible here in the epoch; a thaw that comes later finds the waiter.
    if engine.freeze_epoch() != epoch {
        return None;
    }
    // SAFETY: located, hence live; the guards that we hold guard its ticket.
    let item = unsafe { work.as_ref() };
    item.set_ticket(item.ticket().with_waited_for(true));
    // SAFETY: the waiter is in no chain, and the caller waits for it.
    unsafe { found.inner.waiters.push(waiter) };
    Some(true)
}
