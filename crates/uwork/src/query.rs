//! The item that the calling thread runs, and its description.

use std::fmt;

use uwork_engine::Work as RawWork;
use uwork_linux::engine;

/// The identity of a work item, unique as long as that item exists. A later item at the same
/// address has the same identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(usize);

impl WorkId {
    pub(crate) fn of(work: &RawWork) -> WorkId {
        WorkId(std::ptr::from_ref(work).addr())
    }
}

impl fmt::Debug for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkId({:#x})", self.0)
    }
}

/// The item that the calling thread runs; the innermost one, if a wait inside an item runs another.
/// `None` outside of items. A spawned closure or future is an item as well.
///
/// ```
/// use std::pin::Pin;
///
/// struct Job { work: uwork::Work<Job> }
/// uwork::has_work!(impl HasWork for Job { work });
/// impl uwork::WorkItem for Job {
///     type Pointer = Pin<Box<Job>>;
///     fn run(this: Pin<Box<Job>>) {
///         assert_eq!(uwork::current_work(), Some(this.work.id()));
///     }
/// }
/// let queue = uwork::Queue::builder("who").build()?;
/// assert!(queue.enqueue(Box::pin(Job { work: uwork::Work::new() })).is_queued());
/// queue.flush()?;
/// assert_eq!(uwork::current_work(), None);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn current_work() -> Option<WorkId> {
    engine().current_work().map(|running| WorkId(running.item))
}

/// Describes the current run of the item that the calling thread runs, for
/// [`Work::description`](crate::Work::description) and dumps. It holds for this run only, until the
/// next call in it. The first 31 bytes of `text` are kept, fewer if that would cut a character.
///
/// Outside of items it does nothing and returns false.
///
/// ```
/// let queue = uwork::Queue::builder("described").build()?;
/// assert!(queue.spawn(|| uwork::set_worker_desc("index 7 of 12")).join().unwrap());
/// assert!(!uwork::set_worker_desc("this is no item"));
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn set_worker_desc(text: &str) -> bool {
    engine().describe(text)
}
