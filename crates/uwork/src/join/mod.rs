//! Handles that wait for spawned closures and futures.

mod closure;
mod forker;
mod halves;

pub(crate) use closure::try_spawn;
pub use halves::join;

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use uwork_engine::{Helped, Work as RawWork};
use uwork_linux::{engine, forks, report_panic};

use crate::error::JoinError;
use crate::query::WorkId;
use crate::queue::Queue;

/// Waits for a spawned closure or future, and gets its result. If the handle is dropped, the item
/// still runs and its result is discarded.
///
/// A handle is also a future: `handle.await` is [`JoinHandle::join`] without blocking a thread.
pub struct JoinHandle<R> {
    /// Live as long as the handle, which owns one of the task's two references.
    task: NonNull<dyn Joinable<R>>,
    release: Release<R>,
    /// The queue as an identity. Compared only while the task is not done.
    queue: *const (),
    is_ordered: bool,
    /// The number of forks when the item was queued: it belongs to that process.
    forks: u32,
    marker: PhantomData<R>,
}

// SAFETY: the task is `Sync` (a supertrait), and the result may change threads.
unsafe impl<R: Send> Send for JoinHandle<R> {}
// SAFETY: a shared handle gives shared access to the task only.
unsafe impl<R: Send> Sync for JoinHandle<R> {}

/// The operations that a handle needs of its task, closure or future.
pub(crate) trait Joinable<R>: Send + Sync {
    fn work(&self) -> &RawWork;

    /// Whether the result is ready.
    fn is_done(&self) -> bool;

    /// Sleeps until the result is ready.
    fn wait(&self);

    /// Takes the result of a task that is done. Once, by the handle.
    fn take(&self) -> Result<R, JoinError>;

    /// Whether the result is ready; if not, `context` is woken when it is. Called by the handle
    /// alone.
    fn poll_done(&self, context: &Context<'_>) -> bool;

    /// See [`JoinHandle::cancel`].
    fn cancel(&self) -> bool;
}

/// Releases the handle's reference to a task. The handle does not use the task afterwards.
pub(crate) type Release<R> = unsafe fn(NonNull<dyn Joinable<R>>);

/// Reports a panic whose payload the handle will return.
pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
    report_panic(&*payload);
    JoinError::Panicked(payload)
}

impl<R> JoinHandle<R> {
    /// # Safety
    /// `task` stays live until `release` is called with it.
    pub(crate) unsafe fn new(
        task: NonNull<dyn Joinable<R>>,
        release: Release<R>,
        queue: &Queue,
    ) -> JoinHandle<R> {
        let (queue, is_ordered) = (queue.0.identity(), queue.is_ordered());
        JoinHandle { task, release, queue, is_ordered, forks: forks(), marker: PhantomData }
    }

    fn task(&self) -> &dyn Joinable<R> {
        // SAFETY: live as long as the handle.
        unsafe { self.task.as_ref() }
    }

    /// Whether the item has finished, or will never finish in this process, a forked child
    /// ([`JoinError::Forked`]): whether [`JoinHandle::join`] returns without a wait.
    pub fn is_finished(&self) -> bool {
        self.task().is_done() || self.is_lost()
    }

    /// Whether the item is of the parent of this process and has not finished. A queue that the child
    /// inherits may run it nevertheless.
    #[inline]
    fn is_lost(&self) -> bool {
        self.forks != forks() && self.is_lost_in_child()
    }

    #[cold]
    fn is_lost_in_child(&self) -> bool {
        let task = self.task();
        // In this order: an inherited item that is neither pending nor running has finished.
        engine().busy(task.work()) == crate::Busy::default() && !task.is_done()
    }

