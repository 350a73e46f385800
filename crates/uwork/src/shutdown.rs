//! An orderly end of all queues.

use std::time::Duration;

use crate::item::nanos;
use uwork_engine::{Shutdown, ShutdownReport};
use uwork_linux::{Error, engine};

/// Ends the work of this process's queues, the system queues among them, within `limit`, and
/// returns a report of the work that did not end.
///
/// From the start of the call, queues accept submissions from items only; from its end, they accept
/// none, and a new queue is refused with the error
/// [`Refused`](crate::ErrorKind::Refused). Refused submissions return their item. Armed delayed
/// items are released: their pointers are dropped without a run. [`Shutdown::Drain`] runs
/// everything that is queued, and everything that running items queue, on any queue.
/// [`Shutdown::Cancel`] releases all items that have not started (their join handles return
/// [`JoinError::Cancelled`](crate::JoinError::Cancelled)), and refuses what running items queue.
/// Both wait for runs in progress. Nothing is killed: runs that do not end in time continue, and so
/// do items that a drain left pending. Afterwards idle workers end.
///
/// A second call does the same for the rest of the first: a `Cancel` after a `Drain` that took too
/// long removes the pending items. Several calls at once each do that. A shutdown cannot be
/// undone.
///
/// The destructors of released items run with no lock held, one after the other, on a thread that
/// the call creates, as a destructor that never returns cannot be stopped. If a destructor takes
/// longer than 10 ms, others run beside it. They get at least 50 ms, however small `limit` is.
/// After that the report names the destructors that have not returned, and counts the items queued
/// behind them; those items are still pending, and can be taken back. If no item is released, no
/// thread is created; if no thread can be created, the call itself runs the destructors. They are
/// treated as if they ran in an item: they may cancel, flush, join and queue, and cannot wait for
/// their own queue. A thread that flushes or joins an item that is about to be released releases it
/// itself.
///
/// # Errors
/// The caller is in a work item and would wait for itself; nothing has changed.
///
/// # Panics
/// In a thread hook, which must not wait.
///
/// ```standalone_crate
/// use std::time::Duration;
/// use uwork::{Queue, Shutdown};
///
/// let queue = Queue::builder("last").build()?;
/// let answer = queue.spawn(|| 42);
/// let report = uwork::shutdown(Shutdown::Drain, Duration::from_secs(10))?;
/// assert!(report.is_complete(), "{report}");
/// assert_eq!(answer.join().unwrap(), 42);
/// assert!(queue.spawn(|| 43).join().is_err());
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn shutdown(how: Shutdown, limit: Duration) -> Result<ShutdownReport, Error> {
    engine().assert_outside_hooks();
    let limit_ns = nanos(limit);
    Ok(engine().shutdown(how, limit_ns)?)
}
