//! How many threads this process has.

use std::fs;

/// Now. Threads that end meanwhile may count.
pub(super) fn count() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    line.and_then(|count| count.trim().parse().ok()).expect("/proc/self/status has a line Threads")
}

/// The greatest number seen, without those that were there at first.
///
/// No pool here ends its threads within the time of a sample, so looking now and then, and once at
/// the end, finds the greatest number.
pub(super) struct Peak {
    first: usize,
    most: usize,
}

impl Peak {
    /// Before the pool has its threads.
    pub(super) fn begin() -> Self {
        let first = count();
        Self { first, most: first }
    }

    pub(super) fn look(&mut self) {
        self.most = self.most.max(count());
    }

    pub(super) fn threads(&self) -> usize {
        self.most - self.first
    }
}
