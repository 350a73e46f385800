//! Stall detection: reports items that wait behind items that do not end.
//!
//! A *stall* is one of these conditions, if it lasts for the threshold ([`thresh`], 30 seconds at
//! first):
//!
//! - an item is queued that a pool's workers could run, and none of them has begun or ended an
//!   item;
//! - an item waits for a permit of a queue (`max_active`; an ordered queue has one), and none of
//!   the items that hold them has ended;
//! - running items wait for each other.
//!
//! Each stall is reported once, as [`Report::Stalled`](crate::Report::Stalled): on standard error,
//! or to the [reporter](crate::set_reporter). The [`Stall`](crate::dump::Stall) names the queues that wait, the workers
//! that they wait for, the items on those workers and the calls that those are in; and, if items
//! wait for each other, which ones. After any progress, the next stall is a new one.
//!
//! ```text
//! uwork: nothing has moved for 30.1 s in queue "log"; 2 items wait for a permit of max_active
//!   in the way: uw/u0 (thread 4711, slot 3), waiting, in app::Append of queue "log", for at most 30.1 s
//!       0 0x7f40c2b1a7d9 __futex_abstimed_wait_common
//!       1 0x55d0a4c3f2b4 app::Disk::write (src/disk.rs:88)
//!       2 0x55d0a4c3e011 <app::Append as uwork::item::WorkItem>::run (src/log.rs:41)
//!   deadlock: item app::Append 0x7ffd10 (slot 3) of queue "log" waits for item app::Sync 0x7ffe40, which waits
//!   behind app::Commit 0x7ffe80 (slot 4) in ordered queue "disk"
//! ```
//!
//! **Deadlocks.** uwork's own waits record what they wait for: flushes,
//! `cancel_sync`, `disable_sync`, joins. Locks and channels of the program do not: for those the
//! report shows the calls and draws no conclusion. Of the pending items of a queue that are joined,
//! the first thousand are examined.
//!
//! **Cost.** Nothing while nothing waits, and no wake-up; a scan each quarter of the
//! threshold while an item waits. An item that begins a wait checks whether it waits for itself by
//! way of others.
//!
//! **Time of the report.** After the threshold, and at most half of the threshold and a second
//! later; then the time to collect the calls, up to a tenth of a second for each thread that does
//! not answer, or 5 seconds if it waits for a CPU. A thread of its own delivers the reports, one at
//! a time: a reporter that does not return delays further stalls, and nothing else. Up to 64 of
//! those are kept. A shutdown does not wait for that thread.
//!
//! **Calls** are collected by the thread itself, in the handler of a real-time signal: only on
//! threads that delay others, at most eight at a time, only the frames down to the engine's, and
//! only for a stall that is reported. The handler has `SA_RESTART`, so most system calls continue.
//! Calls that never restart after a handler return early with `EINTR`, in the item that is stuck:
//! `poll`, `select`, `epoll_wait`, `nanosleep`, `semop`, `sigtimedwait`, and sockets with a timeout
//! (signal(7)). Rust's library repeats them where it uses them; C code may not. Without the feature
//! `symbols` no calls are collected, and no signal is sent.

use std::time::Duration;

use crate::item::nanos;
use uwork_linux::{engine, started};

/// The longest threshold.
const THRESH_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// How long an item may wait without progress before that is reported (the kernel's
/// `watchdog_thresh`); zero: for ever. 30 seconds unless changed.
pub fn thresh() -> Duration {
    Duration::from_nanos(engine().watchdog_thresh())
}

/// Changes the threshold, at once; zero turns the watchdog off. The attribute tree has it as
/// `module/parameters/watchdog_thresh`, in seconds. Values below a millisecond count as a
/// millisecond, and values above 4294967295 seconds as that many. Starts uwork, so a
/// [`Setup`](crate::Setup) must be installed before.
///
/// ```
/// use std::time::Duration;
/// use uwork::watchdog;
/// watchdog::set_thresh(Duration::from_secs(10));
/// assert_eq!(watchdog::thresh(), Duration::from_secs(10));
/// watchdog::set_thresh(Duration::from_nanos(1));
/// assert_eq!(watchdog::thresh(), Duration::from_millis(1));
/// ```
pub fn set_thresh(thresh: Duration) {
    let thresh = thresh.min(THRESH_MAX);
    engine().set_watchdog_thresh(nanos(thresh));
}

/// Declares that the calling item takes long without being stuck (the kernel's
/// `wq_watchdog_touch`): items that wait for it count as stalled only after a further threshold.
/// Two stores; call it as often as you like.
///
/// Outside of items it declares this for all items.
///
/// ```
/// let queue = uwork::Queue::builder("long").ordered().build()?;
/// let sum = queue.spawn(|| {
///     (0..1_000_u64).inspect(|_| uwork::watchdog::touch()).sum::<u64>()
/// });
/// assert_eq!(sum.join().unwrap(), 499_500);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn touch() {
    // Before uwork has started no item can wait.
    if let Some(engine) = started() {
        engine.watchdog_touch();
    }
}
