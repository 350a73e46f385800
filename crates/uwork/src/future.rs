//! Futures as work items.

use std::cell::UnsafeCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use uwork_engine::{Action, Queued, Work as RawWork};

use crate::error::JoinError;
use crate::join::{JoinHandle, Joinable, Outcome, panicked};
use crate::queue::Queue;

/// One future is one work item: being pending is what makes a second wake-up do nothing, and never
/// running twice at once is what `poll` asks for.
#[repr(C)]
struct FutureTask<F: Future> {
    work: RawWork,
    queue: Queue,
    /// The future until it is done, and pinned by the task's `Arc`. Guard: the item's run.
    future: UnsafeCell<Option<F>>,
    outcome: Outcome<F::Output>,
}

// SAFETY: the future is only touched by the item's run, of which there is one at a time; each sees
// what the one before did. The outcome is `Sync`.
unsafe impl<F: Future + Send> Sync for FutureTask<F> where F::Output: Send {}
// SAFETY: the future and its output may change threads.
unsafe impl<F: Future + Send> Send for FutureTask<F> where F::Output: Send {}

impl<F> FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Queues the task, unless it is pending already. False if the queue did not want it.
    fn schedule(self: Arc<Self>) -> bool {
        let raw = Arc::into_raw(self);
        // SAFETY: an `Arc`'s value has an address, its work is the first field, and the reference
        // keeps both until `perform` takes it back.
        let outcome = unsafe {
            let work = NonNull::new_unchecked(raw.cast_mut()).cast();
            (*raw).queue.0.queue(work)
        };
        if outcome != Queued::Yes {
            // SAFETY: the queue did not take the reference.
            drop(unsafe { Arc::from_raw(raw) });
        }
        matches!(outcome, Queued::Yes | Queued::AlreadyPending)
    }

    /// # Safety
    /// `work` is the first field of a task, whose queue's reference this call uses up.
    unsafe fn perform(work: NonNull<RawWork>, action: Action) {
        // SAFETY: by this function's contract.
        let task = unsafe { Arc::from_raw(work.cast::<FutureTask<F>>().as_ptr()) };
        if action == Action::Run {
            task.poll();
        }
    }

    fn poll(self: &Arc<Self>) {
        // SAFETY: an item never runs twice at once, and each run sees what the one before did.
        let slot = unsafe { &mut *self.future.get() };
        let Some(future) = slot.as_mut() else { return };
        // SAFETY: the future stays in the task's allocation until it is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let value = match catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))) {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(panicked(payload)),
        };
        *slot = None;
        self.outcome.complete(value);
    }
}

impl<F> Wake for FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.schedule();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().schedule();
    }
}

impl<F> Joinable<F::Output> for FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn work(&self) -> &RawWork {
        &self.work
    }

    fn outcome(&self) -> &Outcome<F::Output> {
        &self.outcome
    }

    fn forget(&self) {
        // SAFETY: after a cancel the item is the caller's.
        unsafe { *self.future.get() = None };
    }
}

impl Queue {
    /// Runs a future on the queue, polled as one work item, and returns a handle for its output.
    ///
    /// Wake-ups while it is queued cost one atomic instruction. The task holds the queue: a queue
    /// with unfinished futures stays. On a queue that is destroyed the handle says
    /// [`JoinError::Refused`](crate::JoinError::Refused).
    ///
    /// ```
    /// let queue = uwork::Queue::builder("futures").build()?;
    /// let inner = queue.clone();
    /// let answer = queue.spawn_future(async move {
    ///     let six = inner.spawn(|| 6).await.unwrap();
    ///     six * 7
    /// });
    /// assert_eq!(answer.join().unwrap(), 42);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn spawn_future<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = Arc::new(FutureTask {
            work: RawWork::new(FutureTask::<F>::perform),
            queue: self.clone(),
            future: UnsafeCell::new(Some(future)),
            outcome: Outcome::new(),
        });
        if !task.clone().schedule() {
            task.forget();
            task.outcome.complete(Err(JoinError::Refused));
        }
        JoinHandle::new(task, self.clone())
    }
}
