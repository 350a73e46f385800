//! The system calls of the control thread in which it may wait, and how other threads end them: the
//! watcher when it has replaced the socket, and a fork that finds a client half accepted.
//!
//! ```text
//! the control thread                        another thread
//! W1: WANTED = 0                            W2: the socket, or the lock that is taken
//! R1: the socket                            W3: WANTED = 1
//!     the call, unless WANTED is 1          R2: THREAD, and a signal to it
//! ```
//!
//! If W3 comes before W1, R1 sees W2. Otherwise the call does not begin, or the signal ends it: the stub
//! leaves no instant between its look at WANTED and the call. If R2 sees no thread, the thread stores
//! its number, and reads the socket, later. All accesses are sequentially consistent.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::{relax, stack, task};

/// 1: a call returns at once.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// The control thread; 0 if there is none.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Held while a client has a descriptor that is in no list yet. Its holder takes the list's lock only.
static ACCEPTS: Mutex<()> = Mutex::new(());

/// The right of the control thread to make calls that others end.
pub(super) struct Calls(());

impl Calls {
    /// For the control thread.
    pub(super) fn begin() -> Calls {
        THREAD.store(crate::thread::tid(), Ordering::SeqCst);
        Calls(())
    }

    /// From here on a call may wait. What changes later ends it.
    pub(super) fn rearm(&self) {
        WANTED.store(0, Ordering::SeqCst);
    }

    /// A system call.
    ///
    /// # Errors
    /// The system's; `EINTR` if another thread has ended it.
    ///
    /// # Safety
    /// As the call itself.
    pub(super) unsafe fn call(
        &self,
        number: libc::c_long,
        arguments: [usize; 6],
    ) -> Result<usize, i32> {
        // SAFETY: by this function's contract; the word is a static.
        unsafe { task::checked(number, &arguments, WANTED.as_ptr(), 1) }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        THREAD.store(0, Ordering::SeqCst);
    }
}

/// Ends the call of the control thread, or its next one. If the signal cannot be sent, as the user's
/// queue of signals is full, a call in progress goes on.
pub(super) fn interrupt() {
    WANTED.store(1, Ordering::SeqCst);
    let thread = THREAD.load(Ordering::SeqCst);
    if thread != 0 {
        let _ = stack::interrupt(thread);
    }
}

/// No fork begins until the guard is dropped.
pub(super) fn keep_forks_out() -> MutexGuard<'static, ()> {
    ACCEPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, for the time of a fork.
pub(crate) struct Held(#[expect(dead_code, reason = "unlocks")] MutexGuard<'static, ()>);

/// Rounds of [`hold`] without a signal: some microseconds, in which an accept ends that does not wait.
const ROUNDS_WITHOUT: u32 = 64;
/// The time between two signals. The first one may come before the call, or find no room in the user's
/// queue of signals.
const BETWEEN: Duration = Duration::from_millis(1);

/// Before a fork: no client is half accepted until the guard is dropped. Takes some microseconds.
pub(crate) fn hold() -> Held {
    let mut signal_at = None;
    for round in 0.. {
        match ACCEPTS.try_lock() {
            Ok(held) => return Held(held),
            Err(TryLockError::Poisoned(held)) => return Held(held.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        if round >= ROUNDS_WITHOUT && signal_at.is_none_or(|at| at <= Instant::now()) {
            interrupt();
            signal_at = Some(Instant::now() + BETWEEN);
        }
        relax(round);
    }
    unreachable!("the lock is free some time")
}

/// In a forked child, where the control thread does not exist.
pub(super) fn child() {
    THREAD.store(0, Ordering::SeqCst);
    WANTED.store(0, Ordering::SeqCst);
}
