//! How a client is noticed: by a signal to the watcher, or by a control thread that stays. The README
//! says when.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use super::{notify, on_signal};
use crate::{Event, signals, stack};

/// The watcher's thread; 0 while it does not exist.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// The signal tells the watcher of clients, by the last look.
static IS_BY_SIGNAL: AtomicBool = AtomicBool::new(false);
/// The program uses the signal: it has a handler for it, ignores it or waits for it.
static IS_OF_PROGRAM: AtomicBool = AtomicBool::new(false);
/// The library's handler was called on a thread of the program's, which it must not be again.
static IS_IN_THE_WAY: AtomicBool = AtomicBool::new(false);

/// The watcher begins.
pub(super) fn watcher_begins() {
    THREAD.store(crate::thread::tid(), Ordering::SeqCst);
    IS_BY_SIGNAL.store(false, Ordering::Relaxed);
}

/// Whether the signal tells the calling thread, the watcher, of clients. Installs its handler again if
/// the program has set the signal to its default. Once the program uses the signal, the thread blocks
/// it, and the signal stays the program's.
pub(super) fn is_by_signal() -> bool {
    let is_ours = !IS_OF_PROGRAM.load(Ordering::SeqCst) && stack::has_signal_of_clients();
    if !is_ours {
        IS_OF_PROGRAM.store(true, Ordering::SeqCst);
    }
    if IS_BY_SIGNAL.swap(is_ours, Ordering::Relaxed) != is_ours {
        signals::take(stack::OF_CLIENTS, is_ours);
    }
    if IS_IN_THE_WAY.swap(false, Ordering::SeqCst) {
        stack::give_up_signal_of_clients();
    }
    is_ours
}

/// Whether the calling thread is the watcher. Async-signal-safe.
pub(crate) fn is_watcher() -> bool {
    THREAD.load(Ordering::SeqCst) == crate::thread::tid()
}

/// Called by the library's handler: the signal came, and not for a client. On the watcher's thread only
/// because each thread of the program blocks it, and may wait for it. On a thread of the program's the
/// handler has ended a wait, as for poll(2), which the signal's default would not have done: the watcher
/// restores that. Not if the program waits for it, since the system then discards the waiting signals.
/// Async-signal-safe.
pub(crate) fn signal_is_of_program(is_watcher: bool) {
    if !is_watcher {
        IS_IN_THE_WAY.store(true, Ordering::SeqCst);
    }
    IS_OF_PROGRAM.store(true, Ordering::SeqCst);
    notify();
}

/// A sleep that is longer may be the last one for hours.
const LONG: Duration = Duration::from_secs(1);
/// Longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// The watcher sleeps. A handler that ends the sleep may be the program's, called for a client. The
/// system goes on with a sleep without a limit after a handler with `SA_RESTART`, so each has a limit.
pub(super) fn sleep(event: &Event, timeout: Option<Duration>) -> bool {
    let timeout = timeout.unwrap_or(FOR_EVER);
    if timeout > LONG {
        on_signal::keep_handlers();
        stack::keep_handler();
    }
    if timeout > LONG && IS_BY_SIGNAL.load(Ordering::Relaxed) && !is_by_signal() {
        notify();
    }
    event.wait_noticing_signals(Some(timeout), notify)
}

/// In a forked child, which has no watcher yet.
pub(super) fn child() {
    THREAD.store(0, Ordering::SeqCst);
    IS_BY_SIGNAL.store(false, Ordering::Relaxed);
    IS_OF_PROGRAM.store(false, Ordering::SeqCst);
    IS_IN_THE_WAY.store(false, Ordering::SeqCst);
}
