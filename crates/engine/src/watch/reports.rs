//! Reports, and when they reach the user's reporter.
//!
//! A reporter is user code: it is called without locks. A change of the CPUs or of a queue's
//! attributes holds a lock from its beginning to its end, and creates threads meanwhile, which may
//! fail. Its reports are delivered when that lock is released.

use super::Watch;
use crate::engine::Engine;
use crate::words::host::{Host, Report};
use crate::words::sync::{Lock, LockGuard};
use crate::worker::Caller;

/// Reports of changes in progress.
pub(crate) struct PendingReports(Lock<Vec<Report>>);

impl PendingReports {
    pub(crate) fn new() -> PendingReports {
        PendingReports(Lock::new(Vec::new()))
    }

    /// Locks the reports, for a fork.
    pub(crate) fn hold(&self) -> LockGuard<'_, Vec<Report>> {
        self.0.lock()
    }
}

/// A change that the calling thread makes. Its reports are delivered when the outermost change of
/// the thread ends, that is, when this is dropped, after the locks of the change.
pub(crate) struct Change<'a, H: Host>(&'a Engine<H>);

impl<H: Host> Caller<'_, H> {
    /// Delivers a report; inside a change of the calling thread, at the end of that change.
    pub(crate) fn report(self, report: Report) {
        let engine = self.engine;
        if self.thread.is_changing() {
            engine.reports.0.lock().push(report);
        } else if engine.watch.is_caller(engine) {
            engine.watch.report_on_own_thread(engine, vec![report]);
        } else {
            engine.host().report(report);
        }
    }
}

impl<H: Host> Watch<H> {
    /// Whether the calling thread is the watcher's.
    fn is_caller(&self, engine: &Engine<H>) -> bool {
        let watch = self.thread();
        watch != 0 && watch == engine.host().thread_id()
    }
}

impl PendingReports {
    /// Begins a change. Must precede its locks.
    pub(crate) fn begin_change<'a, H: Host>(&self, engine: &'a Engine<H>) -> Change<'a, H> {
        engine.caller().thread.count_change(1);
        Change(engine)
    }
}

impl<H: Host> Drop for Change<'_, H> {
    fn drop(&mut self) {
        let thread = self.0.caller().thread;
        thread.count_change(-1);
        if !thread.is_changing() {
            // This may deliver reports of another thread's change early. That is harmless: this
            // thread holds no locks, and that change can continue.
            let pending_reports = std::mem::take(&mut *self.0.reports.0.lock());
            pending_reports.into_iter().for_each(|report| self.0.caller().report(report));
        }
    }
}