    /// The result of an item that has finished, or was lost when the caller asked.
    ///
    /// Only "done" is final. A lost item can become pending after that answer: on a queue that the
    /// child inherits, a thread of the child may wake the parent's idle future. So the value is taken
    /// by one question, whether the item is done, and not by a second look at what is lost:
    ///
    /// ```text
    /// the handle's thread               another thread           a worker of the child
    /// is_lost(): idle, not done: yes
    ///                                   wakes the future
    ///                                                            takes it, polls it
    /// is_lost(): busy: no
    /// takes the value                                            writes the value
    /// ```
    ///
    /// The acquire in `is_done` shows the value to the caller, and from then on only the handle
    /// accesses it. A handle that has returned `Forked` abandons the task when it is dropped: if the
    /// item finishes later, its worker drops the value.
    fn result(&self) -> Result<R, JoinError> {
        if self.task().is_done() { self.task().take() } else { Err(JoinError::Forked) }
    }

    /// The item's identity: the value of [`current_work`](crate::current_work) inside it.
    pub fn id(&self) -> WorkId {
        WorkId::of(self.task().work())
    }

    /// Waits for the item and returns its result.
    ///
    /// If the item has not started and its queue permits it, the calling thread runs it: no context
    /// switch, no wake. Otherwise it sleeps; inside a work item that wait is declared to the pool.
    ///
    /// # Errors
    /// The item panicked, was cancelled or was refused, or belongs to the parent of a forked child. Or
    /// the caller would wait for itself: it is inside that very item, or inside an item of the same
    /// ordered queue.
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
        if !self.is_finished() {
            engine().assert_may_wait();
        }
        self.join_unchecked()
    }

    /// As [`JoinHandle::join`], for callers in which unwinding would be unsound: no check that may
    /// panic.
    pub(crate) fn join_unchecked(self) -> Result<R, JoinError> {
        let task = self.task();
        if !self.is_finished() {
            // Read before the attempt to help: a freeze, thaw, pause or resume meanwhile may be the
            // reason for a refusal.
            let epoch = engine().freeze_epoch();
            // SAFETY: the task is live, and only ever queued on the process's engine; its work
            // comes first. The cast keeps the handle's own pointer, as the item's function accesses
            // the whole task.
            let helped = unsafe { engine().help(self.task.cast()) };
            if helped == Helped::No && self.waits_for_itself() {
                return Err(JoinError::WouldDeadlock);
            }
            if helped == Helped::No && engine().may_be_stopped(epoch) {
                // A flush helps after the thaw or the resume. Inside an item of the same queue that may be the only
                // way for the task to run.
                // SAFETY: as above.
                unsafe { engine().flush_work(self.task.cast()) };
            }
            // A future that this thread polled may still be pending. The item may have forked.
            if !self.is_finished() {
                // SAFETY: as above.
                unsafe { engine().blocking_on(self.task.cast(), || task.wait()) };
            }
        }
        self.result()
    }

    fn waits_for_itself(&self) -> bool {
        !self.is_finished()
            && (engine().runs_item(self.task().work())
                || (self.is_ordered && engine().runs_queue(self.queue)))
    }

    /// As [`JoinHandle::join`], but the calling thread never runs the item: it only waits. For items
    /// that need a worker: its CPU and niceness, or the state that [hooks](crate::threads) keep for
    /// it.
    ///
    /// # Errors
    /// As [`JoinHandle::join`]. Also [`JoinError::WouldDeadlock`] inside every item of the same queue,
    /// ordered or not: that item may hold the permit that the awaited one needs. The item still runs.
    ///
    /// ```
    /// use std::thread;
    /// let queue = uwork::Queue::builder("join-waiting").build()?;
    /// let worker = queue.spawn(|| thread::current().id()).join_waiting().unwrap();
    /// assert_ne!(worker, thread::current().id());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn join_waiting(self) -> Result<R, JoinError> {
        let task = self.task();
        if !self.is_finished() {
            engine().assert_may_wait();
            if engine().runs_item(task.work()) || engine().runs_queue(self.queue) {
                return Err(JoinError::WouldDeadlock);
            }
            // SAFETY: live as long as the handle.
            unsafe { engine().blocking_on(self.task.cast(), || task.wait()) };
        }
        self.result()
    }

    /// Withdraws the closure if it has not started, the future if it has not finished. True if it
    /// does not run (again); joining then returns [`JoinError::Cancelled`].
    ///
    /// A future that is being polled at this moment is dropped after that poll, unless the poll
    /// finishes it.
    pub fn cancel(&self) -> bool {
        self.task().cancel()
    }
}

