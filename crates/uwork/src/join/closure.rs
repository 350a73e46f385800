//! Closures as work items: one allocation, shared by the queue and the handle.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::task::Context;

use uwork_engine::handle::Outcome;
use uwork_engine::host::Host;
use uwork_engine::{Action, ItemName, Queued, Work as RawWork};
use uwork_linux::engine;
use uwork_linux::futex::Forever;

use super::{JoinHandle, Joinable, panicked};
use crate::error::JoinError;
use crate::queue::Queue;

/// A closure to run, and then its result. Item and handle each hold a reference; the second to be
/// released frees the task (see [`Outcome`]).
#[repr(C)]
struct Task<F, R> {
    /// First, so that the address of the work is that of the task.
    work: RawWork,
    outcome: Outcome,
    /// Guard: the item until it is done, then the handle.
    stage: UnsafeCell<Stage<F, R>>,
}

enum Stage<F, R> {
    Closure(F),
    Done(R),
    /// Boxed, so that the payload of a panic adds only a pointer to the size of every task.
    Failed(Box<JoinError>),
    Gone,
}

// SAFETY: the stage is handed over from the item to the handle through the outcome.
unsafe impl<F: Send, R: Send> Sync for Task<F, R> {}
// SAFETY: both the closure and its result may change threads.
unsafe impl<F: Send, R: Send> Send for Task<F, R> {}

impl<F, R> Task<F, R> {
    /// The item's side: stores the result, and frees the task if the handle was dropped.
    ///
    /// # Safety
    /// `task` is live, the caller owns the item's reference, and does not use `task` afterwards.
    unsafe fn finish(task: NonNull<Task<F, R>>, stage: Stage<F, R>) {
        // SAFETY: by this function's contract; the closure was taken out before.
        unsafe {
            *task.as_ref().stage.get() = stage;
            if Outcome::complete(&raw const (*task.as_ptr()).outcome, &Forever) {
                drop(Box::from_raw(task.as_ptr()));
            }
        }
    }

    /// Drops the closure without running it.
    ///
    /// # Safety
    /// As [`Task::finish`].
    unsafe fn give_up(task: NonNull<Task<F, R>>, error: JoinError) {
        // SAFETY: the item owns the stage.
        let stage = unsafe { task.as_ref().stage.get().replace(Stage::Gone) };
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(stage)));
        // SAFETY: by this function's contract.
        unsafe { Task::finish(task, Stage::Failed(Box::new(error))) };
        if let Err(payload) = dropped {
            resume_unwind(payload);
        }
    }
}

impl<F: FnOnce() -> R, R> Task<F, R> {
    /// # Safety
    /// `work` is the first field of a task, whose item's side this call uses up.
    unsafe fn perform(work: NonNull<RawWork>, action: Action) {
        let task = work.cast::<Task<F, R>>();
        match action {
            Action::Run => {}
            // SAFETY: by this function's contract.
            Action::Release => return unsafe { Task::give_up(task, JoinError::Cancelled) },
            // SAFETY: the engine asked for the name.
            Action::Name => return unsafe { ItemName::of_type::<F>(0).report(work) },
        }
        // SAFETY: the item owns the stage from its start on.
        let stage = unsafe { task.as_ref().stage.get().replace(Stage::Gone) };
        let Stage::Closure(closure) = stage else { unreachable!("a closure is queued once") };
        let stage = match catch_unwind(AssertUnwindSafe(closure)) {
            Ok(value) => Stage::Done(value),
            Err(payload) => Stage::Failed(Box::new(panicked(payload))),
        };
        // SAFETY: by this function's contract.
        unsafe { Task::finish(task, stage) };
    }
}

impl<F: FnOnce() -> R + Send, R: Send> Joinable<R> for Task<F, R> {
    fn work(&self) -> &RawWork {
        &self.work
    }

    fn is_done(&self) -> bool {
        self.outcome.is_done()
    }

    fn wait(&self) {
        self.outcome.wait(&Forever);
    }

    fn take(&self) -> Result<R, JoinError> {
        // SAFETY: done, so the handle owns the stage.
        match unsafe { self.stage.get().replace(Stage::Gone) } {
            Stage::Done(value) => Ok(value),
            Stage::Failed(error) => Err(*error),
            Stage::Closure(_) | Stage::Gone => Err(JoinError::Cancelled),
        }
    }

    fn poll_done(&self, context: &Context<'_>) -> bool {
        self.outcome.poll_done(context, |round| engine().host().relax(round))
    }

    fn cancel(&self) -> bool {
        // SAFETY: the task is live, and only ever queued on the process's engine. A closure is
        // queued once, so one that is pending does not run.
        let cancelled = unsafe { engine().cancel(NonNull::from(&self.work)) };
        if cancelled {
            // SAFETY: the cancel returned the item's reference to us; the handle's keeps the task
            // live.
            unsafe { Task::give_up(NonNull::from(self), JoinError::Cancelled) };
        }
        cancelled
    }
}

/// # Safety
/// `task` is a `Task<F, R>`; this call consumes the handle's reference.
unsafe fn release<F, R>(task: NonNull<dyn Joinable<R>>) {
    let task = task.cast::<Task<F, R>>();
    // SAFETY: live until both references are released.
    if unsafe { task.as_ref() }.outcome.abandon() {
        // SAFETY: both references are released.
        drop(unsafe { Box::from_raw(task.as_ptr()) });
    }
}

impl Queue {
    /// Queues a closure, in one allocation, and returns a handle for its result.
    ///
    /// On a queue that is destroyed, or drains while the caller is not one of its items, the
    /// closure is dropped and the handle returns [`JoinError::Refused`].
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
        let spawned = try_spawn(self, closure);
        spawned.unwrap_or_else(|| handle_alloc_error(Layout::new::<Task<F, R>>()))
    }
}

/// As [`Queue::spawn`]. None if there is no memory; the closure is dropped then.
pub(crate) fn try_spawn<F, R>(queue: &Queue, closure: F) -> Option<JoinHandle<R>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let fresh = Task {
        work: RawWork::new(Task::<F, R>::perform),
        outcome: Outcome::new(),
        stage: UnsafeCell::new(Stage::Closure(closure)),
    };
    // SAFETY: the size is not 0, because of the work.
    let task = NonNull::new(unsafe { alloc(Layout::new::<Task<F, R>>()) }.cast::<Task<F, R>>())?;
    // SAFETY: new memory, with the layout of a box.
    unsafe { task.write(fresh) };
    // SAFETY: leaked; the handle's reference is released in its drop.
    let handle = unsafe { JoinHandle::new(task, release::<F, R>, queue) };
    // SAFETY: the work is the first field (`repr(C)`), and stays live and in place until the
    // item's reference is released.
    if unsafe { queue.0.queue(task.cast()) } != Queued::Yes {
        // SAFETY: the queue did not take the item's reference.
        unsafe { Task::give_up(task, JoinError::Refused) };
    }
    Some(handle)
}
