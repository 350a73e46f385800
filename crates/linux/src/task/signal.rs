//! The signal for a target that waits in a system call of its own: its choice, its sending, and its
//! handler. The README has the reasons.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use super::{Place, call};
use crate::first_use;
use crate::relax;
use crate::signal_info::{SignalInfo, queue_signal};

/// The signal could not be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalError {
    /// The number is not one of the real-time signals that a program may use.
    NotRealTime {
        /// The requested number.
        number: i32,
        /// The lowest permitted number.
        first: i32,
        /// The highest permitted number.
        last: i32,
    },
    /// The signal has been chosen already: by an earlier call, or by the first thread that needed
    /// it.
    Chosen {
        /// The chosen number.
        number: i32,
    },
    /// The program has a handler for each real-time signal.
    NoneFree,
    /// The calling thread ends, and its task work has ended.
    Ended,
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignalError::NotRealTime { number, first, last } => {
                write!(f, "signal {number} is not a real-time signal ({first} to {last} are allowed)")
            }
            SignalError::Chosen { number } => {
                write!(f, "signal {number} is in use already: choose before the first thread registers")
            }
            SignalError::NoneFree => f.write_str(
                "every real-time signal has a handler; choose one by set_signal, and its handler goes on to be called",
            ),
            SignalError::Ended => f.write_str(super::ENDED),
        }
    }
}

impl std::error::Error for SignalError {}

/// The signal, once its handler was installed; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The second argument of [`set_signal`]. Stored before [`SIGNAL`].
static RESTARTS: AtomicBool = AtomicBool::new(false);
/// The program's earlier handler; null if it had none. Never freed: a signal handler may be reading
/// it.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
/// The value of uwork's signals is this static's address, which is unique.
static MARK: u8 = 0;

fn mark() -> usize {
    std::ptr::from_ref(&MARK).addr()
}

/// Chooses a certain number. `restarts`: system calls other than those through the stub continue
/// after the signal, if they can.
pub fn set_signal(number: i32, restarts: bool) -> Result<(), SignalError> {
    let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    if !(first..=last).contains(&number) {
        return Err(SignalError::NotRealTime { number, first, last });
    }
    let _choosing = first_use::making();
    match SIGNAL.load(Ordering::Acquire) {
        0 => {}
        number => return Err(SignalError::Chosen { number }),
    }
    install(number, restarts);
    Ok(())
}

/// Unblocks the signal on the calling thread. Chooses the signal, if none was chosen yet.
pub(super) fn accept() -> Result<(), SignalError> {
    let mut number = SIGNAL.load(Ordering::Acquire);
    if number == 0 {
        let _choosing = first_use::making();
        number = SIGNAL.load(Ordering::Acquire);
        if number == 0 {
            // The library's own threads take the signal for stacks, and no other.
            let of_stacks = crate::stack::signal();
            let is_free = |&number: &i32| {
                Some(number) != of_stacks && action_of(number).sa_sigaction == libc::SIG_DFL
            };
            number = crate::signals::highest(is_free).ok_or(SignalError::NoneFree)?;
            install(number, false);
        }
    }
    // SAFETY: the set is live, and filled before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    Ok(())
}

fn action_of(number: i32) -> libc::sigaction {
    // SAFETY: zeros are a valid value; a query. It cannot fail for a number in the range.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut action);
        action
    }
}

/// Installs the handler, and keeps the program's for [`handle`]. Called once, with the lock of
/// `first_use` held.
fn install(number: i32, restarts: bool) {
    let before = action_of(number);
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
        // Before the new handler is installed, so that no signal of the program's is lost.
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    }
    RESTARTS.store(restarts, Ordering::Relaxed);
    set_handler(number);
    SIGNAL.store(number, Ordering::Release);
}

