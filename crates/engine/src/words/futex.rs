//! Sleeping on a word: the platform's part of handing over a result or a stack.

use crate::words::sync::AtomicU32;

/// futex(2) on Linux; a lock and a condition variable in the models.
pub trait Futex {
    /// Sleeps while `word` holds `expected`. May return early. False if it has timed out; then the
    /// caller has not slept.
    #[must_use]
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool;

    /// Wakes a thread that sleeps on `word`. Uses the address alone: the word may be freed already.
    fn wake(&self, word: *const AtomicU32);
}
