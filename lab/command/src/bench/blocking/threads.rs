//! The number of threads of this process.

use std::fs;

/// The current number. Threads that are ending may be counted.
pub(super) fn count() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    line.and_then(|count| count.trim().parse().ok()).expect("/proc/self/status has a line Threads")
}

/// The peak number of threads, excluding those that existed at the start.
///
/// No pool here ends its threads during a sample, so occasional checks and one at the end find the
/// peak.
pub(super) struct Peak {
    first: usize,
    most: usize,
}

impl Peak {
    /// Call this before the pool starts its threads.
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
