//! Objects that exist once per process and are made at first use, in a way that no fork finds half
//! made.
//!
//! A thread that makes such an object holds a lock, and a fork takes that lock before all others.
//! Without it, the child, which does not have the making thread, could wait for ever for an object
//! that is never finished. Making one object may need another such object: the thread then has the
//! lock already.
//!
//! Reports that arise meanwhile are deferred until the lock is released: the program's reporter may
//! wait for another thread, which may need an object that does not exist yet.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use uwork_engine::host::Report;

use crate::cancel::{HeldOff, hold_off};

/// Taken before any other lock of the library's, and held while such an object is made.
static MAKING: Mutex<()> = Mutex::new(());

/// The deferred reports of the lock's holder. Locked by that thread only, so that no fork finds it
/// locked by another.
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn reports() -> MutexGuard<'static, Vec<Report>> {
    // No user code runs under this lock.
    REPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether the thread holds that lock.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// A guard for the lock; empty if the thread held it already. Meanwhile cancellation of the thread is held
/// off: what is made opens files, or asks for random numbers.
pub struct Making(
    Option<MutexGuard<'static, ()>>,
    #[expect(dead_code, reason = "a guard")] HeldOff,
);

impl Making {
    fn begin() -> Making {
        let held_off = hold_off();
        let first = !MAKES.replace(true);
        Making(first.then(|| MAKING.lock().unwrap_or_else(PoisonError::into_inner)), held_off)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(making) = self.0.take() else { return };
        let reports = std::mem::take(&mut *reports());
        MAKES.set(false);
        drop(making);
        reports.into_iter().for_each(crate::report::deliver);
    }
}

/// Defers a report until the calling thread has released the lock. Returned if the thread does not
/// hold it.
pub(crate) fn defer(report: Report) -> Option<Report> {
    if !MAKES.get() {
        return Some(report);
    }
    reports().push(report);
    None
}

/// The value in `cell`, made first if it does not exist.
#[inline]
pub fn once<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    cell.get().unwrap_or_else(|| first(cell, make))
}

#[cold]
fn first<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    let _making = making();
    cell.get_or_init(make)
}

/// While the guard lives, no other thread makes such an object. Call it with no lock of the library
/// held.
pub fn making() -> Making {
    crate::fork::ensure_fork_handlers();
    Making::begin()
}

/// Before a fork, on the thread that forks: waits until nothing is half made, and keeps others from
/// starting.
pub(crate) fn hold() -> Making {
    Making::begin()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use uwork_engine::host::Host;
    use uwork_policy::percpu::Mode;

    use super::*;
    use crate::bounded::received;
    use crate::{engine, set_reporter};

    /// The text by which this test recognizes its own reports.
    const REASON: &str = "made at first use, for a test";

    static REPORTED: AtomicUsize = AtomicUsize::new(0);
    static IS_MADE: AtomicBool = AtomicBool::new(false);

    fn report(number: usize) {
        let reason = format!("{REASON}: {number}");
        engine().host().report(Report::PerCpuMode { mode: Mode::Local, reason });
    }

    /// Waits for another thread that makes another object.
    fn reporter(report: &Report) {
        static OTHER: OnceLock<u64> = OnceLock::new();
        let Report::PerCpuMode { reason, .. } = report else { return eprintln!("{report}") };
        let Some(number) = reason.strip_prefix(REASON) else { return eprintln!("{report}") };
        assert!(IS_MADE.load(Ordering::Relaxed), "it is still being made");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(*once(&OTHER, || 1)));
        assert_eq!(received(&told), 1, "the lock is free");
        // Reports come in the order in which they arose.
        let before = REPORTED.fetch_add(1, Ordering::Relaxed);
        assert_eq!(number, format!(": {before}"));
    }

    // Catches: a reporter that is called with the lock held, and waits here for a thread that waits
    // for the lock.
    #[test]
    fn reports_are_delivered_in_order_after_the_lock_is_released() {
        static OUTER: OnceLock<()> = OnceLock::new();
        static INNER: OnceLock<()> = OnceLock::new();
        engine();
        assert!(set_reporter(Box::new(reporter)), "no other unit test has one");
        once(&OUTER, || {
            report(0);
            once(&INNER, || report(1));
            assert_eq!(REPORTED.load(Ordering::Relaxed), 0);
            IS_MADE.store(true, Ordering::Relaxed);
        });
        assert_eq!(REPORTED.load(Ordering::Relaxed), 2);
        report(2);
        assert_eq!(REPORTED.load(Ordering::Relaxed), 3, "at once, with nothing being made");
    }
}
