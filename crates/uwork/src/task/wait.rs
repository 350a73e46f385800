//! Waits that task work ends.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::ENDED;
use crate::linux::task::{Delivery, Target, Wait, current, current_or_none};

/// The calling thread's target, registered if need be.
///
/// The reference is good until the thread's destructors run: it does not leave this module.
fn own<'a>() -> &'a Target {
    if current_or_none().is_none() {
        current(Delivery::Auto).expect(ENDED);
    }
    current_or_none().expect(ENDED)
}

/// Runs what is due, if anything is.
fn due(target: &Target) -> usize {
    // SAFETY: the calling thread's own.
    if target.is_notified() { unsafe { target.run_once() } } else { 0 }
}

/// Sleeps until the calling thread has something to run that was added with
/// [`Notify::Signal`](super::Notify::Signal), and runs what there is. How many items that were: 0 is possible,
/// where an item was taken back, and where [nothing can be run](super#runs-inside-of-items).
///
/// # Panics
/// If the thread's destructors have run.
///
/// ```
/// use uwork::task::{self, Notify, TaskHandle};
/// let handle = TaskHandle::current();
/// let adder = std::thread::spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
/// while task::park() == 0 {}
/// assert!(adder.join().unwrap());
/// ```
pub fn park() -> usize {
    park_until(None)
}

/// As [`park`], for `timeout` at most: 0 after it.
///
/// # Panics
/// As [`park`].
///
/// ```
/// use std::time::Duration;
/// use uwork::task::{self, Notify, TaskHandle};
/// // Not what it is told of: it sleeps.
/// TaskHandle::current().add_fn(Notify::None, || ()).unwrap();
/// assert_eq!(task::park_timeout(Duration::from_millis(1)), 0);
/// assert_eq!(task::run(), 1);
/// ```
pub fn park_timeout(timeout: Duration) -> usize {
    // A time that the clock does not reach is none.
    park_until(Instant::now().checked_add(timeout))
}

fn park_until(deadline: Option<Instant>) -> usize {
    let target = own();
    let ran = due(target);
    if ran > 0 {
        return ran;
    }
    // SAFETY: the calling thread's own.
    unsafe { target.park(deadline) };
    due(target)
}

/// A descriptor that becomes readable when the calling thread has something to run, for its own waits: put it in an
/// epoll set, a poll, a ring, and wait inside of [`Notifier::wait`]. It is open as long as the thread, this, or a
/// handle of the thread lives. A forked child asks for a new one.
///
/// ```
/// use std::os::fd::{AsFd, AsRawFd};
/// use uwork::task::{self, Notify, TaskHandle};
///
/// let notifier = task::notifier()?;
/// let handle = TaskHandle::current();
/// let adder = std::thread::spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
/// let mut ran = 0;
/// while ran == 0 {
///     notifier.wait(|| {
///         let fd = notifier.as_fd().as_raw_fd();
///         let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
///         unsafe { libc::poll(&mut poll, 1, -1) }
///     });
///     ran = task::run_once();
/// }
/// assert_eq!(ran, 1);
/// assert!(adder.join().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Notifier {
    /// The calling thread's. It has the descriptor, which so stays open as long as somebody can have borrowed it.
    target: Arc<Target>,
    not_send: PhantomData<*mut ()>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("fd", &self.as_fd().as_raw_fd()).finish_non_exhaustive()
    }
}

/// The calling thread's [`Notifier`]; each call gives the same descriptor.
///
/// # Errors
/// No eventfd can be made.
///
/// # Panics
/// If the thread's destructors have run.
pub fn notifier() -> io::Result<Notifier> {
    let target = current(Delivery::Auto).expect(ENDED);
    target.descriptor()?;
    Ok(Notifier { target, not_send: PhantomData })
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // It was made once, by `notifier`.
        self.target.descriptor().expect("the descriptor exists")
    }
}

impl Notifier {
    /// Calls `wait`, which waits for the descriptor to become readable, or for something else. `None` if there is
    /// something to run already: then `wait` is not called.
    ///
    /// While `wait` runs, items are told by way of the descriptor and no other, whatever the thread's
    /// [`Delivery`]. Afterwards the descriptor is not readable, except that a late notification may leave it so for
    /// one further round. No item is run by this. `wait` may run items, and may wait in any other of this module's
    /// ways: what comes during an inner wait, and is not run in there, makes the descriptor readable after it.
    ///
    /// # Panics
    /// A panic of `wait` goes through, and ends the wait.
    pub fn wait<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        // SAFETY: the calling thread's own; a write to the eventfd stays until it is read.
        let result = unsafe { self.target.wait(Wait::Descriptor, wait) };
        if result.is_some() {
            self.target.clear_descriptor();
        }
        result
    }

    /// As [`Notifier::wait`], for a descriptor that is in an epoll set by its edges (`EPOLLET`): nothing has to be
    /// read from it then, which saves a system call for each notification. Nothing else than that set may wait for
    /// it.
    ///
    /// # Panics
    /// As [`Notifier::wait`].
    ///
    /// ```
    /// use std::os::fd::{AsFd, AsRawFd};
    /// use uwork::task::{self, Notify, TaskHandle};
    ///
    /// let notifier = task::notifier()?;
    /// let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    /// let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    /// let fd = notifier.as_fd().as_raw_fd();
    /// assert_eq!(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }, 0);
    ///
    /// let handle = TaskHandle::current();
    /// let adder = std::thread::spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
    /// let mut ran = 0;
    /// while ran == 0 {
    ///     notifier.wait_for_edge(|| unsafe { libc::epoll_wait(epoll, &mut event, 1, -1) });
    ///     ran = task::run_once();
    /// }
    /// assert!(adder.join().unwrap());
    /// # unsafe { libc::close(epoll) };
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_for_edge<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        // SAFETY: as in `wait`; an edge stays in the epoll set until it was reported.
        unsafe { self.target.wait(Wait::Descriptor, wait) }
    }
}

