//! The memory budget for data, requests and replies.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that all threads share.
///
/// It is taken only when an allocation grows; operations that fit the existing capacity do not
/// touch it.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    refusals: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes, all of them free.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), refusals: AtomicUsize::new(0) }
    }

    /// Takes `bytes`, if that many are free.
    #[must_use = "what was refused must not be used"]
    pub fn take(&self, bytes: usize) -> bool {
        // One exchange: bytes that are refused are never in the sum, where they would have other threads
        // refused as well. Relaxed: the counter is only a sum and publishes no other data.
        let more = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.limit);
        let fits = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !fits {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// Takes `bytes` that are allocated already, even beyond the limit.
    pub(crate) fn force(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns bytes to the budget.
    pub fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many times `take` was refused.
    pub(crate) fn refusals(&self) -> usize {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_refused_until_others_are_returned() {
        let budget = Budget::new(100);
        assert!(budget.take(60));
        assert!(!budget.take(41));
        assert!(budget.take(40));
        assert!(!budget.take(1));
        budget.give(60);
        assert_eq!(budget.used(), 40);
        assert!(!budget.take(usize::MAX));
        assert!(budget.take(60));
    }
}
