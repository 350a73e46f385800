//! Work items on the stack, for functions that borrow.
//!
//! An item must stay where it is until the engine has let go of it, and what its function borrows must
//! stay as long. A value that frees itself in its destructor cannot promise that:
//!
//! - A pinned box may be leaked. The item in it then stays, but what it borrows does not, and its
//!   function would still run.
//! - Its own function may drop it. A destructor that waits for the run would wait for itself; one that
//!   does not would free the function under its own feet.
//!
//! So the item belongs to a function here, [`on_stack`], as with `std::thread::scope`: users only get
//! references, which they can neither move from nor keep. It returns, or unwinds, when the engine does
//! not know the item any more: see `uwork_engine::handle::Held`. The wait for that cannot be for the caller itself:
//! a run on this thread began inside `body`, and is over before `body` is.

use std::fmt;
use std::marker::PhantomPinned;
use std::ptr::NonNull;
use std::time::Duration;

use uwork_engine::handle::Held;
use uwork_engine::{Action, Busy, Delayed, ItemName, Queued, Work as RawWork, WorkFn};

use crate::delayed::nanos;
use crate::item::Enqueued;
use crate::linux::{Linux, engine};
use crate::query::WorkId;
use crate::queue::Queue;

/// A work item on the stack. From [`on_stack`].
#[repr(C)]
pub struct StackWork {
    /// First, so that the address of its work is that of the frame.
    raw: Delayed<Linux>,
    /// Queueings that have not come to their end.
    held: Held,
    pinned: PhantomPinned,
}

// SAFETY: everything in it is reached through the engine's protocols only, or atomic.
unsafe impl Sync for StackWork {}

#[repr(C)]
struct Frame<F> {
    /// First, so that the address of its work is that of the frame.
    item: StackWork,
    function: F,
}

/// # Safety
/// `work` is the first field of a live `Frame<F>`, and was queued once for this call.
unsafe fn perform<F: Fn(&StackWork)>(work: NonNull<RawWork>, action: Action) {
    if action == Action::Name {
        // SAFETY: the engine has asked for it.
        return unsafe { ItemName::of_type::<F>(0).tell(work) };
    }
    // The work may have been reached by a reference to it alone; the frame's provenance was exposed
    // when it was made.
    let frame = std::ptr::with_exposed_provenance::<Frame<F>>(work.addr().get());
    // SAFETY: by this function's contract; and the frame stays until the run is over, or, for a
    // release, until `held` was counted down.
    let frame = unsafe { &*frame };
    // For a release the last touch: the frame may be gone afterwards.
    frame.item.held.end_one();
    if action == Action::Run {
        (frame.function)(&frame.item);
    }
}

impl StackWork {
    fn new(func: WorkFn) -> StackWork {
        StackWork { raw: Delayed::new(func), held: Held::new(), pinned: PhantomPinned }
    }

    fn raw(&self) -> NonNull<RawWork> {
        NonNull::from(&self.raw).cast()
    }

    fn offer(&self, queue: impl FnOnce() -> Queued) -> Enqueued<()> {
        match self.held.offer(queue) {
            Queued::Yes => Enqueued::Queued,
            Queued::AlreadyPending => Enqueued::Pending(()),
            Queued::Disabled => Enqueued::Disabled(()),
            Queued::Refused => Enqueued::Refused(()),
        }
    }

    /// Queues the item, as [`Queue::enqueue`]. `Disabled` when the end of [`on_stack`] has come.
    pub fn enqueue(&self, queue: &Queue) -> Enqueued<()> {
        // SAFETY: the item stays live and in place until it is idle (`End`).
        self.offer(|| unsafe { queue.0.queue(self.raw()) })
    }

    /// Queues the item after `delay`, as [`Queue::enqueue_delayed`].
    pub fn enqueue_delayed(&self, queue: &Queue, delay: Duration) -> Enqueued<()> {
        let raw = NonNull::from(&self.raw);
        // SAFETY: as in `enqueue`.
        let outcome = || unsafe { queue.0.queue_delayed(None, raw, nanos(delay)) };
        self.offer(|| outcome().unwrap_or(Queued::Refused))
    }

    /// Whether the item is queued or armed.
    pub fn is_pending(&self) -> bool {
        self.raw.work().is_pending()
    }

    /// Whether the item is pending, and whether it runs. See [`Work::busy`](crate::Work::busy).
    pub fn busy(&self) -> Busy {
        engine().busy(self.raw.work())
    }

    /// See [`Work::id`](crate::Work::id).
    pub fn id(&self) -> WorkId {
        WorkId::of(self.raw.work())
    }

    /// See [`Work::description`](crate::Work::description).
    pub fn description(&self) -> Option<String> {
        engine().description(self.raw.work())
    }

    /// Takes the item off its queue or its timer, without waiting for a run. True if it was pending.
    pub fn cancel(&self) -> bool {
        // SAFETY: live, and only ever queued on the process's engine.
        unsafe { self.held.cancel(engine(), self.raw()) }
    }

    /// Queues the item at once if it is armed, and waits until its last queueing has run. False if it
    /// was idle, or if the caller is inside it.
    pub fn flush(&self) -> bool {
        // SAFETY: as in `cancel`.
        unsafe { engine().flush_delayed(NonNull::from(&self.raw)) }
    }
}

impl fmt::Debug for StackWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackWork").field("pending", &self.is_pending()).finish()
    }
}

/// Ends the item's life, also where `body` unwinds.
struct End<'a>(&'a StackWork);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let item = self.0;
        // SAFETY: live, and only ever queued on the process's engine; `body` is over.
        if unsafe { item.held.end(engine(), item.raw()) }.is_err() {
            // No other caller can disable it. The frame must not go away on a guess.
            std::process::abort();
        }
    }
}

/// Runs `body` with a work item on this function's stack frame that calls `function`; both may borrow
/// what is around. On the way out the item is taken off its queue or timer, and a run that is going on
/// is waited for: flush it where it has to have run. Returns what `body` returns.
///
/// Allocates nothing. `function` is called once for each queueing and never twice at once; it gets the
/// item, which it may queue again. A panic in it ends that run only, as for any item.
///
/// # Panics
/// If `body` does; the item is dealt with before.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let queue = uwork::Queue::builder("on-stack").build()?;
/// let runs = AtomicU32::new(0);
/// uwork::on_stack(
///     |_| { runs.fetch_add(1, Ordering::Relaxed); },
///     |item| {
///         assert!(item.enqueue(&queue).is_queued());
///         item.flush();
///     },
/// );
/// assert_eq!(runs.load(Ordering::Relaxed), 1);
/// # Ok::<(), uwork::Error>(())
/// ```
///
/// Neither the item nor what it borrows can be kept beyond the call:
///
/// ```compile_fail
/// let mut kept = None;
/// uwork::on_stack(|_| (), |item| kept = Some(item));
/// ```
pub fn on_stack<F, B, R>(function: F, body: B) -> R
where
    F: Fn(&StackWork) + Sync,
    B: FnOnce(&StackWork) -> R,
{
    let frame = Frame { item: StackWork::new(perform::<F>), function };
    let _ = (&raw const frame).expose_provenance();
    // Dropped before the frame.
    let _end = End(&frame.item);
    body(&frame.item)
}
