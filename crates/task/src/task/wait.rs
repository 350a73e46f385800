//! Waits that end when task work is due.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uwork_linux::task::{Delivery, Target, Wait, current, ended, own, run_due};

/// Sleeps until an item added with [`Notify::Signal`](super::Notify::Signal) is due for the calling
/// thread, and runs all items in its list. Returns the number of items run: 0 is possible if an
/// item was taken back, and where [nothing can run](super#runs-inside-of-items).
///
/// Returns 0 at once if the thread is ending and its thread-local destructors, uwork's among them,
/// have run: no item comes any more.
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
/// ```
/// use std::time::Duration;
/// use uwork::task::{self, Notify, TaskHandle};
/// // Without a notification, the item does not end the wait.
/// TaskHandle::current().add_fn(Notify::None, || ()).unwrap();
/// assert_eq!(task::park_timeout(Duration::from_millis(1)), 0);
/// assert_eq!(task::run(), 1);
/// ```
pub fn park_timeout(timeout: Duration) -> usize {
    // A time beyond the range of the clock means no timeout.
    park_until(Instant::now().checked_add(timeout))
}

fn park_until(deadline: Option<Instant>) -> usize {
    let Ok(target) = own() else { return 0 };
    let ran = run_due();
    if ran > 0 {
        return ran;
    }
    // SAFETY: the target is the calling thread's own.
    unsafe { target.park(deadline) };
    run_due()
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

/// The calling thread's [`Notifier`]. Each call gives the same descriptor, or a new one if the
/// program has closed that.
///
/// # Errors
/// No eventfd can be created. `ESRCH`: the thread's thread-local destructors have run.
pub fn notifier() -> io::Result<Notifier> {
    let target = current(Delivery::Auto).ok_or_else(ended)?;
    target.open_descriptor()?;
    Ok(Notifier { target, not_send: PhantomData })
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.target.descriptor().expect("`notifier` has made it")
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
