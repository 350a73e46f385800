//! Futures as work items.

use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use uwork_engine::handle::{Outcome, Pending, Polled, Why};
use uwork_engine::host::Host;
use uwork_engine::{Action, ItemName, QueueMemory, Queued, Work as RawWork, Wq};
use uwork_linux::futex::Forever;
use uwork_linux::{Linux, engine};

use crate::error::JoinError;
use crate::join::{JoinHandle, Joinable, panicked};
use crate::queue::Queue;

/// One future is one work item. `polled` says when the item is to be queued, and makes further
/// wake-ups do nothing.
#[repr(C)]
struct FutureTask<F: Future> {
    work: RawWork,
    /// Lives while the handle below exists, while a run of this task does, and while `polled` counts
    /// a waker inside the queue.
    wq: NonNull<Wq<Linux>>,
    /// The handle that keeps the queue in use, until the future is done. Guard: the thread that owns
    /// the future permanently.
    queue: UnsafeCell<Option<Queue>>,
    /// For wakers that are still inside the queue when its handle has gone. Guard: that thread; after
    /// its [`Polled::leave`] the thread that leaves last.
    memory: UnsafeCell<Option<QueueMemory<Linux>>>,
    /// The state that decides which thread owns the future.
    polled: Polled,
    /// The future until it is done, pinned by the task's `Arc`. Guard: `polled`.
    future: UnsafeCell<Option<F>>,
    outcome: Outcome,
    /// Guard: the thread that owns the future, until it is done; then the handle, or that thread if
    /// the handle has gone. `outcome` decides which side drops it: never the last waker.
    value: UnsafeCell<Option<Result<F::Output, JoinError>>>,
}

// SAFETY: one thread at a time owns the future, by `polled`; the outcome hands the value over.
unsafe impl<F: Future + Send> Sync for FutureTask<F> where F::Output: Send {}
// SAFETY: as above; the queue is shared by all threads.
unsafe impl<F: Future + Send> Send for FutureTask<F> where F::Output: Send {}

/// The last waker or handle of a future that is not done. It drops the future, and perhaps the last
/// handle of a queue, which it must not wait for: it may hold a lock that the queue's items take.
impl<F: Future> Drop for FutureTask<F> {
    fn drop(&mut self) {
        let (future, queue) = (self.future.get_mut(), self.queue.get_mut());
        if future.is_none() && queue.is_none() {
            return;
        }
        engine().without_last_waits(|| {
            // Dropped in here also if the future's destructor panics.
            let _queue = queue.take();
            // In place: the future is pinned.
            *future = None;
        });
    }
}