/// `read(2)`; while it waits, task work is run as it comes.
///
/// # Errors
/// As the system call. `Interrupted` if a signal of the program's, or a late one of uwork's, ended it, or if items are
/// due and [cannot be run](super#runs-inside-of-items); `Unsupported` on processors without a stub (all but x86-64 and
/// AArch64).
///
/// # Panics
/// If the thread's destructors have run.
///
/// ```
/// use std::io::Write;
/// use uwork::task::{self, Notify, TaskHandle};
/// let (reader, mut writer) = std::io::pipe()?;
/// let handle = TaskHandle::current();
/// let adder = std::thread::spawn(move || {
///     // Runs on the thread that is asleep in the read, and lets it go on.
///     handle.add_fn(Notify::Signal, move || writer.write_all(b"x").unwrap()).is_ok()
/// });
/// let mut buffer = [0; 8];
/// assert_eq!(task::read(&reader, &mut buffer)?, 1);
/// assert!(adder.join().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    let arguments = [fd, buffer.as_mut_ptr().addr(), buffer.len(), 0, 0, 0];
    let _ = buffer.as_mut_ptr().expose_provenance();
    // SAFETY: the buffer is live, writable and as long as said.
    repeated(|| unsafe { syscall(libc::SYS_read, arguments) })
}

/// `epoll_wait(2)`; while it waits, task work is run as it comes. Without an eventfd in the set: a signal ends it.
/// The timeout is in milliseconds, -1 for none, and begins anew after items were run.
///
/// A [`Notifier`] is cheaper for whoever has it in the set.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// If the thread's destructors have run.
///
/// ```
/// use std::io::Write;
/// use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
/// use uwork::task::{self, Notify, TaskHandle};
///
/// let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
/// let add = libc::EPOLL_CTL_ADD;
/// unsafe { libc::epoll_ctl(epoll.as_raw_fd(), add, reader.as_raw_fd(), &mut event) };
///
/// let handle = TaskHandle::current();
/// let adder = std::thread::spawn(move || {
///     // Runs on the thread that is asleep in the call, and lets it go on.
///     handle.add_fn(Notify::Signal, move || writer.write_all(b"x").unwrap()).is_ok()
/// });
/// let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
/// assert_eq!(task::epoll_wait(&epoll, &mut events, -1)?, 1);
/// assert_eq!({ events[0].u64 }, 7);
/// assert!(adder.join().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn epoll_wait(
    epoll: impl AsFd,
    events: &mut [libc::epoll_event],
    timeout_ms: i32,
) -> io::Result<usize> {
    let epoll = epoll.as_fd().as_raw_fd() as usize;
    let max = i32::try_from(events.len()).unwrap_or(i32::MAX) as usize;
    let address = events.as_mut_ptr().expose_provenance();
    // epoll_pwait without a mask: AArch64 has no other.
    let arguments = [epoll, address, max, timeout_ms as usize, 0, 8];
    // SAFETY: the events are live, writable and as many as said.
    repeated(|| unsafe { syscall(libc::SYS_epoll_pwait, arguments) })
}

/// Repeats a call that task work has ended, after the work.
fn repeated(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        let result = call();
        // Also where the items were taken back since, and none is left to run. Where none can be run, the call would
        // end again and again.
        // SAFETY: the calling thread's own.
        let told = current_or_none()
            .is_some_and(|target| target.is_notified() && unsafe { target.can_run() });
        super::safe_point();
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && told => {}
            result => return result,
        }
    }
}

/// A system call that ends when the calling thread is told to run items, also where it is told between the last look
/// and the call itself. Runs no item.
///
/// # Errors
/// As the system call. `Interrupted` if there is something to run ([`safe_point`](super::safe_point)) or that
/// [cannot be run](super#runs-inside-of-items) here, or if a signal
/// of the program's, or a late one of uwork's, ended the call: then the call has done nothing. `Unsupported` on
/// processors without a stub; `Other` if each real-time signal has a handler of the program's.
///
/// # Panics
/// If the thread's destructors have run.
///
/// # Safety
/// As the system call's. No handler of a signal may leave it by `longjmp`.
///
/// ```
/// use uwork::task::{self, Notify, TaskHandle};
/// let time = libc::timespec { tv_sec: 3600, tv_nsec: 0 };
/// let arguments = [std::ptr::from_ref(&time).expose_provenance(), 0, 0, 0, 0, 0];
/// TaskHandle::current().add_fn(Notify::Signal, || ()).unwrap();
/// // There is something to run: it does not sleep for an hour.
/// let error = unsafe { task::syscall(libc::SYS_nanosleep, arguments) }.unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
/// assert_eq!(task::safe_point(), 1);
/// ```
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    let target = own();
    target.accept_signal().map_err(io::Error::other)?;
    // SAFETY: the calling thread's own; the rest by this function's contract.
    unsafe { target.call(number, arguments) }.map_err(io::Error::from_raw_os_error)
}
