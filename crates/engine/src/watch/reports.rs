//! Reports, and when they reach the user's reporter.
//!
//! A reporter is user code: it is called without locks. A change of the CPUs or of a queue's
//! attributes holds a lock from its beginning to its end, and creates threads meanwhile, which may
//! fail. Its reports are delivered when that lock is released.

use crate::engine::Engine;
use crate::host::ThreadState;
use crate::host::{Host, Report};
use crate::sync::{Lock, Ordering};

/// Reports of changes in progress.
pub(crate) struct PendingReports(Lock<Vec<Report>>);

impl PendingReports {
    pub(crate) fn new() -> PendingReports {
        PendingReports(Lock::new(Vec::new()))
    }
}

/// A change that the calling thread makes. Its reports are delivered when the outermost change of
/// the thread ends, that is, when this is dropped, after the locks of the change.
pub(crate) struct Change<'a, H: Host>(&'a Engine<H>);

impl<H: Host> Engine<H> {
    fn calling_thread(&self) -> &ThreadState {
        // SAFETY: the host's promise for the calling thread; the reference stays on that thread.
        unsafe { &*self.host().thread() }
    }

    /// Begins a change. Must precede its locks.
    pub(crate) fn begin_change(&self) -> Change<'_, H> {
        self.calling_thread().count_change(1);
        Change(self)
    }

    /// Delivers a report; inside a change of the calling thread, at the end of that change.
    pub(crate) fn report(&self, report: Report) {
        if self.calling_thread().is_changing() {
            self.pending_reports().0.lock().push(report);
        } else if self.is_watch() {
            self.report_on_own_thread(vec![report]);
        } else {
            self.host().report(report);
        }
    }

    /// Whether the calling thread is the watcher's.
    fn is_watch(&self) -> bool {
        let watch = self.watch_state().thread.load(Ordering::Relaxed);
        watch != 0 && watch == self.host().thread_id()
    }
}

impl<H: Host> Drop for Change<'_, H> {
    fn drop(&mut self) {
        let thread = self.0.calling_thread();
        thread.count_change(-1);
        if !thread.is_changing() {
            // This may deliver reports of another thread's change early. That is harmless: this
            // thread holds no locks, and that change can continue.
            let pending_reports = std::mem::take(&mut *self.0.pending_reports().0.lock());
            pending_reports.into_iter().for_each(|report| self.0.host().report(report));
        }
    }
}
