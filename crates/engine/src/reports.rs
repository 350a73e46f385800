//! Reports, and when they reach their reporter.
//!
//! A reporter is user code: it is called with nothing held. A change of the CPUs or of a queue's attributes
//! holds a lock from its beginning to its end, and makes threads meanwhile, which may fail. What is to be
//! reported then is told when that lock is released.

use crate::engine::Engine;
use crate::host::{Host, Report};
use crate::sync::{Lock, Ordering};
use crate::thread::ThreadState;

/// Reports of changes that are not over.
pub(crate) struct Untold(Lock<Vec<Report>>);

impl Untold {
    pub(crate) fn new() -> Untold {
        Untold(Lock::new(Vec::new()))
    }
}

/// A change that the calling thread makes. Reports are told when the outermost one of the thread ends: dropped
/// after the locks of the change.
pub(crate) struct Change<'a, H: Host>(&'a Engine<H>);

impl<H: Host> Engine<H> {
    fn calling_thread(&self) -> &ThreadState {
        // SAFETY: the host's promise for the calling thread, which the reference does not leave.
        unsafe { &*self.host().thread() }
    }

    /// Begins a change. Before its locks are taken.
    pub(crate) fn begin_change(&self) -> Change<'_, H> {
        self.calling_thread().count_change(1);
        Change(self)
    }

    /// Tells the user; at the end of the change that the calling thread makes, if it makes one.
    pub(crate) fn report(&self, report: Report) {
        if self.calling_thread().is_changing() {
            self.untold().0.lock().push(report);
        } else if self.is_watch() {
            self.tell_elsewhere(vec![report]);
        } else {
            self.host().report(report);
        }
    }

    /// Whether the calling thread is the watch's.
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
            // Also those of a change that another thread makes: they are early then, and of nothing that is held
            // here.
            let untold = std::mem::take(&mut *self.0.untold().0.lock());
            untold.into_iter().for_each(|report| self.0.host().report(report));
        }
    }
}
