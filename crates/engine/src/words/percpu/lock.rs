//! The word of a per-CPU lock. The README of `uwork-percpu` has the protocol and its proof.
//!
//! | value | meaning | written by |
//! |---|---|---|
//! | 0 | free | the holder |
//! | t | held by t | t's section on that CPU; or t's exchange in mode 1 |
//! | t + 1 | taken by force by t: held, or not yet confirmed | t's exchange |
//!
//! No other value occurs: a token is even and not 0. A row is used in one mode, so an exchange of mode 1
//! never meets a section.

use crate::words::sync::{AtomicU64, Ordering};

const FREE: u64 = 0;
/// The mark of a lock that was taken by force. Sections of that CPU may overwrite such a value until it is
/// confirmed.
const FORCED: u64 = 1;

/// The identity of a thread, unique among the threads that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Token(u64);

impl Token {
    /// Makes a token of an address that belongs to the thread.
    ///
    /// In debug builds it panics if the address is odd or null.
    #[inline(always)]
    pub fn new(address: u64) -> Token {
        debug_assert!(address != FREE && address & FORCED == 0, "a token is even and not 0");
        Token(address)
    }

    /// The value that a section stores.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// The lock of one CPU's part.
#[derive(Debug)]
#[repr(transparent)]
pub struct CpuLock {
    /// See the module. The sections are the platform's code: they load it with acquire, and store
    /// to it.
    owner: AtomicU64,
}

impl Default for CpuLock {
    fn default() -> CpuLock {
        CpuLock { owner: AtomicU64::new(FREE) }
    }
}

/// Takes back an unconfirmed value while a panic unwinds. A section that has loaded the word before
/// may still store over either value; then that section has the lock.
struct Undo<'a> {
    lock: &'a CpuLock,
    forced: u64,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing was done under the lock. If a section has taken it, the exchange fails
        // and the section's value stays.
        let _ = self.lock.owner.compare_exchange(
            self.forced,
            FREE,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

impl CpuLock {
    /// Whether this thread holds the lock. Exact for the calling thread itself.
    #[inline]
    pub fn is_held_by(&self, token: Token) -> bool {
        // Relaxed: a thread sees its own stores; the caller concludes nothing about other threads.
        self.owner.load(Ordering::Relaxed) & !FORCED == token.0
    }

    /// Whether a thread holds the lock, or is about to.
    pub fn is_held(&self) -> bool {
        // Relaxed: a hint.
        self.owner.load(Ordering::Relaxed) != FREE
    }

    /// The load of a section that is no machine code, as in the models: whether the lock is free.
    #[doc(hidden)]
    #[must_use]
    pub fn section_finds_free(&self) -> bool {
        self.owner.load(Ordering::Acquire) == FREE
    }

    /// The store of a section that is no machine code, as in the models. The section has found the
    /// lock free, and no other thread has restarted it since.
    #[doc(hidden)]
    pub fn section_takes(&self, token: Token) {
        // A machine's section has a plain store here. loom orders a store and another thread's
        // exchange only where one is known to come first; it would let the remote thread read back
        // its own value, which this store has overwritten. loom always orders exchanges.
        self.owner.swap(token.0, Ordering::Relaxed);
    }

    /// Takes the lock if it is free. For locks that no section takes.
    #[inline(always)]
    #[must_use]
    pub(super) fn try_exchange(&self, token: Token) -> bool {
        // Acquire: the partner is the release of the previous holder, whose writes the caller is
        // about to read.
        self.owner.compare_exchange(FREE, token.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free, against sections of its CPU. `restart` restarts these
    /// sections, with a full barrier on both sides.
    ///
    /// ```text
    /// a section on the lock's CPU              this thread
    /// loads FREE                               exchanges FREE for FORCED
    /// (restart: it begins again)               restarts the sections
    /// stores its token                         loads the word: still FORCED ?
    /// ```
    ///
    /// If the section stores before the restart, the load sees its token and this thread does not
    /// have the lock. If not, the restarted section loads FORCED and stores nothing. Without the
    /// restart both would hold the lock.
    #[must_use]
    pub(super) fn try_force(&self, token: Token, restart: impl FnOnce()) -> bool {
        let forced = token.0 | FORCED;
        // Acquire: as in `try_exchange`. A section that our exchange overtakes has released nothing
        // since.
        if self.owner.compare_exchange(FREE, forced, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // If the system refuses the restart (a panic), the caller does not have the lock, and no
        // thread may find it taken.
        let undo = Undo { lock: self, forced };
        restart();
        std::mem::forget(undo);
        // A section may have loaded the word before our exchange and stored after it. None can do
        // so any more; the barrier makes the store of a section that did visible.
        self.owner.load(Ordering::Relaxed) == forced
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// The caller holds it, or acts for the thread that does.
    #[inline(always)]
    pub unsafe fn release(&self) {
        // Release: the partner is the acquire of the next holder.
        self.owner.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    // Catches: a part that no thread can reach any more, because the lock stays held by a thread
    // that was refused.
    #[test]
    fn a_refused_restart_leaves_the_lock_to_its_holder() {
        let (token, section) = (Token::new(16), Token::new(32));
        for taken in [false, true] {
            let lock = CpuLock::default();
            let refused = || {
                if taken {
                    // By a section that had loaded the word before.
                    lock.owner.store(section.value(), Ordering::Relaxed);
                }
                panic!("on purpose");
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| lock.try_force(token, refused)));
            outcome.unwrap_err();
            assert!(!lock.is_held_by(token));
            assert_eq!((lock.is_held(), lock.is_held_by(section)), (taken, taken));
        }
    }
}
