//! A dump on a signal. The handler sets a flag and wakes the watcher, which spawns a thread for it.

use std::io::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uwork_engine::host::{Host, Report};

use crate::first_use;
use crate::process::{engine, variable};

/// The signals with names in `UWORK_DUMP_SIGNAL`.
const NAMED: [(&str, libc::c_int); 4] = [
    ("HUP", libc::SIGHUP),
    ("QUIT", libc::SIGQUIT),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
];

/// Signals that report faults. After the handler the instruction that has failed runs again, so a
/// handler that only returns would be called for ever.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Signals by which users, terminals and the system end or stop a process. A handler that only writes
/// would prevent that.
const ENDS: [libc::c_int; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGABRT,
    libc::SIGPIPE,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Writes the dump.
static WRITES: OnceLock<fn()> = OnceLock::new();
/// The signal has come, and no thread has begun to write.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The signals that [`call_on_signal`] has taken: bit n for signal n + 1.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Has `writes` called on a thread of its own for each `signal`. Signals that come before it begins
/// count as one.
///
/// # Errors
/// The reason: the signal reports faults, is meant to end or stop a process, has a handler, is ignored,
/// or cannot be handled; or another function was given before.
pub fn call_on_signal(signal: libc::c_int, writes: fn()) -> Result<(), String> {
    if FAULTS.contains(&signal) {
        return Err(format!("signal {signal} reports faults"));
    }
    if ENDS.contains(&signal) {
        return Err(format!("signal {signal} is meant to end or stop a process"));
    }
    if *first_use::once(&WRITES, || writes) as usize != writes as usize {
        return Err("another function is called on a signal".to_owned());
    }
    let failed = |why: Error| format!("signal {signal} cannot be handled: {why}");
    let before = action_of(signal).map_err(failed)?;
    if before != libc::SIG_DFL && before != handler() {
        return Err(format!("signal {signal} has a handler of the program's, or is ignored"));
    }
    install(signal).map_err(failed)?;
    TAKEN.fetch_or(bit(signal), Ordering::Relaxed);
    Ok(())
}

/// Called by the watcher from time to time: installs the handler again for signals that the program has
/// set to their defaults, as a daemon does when it begins. There the signal would end the process. A
/// signal that the program handles or ignores stays the program's.
pub(super) fn keep_handlers() {
    let taken = TAKEN.load(Ordering::Relaxed);
    if taken == 0 {
        return;
    }
    let is_default = |signal| action_of(signal).is_ok_and(|action| action == libc::SIG_DFL);
    let lost = (1..=SIGNALS).filter(|&signal| taken & bit(signal) != 0 && is_default(signal));
    lost.for_each(|signal| _ = install(signal));
}

/// The number of signals of Linux.
const SIGNALS: libc::c_int = 64;

/// The bit of a signal that has an action.
fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// The handler of a signal, or another action.
fn action_of(signal: libc::c_int) -> Result<libc::sighandler_t, Error> {
    // SAFETY: zeros are a valid value; a query, and the structure is live.
    let (outcome, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action), action)
    };
    if outcome == 0 { Ok(action.sa_sigaction) } else { Err(Error::last_os_error()) }
}

fn install(signal: libc::c_int) -> Result<(), Error> {
    // SAFETY: zeros are a valid value; the structure is live; the handler is async-signal-safe and
    // stays for ever.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler();
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// As [`call_on_signal`], for the signal in `UWORK_DUMP_SIGNAL`, if the environment has one: a name
/// or a number. Another value, and a signal that cannot be taken, is ignored with a report. A program
/// that has more rights than its user ignores the variable.
pub fn call_on_signal_of_environment(writes: fn()) {
    if super::is_privileged() {
        return;
    }
    let allowed = format!(
        "{}, and numbers of signals that have no handler",
        NAMED.map(|(name, _)| name).join(", ")
    );
    let mut reason = None;
    let taken = variable("UWORK_DUMP_SIGNAL", &allowed, |text| {
        call_on_signal(signal_of(text)?, writes).map_err(|refused| reason = Some(refused)).ok()
    });
    if let Err(mut report) = taken {
        if let (Report::VariableIgnored { allowed, .. }, Some(reason)) = (&mut report, reason) {
            *allowed = format!("{allowed}; {reason}");
        }
        engine().host().report(report);
    }
}

fn signal_of(text: &str) -> Option<libc::c_int> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let named = NAMED.iter().find(|(known, _)| *known == name);
    named.map_or_else(|| text.parse().ok(), |&(_, signal)| Some(signal))
}

fn handler() -> libc::sighandler_t {
    handle as *const () as libc::sighandler_t
}

/// Async-signal-safe: two atomic stores and a futex wake.
extern "C" fn handle(_signal: libc::c_int) {
    // SAFETY: `errno` is the thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    WANTED.store(true, Ordering::SeqCst);
    super::notify();
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Watcher: spawns the thread, if the signal has come. One that cannot be created is tried again at
/// the next signal.
pub(super) fn attend() {
    if WANTED.swap(false, Ordering::SeqCst)
        && let Some(&writes) = WRITES.get()
    {
        let _ = crate::thread::start("uw/dump", writes);
    }
}

/// In a forked child: a signal of the parent's is not the child's.
pub(super) fn child() {
    WANTED.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No watcher exists here that would take it.
    #[test]
    fn a_signal_of_the_parent_is_not_wanted_in_the_child() {
        handle(libc::SIGUSR1);
        assert!(WANTED.load(Ordering::SeqCst));
        crate::control::child();
        assert!(!WANTED.load(Ordering::SeqCst));
    }
}
