//! Runs a function on one CPU, or on each CPU, while the caller waits.
//!
//! Both calls use one per-CPU queue of the library's own, which no user can drain or fill. Only
//! functions that these two calls run hold its permits (of `max_active`). If such a function could
//! wait for another, a CPU whose permits are all held by waiting functions would never proceed; so
//! the nested call is refused.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;

use uwork_engine::{Action, ItemName, QueueError, Queued, Work as RawWork};
use uwork_linux::{engine, report_panic};

use crate::builder::Builder;
use crate::error::{Error, ErrorKind};
use crate::library_queue::library_queue;
use crate::queue::Queue;

fn queue() -> Result<&'static Queue, Error> {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    let queue = library_queue(&QUEUE, "uwork/on_cpu", Builder::per_cpu);
    if queue.0.runs_here() { Err(QueueError::WouldDeadlock.into()) } else { Ok(queue) }
}

/// A function to be run on a CPU, in its caller's frame.
#[repr(C)]
pub(crate) struct Call<F, R> {
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
        Action::Name => return unsafe { ItemName::of_type::<F>(0).tell(work) },
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
    pub(crate) fn new(function: F) -> Call<F, R> {
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
    pub(crate) unsafe fn begin(&self, queue: &Queue, cpu: u32) -> Result<(), Error> {
        // SAFETY: by this function's contract.
        match unsafe { queue.0.queue_on(cpu, self.raw()) }? {
            Queued::Yes => Ok(()),
            _ => Err(QueueError::Refused.into()),
        }
    }

    /// Waits until the function has run, if it was queued. After that the engine no longer refers
    /// to the call.
    pub(crate) fn wait(&self) {
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
    pub(crate) fn into_outcome(self) -> Option<Result<R, Box<dyn Any + Send>>> {
        match self.stage.into_inner() {
            Stage::Done(outcome) => Some(outcome),
            Stage::Function(_) | Stage::Gone => None,
        }
    }
}

/// Runs `function` on `cpu`, on a worker of that CPU, and returns its result. Both may borrow from
/// the enclosing frames, as the caller waits. The first use in the process makes a queue; later
/// calls allocate no memory for the function.
///
/// Inside a work item the wait is declared to the pool.
///
/// # Errors
/// The CPU does not exist or the process may not use it; or the caller is inside a function that
/// `work_on_cpu` or [`on_each_cpu`] runs ([`Error::would_deadlock`]); or the process was shut down
/// ([`ErrorKind::Refused`](crate::ErrorKind)). In each case `function` is dropped.
///
/// # Panics
/// If `function` panics, with its payload; the panic was counted and reported. Also if no worker
/// thread can be created at first use in the process.
///
/// ```
/// let words = ["on", "that", "CPU"];
/// let cpu = uwork::topology::Machine::read().unwrap().allowed.first().unwrap();
/// let letters = uwork::work_on_cpu(cpu, || words.iter().map(|word| word.len()).sum::<usize>())?;
/// assert_eq!(letters, 9);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn work_on_cpu<F, R>(cpu: u32, function: F) -> Result<R, Error>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let queue = queue()?;
    let call = Call::new(function);
    // SAFETY: waited for below, and nothing in between can unwind.
    unsafe { call.begin(queue, cpu) }?;
    call.wait();
    match call.into_outcome() {
        Some(Ok(value)) => Ok(value),
        Some(Err(payload)) => resume_unwind(payload),
        None => Err(QueueError::Refused.into()),
    }
}

/// Runs `function` once on every CPU that the process may use, on a worker of that CPU, and returns
/// when all have finished (the kernel's `schedule_on_each_cpu`). The function receives the CPU's
/// number, and may borrow from the enclosing frames.
///
/// The runs on different CPUs happen at the same time. Inside a work item the wait is declared to
/// the pool.
///
/// # Errors
/// The caller is inside a function that [`work_on_cpu`] or `on_each_cpu` runs
/// ([`Error::would_deadlock`]): then nothing was run. Or the process was shut down before it ran on
/// every CPU ([`ErrorKind::Refused`](crate::ErrorKind)).
///
/// # Panics
/// If `function` panics on any CPU, with the payload of the lowest-numbered of these CPUs, after
/// all have finished; each panic was counted and reported. Also if no worker thread can be created
/// at first use in the process.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let cpus = AtomicUsize::new(0);
/// uwork::on_each_cpu(|_cpu| { cpus.fetch_add(1, Ordering::Relaxed); })?;
/// assert_eq!(cpus.into_inner(), uwork::topology::Machine::read().unwrap().allowed.len());
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn on_each_cpu<F>(function: F) -> Result<(), Error>
where
    F: Fn(u32) + Sync,
{
    let queue = queue()?;
    let function = &function;
    let cpus: Vec<u32> = engine().cpus().allowed.iter().collect();
    let calls: Box<[_]> = cpus.iter().map(|&cpu| Call::new(move || function(cpu))).collect();
    let mut begun = Vec::with_capacity(cpus.len());
    for (call, &cpu) in calls.iter().zip(&cpus) {
        // SAFETY: waited for below, and nothing in between can unwind.
        begun.push(unsafe { call.begin(queue, cpu) });
    }
    calls.iter().for_each(Call::wait);
    let mut refused = None;
    for (call, begun) in calls.into_iter().zip(begun) {
        match (call.into_outcome(), begun) {
            // Each was reported; only one can be resumed.
            (Some(Err(payload)), _) => resume_unwind(payload),
            (Some(Ok(())), _) => {}
            // A CPU that went offline meanwhile has nothing to run.
            (None, Err(error)) if error.kind() == ErrorKind::BadCpu => {}
            (None, Err(error)) => refused = Some(error),
            (None, Ok(())) => refused = Some(QueueError::Refused.into()),
        }
    }
    refused.map_or(Ok(()), Err)
}
