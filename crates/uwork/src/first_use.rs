//! What the process has one of and makes at first use, so that no fork finds it half made.
//!
//! A thread that makes something holds a lock; a fork takes that lock first of all. Otherwise the child, which does
//! not have the thread, would wait for ever for what the thread was about to make. What is made may need something
//! else of the kind: then the thread has the lock already.
//!
//! What there is to report meanwhile is reported when the lock is given up: the program's reporter may wait for another
//! thread, which may need something that is not made yet.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use uwork_engine::host::Report;

/// Taken before any other lock of the library's, and held while something is made.
static MAKING: Mutex<()> = Mutex::new(());

/// What its holder has to report. Locked by that thread only, so that no fork finds it locked by another one.
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn reports() -> MutexGuard<'static, Vec<Report>> {
    // Nothing of a user's runs under it.
    REPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether the thread holds that lock.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// The lock, held; nothing where the thread had it already.
pub(crate) struct Making(Option<MutexGuard<'static, ()>>);

impl Making {
    fn begin() -> Making {
        let first = !MAKES.replace(true);
        Making(first.then(|| MAKING.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(making) = self.0.take() else { return };
        let reports = std::mem::take(&mut *reports());
        MAKES.set(false);
        drop(making);
        reports.into_iter().for_each(crate::linux::tell);
    }
}

/// Keeps a report until the calling thread has given up the lock; it comes back if the thread does not have it.
pub(crate) fn defer(report: Report) -> Option<Report> {
    if !MAKES.get() {
        return Some(report);
    }
    reports().push(report);
    None
}

/// What is in `cell`, made if it is not there.
#[inline]
pub(crate) fn once<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    cell.get().unwrap_or_else(|| first(cell, make))
}

#[cold]
fn first<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    let _making = making();
    cell.get_or_init(make)
}

/// Nobody else makes anything while this is there. With no lock of the library's held.
pub(crate) fn making() -> Making {
    crate::linux::are_watched();
    Making::begin()
}

/// Before a fork, on the thread that forks: waits until nothing is half made, and keeps it so.
pub(crate) fn hold() -> Making {
    Making::begin()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use uwork_engine::host::Host;
    use uwork_policy::percpu::Mode;

    use super::*;
    use crate::linux::{engine, set_reporter};

    /// What the tests' report says, which no other test's does.
    const REASON: &str = "made at first use, for a test";

    static REPORTED: AtomicUsize = AtomicUsize::new(0);
    static IS_MADE: AtomicBool = AtomicBool::new(false);

    fn report(number: usize) {
        let reason = format!("{REASON}: {number}");
        engine().host().report(Report::PerCpuMode { mode: Mode::Local, reason });
    }

    /// Waits for another thread that makes something else.
    fn reporter(report: &Report) {
        static OTHER: OnceLock<u64> = OnceLock::new();
        let Report::PerCpuMode { reason, .. } = report else { return eprintln!("{report}") };
        let Some(number) = reason.strip_prefix(REASON) else { return eprintln!("{report}") };
        assert!(IS_MADE.load(Ordering::Relaxed), "it is still being made");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(*once(&OTHER, || 1)));
        told.recv_timeout(Duration::from_secs(20)).expect("the lock is free");
        // In the order in which it happened.
        let before = REPORTED.fetch_add(1, Ordering::Relaxed);
        assert_eq!(number, format!(": {before}"));
    }

    // Catches: a reporter that is called with the lock held, and waits here for a thread that waits for the lock.
    #[test]
    fn what_there_is_to_report_is_reported_when_it_is_made() {
        static OUTER: OnceLock<()> = OnceLock::new();
        static INNER: OnceLock<()> = OnceLock::new();
        engine();
        set_reporter(reporter).expect("no other unit test has one");
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
