//! Which signals a thread of the library's takes: those that the library sends to it, and those that report an error
//! of the code that it runs. All others are the program's, for threads of the program's.
//!
//! A signal for the process goes to any thread that does not block it. A worker that did not would take it from a
//! thread that waits for it in `sigwait` or by a signalfd, and its default action, the end of the process, would
//! happen. A thread begins with the mask of its creator, so the creator blocks everything that it may while it makes
//! the thread, and there is no instant at which the new thread takes a signal of the program's.
//!
//! | signal | blocked | because |
//! |---|---|---|
//! | the faults, below | no | an item's own: blocked, the kernel ends the process and calls no handler |
//! | the signal for stacks | no | asks a worker for its calls |
//! | the signal of task work | until the item's first use | `accept` takes it for the thread that asks |
//! | SIGKILL, SIGSTOP, the C library's two | no | cannot be |
//! | every other one | yes | the program's |

use std::cell::Cell;
use std::mem::MaybeUninit;

use super::stack;

/// Signals that an instruction of the thread itself causes.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// A set of signals.
#[derive(Clone, Copy)]
pub(super) struct Mask(libc::sigset_t);

thread_local! {
    /// What the creator of this thread had blocked, on a thread of the library's.
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

    /// Changes the calling thread's mask by this set. The mask before.
    fn apply(&self, how: libc::c_int) -> Mask {
        let mut before = MaybeUninit::zeroed();
        // SAFETY: both sets are live. It fails for an unknown `how` only, and then the zeros stay, an empty set.
        unsafe {
            libc::pthread_sigmask(how, &raw const self.0, before.as_mut_ptr());
            Mask(before.assume_init())
        }
    }
}

/// The calling thread blocks every signal until this is dropped.
pub(super) struct Blocked(Mask);

/// To be held while a thread of the library's is made.
pub(super) fn block_in_creator() -> Blocked {
    Blocked(Mask::all().apply(libc::SIG_SETMASK))
}

impl Blocked {
    /// What the creator blocks at other times.
    pub(super) fn before(&self) -> Mask {
        self.0
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.apply(libc::SIG_SETMASK);
    }
}

/// First call of a thread of the library's, which was made with every signal blocked.
pub(super) fn begin(creators: Mask) {
    INHERITED.set(Some(creators));
    let own = FAULTS.into_iter().chain(stack::signal());
    Mask::of(own).apply(libc::SIG_UNBLOCK);
}

/// In a child after a fork, whose only thread was one of the library's: it is the program's now, and takes the
/// signals that its creator took.
pub(super) fn child() {
    if let Some(creators) = INHERITED.take() {
        creators.apply(libc::SIG_SETMASK);
    }
}
