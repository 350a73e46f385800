//! When nothing moves: work that waits behind items that do not end is reported by itself.
//!
//! A *stall* is one of these, for as long as the threshold ([`thresh`], 30 seconds at first):
//!
//! - something is queued that a pool's workers could run, and none of them has begun or ended an item;
//! - something waits for a place in a queue (`max_active`; an ordered queue has one), and none of the items that
//!   have them has ended;
//! - items that run wait for each other.
//!
//! Each is reported once, as [`Report::Stalled`](crate::Report::Stalled): on standard error, or to the
//! [reporter](crate::set_reporter). The [`Stall`] says which queues wait, who is in the way, what that
//! runs and in which calls it is; and, if items wait for each other, which ones. When something has moved, the next
//! stall is a new one.
//!
//! ```text
//! uwork: nothing has moved for 30.1 s in queue "log"; 2 items wait for a place under max_active
//!   in the way: uw/u0 (thread 4711, slot 3), waiting, in app::Append of queue "log", for at most 30.1 s
//!       0 0x7f40c2b1a7d9 __futex_abstimed_wait_common
//!       1 0x55d0a4c3f2b4 app::Disk::write (src/disk.rs:88)
//!       2 0x55d0a4c3e011 <app::Append as uwork::item::WorkItem>::run (src/log.rs:41)
//!   deadlock: item app::Append 0x7ffd10 (slot 3) of queue "log" waits for item app::Sync 0x7ffe40, which waits
//!   behind app::Commit 0x7ffe80 (slot 4) in ordered queue "disk"
//! ```
//!
//! **What is known of a deadlock.** uwork's own waits say what they wait for: flushes, `cancel_sync`, `disable_sync`,
//! joins. Locks and channels of the program do not: of those the calls are shown, and nothing is concluded. Of items
//! that are pending and joined, the first thousand of their queue are looked through.
//!
//! **What it costs.** Nothing while nothing waits, and no wake-up; a look each quarter of the threshold while
//! something does. An item that begins a wait looks whether it waits for itself by way of others.
//!
//! **When it comes.** After the threshold, and at most half of the threshold and a second later; then what it takes
//! to ask for the calls, up to a tenth of a second for each thread that does not answer. It is told by a thread of
//! its own, one at a time: a reporter that does not return holds up further stalls, and nothing else. Of those 64
//! are kept. Nobody waits for it at a shutdown.
//!
//! **Calls** are taken by the thread itself, in the handler of a real-time signal, only of threads that are in the
//! way, of eight at most at a time, up to where the engine begins, and only for a stall that is reported. The
//! handler has `SA_RESTART`, so most system
//! calls go on; but
//! those that never do after a handler has run return early with `EINTR`, in the item that is stuck: `poll`,
//! `select`,
//! `epoll_wait`, `nanosleep`, `semop`, `sigtimedwait`, and sockets with a timeout (signal(7)). Rust's library
//! repeats them where it uses them; C code may not. Without the feature `symbols` no calls are taken, and no
//! signal is sent.

use std::time::Duration;

pub use uwork_engine::dump::{Awaited, DeadlockedItem, NoCalls, Stall, StalledWorker, Wants};
pub use uwork_engine::host::Frame;

use crate::linux::{engine, started};

/// The longest threshold.
const THRESH_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// For how long work may wait with nothing moving before that is reported (the kernel's `watchdog_thresh`); zero:
/// for ever. 30 seconds unless it was changed.
pub fn thresh() -> Duration {
    Duration::from_nanos(engine().watchdog_thresh())
}

/// Changes the threshold, at once; zero turns the watchdog off. The attribute tree has it as
/// `module/parameters/watchdog_thresh`, in seconds. Less than a millisecond is taken for a millisecond, and more than
/// 4294967295 seconds for as many. Starts uwork, so a [`Setup`](crate::Setup) comes before it.
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
    engine().set_watchdog_thresh(u64::try_from(thresh.as_nanos()).unwrap_or(u64::MAX));
}

/// The calling item takes long, and is fine (the kernel's `wq_watchdog_touch`): what waits for it is no stall
/// before the threshold is over again. Two stores; call it as often as you like.
///
/// Outside of items it says so for everything.
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
    // Before uwork has started there is nothing that could wait.
    if let Some(engine) = started() {
        engine.watchdog_touch();
    }
}
