//! Reports: to the program's reporter, or to standard error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use uwork_engine::host::{Host, Report};
use uwork_engine::sync::assert_nothing_held;
use uwork_policy::flags::FlagsWarning;

use crate::process::engine;
use crate::{binding, fatal, first_use, standard_error, symbols};

static PANICS: AtomicU64 = AtomicU64::new(0);
/// What receives the reports.
pub type Reporter = dyn Fn(&Report) + Send + Sync;

/// A reporter that was set.
struct SetReporter {
    reporter: Box<Reporter>,
    /// The one that it replaced, or null. It is never freed, since a thread may be inside: so a report
    /// takes no lock, which a fork could find taken. The link is for tools that look for leaks.
    replaced: *mut SetReporter,
}

/// Null, or the reporter.
static REPORTER: AtomicPtr<SetReporter> = AtomicPtr::new(ptr::null_mut());

/// Gives a report to the program. If the calling thread is creating an object of first use
/// (`first_use`), the report is deferred until that object exists, since the reporter may need it.
pub(crate) fn issue(report: Report) {
    assert_nothing_held("a reporter");
    if let Report::ItemPanicked { .. } = report {
        PANICS.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(report) = first_use::defer(report) {
        deliver(report);
    }
}

/// Calls the program's reporter, or prints. Not to be called while `first_use` makes an object, as
/// the reporter may need it.
pub(crate) fn deliver(mut report: Report) {
    // Callers are in the middle of changes that an unwinding must not interrupt.
    let _held_off = crate::cancel::hold_off();
    let delivered = catch_unwind(AssertUnwindSafe(|| {
        // On a thread of its own, as the symbol lookup may take long.
        if let Report::Stalled(stall) = &mut report {
            stall.replace_items(&mut binding::represented_item);
            stall.name_functions(&mut symbols::names());
        }
        #[cfg(feature = "tracing")]
        crate::spans::report(&report);
        // SAFETY: null, or a reporter that is never freed. Acquire: it is complete.
        match unsafe { REPORTER.load(Ordering::Acquire).as_ref() } {
            Some(set) => (set.reporter)(&report),
            None => print(&report),
        }
    }));
    if let Err(payload) = delivered {
        std::mem::forget(payload);
    }
    if cfg!(debug_assertions) && matches!(report, Report::WorkerMissing { .. }) {
        fatal::abort(format_args!("a debug build does not go on after a defect of its own"));
    }
}

fn print(report: &Report) {
    // The panic hook has printed it already.
    if !matches!(report, Report::ItemPanicked { .. }) {
        standard_error::print(&format!("uwork: {report}\n"));
    }
}

/// Reports a change that the rules made to a queue's flags: each kind of change once per process.
pub fn warn_of_flags(queue: &str, warning: FlagsWarning) {
    static SAID: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    if !SAID[warning as usize].swap(true, Ordering::Relaxed) {
        let queue = queue.to_owned();
        engine().host().report(Report::FlagsChanged { queue, warning });
    }
}

/// The number of items that have panicked.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Counts and reports the panic of the item that the calling thread is in.
pub fn report_panic(payload: &(dyn Any + Send)) {
    engine().report_panic_here(payload);
}

/// Sets what receives the reports. False if it was set before; then nothing changes.
#[must_use]
pub fn set_reporter(reporter: Box<Reporter>) -> bool {
    let none = ptr::null_mut();
    let new = Box::into_raw(Box::new(SetReporter { reporter, replaced: none }));
    let set = REPORTER.compare_exchange(none, new, Ordering::AcqRel, Ordering::Relaxed);
    if set.is_err() {
        // SAFETY: it was not published.
        drop(unsafe { Box::from_raw(new) });
    }
    set.is_ok()
}

/// Replaces what receives the reports, if anything does.
pub fn replace_reporter(reporter: Box<Reporter>) {
    let new = Box::into_raw(Box::new(SetReporter { reporter, replaced: ptr::null_mut() }));
    let publish = |replaced| {
        // SAFETY: it is not published yet.
        unsafe { (*new).replaced = replaced };
        Some(new)
    };
    // The closure returns a pointer each time, so this succeeds.
    let _ = REPORTER.fetch_update(Ordering::AcqRel, Ordering::Acquire, publish);
}
