//! Errors of items and handles, and their texts.

use std::any::Any;
use std::fmt;

use uwork_engine::payload::payload_text;
use uwork_linux::Error;

/// A call that queues an item failed. The item is unchanged, and is returned in here.
///
/// As an [`Error`], by `?` for example, the text is the same and the item is dropped.
///
/// ```
/// use uwork::{Queue, Work};
/// struct Job { work: Work<Job> }
/// uwork::has_work!(impl HasWork for Job { work });
/// impl uwork::WorkItem for Job {
///     type Pointer = std::pin::Pin<Box<Job>>;
///     fn run(_this: Self::Pointer) {}
/// }
/// let queue = Queue::builder("rejected").build()?;
/// let job = Box::pin(Job { work: Work::new() });
/// let Err(rejected) = queue.enqueue_on(1_000_000, job) else { panic!("no such CPU") };
/// eprintln!("{rejected}");
/// assert!(queue.enqueue(rejected.item).is_queued());
/// # Ok::<(), uwork::Error>(())
/// ```
pub struct RejectedError<P> {
    /// The item.
    pub item: P,
    /// The reason.
    pub error: Error,
}

impl<P> fmt::Debug for RejectedError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejectedError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<P> fmt::Display for RejectedError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<P> std::error::Error for RejectedError<P> {}

impl<P> From<RejectedError<P>> for Error {
    fn from(rejected: RejectedError<P>) -> Error {
        rejected.error
    }
}

/// Why a joined item has no result.
#[non_exhaustive]
pub enum JoinError {
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// It was cancelled before it started.
    Cancelled,
    /// The queue drained or was destroyed when the item was to be queued.
    Refused,
    /// The caller is inside the item, or in another item of its ordered queue: it would wait for
    /// itself.
    WouldDeadlock,
    /// The caller is in a forked child, and the item belongs to its parent: it does not run in the
    /// child.
    Forked,
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(payload) => match payload_text(&**payload) {
                Some(text) => write!(f, "the item panicked: {text}"),
                None => f.write_str("the item panicked"),
            },
            JoinError::Cancelled => f.write_str("the item was cancelled before it started"),
            JoinError::Refused => {
                f.write_str("the queue was draining or destroyed and took no more items")
            }
            JoinError::WouldDeadlock => f.write_str("the caller would wait for itself"),
            JoinError::Forked => f.write_str(
                "the item belongs to the parent process; it does not run in this one, a forked child",
            ),
        }
    }
}

impl std::error::Error for JoinError {}