impl<R> Drop for JoinHandle<R> {
    fn drop(&mut self) {
        // SAFETY: the handle's own reference, released once.
        unsafe { (self.release)(self.task) };
    }
}

impl<R> Future for JoinHandle<R> {
    type Output = Result<R, JoinError>;

    /// Ready when the item has finished. After that, `Err(Cancelled)`.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let is_ready = self.is_lost() || self.task().poll_done(context);
        if is_ready { Poll::Ready(self.result()) } else { Poll::Pending }
    }
}

impl<R> std::fmt::Debug for JoinHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Waker;

    use uwork_engine::{Action, Queued};

    use super::*;

    /// An item of the parent that has not finished. A thread of the child wakes it in the midst of
    /// the handle's question whether it is lost, which it is at that time.
    struct WokenMeanwhile {
        work: RawWork,
        /// Paused.
        queue: Queue,
        /// The calls of `is_done` until that moment.
        calls: AtomicU32,
    }

    // SAFETY: used by one thread.
    unsafe impl Send for WokenMeanwhile {}
    // SAFETY: as above.
    unsafe impl Sync for WokenMeanwhile {}

    impl Joinable<u32> for WokenMeanwhile {
        fn work(&self) -> &RawWork {
            &self.work
        }

        fn is_done(&self) -> bool {
            if self.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
                // SAFETY: the test cancels the item before it ends.
                assert_eq!(unsafe { self.queue.0.queue(NonNull::from(&self.work)) }, Queued::Yes);
            }
            false
        }

        fn wait(&self) {
            unreachable!("the item was lost")
        }

        fn take(&self) -> Result<u32, JoinError> {
            unreachable!("the item is not done: a worker may write the value")
        }

        fn poll_done(&self, _: &Context<'_>) -> bool {
            unreachable!("the item was lost")
        }

        fn cancel(&self) -> bool {
            unreachable!("not asked for")
        }
    }

    unsafe fn perform(_: NonNull<RawWork>, _: Action) {}

    unsafe fn keep(_: NonNull<dyn Joinable<u32>>) {}

    /// The answer of a handle that the parent made, if the item is woken in call `calls` of `is_done`.
    fn answer(
        calls: u32,
        ask: impl FnOnce(JoinHandle<u32>) -> Result<u32, JoinError>,
    ) -> Result<u32, JoinError> {
        let queue = Queue::builder("join-lost").numbered().build().unwrap();
        queue.pause().unwrap();
        let calls = AtomicU32::new(calls);
        let task = WokenMeanwhile { work: RawWork::new(perform), queue: queue.clone(), calls };
        let known: NonNull<dyn Joinable<u32>> = NonNull::from(&task);
        // SAFETY: the task outlives the handle.
        let mut handle = unsafe { JoinHandle::new(known, keep, &queue) };
        // As in a child.
        handle.forks = forks().wrapping_sub(1);
        let answer = ask(handle);
        // SAFETY: live.
        assert!(unsafe { engine().cancel(NonNull::from(&task.work)) }, "it was woken");
        queue.resume().unwrap();
        answer
    }

    // Catches: a handle that looks twice whether the item is lost, and takes a value that a worker of
    // the child writes at the same time.
    #[test]
    fn a_lost_item_that_a_child_wakes_meanwhile_has_no_value() {
        let joined = answer(2, JoinHandle::join_unchecked);
        assert!(matches!(joined, Err(JoinError::Forked)), "{joined:?}");
        let polled =
            answer(1, |handle| match pin!(handle).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => answer,
                Poll::Pending => unreachable!("the item was lost"),
            });
        assert!(matches!(polled, Err(JoinError::Forked)), "{polled:?}");
    }
}
