//! The deadlines of the keys, earliest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Expiry;

/// Up to this number of stale deadlines are always tolerated.
const STALE_KEPT: usize = 64;

/// Deadlines in time order, stored with the hashes of their keys. Two keys with the same hash cost
/// one extra lookup.
///
/// A key that is set again leaves its old deadline behind. A stale deadline is dropped when it
/// comes due; all are dropped together when they outnumber the live ones.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// Number of keys that have a deadline.
    live: usize,
}

impl Deadlines {
    /// Changes a key's expiry, and updates the count.
    pub(super) fn change(&mut self, hash: u64, of_key: &mut Expiry, to: Expiry) {
        if *of_key == to {
            return;
        }
        self.live -= usize::from(matches!(of_key, Expiry::At(_)));
        if let Expiry::At(time) = to {
            self.live += 1;
            self.heap.push(Reverse((time, hash)));
        }
        *of_key = to;
    }

    /// How many keys have a deadline.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// If the earliest deadline has passed, removes it and returns `Ok` with the hash of its key.
    /// Otherwise returns `Err` with its time. Returns `None` if there is no deadline.
    pub(super) fn due(&mut self, now: u64) -> Option<Result<u64, u64>> {
        match *self.heap.peek()? {
            Reverse((time, hash)) if time <= now => {
                self.heap.pop();
                Some(Ok(hash))
            }
            Reverse((time, _)) => Some(Err(time)),
        }
    }

    /// The earliest deadline, stale or not.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    pub(super) fn has_too_many_stale(&self) -> bool {
        self.heap.len() > 2 * self.live + STALE_KEPT
    }

    /// Removes stale deadlines. The cost is at most proportional to the number of deadlines added
    /// since the last call.
    pub(super) fn forget_stale(&mut self, mut is_live: impl FnMut(u64, u64) -> bool) {
        let mut kept = std::mem::take(&mut self.heap).into_vec();
        kept.retain(|Reverse((time, hash))| is_live(*time, *hash));
        kept.sort_unstable();
        kept.dedup();
        self.heap = kept.into();
    }

    /// Allocated bytes.
    pub(super) fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(u64, u64)>>()
    }
}
