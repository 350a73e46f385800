//! Feature `tracing`: a span for each run of an item, and an event for each report.
//!
//! Without a subscriber that wants spans, the begin of a run costs a load of tracing's level, and its
//! end a look at the thread's list of spans.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::span::EnteredSpan;
use uwork_engine::host::{ItemPoint, ItemProbe, Report};

use crate::engine;

thread_local! {
    /// The spans of the runs that the thread is in, the innermost last, and the addresses of their
    /// items.
    static RUNS: RefCell<Vec<(usize, EnteredSpan)>> = const { RefCell::new(Vec::new()) };
}

/// An item is at this point.
#[inline]
pub(crate) fn item(point: ItemPoint, values: impl Fn() -> ItemProbe) {
    match point {
        ItemPoint::Activated => {}
        ItemPoint::Started => {
            if tracing::enabled!(target: "uwork", tracing::Level::DEBUG) {
                guarded(|| begin(values()));
            }
        }
        ItemPoint::Ended => {
            // An error: the thread ends, and its list is gone.
            if RUNS.try_with(|runs| !runs.borrow().is_empty()).unwrap_or(false) {
                guarded(|| end(values()));
            }
        }
    }
}

#[cold]
fn begin(values: ItemProbe) {
    let name = values.name().map(|name| name.to_string());
    let name = name.unwrap_or_else(|| format!("{:#x}", values.function));
    let queue = engine().queue_name_here();
    let span = tracing::debug_span!(target: "uwork", "run", queue, function = name).entered();
    // An error: as in `item`. The span ends here then.
    let _ = RUNS.try_with(|runs| runs.borrow_mut().push((values.item, span)));
}

#[cold]
fn end(values: ItemProbe) {
    let is_its = |run: &mut (usize, EnteredSpan)| run.0 == values.item;
    let ended = RUNS.try_with(|runs| runs.borrow_mut().pop_if(is_its));
    // Calls the subscriber, so the list is free again.
    drop(ended);
}

/// A report is delivered.
pub(crate) fn report(report: &Report) {
    match report {
        Report::ItemPanicked { .. } => tracing::error!(target: "uwork", "{report}"),
        _ => tracing::warn!(target: "uwork", "{report}"),
    }
}

/// The subscriber is code of the user, and its panic must not unwind into a worker.
fn guarded(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload);
    }
}
