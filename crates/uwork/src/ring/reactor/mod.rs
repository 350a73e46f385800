//! A thread's ring, and its wait. What is queued for it is in `operations`.

mod operations;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::IoUring;
use io_uring::types::{CancelBuilder, Timespec};

pub use operations::TOKEN_MAX;
use operations::{ACCEPT, KIND, OWN, POLL};

use super::buffers::Buffers;
use super::builder::Builder;
use super::completion::Completion;
use crate::linux::task::{Delivery, Target, current};
use crate::task;

/// The group of the receive buffers: a ring of ours has no other.
const GROUP: u16 = 0;
/// Completions that fit, for each operation that can be queued.
const COMPLETIONS_PER_ENTRY: u32 = 4;
/// How long the end of a reactor waits for its operations to end.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// What is longer the system takes for a time that has passed.
const TIMEOUT_MAX: Duration = Duration::from_secs(i64::MAX as u64);

/// `struct io_uring_getevents_arg` of <linux/io_uring.h>.
#[repr(C)]
struct GetEvents {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timeout: u64,
}

const ENTER_GETEVENTS: usize = 1;
const ENTER_EXT_ARG: usize = 1 << 3;

/// One thread's ring. It is that thread's alone, and a thread has one at most.
///
/// Dropping it cancels what is under way, and waits for that, for five seconds at most. Reads and writes of files that
/// the system has begun it does not cancel: whoever has queued such waits for their completions first, as their memory
/// is in use until then. It is not to be used in a forked child, where dropping it does nothing.
///
/// ```
/// use uwork::ring::{Reactor, io_uring::opcode};
/// use uwork::task::{Notify, TaskHandle};
///
/// # let Ok(_) = Reactor::builder().build() else { return Ok(()) };
/// let mut reactor = Reactor::builder().build()?;
/// let handle = TaskHandle::current();
/// let adder = std::thread::spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
/// // SAFETY: it uses no memory.
/// unsafe { reactor.push(opcode::Nop::new().build().user_data(7))? };
/// // Both end its waits, in whichever order they come.
/// let (mut ran, mut completed) = (0, 0);
/// while ran + completed < 2 {
///     ran += reactor.wait(None)?;
///     while let Some(completion) = reactor.next() {
///         assert_eq!((completion.token(), completion.result()?), (7, 0));
///         completed += 1;
///     }
/// }
/// assert!(adder.join().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Reactor {
    /// Dropped first, unless operations could not be cancelled.
    ring: ManuallyDrop<IoUring>,
    buffers: Option<Rc<Buffers>>,
    target: Arc<Target>,
    /// The poll of the eventfd has ended and is to be queued again.
    poll_ended: bool,
    not_send: PhantomData<*mut ()>,
}

impl Reactor {
    /// Options, and then the reactor.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(super) fn new(options: &Builder) -> io::Result<Reactor> {
        let target = current(Delivery::Auto).expect("the thread's destructors have run");
        if target.has_ring() {
            let what = "the thread has a reactor already: one is allowed";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let completions = options.entries.next_power_of_two() * COMPLETIONS_PER_ENTRY;
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(completions)
            .build(options.entries)
            .map_err(|error| refused(&error))?;
        let buffers = options.buffers.map(|(count, size)| Buffers::new(count, size)).transpose()?;
        let mut reactor = Reactor {
            ring: ManuallyDrop::new(ring),
            buffers,
            target,
            poll_ended: true,
            not_send: PhantomData,
        };
        if let Some(buffers) = &reactor.buffers {
            let (address, count) = (buffers.address(), buffers.count());
            // SAFETY: the buffers stay until the ring is gone.
            unsafe {
                let submitter = reactor.ring.submitter();
                submitter.register_buf_ring_with_flags(address, count, GROUP, 0)?;
            }
        }
        // For kernels, and moments, in which nobody can send a message.
        reactor.poll_descriptor()?;
        reactor.submit()?;
        reactor.target.set_ring(reactor.ring.as_raw_fd());
        Ok(reactor)
    }

    /// Whether every operation that was queued was submitted, and no completion is left with the kernel for want of
    /// room: [`Reactor::next`] has, or will, tell of each [`Reactor::try_send`] that was short.
    pub fn all_submitted(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.cq_overflow()
    }

