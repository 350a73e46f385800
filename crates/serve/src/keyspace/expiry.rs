//! Which key goes away next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Expiry;

/// So many deadlines that nobody waits for are never worth the trouble.
const STALE_KEPT: usize = 64;

/// Deadlines, the next one first, by the hashes of their keys: two keys of one hash cost a look, no more.
///
/// A key that is set again leaves its old deadline behind. Stale ones are dropped when they come
/// up, or all together when they are more than the live ones.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// Keys that have a deadline.
    live: usize,
}

impl Deadlines {
    /// Changes a key's expiry, and keeps count.
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

    /// Takes the next deadline and gives the hash of its key, if it is over; the time of the next one,
    /// if it is not; `None` where there is none.
    pub(super) fn due(&mut self, now: u64) -> Option<Result<u64, u64>> {
        match *self.heap.peek()? {
            Reverse((time, hash)) if time <= now => {
                self.heap.pop();
                Some(Ok(hash))
            }
            Reverse((time, _)) => Some(Err(time)),
        }
    }

    /// The time of the next one, stale or not.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    pub(super) fn has_too_many_stale(&self) -> bool {
        self.heap.len() > 2 * self.live + STALE_KEPT
    }

    /// Forgets those that nobody waits for. Costs no more than what came in since the last time.
    pub(super) fn forget_stale(&mut self, mut is_live: impl FnMut(u64, u64) -> bool) {
        let mut kept = std::mem::take(&mut self.heap).into_vec();
        kept.retain(|Reverse((time, hash))| is_live(*time, *hash));
        kept.sort_unstable();
        kept.dedup();
        self.heap = kept.into();
    }

    /// Bytes that are allocated.
    pub(super) fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(u64, u64)>>()
    }
}
