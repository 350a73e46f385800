//! The signal that requests a thread's stack, and its handler. The README has the reasons for its
//! flags.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::exchange;
use crate::signal_info::{MARK, SignalInfo, queue_signal};
use crate::signals::{self, FAULTS};
use crate::small_files;

/// Of sigaction(2): a descriptor can be read from. The control socket has this signal sent for a
/// client.
#[cfg(feature = "control")]
const POLL_IN: i32 = 1;

/// The signal whose handler was installed last; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The signal of the library's threads; 0 before the choice. Not a `OnceLock`: a fork could find it half
/// initialized.
static CHOSEN: AtomicI32 = AtomicI32::new(0);
/// A value of [`CHOSEN`]: each real-time signal had a handler.
const NONE: i32 = -1;

/// The program waits for the signal of the library's threads: each of them blocks it from its creation
/// on, or once it has got it.
static IS_OF_PROGRAM: AtomicBool = AtomicBool::new(false);

/// The signal of the library's threads: the highest real-time signal without a handler when the first of
/// them is created, if possible one that its creator does not block.
pub(crate) fn number() -> Option<libc::c_int> {
    let mut chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen == 0 {
        let is_free =
            |&signal: &libc::c_int| action_of(signal).is_some_and(|action| is_free(&action));
        let found = signals::highest(is_free).unwrap_or(NONE);
        let first = CHOSEN.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
        chosen = first.map_or_else(|other| other, |_| found);
    }
    (chosen != NONE).then_some(chosen)
}

/// The signal that the calling thread, one of the library's, takes from its creation on. It has its
/// handler: its default action is the end of the process. `None` if the program uses it.
pub(crate) fn taken() -> Option<libc::c_int> {
    number().filter(|&signal| is_taken(signal) && has_handler(signal))
}

/// Whether threads of the library's take this signal.
fn is_taken(signal: libc::c_int) -> bool {
    Some(signal) == number() && !IS_OF_PROGRAM.load(Ordering::SeqCst)
}

/// Installs the handler again, if the program has set the signal to its default. For the watcher.
#[cfg(feature = "control")]
pub(crate) fn keep_handler() {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen > 0 {
        has_handler(chosen);
    }
}

/// Whether a thread of this process takes the signal. To another thread it would stay queued until that
/// ends. True if the system does not say.
pub(super) fn reaches(signal: libc::c_int, thread: u64) -> bool {
    if is_taken(signal) {
        return true;
    }
    let path = format!("/proc/self/task/{thread}/status");
    let status = small_files::contents(Path::new(&path), STATUS_MAX).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 << (signal - 1) == 0)
}

/// How much is read of the status of a thread, which lists the process's groups first.
const STATUS_MAX: usize = 64 << 10;

fn is_free(action: &libc::sigaction) -> bool {
    action.sa_sigaction == libc::SIG_DFL || is_ours(action)
}

/// The signal, with this module's handler installed. `None` if every real-time signal has another
/// handler.
pub(super) fn installed() -> Option<libc::c_int> {
    let known = SIGNAL.load(Ordering::Relaxed);
    if known != 0 && has_own_handler(known) {
        return Some(known);
    }
    // Two concurrent calls may choose different signals; both work. The one that workers take comes
    // first. Another one reaches threads of the program's only.
    let all = number().into_iter().chain((libc::SIGRTMIN()..=libc::SIGRTMAX()).rev());
    let signal = { all }.find(|&signal| has_handler(signal))?;
    SIGNAL.store(signal, Ordering::Relaxed);
    Some(signal)
}

/// The signal by which the kernel tells the watcher of a client. Its default action is to do nothing,
/// so a program that sets all signals to their defaults is not ended by a client.
#[cfg(feature = "control")]
pub(crate) const OF_CLIENTS: libc::c_int = libc::SIGURG;

/// Whether [`OF_CLIENTS`] has this module's handler, which is installed if the signal has none.
#[cfg(feature = "control")]
pub(crate) fn has_signal_of_clients() -> bool {
    has_handler(OF_CLIENTS)
}

/// Sets [`OF_CLIENTS`] to its default again, unless the program has set it meanwhile. The default is to
/// do nothing, and thus ends no wait of the program's, as each handler does.
#[cfg(feature = "control")]
pub(crate) fn give_up_signal_of_clients() {
    if !has_own_handler(OF_CLIENTS) {
        return;
    }
    // SAFETY: zeros are a valid value, the default action; the structures are live.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before = default;
        libc::sigaction(OF_CLIENTS, &raw const default, &raw mut before);
        if !is_ours(&before) {
            // The program took it between the check and now: restore its handler.
            libc::sigaction(OF_CLIENTS, &raw const before, std::ptr::null_mut());
        }
    }
}

/// The value of a signal that ends a system call is this static's address, which is unique.
#[cfg(feature = "control")]
static INTERRUPTS: u8 = 0;

/// Ends the system call of a thread of the library's, if it makes that through the stub
/// ([`crate::task::checked`]). False if the signal cannot be sent.
#[cfg(feature = "control")]
pub(crate) fn interrupt(thread: libc::pid_t) -> bool {
    let value = std::ptr::from_ref(&INTERRUPTS).addr();
    // Another signal would not reach a thread of the library's.
    let signal = installed().filter(|&signal| is_taken(signal));
    signal.is_some_and(|signal| send(signal, thread, value))
}

