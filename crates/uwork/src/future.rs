//! Futures as work items.

use std::cell::UnsafeCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use uwork_engine::{Action, ItemName, Queued, Work as RawWork};

use crate::error::JoinError;
use crate::join::{JoinHandle, Joinable, Outcome, panicked};
use crate::queue::Queue;

/// Why an unfinished future is given up.
const CANCELLED: u8 = 1;
const REFUSED: u8 = 2;

/// One future is one work item: being pending is what makes a second wake-up do nothing, and never
/// running twice at once is what `poll` asks for.
#[repr(C)]
struct FutureTask<F: Future> {
    work: RawWork,
    queue: Queue,
    /// The future until it is done, pinned by the task's `Arc`. Polls never meet at this lock, as
    /// the item does not run twice at once; a poll and a giving-up may. User code runs under it (the
    /// future is polled and dropped in its place), so it is only ever tried, never waited for.
    future: Mutex<Option<F>>,
    /// `CANCELLED` or `REFUSED` once the future is to be given up.
    give_up: AtomicU8,
    outcome: Outcome,
    /// Guard: whoever took the future, until it is done; then the handle.
    value: UnsafeCell<Option<Result<F::Output, JoinError>>>,
}

// SAFETY: the future is locked; the value is handed over through the outcome.
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
            self.give_up(REFUSED);
        }
    }

    /// # Safety
    /// `work` is the first field of a task, whose queue's reference this call uses up.
    unsafe fn perform(work: NonNull<RawWork>, action: Action) {
        // SAFETY: by this function's contract.
        let task = || unsafe { Arc::from_raw(work.cast::<FutureTask<F>>().as_ptr()) };
        match action {
            Action::Run => task().poll(),
            Action::Release => task().give_up(REFUSED),
            // SAFETY: the engine has asked for it.
            Action::Name => unsafe { ItemName::of_type::<F>(0).tell(work) },
        }
    }

    fn poll(self: &Arc<Self>) {
        // Not waited for: what holds it runs user code. It gives the future up, or has found none.
        let Ok(mut slot) = self.future.try_lock() else { return };
        let Some(future) = slot.as_mut() else { return };
        // SAFETY: the future stays in the task's allocation until it is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let value = match catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))) {
            Ok(Poll::Pending) => {
                drop(slot);
                // After the unlock: who wanted to give the future up while we had the lock has left
                // word before it tried the lock.
                self.try_give_up();
                return;
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(panicked(payload)),
        };
        self.finish(slot, value);
    }

    /// Drops the future and completes the task. Once: the future was there.
    fn finish(&self, mut slot: MutexGuard<'_, Option<F>>, value: Result<F::Output, JoinError>) {
        // SAFETY of pinning: dropped in place.
        let dropped = catch_unwind(AssertUnwindSafe(|| *slot = None));
        drop(slot);
        let value = match dropped {
            Ok(()) => value,
            Err(payload) => Err(panicked(payload)),
        };
        // SAFETY: once: only who found the future comes here, and the handle does not look yet.
        unsafe { *self.value.get() = Some(value) };
        // SAFETY: live: the caller has a reference. Whether the handle is gone does not matter, as
        // the task's references are counted.
        let _ = unsafe { Outcome::complete(&raw const self.outcome) };
    }

    /// Leaves word that the future is to be given up, and does it unless it is being polled.
    fn give_up(&self, why: u8) {
        let _ = self.give_up.compare_exchange(0, why, Ordering::SeqCst, Ordering::SeqCst);
        self.try_give_up();
    }

    fn try_give_up(&self) {
        let error = match self.give_up.load(Ordering::SeqCst) {
            0 => return,
            CANCELLED => JoinError::Cancelled,
            _ => JoinError::Refused,
        };
        if let Ok(slot) = self.future.try_lock()
            && slot.is_some()
        {
            self.finish(slot, Err(error));
        }
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
        self.outcome.wait();
    }

    fn take(&self) -> Result<F::Output, JoinError> {
        // SAFETY: done, so the value is the handle's.
        unsafe { (*self.value.get()).take() }.unwrap_or(Err(JoinError::Cancelled))
    }

    fn poll_done(&self, context: &Context<'_>) -> bool {
        self.outcome.poll_done(context)
    }

    fn cancel(&self) -> bool {
        let finished = self.outcome.is_done();
        if !finished {
            self.give_up(CANCELLED);
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
            future: Mutex::new(Some(future)),
            give_up: AtomicU8::new(0),
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
