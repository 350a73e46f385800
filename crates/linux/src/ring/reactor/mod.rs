//! A thread's ring, and its wait. `operations` has the operations that can be queued, and `entrance`
//! the way into the kernel.

mod entrance;
mod name;
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
use io_uring::types::Timespec;

use entrance::Entrance;
use name::Accepts;
pub(super) use name::Names;
pub use operations::TOKEN_MAX;
use operations::{ACCEPT, KIND, OWN, POLL};

use crate::task::{Delivery, Target, current, ended, run_due};

use super::buffers::Buffers;
use super::builder::Builder;
use super::completion::Completion;
use crate::descriptor::Untaken;
use crate::first_use;

/// The group of the receive buffers: the ring has no other group.
const GROUP: u16 = 0;
/// Capacity for completions, for each operation that can be queued.
const COMPLETIONS_PER_ENTRY: u32 = 4;
/// How long the end of a reactor waits for its operations to end.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// The longest timeout. The system treats a longer one as expired already.
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

/// One thread's ring. Only that thread uses it, and a thread has at most one.
///
/// Dropping it cancels the operations in progress, and waits for their end for at most five
/// seconds. That does not cancel reads and writes of files that the system has begun: the owner
/// must wait for their completions before the drop, as their memory is in use until then. Do not
/// use it in a forked child, where dropping it does nothing.
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
    /// Dropped first, unless operations could not be cancelled, or its descriptor is lost.
    ring: ManuallyDrop<IoUring>,
    /// Other threads refer to its descriptor.
    entrance: ManuallyDrop<Box<Entrance>>,
    buffers: Option<Rc<Buffers>>,
    accepts: Accepts,
    target: Arc<Target>,
    /// The poll of the eventfd has ended and is to be queued again.
    poll_ended: bool,
    not_send: PhantomData<*mut ()>,
}

impl Reactor {
    /// A builder with the default options.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(super) fn new(options: &Builder) -> io::Result<Reactor> {
        let target = current(Delivery::Auto).ok_or_else(ended)?;
        if target.has_ring() {
            let what = "the thread has a reactor already: one is allowed";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let completions = options.entries.next_power_of_two() * COMPLETIONS_PER_ENTRY;
        let buffers = options.buffers.map(|(count, size)| Buffers::new(count, size)).transpose()?;
        let mut builder = IoUring::builder();
        builder
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(completions);
        let (entrance, ring) =
            Entrance::open(&builder, options.entries).map_err(|error| refused(&error))?;
        let mut reactor = Reactor {
            ring: ManuallyDrop::new(ring),
            entrance: ManuallyDrop::new(Box::new(entrance)),
            buffers,
            accepts: Accepts::default(),
            target,
            poll_ended: true,
            not_send: PhantomData,
        };
        if let Some(buffers) = &reactor.buffers {
            let (address, count) = (buffers.address(), buffers.count());
            // SAFETY: the buffers live longer than the ring.
            unsafe {
                let submitter = reactor.ring.submitter();
                submitter.register_buf_ring_with_flags(address, count, GROUP, 0)?;
            }
        }
        // For kernels, and moments, in which other threads cannot send a message to the ring.
        reactor.poll_descriptor()?;
        reactor.submit()?;
        reactor.target.set_ring(reactor.entrance.descriptor());
        Ok(reactor)
    }

    /// Whether every queued operation was submitted, and the kernel holds back no completion for
    /// lack of space. Then [`Reactor::next`] has returned, or will return, a completion for each
    /// [`Reactor::try_send`] that sent less than all.
    pub fn all_submitted(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.cq_overflow()
    }

    /// Submits the queued operations, and fetches the completions. Does not wait.
    ///
    /// # Errors
    /// As `io_uring_enter(2)`. `EBUSY` is not an error: completions must be taken first, and the
    /// queued operations stay queued.
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

