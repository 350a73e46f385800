//! Ending in order.

use std::time::Duration;

use uwork_engine::{Shutdown, ShutdownReport};

use crate::error::Error;
use crate::linux::engine;

/// Ends the work of this process's queues, the system queues among them, within `limit`, and says what
/// did not end.
///
/// From the call on, queues take nothing from outside of items; from its end on, nothing at all: what is
/// queued is refused, also on queues that are made later. Delayed items that are armed are let go of.
/// With [`Shutdown::Drain`] everything that is queued runs, and so does what running items queue, on
/// whatever queue. With [`Shutdown::Cancel`] what has not started is let go of (its join handles
/// say [`JoinError::Cancelled`](crate::JoinError::Cancelled)), and what running items queue is refused;
/// runs that are going on are waited for in both. Nothing is killed: what does not end in time goes on,
/// and so does what a drain has left pending. Afterwards idle workers end.
///
/// A second call does the same for what the first one left: a `Cancel` after a `Drain` that took too long
/// takes off what is pending. Several calls at once each do that. There is no way back.
///
/// Destructors of what is let go of run with nothing held, one after the other, on a thread that the call makes for
/// them, as one that never returns cannot be stopped; where one takes longer than 10 ms, further ones run beside it.
/// They get at least 50 ms, however small `limit` is. Then the report names those that have not returned, and
/// counts the items behind them; those are still pending, and can be taken back. Where nothing is let go of, no thread
/// is made; where none can be made, the call itself runs the destructors. They are treated as if they ran in an item:
/// they may cancel, flush, join and queue, and cannot wait for their own queue. A thread that flushes or joins an item
/// that is about to be let go of does that itself.
///
/// # Errors
/// The caller is in a work item and would wait for itself; nothing was done.
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
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Ok(engine().shutdown(how, limit_ns)?)
}
