//! Waits that end when task work is due.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uwork_linux::task::{Delivery, Target, Wait, current, current_or_none};

use super::handle::ENDED;

/// The calling thread's target, registered first if necessary.
///
/// The reference is valid until the thread's destructors run: it must not leave this module.
fn own<'a>() -> &'a Target {
    if current_or_none().is_none() {
        current(Delivery::Auto).expect(ENDED);
    }
    current_or_none().expect(ENDED)
}

/// Runs the items that are due, if any.
fn due(target: &Target) -> usize {
    // SAFETY: the target is the calling thread's own.
    if target.is_notified() { unsafe { target.run_once() } } else { 0 }
}

/// Sleeps until an item added with [`Notify::Signal`](super::Notify::Signal) is due for the calling
/// thread, and runs all items in its list. Returns the number of items run: 0 is possible if an
/// item was taken back, and where [nothing can run](super#runs-inside-of-items).
///
/// # Panics
/// If the thread's thread-local destructors have run.
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

/// As [`park`], for `timeout` at most: returns 0 on timeout.
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
    // A time beyond the range of the clock means no timeout.
    park_until(Instant::now().checked_add(timeout))
}

fn park_until(deadline: Option<Instant>) -> usize {
    let target = own();
    let ran = due(target);
    if ran > 0 {
        return ran;
    }
    // SAFETY: the target is the calling thread's own.
    unsafe { target.park(deadline) };
    due(target)
}

/// A descriptor that becomes readable when an item is due for the calling thread, for the thread's
/// own waits: put it in an epoll set, a poll or a ring, and wait inside [`Notifier::wait`]. It is
/// open as long as the thread, this value, or a handle of the thread lives. A forked child asks for
/// a new one.
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
    /// The calling thread's. It owns the descriptor, which therefore stays open as long as it can
    /// be borrowed.
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
/// No eventfd can be created.
///
/// # Panics
/// If the thread's thread-local destructors have run.
pub fn notifier() -> io::Result<Notifier> {
    let target = current(Delivery::Auto).expect(ENDED);
    target.descriptor()?;
    Ok(Notifier { target, not_send: PhantomData })
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // `notifier` created it.
        self.target.descriptor().expect("the descriptor exists")
    }
}

impl Notifier {
    /// Calls `wait`, which waits for the descriptor to become readable, or for something else.
    /// Returns `None`, without a call to `wait`, if an item is due already.
    ///
    /// While `wait` runs, notifications come through the descriptor and in no other way, whatever
    /// the thread's [`Delivery`]. Afterwards the descriptor is not readable; a late notification
    /// may leave it readable for one further round. This call runs no item itself. `wait` may run
    /// items, and may wait in any other way of this module: an item that arrives during an inner
    /// wait, and is not run in it, makes the descriptor readable after it.
    ///
    /// # Panics
    /// A panic of `wait` ends the wait and unwinds through this call.
    pub fn wait<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        // SAFETY: the target is the calling thread's own; a write to the eventfd stays until it is
        // read.
        let result = unsafe { self.target.wait(Wait::Descriptor, wait) };
        if result.is_some() {
            self.target.clear_descriptor();
        }
        result
    }

    /// As [`Notifier::wait`], for a descriptor that is in an edge-triggered epoll set (`EPOLLET`):
    /// such a descriptor need not be read, which saves a system call for each notification. That
    /// epoll set must be the descriptor's only user.
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
        // SAFETY: as in `wait`; an edge stays in the epoll set until it is reported.
        unsafe { self.target.wait(Wait::Descriptor, wait) }
    }
}

/// `read(2)` that runs task work as it arrives, while it waits.
///
/// # Errors
/// As the system call. `Interrupted` if a signal of the program's, or a late one of uwork's, ended
/// it, or if items are due and [cannot run](super#runs-inside-of-items); `Unsupported` on
/// processors without a stub (all but x86-64 and AArch64).
///
/// # Panics
/// If the thread's thread-local destructors have run.
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
    // SAFETY: the buffer is live, writable and of the given length.
    repeated(|| unsafe { syscall(libc::SYS_read, arguments) })
}

/// `epoll_wait(2)` that runs task work as it arrives, while it waits. It needs no eventfd in the
/// set: a signal ends the wait. The timeout is in milliseconds, -1 for none, and begins anew after
/// items were run.
///
/// A [`Notifier`] in the set is cheaper.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// If the thread's thread-local destructors have run.
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
    // epoll_pwait without a mask: AArch64 has no `epoll_wait`.
    let arguments = [epoll, address, max, timeout_ms as usize, 0, 8];
    // SAFETY: the events are live, writable and as many as given.
    repeated(|| unsafe { syscall(libc::SYS_epoll_pwait, arguments) })
}

/// Runs the task work that interrupted a call, then repeats the call.
fn repeated(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        let result = call();
        // SAFETY: the target is the calling thread's own. The check holds also if the items were
        // taken back since, so that none is left to run. Where none can run, the call would be
        // interrupted for ever, so it is not repeated.
        let told = current_or_none()
            .is_some_and(|target| target.is_notified() && unsafe { target.can_run() });
        super::safe_point();
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && told => {}
            result => return result,
        }
    }
}

/// A system call that ends when the calling thread is notified to run items, even if the
/// notification comes between the last check and the call itself. Runs no item.
///
/// # Errors
/// As the system call. `Interrupted` if an item is due ([`safe_point`](super::safe_point) runs it)
/// or is due and [cannot run](super#runs-inside-of-items) here, or if a signal of the program's, or
/// a late one of uwork's, ended the call: then the call has had no effect. `Unsupported` on
/// processors without a stub; `Other` if the program has a handler for each real-time signal.
///
/// # Panics
/// If the thread's thread-local destructors have run.
///
/// # Safety
/// As the system call's. No signal handler may leave it by `longjmp`.
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
