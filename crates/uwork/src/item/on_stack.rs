//! Work items on the stack, for functions that borrow.
//!
//! An item must stay in place until the engine has released it, and the data that its function
//! borrows must live as long. A value that frees itself in its destructor cannot guarantee that:
//!
//! - A pinned box may be leaked. The item in it then stays, but the borrowed data does not, and the
//!   item's function would still run.
//! - Its own function may drop it. A destructor that waits for the run would wait for itself; one
//!   that does not wait would free the function while it runs.
//!
//! So a function owns the item: [`on_stack`], in the manner of `std::thread::scope`. Users get
//! references only, which they can neither move from nor keep. The function returns, or unwinds,
//! when the engine no longer refers to the item: see `uwork_engine::handle::Held`. That wait cannot
//! be for the caller itself: a run on this thread began inside `body`, and ends before `body` does.

use std::fmt;
use std::marker::PhantomPinned;
use std::ptr::NonNull;
use std::time::Duration;

use uwork_engine::handle::Held;
use uwork_engine::{Action, Delayed, ItemName, Queued, Work as RawWork, WorkFn};

use super::{Enqueued, nanos, query_methods};
use crate::queue::Queue;
use uwork_linux::futex::Forever;
use uwork_linux::{Linux, engine, forks};

/// A work item on the stack. From [`on_stack`].
#[repr(C)]
pub struct StackWork {
    /// First, so that the address of its work is that of the frame.
    raw: Delayed<Linux>,
    /// Queueings that have not ended.
    held: Held,
    pinned: PhantomPinned,
}

// SAFETY: all fields are atomic or accessed through the engine's protocols only.
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
        // SAFETY: the engine asked for the name.
        return unsafe { ItemName::of_type::<F>(0).report(work) };
    }
    // The caller may hold a reference to the work alone. The provenance of the frame was exposed
    // when it was made.
    let frame = std::ptr::with_exposed_provenance::<Frame<F>>(work.addr().get());
    // SAFETY: by this function's contract. The frame stays until the run is over, or, for a
    // release, until `held` was decremented.
    let frame = unsafe { &*frame };
    // SAFETY: as above. For a release this is the last access: the frame may be freed by then.
    unsafe { Held::end_one(&raw const frame.item.held, forks(), &Forever) };
    if action == Action::Run {
        (frame.function)(&frame.item);
    }
}

impl StackWork {
    fn new(func: WorkFn) -> StackWork {
        StackWork { raw: Delayed::new(func), held: Held::new(), pinned: PhantomPinned }
    }

    fn work(&self) -> &RawWork {
        self.raw.work()
    }

    query_methods!();

    /// The queueings of this process, which may be a child of the one that made the frame.
    fn held(&self) -> &Held {
        self.held.settle(forks(), || self.busy() != crate::Busy::default());
        &self.held
    }

    fn offer(&self, queue: impl FnOnce() -> Queued) -> Enqueued<()> {
        match self.held().offer(forks(), &Forever, queue) {
            Queued::Yes => Enqueued::Queued,
            Queued::AlreadyPending => Enqueued::Pending(()),
            Queued::Disabled => Enqueued::Disabled(()),
            Queued::Refused => Enqueued::Refused(()),
        }
    }

    /// Queues the item, as [`Queue::enqueue`]. `Disabled` once [`on_stack`] is ending.
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

    /// Takes the item off its queue or its timer, without waiting for a run. True if it was
    /// pending.
    pub fn cancel(&self) -> bool {
        // SAFETY: live, and only ever queued on the process's engine.
        unsafe { self.held().cancel(engine(), self.raw(), forks(), &Forever) }
    }

    /// If the item is armed, queues it at once; then waits until its last queueing has run. False
    /// if it was idle, or if the caller is inside it.
    pub fn flush(&self) -> bool {
        engine().assert_may_wait();
        // SAFETY: as in `cancel`.
        unsafe { engine().flush_delayed(NonNull::from(&self.raw)) }
    }
}

impl fmt::Debug for StackWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackWork").field("pending", &self.is_pending()).finish()
    }
}

/// Ends the item's life, also if `body` unwinds.
struct End<'a>(&'a StackWork);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let item = self.0;
        // SAFETY: live, and only ever queued on the process's engine; `body` has ended.
        if unsafe { item.held().end(engine(), item.raw(), forks(), &Forever) }.is_err() {
            // Only this call disables the item, so an error cannot occur; to return without proof
            // would free a live frame.
            std::process::abort();
        }
    }
}

/// Runs `body` with a work item on this function's stack frame that calls `function`; both may
/// borrow from the enclosing frames. Before it returns, it takes the item off its queue or timer,
/// and waits for a run in progress: if the item must have run, flush it in `body`. Returns what
/// `body` returns.
///
/// In a forked child the item is idle if it was pending or ran at the fork, unless its queue is
/// [inherited](crate::Builder::fork_inherited); the call returns there as well.
///
/// Allocates nothing. `function` is called once for each queueing and never twice at once. It
/// receives the item, which it may queue again. A panic in it ends that run only, as for any item.
///
/// # Panics
/// If `body` panics; the item is idle by then. In a thread hook, before `body` is called.
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
/// Neither the item nor the data that it borrows can be kept beyond the call:
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
    engine().assert_outside_hooks();
    let frame = Frame { item: StackWork::new(perform::<F>), function };
    let _ = (&raw const frame).expose_provenance();
    // Dropped before the frame.
    let _end = End(&frame.item);
    body(&frame.item)
}