    /// Submits what is queued, and brings in what has completed. Does not wait.
    ///
    /// # Errors
    /// As `io_uring_enter(2)`. `EBUSY` is none: completions are to be taken first, and what is queued stays queued.
    pub fn submit(&mut self) -> io::Result<()> {
        let ring = &mut *self.ring;
        let (queued, due) = {
            let queue = ring.submission();
            (queue.len(), queue.taskrun() || queue.cq_overflow())
        };
        if queued == 0 && !due {
            return Ok(());
        }
        self.enter(queued)
    }

    /// Submits so many operations of the queue, and brings in what has completed.
    fn enter(&self, queued: usize) -> io::Result<()> {
        let arguments = [self.ring.as_raw_fd() as usize, queued, 0, ENTER_GETEVENTS, 0, 0];
        // SAFETY: what is queued is as its queueing promised.
        outcome(unsafe { Target::enter(arguments) })
    }

    /// Submits what is queued, and waits until an operation has completed, task work was added for this thread by
    /// [`Notify::Signal`](task::Notify::Signal), or the time is over. Runs the task work that is due, before and
    /// after. How many items that were. Completions are then taken by [`Reactor::next`].
    ///
    /// Returns without waiting if there are completions to be taken, or items were run, or are due and
    /// [cannot be run](task#runs-inside-of-items). May return for nothing. An item that panics has run.
    ///
    /// # Errors
    /// As `io_uring_enter(2)`; no error if it was interrupted or the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        if self.poll_ended {
            self.poll_descriptor()?;
        }
        let ran = task::safe_point();
        if ran > 0 || !self.ring.completion().is_empty() {
            self.submit()?;
            return Ok(ran);
        }
        let timeout = timeout.map(|time| Timespec::from(time.min(TIMEOUT_MAX)));
        let events = GetEvents {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_us: 0,
            timeout: timeout
                .as_ref()
                .map_or(0, |time| std::ptr::from_ref(time).expose_provenance() as u64),
        };
        let queued = self.ring.submission().len();
        let arguments = [
            self.ring.as_raw_fd() as usize,
            queued,
            1,
            ENTER_GETEVENTS | ENTER_EXT_ARG,
            (&raw const events).expose_provenance(),
            size_of::<GetEvents>(),
        ];
        // SAFETY: this thread's target, which knows the ring; the structures are live.
        outcome(unsafe { self.target.enter_ring(arguments) })?;
        let ran = task::safe_point();
        // SAFETY: this thread's own.
        let can_run = unsafe { self.target.can_run() };
        if !can_run || ran > 0 && !self.all_submitted() {
            // The system call was not made, as items came before it.
            self.submit()?;
        }
        Ok(ran)
    }

    /// The next completion, if there is one. Does not ask the system: [`Reactor::wait`] and [`Reactor::submit`] do.
    #[allow(clippy::should_implement_trait, reason = "others come after it has given none")]
    pub fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() & KIND == OWN {
                self.poll_ended |=
                    entry.user_data() == POLL && !io_uring::cqueue::more(entry.flags());
                continue;
            }
            let id = io_uring::cqueue::buffer_select(entry.flags());
            let buffer = id.zip(self.buffers.as_ref()).map(|(id, buffers)| {
                // SAFETY: the kernel says so, once.
                unsafe { buffers.take(id, u32::try_from(entry.result()).unwrap_or(0)) }
            });
            let kind = entry.user_data() & KIND;
            return Some(Completion::new(
                &entry,
                entry.user_data() & TOKEN_MAX,
                buffer,
                kind == ACCEPT,
            ));
        }
    }
}

/// No ring can be had: by the kernel's word, of the kind that it has.
fn refused(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("io_uring_setup: {error}"))
}

/// What of `io_uring_enter`'s errors is one.
fn outcome(result: Result<usize, i32>) -> io::Result<()> {
    match result {
        Ok(_) | Err(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
        Err(error) => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if self.target.is_of_parent() {
            // The parent's ring, which is not mapped here.
            return;
        }
        self.target.unset_ring();
        // What is queued is cancelled with the rest, and what stays queued is never begun: its memory may go.
        let _ = self.submit();
        // The kernel must not write to buffers that are gone.
        let cancelled = self
            .ring
            .submitter()
            .register_sync_cancel(Some(CANCEL_MAX.into()), CancelBuilder::any());
        let none_left = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        if cancelled.as_ref().is_ok() || cancelled.as_ref().is_err_and(none_left) {
            // Descriptors that were accepted, and that nobody has taken.
            let _ = self.enter(0);
            while self.next().is_some() {}
            // SAFETY: here, and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        } else {
            // Something does not end. Better a leak than a write to memory that is somebody else's.
            std::mem::forget(self.buffers.take());
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("ring", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}
