//! A dump on a signal. The handler sets a flag and wakes the watcher, which spawns a thread for it.

use std::io::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the dump.
static WRITES: OnceLock<fn()> = OnceLock::new();
/// The signal has come, and no thread has begun to write.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Has `writes` called on a thread of its own for each `signal`. Signals that come before it begins
/// count as one.
///
/// # Errors
/// The reason: the signal has a handler, is ignored, or cannot be handled; or another function was
/// given before.
pub fn call_on_signal(signal: libc::c_int, writes: fn()) -> Result<(), String> {
    if *WRITES.get_or_init(|| writes) as usize != writes as usize {
        return Err("another function is called on a signal".to_owned());
    }
    // SAFETY: zeros are a valid value of this structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before = action;
    let failed = |why: Error| format!("signal {signal} cannot be handled: {why}");
    // SAFETY: a query; the structure is live.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) } != 0 {
        return Err(failed(Error::last_os_error()));
    }
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != handler() {
        return Err(format!("signal {signal} has a handler of the program's, or is ignored"));
    }
    action.sa_sigaction = handler();
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the structure is live; the handler is async-signal-safe and stays for ever.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(failed(Error::last_os_error()));
    }
    Ok(())
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