/// Sets the action of the signal.
fn set_handler(number: i32) {
    let restarts = RESTARTS.load(Ordering::Relaxed);
    // SAFETY: zeros are a valid value; the structures are live; the handler is async-signal-safe
    // and stays for ever.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if restarts {
            action.sa_flags |= libc::SA_RESTART;
        }
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(number, &raw const action, std::ptr::null_mut());
    }
}

/// Installs the handler again, if the program has set the signal to its default, which would end the
/// process.
fn keep_handler() {
    let number = SIGNAL.load(Ordering::Acquire);
    if action_of(number).sa_sigaction == libc::SIG_DFL {
        set_handler(number);
    }
}

/// How long a sender waits while the queue of signals is full.
const FULL_MAX: Duration = Duration::from_millis(500);

/// Sends the signal to a thread of this process, which has accepted it. False if it could not be
/// sent: the queue of signals stayed full, or a filter refuses the call. Does nothing if the thread
/// has ended.
#[must_use]
pub(super) fn send(thread: libc::pid_t) -> bool {
    keep_handler();
    let mut full_since = None;
    for round in 0.. {
        match send_once(thread, libc::SI_QUEUE) {
            Ok(()) | Err(libc::ESRCH) => return true,
            // The user has as many signals queued as the system permits. An entry is freed when one
            // is handled.
            Err(libc::EAGAIN) => {}
            Err(_) => return false,
        }
        if full_since.get_or_insert_with(Instant::now).elapsed() > FULL_MAX {
            break;
        }
        relax(round);
    }
    false
}

/// Sends it, in one attempt; returns the error's number if that fails.
fn send_once(thread: libc::pid_t, code: i32) -> Result<(), i32> {
    let number = SIGNAL.load(Ordering::Acquire);
    // SAFETY: the signal has this module's handler.
    unsafe { queue_signal(number, thread, code, mark()) }
}

thread_local! {
    /// A deferred signal of this thread is due that does not carry its value.
    static IS_BARE: Cell<bool> = const { Cell::new(false) };
}

/// Defers the signal: the thread is in another handler, which has interrupted the stub. The signal
/// is delivered again when that handler returns. Async-signal-safe.
fn defer_signal(number: libc::c_int, context: &mut libc::ucontext_t) {
    // SAFETY: `errno` is the thread's own; the set is that of the interrupted handler, and only one
    // word of it changes.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        // First the handler's mask: its return restores the mask from before it.
        libc::sigaddset(&raw mut context.uc_sigmask, number);
        let thread = crate::thread::tid();
        if send_once(thread, libc::SI_QUEUE).is_err() {
            // The queue is full. A thread may send itself the signal as `kill` does, which needs no
            // entry; then it carries no value.
            IS_BARE.set(true);
            let _ = send_once(thread, libc::SI_USER);
        }
        *errno = before;
    }
}

/// Whether a signal is task work's, and not the program's.
fn is_ours(info: &SignalInfo) -> bool {
    let is_marked = matches!(info.code, libc::SI_QUEUE | libc::SI_USER) && info.value == mark();
    // Signals for the thread are delivered before those for the process, so this is the deferred
    // one.
    let is_bare = info.code == libc::SI_USER && info.pid == 0 && IS_BARE.get();
    if is_marked || is_bare {
        IS_BARE.set(false);
    }
    is_marked || is_bare
}

/// Async-signal-safe: it reads statics and thread-local data, writes the interrupted context, and
/// at most sends a signal.
extern "C" fn handle(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the structure (`SA_SIGINFO`).
    if is_ours(unsafe { &*info.cast::<SignalInfo>() }) {
        // SAFETY: the kernel passes the structure, which only this handler uses while it runs.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        match call::end_if_not_begun(context) {
            Place::Own => {}
            Place::Handler => defer_signal(number, context),
        }
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: null, or an action that is never freed.
    let Some(before) = (unsafe { before.as_ref() }) else { return };
    // SAFETY: the program has installed this handler for this signal, of the type given by its
    // flags.
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(before.sa_sigaction);
            handler(number, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(before.sa_sigaction);
            handler(number);
        }
    }
}
