//! Closures as work items, and handles to wait for them.

use std::any::Any;
use std::cell::UnsafeCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use uwork_engine::{Action, Helped, Queued, Work as RawWork};

use crate::error::JoinError;
use crate::linux::{Event, count_panic, engine};
use crate::queue::Queue;

/// Waits for a spawned closure or future, and gets its result. Dropping it lets the item go on
/// unwatched.
///
/// A handle is also a future: `handle.await` is [`JoinHandle::join`] without blocking a thread.
pub struct JoinHandle<R> {
    task: Arc<dyn Joinable<R>>,
    queue: Queue,
}

/// What a handle needs of its task, whatever the task runs.
pub(crate) trait Joinable<R>: Send + Sync {
    fn work(&self) -> &RawWork;
    fn outcome(&self) -> &Outcome<R>;
    /// Takes the task back if it has not finished; see [`JoinHandle::cancel`].
    fn cancel(self: Arc<Self>) -> bool;
}

/// A result on its way from the item to its handle.
pub(crate) struct Outcome<R> {
    /// Who waits: a thread on `event`, or the waker in `waker`.
    state: AtomicU32,
    event: Event,
    waker: Mutex<Option<Waker>>,
    /// Written by the item before `event` is set, read by the handle after.
    value: UnsafeCell<Option<Result<R, JoinError>>>,
}

/// A waker was left.
const WAKER: u32 = 1;

// SAFETY: `value` is handed over through `event`.
unsafe impl<R: Send> Sync for Outcome<R> {}

impl<R> Outcome<R> {
    pub(crate) fn new() -> Outcome<R> {
        Outcome {
            state: AtomicU32::new(0),
            event: Event::default(),
            waker: Mutex::new(None),
            value: UnsafeCell::new(None),
        }
    }

    /// The item is done, once.
    pub(crate) fn complete(&self, value: Result<R, JoinError>) {
        // SAFETY: the item alone writes, once, and the handle does not look before the event.
        unsafe { *self.value.get() = Some(value) };
        // SAFETY: live; both the item and the handle hold the task.
        unsafe { Event::set(&raw const self.event) };
        // SeqCst, as the exchange in `set` and both steps in `poll`: either this load sees that a
        // waker was left, or `poll` sees that the event is set.
        if self.state.load(Ordering::SeqCst) & WAKER != 0 {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Takes the value of a finished item.
    fn take(&self) -> Result<R, JoinError> {
        // SAFETY: the event is set, so the item is done with the value; the handle is used up.
        unsafe { (*self.value.get()).take() }.unwrap_or(Err(JoinError::Cancelled))
    }

    /// Whether the item is done.
    pub(crate) fn is_complete(&self) -> bool {
        self.event.is_set()
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Result<R, JoinError>> {
        if !self.event.is_set() {
            let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            *waker = Some(context.waker().clone());
            drop(waker);
            self.state.fetch_or(WAKER, Ordering::SeqCst);
            if !self.event.is_set() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.take())
    }
}

/// A closure on its way.
#[repr(C)]
struct Task<F, R> {
    work: RawWork,
    /// The closure until the item starts. Guard: whoever owns the item.
    closure: UnsafeCell<Option<F>>,
    outcome: Outcome<R>,
}

// SAFETY: the closure is only touched by the owner of the item, the outcome is `Sync`.
unsafe impl<F: Send, R: Send> Sync for Task<F, R> {}
// SAFETY: both the closure and its result may change threads.
unsafe impl<F: Send, R: Send> Send for Task<F, R> {}

impl<F: FnOnce() -> R + Send, R: Send> Task<F, R> {
    /// # Safety
    /// `work` is the first field of a task, whose queue's reference this call uses up.
    unsafe fn perform(work: NonNull<RawWork>, action: Action) {
        // SAFETY: by this function's contract: the reference that `spawn` gave away.
        let task = unsafe { Arc::from_raw(work.cast::<Task<F, R>>().as_ptr()) };
        // SAFETY: the item is ours from its start to the end of this function.
        let closure = unsafe { (*task.closure.get()).take() };
        let value = match (action, closure) {
            (Action::Run, Some(closure)) => {
                catch_unwind(AssertUnwindSafe(closure)).map_err(panicked)
            }
            _ => Err(JoinError::Cancelled),
        };
        task.outcome.complete(value);
    }
}

pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
    count_panic("spawn");
    JoinError::Panicked(payload)
}

impl<F: FnOnce() -> R + Send, R: Send> Joinable<R> for Task<F, R> {
    fn work(&self) -> &RawWork {
        &self.work
    }

    fn outcome(&self) -> &Outcome<R> {
        &self.outcome
    }

    fn cancel(self: Arc<Self>) -> bool {
        // SAFETY: the task is live, and only ever queued on the process's engine. A closure is
        // queued once, so one that is pending does not run.
        let cancelled = unsafe { engine().cancel(NonNull::from(&self.work)) };
        if cancelled {
            // SAFETY: the reference that the queue held came back to us.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&self)) };
            self.give_up(JoinError::Cancelled);
        }
        cancelled
    }
}

impl<F, R> Task<F, R> {
    /// Drops the closure unrun. The caller owns the item.
    fn give_up(&self, error: JoinError) {
        // SAFETY: by this function's contract.
        let closure = unsafe { (*self.closure.get()).take() };
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(closure)));
        self.outcome.complete(Err(error));
        if let Err(payload) = dropped {
            resume_unwind(payload);
        }
    }
}