impl<F> FutureTask<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Queues the task: only after a transition of `polled` that tells the caller to. Gives the
    /// future up if the queue refuses the task: the queue is destroyed, or drains and the caller is
    /// not one of its items.
    ///
    /// The caller does not touch the task afterwards through anything but references of its own.
    fn queue(self: Arc<Self>) {
        // The run may finish the future and drop the last reference to the task. The queue itself
        // lives through the call: the caller is a run of this queue, which its end waits for, a waker
        // that `polled` counts, or the maker, which has a handle of its own.
        let queue = self.wq;
        let raw = Arc::into_raw(self);
        // SAFETY: an `Arc`'s value has an address.
        let task = unsafe { NonNull::new_unchecked(raw.cast_mut()) };
        // SAFETY: the queue lives, as explained above. The work is the first field, and the
        // reference keeps it in place until `perform` takes it back. `polled` makes this thread the
        // only one that queues it, and it is in no list: its last run has taken it, or is this one,
        // which does not use it any more.
        let outcome = unsafe { queue.as_ref().queue_unshared(task.cast()) };
        if outcome != Queued::Yes {
            // SAFETY: the queue did not take the reference.
            unsafe { Arc::from_raw(raw) }.give_up(Why::Refused);
        }
    }

    /// A waker asks for a poll.
    fn wake_task(self: &Arc<Self>) {
        if CURRENT.get() == Arc::as_ptr(self).cast() {
            // The poll in progress is on this thread. Its end takes care of that, without a locked
            // instruction here.
            WOKEN.set(true);
        } else if self.polled.wake() {
            self.clone().queue();
            self.leave();
        }
    }

    /// The calling thread does not use the queue any more.
    fn leave(&self) {
        if self.polled.leave() {
            // SAFETY: no other thread is inside the queue, and the future's last owner has left.
            let memory = unsafe { (*self.memory.get()).take() };
            engine().without_last_waits(|| drop(memory));
        }
    }

    /// Releases the queue, without a wait for its items.
    ///
    /// # Safety
    /// The caller owns the future permanently.
    unsafe fn let_go(&self) {
        // SAFETY: by this function's contract.
        let Some(queue) = (unsafe { (*self.queue.get()).take() }) else { return };
        let has_callers = self.polled.has_callers();
        if has_callers {
            // SAFETY: as above; the caller has not left yet.
            unsafe { *self.memory.get() = Some(queue.0.memory()) };
        }
        engine().without_last_waits(|| drop(queue));
        if has_callers {
            self.leave();
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

    fn poll(self: Arc<Self>) {
        if !self.polled.begin() {
            return;
        }
        // SAFETY: `begin` made this thread the owner; it succeeds only while the future exists.
        let future = unsafe { &mut *self.future.get() }.as_mut().expect("the future exists");
        // SAFETY: the future stays in the task's allocation until it is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        // SAFETY: a copy of `self` that is never dropped, and that `self` outlives: the context does
        // not leave the poll. Clones of the waker count as usual.
        let waker = ManuallyDrop::new(Waker::from(unsafe { std::ptr::read(&raw const self) }));
        let mut context = Context::from_waker(&waker);
        // A poll may run other items, which poll other futures.
        let outer = (CURRENT.replace(Arc::as_ptr(&self).cast()), WOKEN.replace(false));
        let outcome = catch_unwind(AssertUnwindSafe(|| future.poll(&mut context)));
        CURRENT.set(outer.0);
        let woken = WOKEN.replace(outer.1);
        let value = match outcome {
            Ok(Poll::Pending) => {
                match self.polled.pending(woken) {
                    Pending::Idle => {}
                    Pending::Queue => self.queue(),
                    // SAFETY: this thread owns the future from now on.
                    Pending::Drop(why) => unsafe { self.finish(Err(error(why))) },
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

    /// Drops the future, releases the queue, and completes the task.
    ///
    /// # Safety
    /// The caller owns the future, and no other thread can become its owner.
    unsafe fn finish(&self, value: Result<F::Output, JoinError>) {
        // SAFETY: by this function's contract. Pinning: the future is dropped in place.
        let drop_future = || unsafe { *self.future.get() = None };
        let drop_future = || engine().without_last_waits(drop_future);
        let dropped = catch_unwind(AssertUnwindSafe(drop_future));
        let value = match dropped {
            Ok(()) => value,
            Err(payload) => Err(panicked(payload)),
        };
        // SAFETY: written once, by the final owner; the handle reads it only after `complete`.
        unsafe { *self.value.get() = Some(value) };
        // Before the task is complete: a thread that sees the result finds the queue free.
        // SAFETY: by this function's contract.
        unsafe { self.let_go() };
        // SAFETY: live: the caller has a reference.
        if unsafe { Outcome::complete(&raw const self.outcome, &Forever) } {
            // SAFETY: the handle was dropped before, so no other thread accesses the value.
            let value = unsafe { (*self.value.get()).take() };
            let drop_value = || engine().without_last_waits(|| drop(value));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(drop_value)) {
                drop(panicked(payload));
            }
        }
    }

    /// Gives the future up; if a worker is polling it, that worker does so after the poll.
    fn give_up(&self, why: Why) {
        if self.polled.give_up(why) {
            // SAFETY: `Polled::give_up` made this thread the final owner.
            unsafe { self.finish(Err(error(why))) };
        }
    }
}

thread_local! {
    /// The task whose poll is in progress on this thread, innermost; null outside of polls.
    static CURRENT: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
    /// Whether that poll has woken its own task.
    static WOKEN: Cell<bool> = const { Cell::new(false) };
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
        self.wake_task();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_task();
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
    let task = unsafe { Arc::from_raw(task.cast::<FutureTask<F>>().as_ptr()) };
    if task.outcome.abandon() {
        // SAFETY: done, so the value is the handle's.
        drop(unsafe { (*task.value.get()).take() });
    }
}

impl Queue {
    /// Runs a future on the queue, polled as one work item, and returns a handle for its output.
    ///
    /// A wake-up while the future is queued costs a few atomic instructions. The task holds a
    /// handle of the queue until the future is done, so a queue with unfinished futures lives on, and
    /// one whose futures are done does not, whatever wakers and join handles still exist. A drop of
    /// the future by a waker or by a cancel does not wait: if it drops the last handle of a queue,
    /// another thread waits for that queue's items. The same holds for an output that no handle can
    /// take: the run that ends the future drops it. The queue may refuse a wake-up: it is destroyed,
    /// or it drains and the waker is not one of its items. That ends the future: it is dropped, and
    /// the handle returns [`JoinError::Refused`](crate::JoinError::Refused).
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
            wq: NonNull::from(&*self.0),
            queue: UnsafeCell::new(Some(self.clone())),
            memory: UnsafeCell::new(None),
            polled: Polled::new(),
            future: UnsafeCell::new(Some(future)),
            outcome: Outcome::new(),
            value: UnsafeCell::new(None),
        });
        task.clone().queue();
        // SAFETY: an `Arc`'s value has an address, and the handle owns the reference until
        // `release`.
        unsafe {
            let task = NonNull::new_unchecked(Arc::into_raw(task).cast_mut());
            JoinHandle::new(task, release::<F>, self)
        }
    }
}
