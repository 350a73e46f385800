//! System calls that end when task work is due for the calling thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::target::{current_or_none, own, run_due};

/// `read(2)` that runs task work as it arrives, while it waits.
///
/// # Errors
/// As the system call. `Interrupted` if a signal of the program's, or a late one of uwork's, ended
/// it, or if items are due and cannot run inside of other items; `Unsupported` on
/// processors without a stub (all but x86-64 and AArch64); `ESRCH` if the
/// thread's thread-local destructors have run.
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
/// A `Notifier` in the set is cheaper.
///
/// # Errors
/// As [`read`].
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
        run_due();
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
/// As the system call. `Interrupted` if an item is due (`safe_point` runs it)
/// or is due and cannot run inside of other items here, or if a signal of the program's, or
/// a late one of uwork's, ended the call: then the call has had no effect. `Unsupported` on
/// processors without a stub; `Other` if the program has a handler for each real-time signal.
/// `ESRCH`: the thread's thread-local destructors have run.
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
    let target = own()?;
    target.accept_signal().map_err(io::Error::other)?;
    // SAFETY: the calling thread's own; the rest by this function's contract.
    unsafe { target.call(number, arguments) }.map_err(io::Error::from_raw_os_error)
}