impl<R> JoinHandle<R> {
    pub(crate) fn new(task: Arc<dyn Joinable<R>>, queue: Queue) -> JoinHandle<R> {
        JoinHandle { task, queue }
    }

    /// Whether the item has finished.
    pub fn is_finished(&self) -> bool {
        self.task.outcome().event.is_set()
    }

    /// Waits for the item and returns its result.
    ///
    /// If the item has not started and its queue allows it, the calling thread runs it: no switch,
    /// no wake. Otherwise it sleeps; inside a work item that wait is declared to the pool.
    ///
    /// # Errors
    /// The item panicked, was cancelled or refused; or the caller is inside that very item, or
    /// inside an item of the same ordered queue, and would wait for itself.
    ///
    /// ```
    /// let queue = uwork::Queue::builder("join").build()?;
    /// let handle = queue.spawn(|| "done");
    /// assert_eq!(handle.join().unwrap(), "done");
    ///
    /// let ordered = uwork::Queue::builder("join-ordered").ordered().build()?;
    /// let inner = ordered.clone();
    /// let outcome = ordered.spawn(move || inner.spawn(|| ()).join()).join().unwrap();
    /// assert!(matches!(outcome, Err(uwork::JoinError::WouldDeadlock)));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn join(self) -> Result<R, JoinError> {
        let outcome = self.task.outcome();
        if !outcome.event.is_set() {
            let work = NonNull::from(self.task.work());
            // SAFETY: the task is live, and only ever queued on the process's engine.
            if unsafe { engine().help(work) } == Helped::No && self.waits_for_itself() {
                return Err(JoinError::WouldDeadlock);
            }
            // A future that was helped may want to be polled again.
            if !outcome.event.is_set() {
                engine().blocking(|| outcome.event.wait(None));
            }
        }
        outcome.take()
    }

    fn waits_for_itself(&self) -> bool {
        if self.is_finished() {
            return false;
        }
        engine().runs_item(self.task.work()) || (self.queue.is_ordered() && self.queue.0.runs_here())
    }

    /// Takes the closure back if it has not started, the future if it has not finished. True if it
    /// never runs (again); joining then says [`JoinError::Cancelled`].
    ///
    /// A future that is being polled at this moment is dropped when that poll has returned, unless
    /// the poll finishes it.
    pub fn cancel(&self) -> bool {
        self.task.clone().cancel()
    }
}

impl<R> Future for JoinHandle<R> {
    type Output = Result<R, JoinError>;

    /// Ready when the item has finished. After that, `Err(Cancelled)`.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.task.outcome().poll(context)
    }
}

impl<R> std::fmt::Debug for JoinHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

impl Queue {
    /// Queues a closure, in one allocation, and returns a handle for its result.
    ///
    /// On a queue that is destroyed, or drains while the caller is not one of its items, the
    /// closure is dropped and the handle says [`JoinError::Refused`].
    ///
    /// ```
    /// let queue = uwork::Queue::builder("spawn").build()?;
    /// let squares: Vec<_> = (0..8_u64).map(|n| queue.spawn(move || n * n)).collect();
    /// let sum: u64 = squares.into_iter().map(|square| square.join().unwrap()).sum();
    /// assert_eq!(sum, 140);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn spawn<F, R>(&self, closure: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let task = Arc::new(Task {
            work: RawWork::new(Task::<F, R>::perform),
            closure: UnsafeCell::new(Some(closure)),
            outcome: Outcome::new(),
        });
        let raw = Arc::into_raw(task.clone());
        // SAFETY: an `Arc`'s value has an address; its work is the first field (`repr(C)`), and
        // the reference keeps it live and in place until `perform` takes it back.
        let outcome = unsafe { self.0.queue(NonNull::new_unchecked(raw.cast_mut()).cast()) };
        if outcome != Queued::Yes {
            // SAFETY: the queue did not take the reference.
            drop(unsafe { Arc::from_raw(raw) });
            task.give_up(JoinError::Refused);
        }
        JoinHandle::new(task, self.clone())
    }
}