    /// Submits `queued` operations of the queue, and fetches the completions.
    fn enter(&self, queued: usize) -> io::Result<()> {
        let (at, flag) = self.entrance.at()?;
        let arguments = [at, queued, 0, ENTER_GETEVENTS | flag, 0, 0];
        // SAFETY: the queued operations fulfil the contract of `queue`.
        outcome(unsafe { Target::enter(arguments) })
    }

    /// Submits the queued operations, and waits until an operation has completed, task work was
    /// added for this thread with [`Notify::Signal`](uwork_engine::task::Notify::Signal), or the timeout is over.
    /// Runs the task work that is due, before and after. Returns the number of items run.
    /// [`Reactor::next`] then returns the completions.
    ///
    /// Returns without waiting if completions are ready, or items were run, or items are due and
    /// cannot run inside of other items. May return spuriously. An item that panics counts
    /// as run.
    ///
    /// # Errors
    /// As `io_uring_enter(2)`; no error if it was interrupted or the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        if self.poll_ended {
            self.poll_descriptor()?;
        }
        let ran = run_due();
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
        let (at, flag) = self.entrance.at()?;
        let arguments = [
            at,
            queued,
            1,
            ENTER_GETEVENTS | ENTER_EXT_ARG | flag,
            (&raw const events).expose_provenance(),
            size_of::<GetEvents>(),
        ];
        // SAFETY: the target is this thread's and refers to the ring; the structures are live.
        outcome(unsafe { self.target.enter_ring(arguments) })?;
        let ran = run_due();
        // SAFETY: the target is this thread's own.
        let can_run = unsafe { self.target.can_run() };
        if !can_run || ran > 0 && !self.all_submitted() {
            // The system call was skipped, as items arrived before it.
            self.submit()?;
        }
        Ok(ran)
    }

    /// The next completion, if one is ready. Fetches none from the system: [`Reactor::wait`] and
    /// [`Reactor::submit`] do. Makes a system call for an accepted connection, a look at its identity,
    /// and none otherwise.
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
                // SAFETY: the completion names the buffer, and each completion is seen once.
                unsafe { buffers.take(id, u32::try_from(entry.result()).unwrap_or(0)) }
            });
            let (kind, token) = (entry.user_data() & KIND, entry.user_data() & TOKEN_MAX);
            let is_last = !io_uring::cqueue::more(entry.flags());
            let names = (kind == ACCEPT).then(|| self.accepts.names(token, is_last));
            let names = names.filter(|_| entry.result() >= 0);
            let socket = names.map(|names| (Untaken::new(entry.result()), names));
            return Some(Completion::new(&entry, token, buffer, socket));
        }
    }
}

/// The error for a ring that cannot be created, of the same kind as the kernel's error.
fn refused(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("io_uring_setup: {error}"))
}

/// Maps those results of `io_uring_enter` to success that are not failures.
fn outcome(result: Result<usize, i32>) -> io::Result<()> {
    match result {
        Ok(_) | Err(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
        Err(error) => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if self.target.is_of_parent() {
            // The parent's ring, which is not mapped in this child.
            return;
        }
        self.target.unset_ring();
        // Queued operations are submitted, to be cancelled with the rest; those that stay queued
        // never begin, so their memory may be freed.
        let _ = self.submit();
        // The kernel must not write to freed buffers.
        let cancelled = self.entrance.cancel_all(CANCEL_MAX);
        if cancelled {
            // Closes accepted descriptors that were not taken.
            let _ = self.enter(0);
            while self.next().is_some() {}
        } else {
            // An operation does not end. A leak is better than a write to memory that was reused.
            std::mem::forget(self.buffers.take());
        }
        // A fork waits, since the descriptor is in no list while it is closed.
        let _making = first_use::making();
        // SAFETY: taken here, and nowhere else.
        let entrance = unsafe { ManuallyDrop::take(&mut self.entrance) };
        if cancelled && entrance.close() {
            // SAFETY: dropped here, and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("ring", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}
