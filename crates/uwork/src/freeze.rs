//! Freezing: lets every queue that was built with [`freezable`](crate::Builder::freezable) pause.
//!
//! For what must not go on while something is done to the whole process: a snapshot, a suspend, a
//! change of what all items use. Process-wide, as the kernel's is for the whole machine.
//!
//! | while frozen | |
//! |---|---|
//! | what a worker has taken | is finished |
//! | what is queued, or whose timer expires | waits for the thaw, in the order of queueing |
//! | `flush`, `drain`, `destroy`, a `join`, the last drop of a queue | wait for what waits: for the thaw |
//! | `cancel`, `disable`, `mod_delayed` | work as always |
//! | a queue that is made, retuned or limited anew | is frozen too, and has its new limits after the thaw |
//!
//! A worker takes several short items at once; all of those count as taken. Queues that do not take
//! part are not affected, and neither are items of theirs, unless they wait for frozen ones.
//!
//! ```standalone_crate
//! let queue = uwork::Queue::builder("pausing").freezable().build()?;
//! uwork::freeze::begin()?;
//! while uwork::freeze::is_busy()? {
//!     std::thread::yield_now();
//! }
//! // Nothing of the queue runs here.
//! let later = queue.spawn(|| 42);
//! uwork::freeze::thaw()?;
//! assert_eq!(later.join().unwrap(), 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use uwork_engine::FreezeError;

use crate::linux::engine;

/// Begins to freeze the queues that take part: from here on they start nothing new (the kernel's
/// `freeze_workqueues_begin`). Does not wait for what runs; [`is_busy`] tells.
///
/// # Errors
/// They are frozen already; nothing is changed.
pub fn begin() -> Result<(), FreezeError> {
    engine().freeze_begin()
}

/// Whether something that was taken before [`begin`] is still running (the kernel's
/// `freeze_workqueues_busy`). Once false, it stays so until the thaw.
///
/// # Errors
/// The queues are not frozen.
pub fn is_busy() -> Result<bool, FreezeError> {
    engine().freeze_busy()
}

/// Lets the frozen queues go on (the kernel's `thaw_workqueues`).
///
/// # Errors
/// The queues are not frozen, as after a first thaw.
pub fn thaw() -> Result<(), FreezeError> {
    engine().thaw()
}
