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

use crate::error::JoinError;
use crate::join::{JoinHandle, Joinable, panicked};
use crate::linux::engine;
use crate::linux::futex::Forever;
use crate::queue::Queue;

/// One future is one work item: being pending is what makes a second wake-up do nothing, and never
/// running twice at once is what `poll` asks for.
#[repr(C)]
struct FutureTask<F: Future> {
    work: RawWork,
    queue: Queue,
    /// Which thread has the future.
    polled: Polled,
    /// The future until it is done, pinned by the task's `Arc`. Guard: `polled`.
    future: UnsafeCell<Option<F>>,
    outcome: Outcome,
    /// Guard: the thread that has the future, until it is done; then the handle.
    value: UnsafeCell<Option<Result<F::Output, JoinError>>>,
}

// SAFETY: the future belongs to one thread at a time, by `polled`; the value is handed over through the outcome.
unsafe impl<F: Future + Send> Sync for FutureTask<F> where F::Output: Send {}

impl<F> FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Queues the task, unless it is pending already. Gives the future up if the queue is
    /// destroyed, or drains for somebody else.
    fn schedule(self: &Arc<Self>) {
        let raw = Arc::into_raw(self.clone());
        // SAFETY: an `Arc`'s value has an address, its work is the first field, and the reference
        // keeps both until `perform` takes it back. The caller's reference keeps the queue through
        // the call, whatever becomes of the other one.
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
    /// `work` is the first field of a task, whose queue's reference this call uses up.
    unsafe fn perform(work: NonNull<RawWork>, action: Action) {
        // SAFETY: by this function's contract.
        let task = || unsafe { Arc::from_raw(work.cast::<FutureTask<F>>().as_ptr()) };
        match action {
            Action::Run => task().poll(),
            Action::Release => task().give_up(Why::Refused),
            // SAFETY: the engine has asked for it.
            Action::Name => unsafe { ItemName::of_type::<F>(0).tell(work) },
        }
    }

    fn poll(self: &Arc<Self>) {
        if !self.polled.begin() {
            return;
        }
        // SAFETY: ours by `begin`, which also says that it was not dropped.
        let future = unsafe { &mut *self.future.get() }.as_mut().expect("it is not gone");
        // SAFETY: the future stays in the task's allocation until it is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let value = match catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))) {
            Ok(Poll::Pending) => {
                if let Some(why) = self.polled.pending() {
                    // SAFETY: ours for good, as `pending` has said why.
                    unsafe { self.finish(Err(error(why))) };
                }
                return;
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(panicked(payload)),
        };
        self.polled.finished();
        // SAFETY: ours for good.
        unsafe { self.finish(value) };
    }

    /// Drops the future and completes the task.
    ///
    /// # Safety
    /// The caller has the future for good.
    unsafe fn finish(&self, value: Result<F::Output, JoinError>) {
        // SAFETY: by this function's contract. Of pinning: dropped in place.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { *self.future.get() = None }));
        let value = match dropped {
            Ok(()) => value,
            Err(payload) => Err(panicked(payload)),
        };
        // SAFETY: once: one thread has the future for good, and the handle does not look yet.
        unsafe { *self.value.get() = Some(value) };
        // SAFETY: live: the caller has a reference. Whether the handle is gone does not matter, as
        // the task's references are counted.
        let _ = unsafe { Outcome::complete(&raw const self.outcome, &Forever) };
    }

    /// Gives the future up, or lets the worker that polls it do so.
    fn give_up(&self, why: Why) {
        if self.polled.give_up(why) {
            // SAFETY: ours for good.
            unsafe { self.finish(Err(error(why))) };
        }
    }
}

/// What the handle of a future that was given up says.
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
        // SAFETY: done, so the value is the handle's.
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
/// `task` is a `FutureTask<F>` from `Arc::into_raw`, whose reference this call uses up.
unsafe fn release<F: Future>(task: NonNull<dyn Joinable<F::Output>>) {
    // SAFETY: by this function's contract.
    drop(unsafe { Arc::from_raw(task.cast::<FutureTask<F>>().as_ptr()) });
}

impl Queue {
    /// Runs a future on the queue, polled as one work item, and returns a handle for its output.
    ///
    /// Wake-ups while it is queued cost a few atomic instructions. The task holds the queue: a
    /// queue with unfinished futures stays. A wake-up that the queue refuses, because it is
    /// destroyed or drains and the waker is not one of its items, ends the future: it is dropped,
    /// and the handle says [`JoinError::Refused`](crate::JoinError::Refused).
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
        // SAFETY: an `Arc`'s value has an address, and the reference is the handle's until
        // `release`.
        unsafe {
            let task = NonNull::new_unchecked(Arc::into_raw(task).cast_mut());
            JoinHandle::new(task, release::<F>, self)
        }
    }
}