/// Sends a request to a thread of this process. False if it has ended or cannot be sent a signal.
pub(super) fn send(signal: libc::c_int, thread: libc::pid_t, value: usize) -> bool {
    // SAFETY: the signal has this module's handler.
    unsafe { queue_signal(signal, thread, libc::SI_QUEUE, value) }.is_ok()
}

fn action_of(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a query; fills the structure if it succeeds.
    unsafe {
        (libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0)
            .then(|| action.assume_init())
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler_address()
}

fn handler_address() -> libc::sighandler_t {
    handle as *const () as libc::sighandler_t
}

fn has_own_handler(signal: libc::c_int) -> bool {
    action_of(signal).is_some_and(|action| is_ours(&action))
}

/// Whether the signal has this module's handler, which is installed if it has none.
fn has_handler(signal: libc::c_int) -> bool {
    has_own_handler(signal) || install(signal)
}

/// Installs this module's handler if the signal has none.
fn install(signal: libc::c_int) -> bool {
    if !action_of(signal).is_some_and(|action| is_free(&action)) {
        return false;
    }
    // SAFETY: zeros are a valid value of this structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before = action;
    action.sa_sigaction = handler_address();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the structures are live; the handler is async-signal-safe and stays for ever.
    unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        if libc::sigaction(signal, &raw const action, &raw mut before) != 0 {
            return false;
        }
        if !is_free(&before) {
            // Other code took it between the check and now: restore its handler.
            libc::sigaction(signal, &raw const before, std::ptr::null_mut());
            return false;
        }
    }
    true
}

/// Whether a thread with this mask takes none of the program's signals, as those of the library's. A thread
/// of the program's with such a mask may be taken for one of them. Not by a variable of the thread: its
/// first use in a thread may allocate it. Async-signal-safe.
fn is_of_library(mask: &libc::sigset_t) -> bool {
    const STANDARD: std::ops::Range<libc::c_int> = 1..32;
    let is_left_out = |signal| {
        FAULTS.contains(&signal) || matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGURG)
    };
    // SAFETY: the set is live.
    let is_blocked = |signal| unsafe { libc::sigismember(mask, signal) == 1 };
    { STANDARD }.all(|signal| is_left_out(signal) || is_blocked(signal))
}

/// Has another thread of the process take a signal that the program waits for, by sigwait(3) or a
/// signalfd: all of the program's threads block it, so it came to this one. From here on this thread
/// blocks it too. Async-signal-safe.
fn leave_to_program(
    signal: libc::c_int,
    info: *const libc::siginfo_t,
    context: &mut libc::ucontext_t,
) {
    // SAFETY: the structures are live. The mask in the context is in force when the handler returns, and
    // until then the thread blocks every signal.
    unsafe {
        libc::sigaddset(&raw mut context.uc_sigmask, signal);
        // The number of any thread stands for its process. Only under its own number may a thread send
        // what the system sends.
        let thread = crate::thread::tid();
        if libc::syscall(libc::SYS_rt_sigqueueinfo, thread, signal, info) != 0 {
            libc::kill(libc::getpid(), signal);
        }
    }
}

/// Async-signal-safe: see the README.
extern "C" fn handle(
    signal: libc::c_int,
    info: *const libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: `errno` is the thread's own; the kernel passes both structures (`SA_SIGINFO`), which
    // only this handler uses while it runs, and a queued signal (`SI_QUEUE`) has this layout.
    let (errno, request, context) = unsafe {
        (
            libc::__errno_location(),
            &*info.cast::<SignalInfo>(),
            &mut *context.cast::<libc::ucontext_t>(),
        )
    };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    match sent(signal, request, context) {
        #[cfg(feature = "control")]
        Sent::Client => crate::control::connection_arrived(),
        #[cfg(feature = "control")]
        Sent::Interrupt => _ = crate::task::end_if_not_begun(context),
        Sent::Request => {
            let thread = crate::thread::tid();
            exchange::answer(request.value, thread, |snapshot| snapshot.fill(context));
        }
        Sent::ToProgram => leave_to_program(signal, info, context),
        Sent::InVain => {}
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// The purpose of a signal.
enum Sent {
    /// By the kernel, as a client has connected.
    #[cfg(feature = "control")]
    Client,
    /// See [`interrupt`].
    #[cfg(feature = "control")]
    Interrupt,
    /// A request for the thread's stack.
    Request,
    /// By other code, to the process: the program waits for it.
    ToProgram,
    /// By other code, and the program ignores it.
    InVain,
}

/// The purpose of a signal that the calling thread handles. Notes what the program uses.
/// Async-signal-safe.
fn sent(signal: libc::c_int, request: &SignalInfo, context: &libc::ucontext_t) -> Sent {
    #[cfg(feature = "control")]
    if signal == OF_CLIENTS {
        let is_watcher = crate::control::is_watcher();
        if is_watcher && request.code == POLL_IN {
            return Sent::Client;
        }
        crate::control::signal_is_of_program(is_watcher);
        return if is_watcher { Sent::ToProgram } else { Sent::InVain };
    }
    let is_own = request.errno == MARK;
    #[cfg(feature = "control")]
    if is_own && request.value == std::ptr::from_ref(&INTERRUPTS).addr() {
        return Sent::Interrupt;
    }
    if is_own {
        return Sent::Request;
    }
    if !is_of_library(&context.uc_sigmask) {
        return Sent::InVain;
    }
    if signal == CHOSEN.load(Ordering::SeqCst) {
        IS_OF_PROGRAM.store(true, Ordering::SeqCst);
    }
    Sent::ToProgram
}
