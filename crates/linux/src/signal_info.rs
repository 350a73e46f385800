//! `siginfo_t` as rt_tgsigqueueinfo(2) takes it, and that call: a signal with a value for a thread of
//! this process.

use std::io;

/// A `siginfo_t` of a queued signal: the layout that rt_sigqueueinfo(2) and <linux/signal.h> give.
#[repr(C)]
pub(crate) struct SignalInfo {
    signo: i32,
    /// [`MARK`] in the library's own signals, else 0 or an error's number.
    pub(crate) errno: i32,
    /// How it was sent: `SI_QUEUE`, `SI_USER` or another constant of sigaction(2).
    pub(crate) code: i32,
    /// The union that follows is aligned to a pointer.
    gap: i32,
    /// The sender.
    pub(crate) pid: i32,
    uid: u32,
    /// The sender's value.
    pub(crate) value: usize,
    rest: [u64; 12],
}

/// Marks the library's own signals. No error has this number.
pub(crate) const MARK: i32 = 0x7577_6f72;

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());
const _: () = assert!(std::mem::offset_of!(SignalInfo, pid) == 16);

/// Sends a signal with a value to a thread of this process, in one attempt. Async-signal-safe.
///
/// # Safety
/// The signal has a handler of the library's.
///
/// # Errors
/// The error's number: the thread has ended, the queue of signals is full, or a filter refuses the
/// call.
pub(crate) unsafe fn queue_signal(
    signo: libc::c_int,
    thread: libc::pid_t,
    code: i32,
    value: usize,
) -> Result<(), i32> {
    // SAFETY: no arguments; cannot fail.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let info = SignalInfo { signo, errno: MARK, code, gap: 0, pid, uid, value, rest: [0; 12] };
    // SAFETY: the structure is live and of the layout that the kernel reads. The handler can run on
    // any thread of this process.
    let outcome =
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, signo, &raw const info) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}
