//! Waits that undo a guarantee: an item of a queue that makes progress without new threads
//! (`MEM_RECLAIM`) waits for a queue that may need a new thread.
//!
//! Reported once for each queue that does it, as the kernel does in `check_flush_dependency()`. A
//! cancel is exempt: it waits only for what runs already.

use crate::queue::pwq::Pwq;
use crate::queue::{Name, Warned, Wq};
use crate::words::host::{Host, Report};
use crate::worker::Caller;

impl<'a, H: Host> Caller<'a, H> {
    /// The queue of the item that the calling thread is in, if it is a `MEM_RECLAIM` queue.
    fn reclaimer(self) -> Option<&'a Wq<H>> {
        let wq = self.queue()?;
        wq.rescuer().map(|_| wq)
    }

    /// The caller is about to flush `wq`.
    pub(crate) fn check_flush_dependency(self, wq: &Wq<H>) {
        if wq.rescuer().is_none()
            && let Some(from) = self.reclaimer()
        {
            self.report_dependency(from, wq.name());
        }
    }

    /// The caller is about to wait for an item that was enqueued on `pwq`, by a ticket that may be
    /// stale. The caller holds no lock.
    pub(crate) fn check_item_dependency(self, pwq: &Pwq<H>) {
        if pwq.rescuer().is_some() {
            return;
        }
        let Some(from) = self.reclaimer() else { return };
        let name: Name = pwq.lock().name;
        self.report_dependency(from, name.as_str());
    }

    #[cold]
    fn report_dependency(self, from: &Wq<H>, on: &str) {
        if from.warn_once(Warned::FLUSH_DEPENDENCY) {
            let (from, on) = (from.name().to_owned(), on.to_owned());
            self.report(Report::FlushDependency { from, on });
        }
    }
}
