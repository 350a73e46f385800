//! The signal that requests a thread's stack, and its handler. The README has the reasons for its
//! flags.

use std::sync::atomic::{AtomicI32, Ordering};

use super::exchange;
use crate::signal_info::{SignalInfo, queue_signal};

/// Of sigaction(2): a descriptor can be read from. The control socket has this signal sent for a
/// client.
const POLL_IN: i32 = 1;

/// The signal whose handler was installed last; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The signal that threads of the library's do not block: the highest real-time signal without a
/// handler when the first such thread is created. Its handler is installed when the first stack is
/// requested.
pub(crate) fn number() -> Option<libc::c_int> {
    // Not a `OnceLock`: a fork could find it half initialized.
    static CHOSEN: AtomicI32 = AtomicI32::new(0);
    let known = CHOSEN.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let is_free = |&signal: &libc::c_int| action_of(signal).is_some_and(|action| is_free(&action));
    let found = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(is_free)?;
    let first = CHOSEN.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
    Some(first.map_or_else(|other| other, |_| found))
}

fn is_free(action: &libc::sigaction) -> bool {
    action.sa_sigaction == libc::SIG_DFL || is_ours(action)
}

/// The signal, with this module's handler installed. `None` if every real-time signal has another
/// handler.
pub(super) fn installed() -> Option<libc::c_int> {
    let known = SIGNAL.load(Ordering::Relaxed);
    if known != 0 && action_of(known).is_some_and(|action| is_ours(&action)) {
        return Some(known);
    }
    // Two concurrent calls may choose different signals; both work. The one that workers take comes
    // first. Another one reaches threads of the program's only.
    let all = number().into_iter().chain((libc::SIGRTMIN()..=libc::SIGRTMAX()).rev());
    let signal = { all }.find(|&signal| install(signal))?;
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
    action_of(OF_CLIENTS).is_some_and(|action| is_ours(&action)) || install(OF_CLIENTS)
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
    let signal = installed().filter(|&signal| Some(signal) == number());
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

/// Has another thread of the process take a signal that the program waits for, by sigwait(3) or a
/// signalfd: all of the program's threads block it, so it came to this one. From here on this thread
/// blocks it too. Async-signal-safe.
#[cfg(feature = "control")]
fn leave_to_program(info: *const libc::siginfo_t, context: &mut libc::ucontext_t) {
    // SAFETY: the structures are live. The mask in the context is in force when the handler returns, and
    // until then the thread blocks every signal.
    unsafe {
        libc::sigaddset(&raw mut context.uc_sigmask, OF_CLIENTS);
        // The number of any thread stands for its process. Only under its own number may a thread send
        // what the system sends.
        let thread = crate::thread::tid();
        if libc::syscall(libc::SYS_rt_sigqueueinfo, thread, OF_CLIENTS, info) != 0 {
            libc::kill(libc::getpid(), OF_CLIENTS);
        }
    }
}

/// Async-signal-safe: see the README.
extern "C" fn handle(
    #[cfg_attr(not(feature = "control"), allow(unused_variables, reason = "one signal only"))]
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
    if request.code == POLL_IN {
        crate::control::connection_arrived();
        // SAFETY: as above.
        unsafe { *errno = saved };
        return;
    }
    #[cfg(feature = "control")]
    if signal == OF_CLIENTS {
        if crate::control::signal_is_of_program() {
            leave_to_program(info, context);
        }
        // SAFETY: as above.
        unsafe { *errno = saved };
        return;
    }
    // Other senders may use this signal too: by kill(2), or queued with a value that is not a
    // request's number.
    if request.code != libc::SI_QUEUE {
        return;
    }
    #[cfg(feature = "control")]
    if request.value == std::ptr::from_ref(&INTERRUPTS).addr() {
        crate::task::end_if_not_begun(context);
        return;
    }
    let thread = crate::thread::tid();
    exchange::answer(request.value, thread, |snapshot| snapshot.fill(context));
    // SAFETY: as above.
    unsafe { *errno = saved };
}
