//! A function for one CPU's data: the kernel's `pw_struct`, `pw_queue_on` and `pw_flush`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use uwork_engine::QueueError;
use uwork_linux::{Error, engine};
use uwork_percpu::raw::{call, flush};
use uwork_percpu::{Mode, mode};
use uwork_policy::cpuset::CpuSet;

use crate::error::RejectedError;
use crate::item::{Enqueued, Work, WorkItem};
use crate::queue::Queue;

/// A function for the data of one CPU. In mode 0 it is a work item that runs on that CPU; in modes
/// 1 and 2 it runs in the thread that queues it. The function takes the lock of the CPU that it is
/// given, which is correct in all modes.
///
/// ```
/// use std::sync::Arc;
/// use uwork::Queue;
/// use uwork::percpu::{PerCpu, PerCpuWork};
///
/// let numbers = Arc::new(PerCpu::new(|_cpu| 1));
/// let cpu = uwork::topology::Machine::read().unwrap().allowed.first().unwrap();
/// let work = PerCpuWork::new(cpu, {
///     let numbers = numbers.clone();
///     move |cpu| *numbers.lock(cpu).expect("no holder panics") += 1
/// });
/// let queue = Queue::builder("percpu-work").per_cpu().build()?;
/// assert!(work.queue_on(cpu, &queue)?);
/// work.flush();
/// assert_eq!(*numbers.lock(cpu)?, 2);
/// # Ok::<(), uwork::Error>(())
/// ```
pub struct PerCpuWork(Arc<Inner>);

/// The error text for a queue whose items may run on another CPU than the one they are queued for.
const NOT_PER_CPU: &str =
    "per-CPU work needs a per-CPU or BH queue in mode 0; others do not bring it to its CPU";

struct Inner {
    work: Work<Inner>,
    cpu: u32,
    function: Box<dyn Fn(u32) + Send + Sync>,
}

crate::has_work!(impl HasWork for Inner { work });

impl WorkItem for Inner {
    type Pointer = Arc<Inner>;
    fn run(this: Arc<Inner>) {
        (this.function)(this.cpu);
    }
}

impl PerCpuWork {
    /// A function for the data of `cpu`, whose number it is called with.
    pub fn new(cpu: u32, function: impl Fn(u32) + Send + Sync + 'static) -> PerCpuWork {
        PerCpuWork(Arc::new(Inner { work: Work::new(), cpu, function: Box::new(function) }))
    }

    /// The CPU whose data it is for.
    pub fn cpu(&self) -> u32 {
        self.0.cpu
    }

    /// Has the function called: in mode 0 by `queue` on `cpu`, once for all calls before it starts;
    /// in modes 1 and 2 by the calling thread, before this returns. False if it was pending
    /// already.
    ///
    /// In modes 1 and 2 two threads can be in the function at once; the lock that it takes
    /// serializes them. A panic of the function is counted, reported and caught in all modes.
    ///
    /// # Errors
    /// `cpu` is not the CPU of the item, or does not exist. Or, in mode 0: the process may not use
    /// it, it is offline, `queue` takes no items, or `queue` is not per-CPU
    /// ([`Builder::per_cpu`](crate::Builder::per_cpu), [`Builder::bh`](crate::Builder::bh)) and
    /// could run the function on another CPU.
    pub fn queue_on(&self, cpu: u32, queue: &Queue) -> Result<bool, Error> {
        let possible = engine().config().topology.possible();
        if cpu != self.0.cpu || !possible.contains(cpu) {
            let there = CpuSet::single(self.0.cpu).and(possible);
            return Err(QueueError::NoPart { cpu, there }.into());
        }
        if mode() != Mode::Local {
            let function = || catch_unwind(AssertUnwindSafe(|| (self.0.function)(cpu)));
            let outcome = call(cpu, self.address(), function);
            if let Err(payload) = outcome {
                engine().report_panic_of(queue.name(), payload);
            }
            return Ok(true);
        }
        if !queue.0.stays_per_cpu() {
            return Err(QueueError::NotForThisKind(NOT_PER_CPU).into());
        }
        match queue.enqueue_on(cpu, self.0.clone()) {
            Ok(Enqueued::Queued) => Ok(true),
            Ok(_) => Ok(false),
            Err(RejectedError { error, .. }) => Err(error),
        }
    }

    /// Waits until the function has returned for every call of [`PerCpuWork::queue_on`] that began
    /// before; in modes 1 and 2, for those that other threads are in. False if there is nothing to
    /// wait for. Also false, at once, in the function itself, which would wait for its own end.
    pub fn flush(&self) -> bool {
        if mode() == Mode::Local { self.0.work.flush() } else { flush(self.0.cpu, self.address()) }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl fmt::Debug for PerCpuWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuWork").field("cpu", &self.0.cpu).finish_non_exhaustive()
    }
}
