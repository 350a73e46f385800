//! The memory that the server may use for data and for requests and replies in hand.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of which all threads take.
///
/// Taken only when something grows: what is as large as before costs nothing.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    refusals: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes, of which none is used.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), refusals: AtomicUsize::new(0) }
    }

    /// Takes so many bytes, if they are left.
    #[must_use = "what was refused must not be used"]
    pub fn take(&self, bytes: usize) -> bool {
        // Only a sum: nobody reads other data by it.
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = used.checked_add(bytes).is_some_and(|used| used <= self.limit);
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// Takes so many bytes that are in use already, left or not.
    pub(crate) fn force(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How often bytes were not left.
    pub(crate) fn refusals(&self) -> usize {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be used.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_left_is_refused_and_what_came_back_is_left() {
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
