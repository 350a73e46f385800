//! A function that runs on a worker of one CPU while its caller waits.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use uwork_engine::{
    Action, ItemName, Kind, MAX_ACTIVE_DEFAULT, Queue, QueueError, QueueSpec, Queued,
    Work as RawWork,
};
use uwork_policy::flags::Flags;

use crate::error::Error;
use crate::{Linux, engine, report_panic};

/// A per-CPU queue for such calls.
///
/// # Errors
/// The name is taken, or a thread cannot be created.
pub fn queue(name: String) -> Result<Queue<Linux>, Error> {
    let (kind, flags) = (Kind::PerCpu, Flags::PERCPU);
    let spec = QueueSpec { name, kind, flags, max_active: MAX_ACTIVE_DEFAULT };
    Ok(Queue::new(engine(), spec)?)
}

/// A function to be run on a CPU, in its caller's frame.
#[repr(C)]
pub struct Call<F, R> {
    /// First, so that the address of the work is that of the call.
    work: RawWork,
    /// Guard: the item from its start to its end, else the caller.
    stage: UnsafeCell<Stage<F, R>>,
}

enum Stage<F, R> {
    Function(F),
    Done(Result<R, Box<dyn Any + Send>>),
    Gone,
}

/// # Safety
/// `work` is the first field of a live `Call<F, R>`.
unsafe fn perform<F: FnOnce() -> R, R>(work: NonNull<RawWork>, action: Action) {
    match action {
        Action::Run => {}
        // Released by a shutdown. The caller owns the call again and may have freed it already.
        Action::Release => return,
        // SAFETY: the engine asked for the name.
        Action::Name => return unsafe { ItemName::of_type::<F>(0).report(work) },
    }
    // SAFETY: by this function's contract; the item owns the stage while it runs.
    let stage = unsafe { work.cast::<Call<F, R>>().as_ref().stage.get() };
    // SAFETY: as above.
    let Stage::Function(function) = (unsafe { stage.replace(Stage::Gone) }) else { return };
    let outcome = catch_unwind(AssertUnwindSafe(function));
    if let Err(payload) = &outcome {
        report_panic(&**payload);
    }
    // SAFETY: as above.
    unsafe { *stage = Stage::Done(outcome) };
}

impl<F: FnOnce() -> R, R> Call<F, R> {
    /// A call that was not queued.
    pub fn new(function: F) -> Call<F, R> {
        let stage = UnsafeCell::new(Stage::Function(function));
        Call { work: RawWork::new(perform::<F, R>), stage }
    }

    /// A pointer with the whole call's provenance, as the item's function accesses all of it.
    fn raw(&self) -> NonNull<RawWork> {
        NonNull::from(self).cast()
    }

    /// Queues the call.
    ///
    /// # Safety
    /// The call and the data that it borrows stay in place until [`Call::wait`] has returned.
    pub unsafe fn begin(&self, queue: &Queue<Linux>, cpu: u32) -> Result<(), Error> {
        // SAFETY: by this function's contract.
        match unsafe { queue.queue_on(cpu, self.raw()) }? {
            Queued::Yes => Ok(()),
            _ => Err(QueueError::Refused.into()),
        }
    }

    /// Waits until the function has run, if it was queued. After that the engine no longer refers
    /// to the call.
    pub fn wait(&self) {
        // SAFETY: live, and only ever queued on the process's engine.
        unsafe { engine().flush_work(self.raw()) };
        // This call alone owns the item, so it is idle now. Were it not, it would have to become
        // idle before the frame is freed. The caller cannot be inside the run: `queue` refuses
        // that.
        // SAFETY: as above.
        let Ok(false) = (unsafe { engine().disable_sync(self.raw()) }) else {
            std::process::abort();
        };
    }

    /// The outcome, after [`Call::wait`]. `None` if it was not queued, or was released by a
    /// shutdown.
    pub fn into_outcome(self) -> Option<Result<R, Box<dyn Any + Send>>> {
        match self.stage.into_inner() {
            Stage::Done(outcome) => Some(outcome),
            Stage::Function(_) | Stage::Gone => None,
        }
    }
}
