//! Freezing: pauses every queue that was built with [`freezable`](crate::Builder::freezable).
//!
//! For an operation on the whole process during which such items must not run: a snapshot, a
//! suspend, a change to data that all items use. Process-wide, as the kernel's freeze is
//! machine-wide.
//!
//! | while frozen | |
//! |---|---|
//! | an item that a worker has taken | is finished |
//! | an item that is queued, or whose timer expires | waits for the thaw, in the order of queueing |
//! | `flush`, `drain`, `destroy`, a `join`, the last drop of a queue | wait for these items, so for the thaw |
//! | `cancel`, `disable`, `mod_delayed` | work as usual |
//! | a queue that is made, or whose attributes change | is frozen too, and has its new limits after the thaw |
//!
//! A worker takes several short items at once; all of those count as taken. Queues that do not take
//! part, and their items, are not affected, unless an item waits for a frozen one.
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
use uwork_linux::engine;

/// Begins to freeze the queues that take part: from now on they start no further items (the
/// kernel's `freeze_workqueues_begin`). Does not wait for running items; [`is_busy`] reports them.
///
/// # Errors
/// They are frozen already; nothing changes.
pub fn begin() -> Result<(), FreezeError> {
    engine().freeze_begin()
}

/// Whether an item that was taken before [`begin`] is still running (the kernel's
/// `freeze_workqueues_busy`). Once false, it stays so until the thaw.
///
/// # Errors
/// The queues are not frozen.
pub fn is_busy() -> Result<bool, FreezeError> {
    engine().freeze_busy()
}

/// Resumes the frozen queues (the kernel's `thaw_workqueues`).
///
/// # Errors
/// The queues are not frozen, as after a first thaw.
pub fn thaw() -> Result<(), FreezeError> {
    engine().thaw()
}
