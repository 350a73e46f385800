//! The signal for a target that waits in a system call of its own: which one, how it is sent, what its handler
//! does. Why so: see the README.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use super::{Place, call};
use crate::first_use;
use crate::linux::relax;

/// A `siginfo_t` for `rt_tgsigqueueinfo`: the layout that rt_sigqueueinfo(2) and <linux/signal.h> give.
#[repr(C)]
struct Info {
    signo: i32,
    errno: i32,
    code: i32,
    /// The union behind it is aligned to a pointer.
    gap: i32,
    pid: i32,
    uid: u32,
    value: usize,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());
const _: () = assert!(std::mem::offset_of!(Info, pid) == 16);

/// The number could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalError {
    /// It is none of the real-time signals that a program may use.
    NotRealTime {
        /// What was asked for.
        number: i32,
        /// The lowest that is allowed.
        first: i32,
        /// The highest.
        last: i32,
    },
    /// The signal has been chosen already: by an earlier call, or by the first thread that needed it.
    Chosen {
        /// Which one it is.
        number: i32,
    },
    /// Each real-time signal has a handler of the program's.
    NoneFree,
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
        }
    }
}

impl std::error::Error for SignalError {}

/// The signal, once its handler was installed; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// What handled it before; null if nothing did. Never freed: a handler may be looking.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
/// What our signals carry: its address is nobody else's.
static MARK: u8 = 0;

fn mark() -> usize {
    std::ptr::from_ref(&MARK).addr()
}

/// Chooses a certain number. `restarts`: system calls other than those through the stub go on after it, where they
/// can.
pub(crate) fn set_signal(number: i32, restarts: bool) -> Result<(), SignalError> {
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

/// Makes the calling thread take the signal. Chooses it where nobody has.
pub(super) fn accept() -> Result<(), SignalError> {
    let mut number = SIGNAL.load(Ordering::Acquire);
    if number == 0 {
        let _choosing = first_use::making();
        number = SIGNAL.load(Ordering::Acquire);
        if number == 0 {
            let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
            // Threads of the library's take the one for stacks, and no other.
            let of_stacks = crate::linux::stack::signal();
            let is_free = |&number: &i32| {
                Some(number) != of_stacks && action_of(number).sa_sigaction == libc::SIG_DFL
            };
            number = (first..=last).rev().find(is_free).ok_or(SignalError::NoneFree)?;
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
    // SAFETY: zeros are a valid value; only asks. It cannot fail for a number in the range.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut action);
        action
    }
}

/// While nobody else makes anything, once.
fn install(number: i32, restarts: bool) {
    let before = action_of(number);
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
        // Before ours is in place, so that no signal of the program's is lost.
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    }
    // SAFETY: zeros are a valid value; the structures are live; the handler is async-signal-safe and stays for ever.
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
    SIGNAL.store(number, Ordering::Release);
}

/// For how long a full queue of signals is waited for.
const FULL_MAX: Duration = Duration::from_millis(500);

/// Sends the signal to a thread of this process, which has accepted it. False if it could not be sent: there was no
/// room in the queue of signals for long, or a filter refuses the call. Does nothing if the thread is gone.
#[must_use]
pub(super) fn send(thread: libc::pid_t) -> bool {
    let mut full_since = None;
    for round in 0.. {
        match send_once(thread, libc::SI_QUEUE) {
            Ok(()) | Err(libc::ESRCH) => return true,
            // The user has as many signals queued as the system allows. It takes one to be handled.
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

/// Sends it, if that can be done at once; else the error's number.
fn send_once(thread: libc::pid_t, code: i32) -> Result<(), i32> {
    let number = SIGNAL.load(Ordering::Acquire);
    // SAFETY: no arguments; cannot fail.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let info =
        Info { signo: number, errno: 0, code, gap: 0, pid, uid, value: mark(), rest: [0; 12] };
    // SAFETY: the structure is live and of the layout that the kernel reads. The signal has our handler.
    let outcome =
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, number, &raw const info) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

thread_local! {
    /// A signal that the thread has put off is to come without what it carries.
    static IS_BARE: Cell<bool> = const { Cell::new(false) };
}

/// The thread is in another handler, which has interrupted the stub: the signal comes again when that one returns.
/// Async-signal-safe.
fn put_off(number: libc::c_int, context: &mut libc::ucontext_t) {
    // SAFETY: the thread's own; the set is that of the interrupted handler, and it is one word of it that changes.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        // First the handler's mask: what it had before it comes back when it returns.
        libc::sigaddset(&raw mut context.uc_sigmask, number);
        let thread = libc::gettid();
        if send_once(thread, libc::SI_QUEUE).is_err() {
            // No room. A thread may send this to itself as `kill` would, which needs none: then it carries nothing.
            IS_BARE.set(true);
            let _ = send_once(thread, libc::SI_USER);
        }
        *errno = before;
    }
}

/// Whether a signal is task work's, and not the program's.
fn is_ours(info: &Info) -> bool {
    let is_marked = matches!(info.code, libc::SI_QUEUE | libc::SI_USER) && info.value == mark();
    // The thread's own signals come before those of the process, so it is the one that was put off.
    let is_bare = info.code == libc::SI_USER && info.pid == 0 && IS_BARE.get();
    if is_marked || is_bare {
        IS_BARE.set(false);
    }
    is_marked || is_bare
}

/// Async-signal-safe: it reads statics and what is the thread's own, writes the interrupted context, and at most sends
/// a signal.
extern "C" fn handle(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives the structure (`SA_SIGINFO`).
    if is_ours(unsafe { &*info.cast::<Info>() }) {
        // SAFETY: the kernel gives the structure, which is this handler's while it runs.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        match call::end_if_not_begun(context) {
            Place::Own => {}
            Place::Handler => put_off(number, context),
        }
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: null, or an action that is never freed.
    let Some(before) = (unsafe { before.as_ref() }) else { return };
    // SAFETY: the program has installed this handler for this signal, of the type that its flags say.
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
