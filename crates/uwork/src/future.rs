//! Futures as work items.

use std::cell::UnsafeCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use uwork_engine::handle::{Outcome, Polled, Why};
use uwork_engine::host::Host;
use uwork_engine::{Action, ItemName, Queued, Work as RawWork};
use uwork_linux::engine;
use uwork_linux::futex::Forever;

use crate::error::JoinError;
use crate::join::{JoinHandle, Joinable, panicked};
use crate::queue::Queue;

/// One future is one work item. Its pending state makes further wake-ups do nothing, and `poll`
/// requires the guarantee that an item never runs twice at once.
#[repr(C)]
struct FutureTask<F: Future> {
    work: RawWork,
    queue: Queue,
    /// The state that decides which thread owns the future.
    polled: Polled,
    /// The future until it is done, pinned by the task's `Arc`. Guard: `polled`.
    future: UnsafeCell<Option<F>>,
    outcome: Outcome,
    /// Guard: the thread that owns the future, until it is done; then the handle.
    value: UnsafeCell<Option<Result<F::Output, JoinError>>>,
}

// SAFETY: one thread at a time owns the future, by `polled`; the outcome hands the value over.
unsafe impl<F: Future + Send> Sync for FutureTask<F> where F::Output: Send {}

impl<F> FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Queues the task, unless it is pending already. Gives the future up if the queue refuses the
    /// task: the queue is destroyed, or drains and the caller is not one of its items.
    fn schedule(self: &Arc<Self>) {
        let raw = Arc::into_raw(self.clone());
        // SAFETY: an `Arc`'s value has an address, its work is the first field, and the reference
        // keeps both until `perform` takes it back. The caller's own reference keeps the queue live
        // through the call, even if `perform` drops the other reference meanwhile.
        let outcome = unsafe { self.queue.0.queue(NonNull::new_unchecked(raw.cast_mut()).cast()) };
        if outcome != Queued::Yes {
            // SAFETY: the queue did not take the reference.
            drop(unsafe { Arc::from_raw(raw) });
        }
        if matches!(outcome, Queued::Refused | Queued::Disabled) {
            self.give_up(Why::Refused);
        }
    }

    /// # Safety
    /// `work` is the first field of a task, whose reference, held by the queue, this call consumes.
    unsafe fn perform(work: NonNull<RawWork>, action: Action) {
        // SAFETY: by this function's contract.
        let task = || unsafe { Arc::from_raw(work.cast::<FutureTask<F>>().as_ptr()) };
        match action {
            Action::Run => task().poll(),
            Action::Release => task().give_up(Why::Refused),
            // SAFETY: the engine asked for the name.
            Action::Name => unsafe { ItemName::of_type::<F>(0).report(work) },
        }
    }

    fn poll(self: &Arc<Self>) {
        if !self.polled.begin() {
            return;
        }
        // SAFETY: `begin` made this thread the owner; it succeeds only while the future exists.
        let future = unsafe { &mut *self.future.get() }.as_mut().expect("the future exists");
        // SAFETY: the future stays in the task's allocation until it is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let value = match catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))) {
            Ok(Poll::Pending) => {
                if let Some(why) = self.polled.pending() {
                    // SAFETY: `pending` returned a reason, so this thread owns the future from now
                    // on.
                    unsafe { self.finish(Err(error(why))) };
                }
                return;
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(panicked(payload)),
        };
        self.polled.finished();
        // SAFETY: this thread owns the future from now on.
        unsafe { self.finish(value) };
    }

    /// Drops the future and completes the task.
    ///
    /// # Safety
    /// The caller owns the future, and no other thread can become its owner.
    unsafe fn finish(&self, value: Result<F::Output, JoinError>) {
        // SAFETY: by this function's contract. Pinning: the future is dropped in place.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { *self.future.get() = None }));
        let value = match dropped {
            Ok(()) => value,
            Err(payload) => Err(panicked(payload)),
        };
        // SAFETY: written once, by the final owner; the handle reads it only after `complete`.
        unsafe { *self.value.get() = Some(value) };
        // SAFETY: live: the caller has a reference. The result of `complete`, whether the handle
        // was dropped, does not matter, as the task is reference-counted.
        let _ = unsafe { Outcome::complete(&raw const self.outcome, &Forever) };
    }

    /// Gives the future up; if a worker is polling it, that worker does so after the poll.
    fn give_up(&self, why: Why) {
        if self.polled.give_up(why) {
            // SAFETY: `Polled::give_up` made this thread the final owner.
            unsafe { self.finish(Err(error(why))) };
        }
    }
}

/// The error that the handle of an abandoned future returns.
fn error(why: Why) -> JoinError {
    match why {
        Why::Cancelled => JoinError::Cancelled,
        Why::Refused => JoinError::Refused,
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
        self.schedule();
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

    fn is_done(&self) -> bool {
        self.outcome.is_done()
    }

    fn wait(&self) {
        self.outcome.wait(&Forever);
    }

    fn take(&self) -> Result<F::Output, JoinError> {
        // SAFETY: done, so the handle owns the value.
        unsafe { (*self.value.get()).take() }.unwrap_or(Err(JoinError::Cancelled))
    }

    fn poll_done(&self, context: &Context<'_>) -> bool {
        self.outcome.poll_done(context, |round| engine().host().relax(round))
    }

    fn cancel(&self) -> bool {
        let finished = self.outcome.is_done();
        if !finished {
            self.give_up(Why::Cancelled);
        }
        !finished
    }
}

/// # Safety
/// `task` is a `FutureTask<F>` from `Arc::into_raw`, whose reference this call consumes.
unsafe fn release<F: Future>(task: NonNull<dyn Joinable<F::Output>>) {
    // SAFETY: by this function's contract.
    drop(unsafe { Arc::from_raw(task.cast::<FutureTask<F>>().as_ptr()) });
}

impl Queue {
    /// Runs a future on the queue, polled as one work item, and returns a handle for its output.
    ///
    /// A wake-up while the future is queued costs a few atomic instructions. The task holds a
    /// handle of the queue, so a queue with unfinished futures lives on. The queue may refuse a
    /// wake-up: it is destroyed, or it drains and the waker is not one of its items. That ends the
    /// future: it is dropped, and the handle returns
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
            polled: Polled::new(),
            future: UnsafeCell::new(Some(future)),
            outcome: Outcome::new(),
            value: UnsafeCell::new(None),
        });
        task.schedule();
        // SAFETY: an `Arc`'s value has an address, and the handle owns the reference until
        // `release`.
        unsafe {
            let task = NonNull::new_unchecked(Arc::into_raw(task).cast_mut());
            JoinHandle::new(task, release::<F>, self)
        }
    }
}
