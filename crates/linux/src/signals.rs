//! The signals that the library's own threads take: those that the library sends to them, and those
//! that report an error of the code that they run. All others are for threads of the program.
//!
//! A signal for the process goes to any thread that does not block it. A worker that did not block
//! it would take it from a thread that waits for it by `sigwait` or a signalfd, and its default
//! action, often the end of the process, would happen. A thread inherits the mask of its creator.
//! So the creator blocks all signals while it creates the thread, and at no instant does the new
//! thread take a signal of the program.
//!
//! | signal | blocked | because |
//! |---|---|---|
//! | the faults, below | no | caused by the item itself: if blocked, the kernel ends the process and calls no handler |
//! | the signal for stacks | until the program is found to wait for it | requests a worker's stack |
//! | SIGURG | but on the watcher, until the program uses it | tells the watcher of a client of the control socket |
//! | the signal of task work | until the item's first use | `accept` unblocks it on the thread that uses task work |
//! | SIGKILL, SIGSTOP, the C library's two | no | cannot be blocked |
//! | every other one | yes | belongs to the program |

use std::cell::Cell;
use std::mem::MaybeUninit;

use super::stack;

/// Signals that an instruction of the thread itself causes.
pub(super) const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// A set of signals.
#[derive(Clone, Copy)]
pub(super) struct Mask(libc::sigset_t);

thread_local! {
    /// On a thread of the library's: the mask of the program's thread that has created it, or the first
    /// of the threads from which it descends.
    static INHERITED: Cell<Option<Mask>> = const { Cell::new(None) };
}

impl Mask {
    fn all() -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: fills the set. It leaves out the two that the C library needs.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Mask(set.assume_init())
        }
    }

    fn of(signals: impl IntoIterator<Item = libc::c_int>) -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: empties the set, and then adds to it.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            signals.into_iter().for_each(|signal| _ = libc::sigaddset(&raw mut set, signal));
            Mask(set)
        }
    }

    fn has(&self, signal: libc::c_int) -> bool {
        // SAFETY: the set is live.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }

    /// Changes the calling thread's mask by this set. Returns the previous mask.
    fn apply(&self, how: libc::c_int) -> Mask {
        let mut before = MaybeUninit::zeroed();
        // SAFETY: both sets are live. It fails for an unknown `how` only, and then the zeros stay,
        // an empty set.
        unsafe {
            libc::pthread_sigmask(how, &raw const self.0, before.as_mut_ptr());
            Mask(before.assume_init())
        }
    }
}

/// The calling thread blocks every signal until this is dropped.
pub(super) struct Blocked(Mask);

/// Held while a thread of the library's is created.
pub(super) fn block_in_creator() -> Blocked {
    Blocked(Mask::all().apply(libc::SIG_SETMASK))
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.apply(libc::SIG_SETMASK);
    }
}

/// The mask of the program's thread for which the calling thread acts: its own, unless it is one of the
/// library's.
pub(super) fn of_program() -> Mask {
    INHERITED.get().unwrap_or_else(|| Mask::of([]).apply(libc::SIG_BLOCK))
}

/// The highest real-time signal that `is_free`: if possible one that the program does not block, as it
/// may wait for the others by sigwait(3) or a signalfd.
pub(super) fn highest(is_free: impl Fn(&libc::c_int) -> bool) -> Option<libc::c_int> {
    let program = of_program();
    let free = || (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().filter(&is_free);
    free().find(|&signal| !program.has(signal)).or_else(|| free().next())
}

/// The first call of a thread of the library's, which was created with every signal blocked.
pub(super) fn begin(of_program: Mask) {
    INHERITED.set(Some(of_program));
    let own = FAULTS.into_iter().chain(stack::taken());
    Mask::of(own).apply(libc::SIG_UNBLOCK);
}

/// Has the calling thread, one of the library's, take this signal too, or leave it to the program again.
#[cfg(feature = "control")]
pub(super) fn take(signal: libc::c_int, takes: bool) {
    Mask::of([signal]).apply(if takes { libc::SIG_UNBLOCK } else { libc::SIG_BLOCK });
}

/// In a child after a fork whose only thread was one of the library's. That thread is the program's
/// now, and takes the signals that the thread of the program's takes from which it descends.
pub(super) fn child() {
    if let Some(of_program) = INHERITED.take() {
        of_program.apply(libc::SIG_SETMASK);
    }
}
