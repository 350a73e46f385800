//! The word of a per-CPU lock. `docs/percpu.md` has the protocol and its proof.
//!
//! | value | meaning | written by |
//! |---|---|---|
//! | 0 | free | the holder |
//! | t | held by t | t's section on that CPU; or t's exchange in mode 1 |
//! | t + 1 | held by t, by force; or not yet confirmed | t's exchange |
//!
//! No other value occurs: a token is even and not 0. A row is used in one mode, so an exchange of mode 1
//! never meets a section.

use crate::sync::{AtomicU64, Ordering};

const FREE: u64 = 0;
/// The mark of a lock that was taken by force. Sections of that CPU may overwrite such a value until it is
/// confirmed.
const FORCED: u64 = 1;

/// Who a thread is. Of no two threads that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Token(u64);

impl Token {
    /// From an address that belongs to the thread.
    ///
    /// In debug builds it panics if the address is odd or null.
    #[inline(always)]
    pub fn new(address: u64) -> Token {
        debug_assert!(address != FREE && address & FORCED == 0, "a token is even and not 0");
        Token(address)
    }

    /// What a section stores.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// The lock of one CPU's part.
#[derive(Debug)]
#[repr(transparent)]
pub struct CpuLock {
    /// See the module. Sections are the platform's: they load it with acquire and store it.
    pub(crate) owner: AtomicU64,
}

impl Default for CpuLock {
    fn default() -> CpuLock {
        CpuLock { owner: AtomicU64::new(FREE) }
    }
}

/// Takes a value that was not confirmed back, where something unwinds. A section that has looked before may still
/// store over either value: it has the lock then.
struct Undo<'a> {
    lock: &'a CpuLock,
    forced: u64,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing was done under it. Not if a section has taken the lock, whose word stands.
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
        // Relaxed: what a thread has stored itself it sees; of others nothing is concluded.
        self.owner.load(Ordering::Relaxed) & !FORCED == token.0
    }

    /// Whether somebody holds the lock, or is about to.
    pub fn is_held(&self) -> bool {
        // Relaxed: a hint.
        self.owner.load(Ordering::Relaxed) != FREE
    }

    /// Takes the lock if it is free. For locks that no section takes.
    #[inline(always)]
    #[must_use]
    pub(super) fn try_exchange(&self, token: Token) -> bool {
        // Acquire: its partner is the release of the holder before, whose writes we are about to read.
        self.owner.compare_exchange(FREE, token.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free, against sections of its CPU. `restart` restarts these, with a full
    /// barrier on both sides.
    #[must_use]
    pub(super) fn try_force(&self, token: Token, restart: impl FnOnce()) -> bool {
        let forced = token.0 | FORCED;
        // Acquire: as in `try_exchange`; a section that is overtaken by our exchange has released nothing since.
        if self.owner.compare_exchange(FREE, forced, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Where the system refuses the restart the caller does not have the lock, and nobody else may find it taken.
        let undo = Undo { lock: self, forced };
        restart();
        std::mem::forget(undo);
        // A section may have looked before our exchange and stored after it. None can any more; the
        // barrier shows us the store of one that did.
        self.owner.load(Ordering::Relaxed) == forced
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// The caller holds it, or has it from the thread that does.
    #[inline(always)]
    pub unsafe fn release(&self) {
        // Release: its partner is the acquire of whoever takes the lock next.
        self.owner.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    // Catches: a part that nobody can reach any more, as its lock is held by who was refused it.
    #[test]
    fn a_restart_that_is_refused_leaves_the_lock_to_whoever_has_it() {
        let (token, section) = (Token::new(16), Token::new(32));
        for taken in [false, true] {
            let lock = CpuLock::default();
            let refused = || {
                if taken {
                    // By a section that had looked before.
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
