//! Runs a function on one CPU, or on each CPU, while the caller waits.
//!
//! Both calls use one per-CPU queue of the library's own, which no user can drain or fill. Only
//! functions that these two calls run hold its permits (of `max_active`). If such a function could
//! wait for another, a CPU whose permits are all held by waiting functions would never proceed; so
//! the nested call is refused.

use std::panic::resume_unwind;
use std::sync::OnceLock;

use uwork_engine::payload::drop_payload;
use uwork_engine::{Queue, QueueError};
use uwork_linux::library_queue::library_queue;
use uwork_linux::on_cpu::{self, Call};
use uwork_linux::{Error, ErrorKind, Linux, engine};

fn queue() -> Result<&'static Queue<Linux>, Error> {
    engine().assert_may_wait();
    static QUEUE: OnceLock<Queue<Linux>> = OnceLock::new();
    let queue = library_queue(&QUEUE, "uwork/on_cpu", on_cpu::queue);
    if queue.runs_here() { Err(QueueError::WouldDeadlock.into()) } else { Ok(queue) }
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
/// If `function` panics, with its payload; the panic was counted and reported. In a thread hook, and
/// in debug builds in an item of a BH queue, which must not wait. Also if no worker thread can be
/// created at first use in the process.
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
/// all have finished; each panic was counted and reported. In a thread hook, and in debug builds in
/// an item of a BH queue, which must not wait. Also if no worker thread can be created at first use in
/// the process.
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
    let (mut refused, mut panicked) = (None, None);
    for (call, begun) in calls.into_iter().zip(begun) {
        match (call.into_outcome(), begun) {
            // Each was reported; only one can be resumed.
            (Some(Err(payload)), _) if panicked.is_none() => panicked = Some(payload),
            (Some(Err(payload)), _) => drop_payload(payload),
            (Some(Ok(())), _) => {}
            // A CPU that went offline meanwhile has nothing to run.
            (None, Err(error)) if error.kind() == ErrorKind::BadCpu => {}
            (None, Err(error)) => refused = Some(error),
            (None, Ok(())) => refused = Some(QueueError::Refused.into()),
        }
    }
    if let Some(payload) = panicked {
        resume_unwind(payload);
    }
    refused.map_or(Ok(()), Err)
}
