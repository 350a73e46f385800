//! Memory that a thread keeps for reuse, so that a request allocates nothing: buffers, items and
//! rounds.
//!
//! All of it is charged to the budget, but must not displace data. So only a small part of the
//! limit is kept, and almost nothing after a request was refused memory.

use std::sync::Arc;

use super::config::Spares;
use super::handover::{Handover, Item};
use super::round::Round;
use super::shared::Shared;
use crate::buffer::Buffer;

/// Maximum number of entries of each kind, unless all memory is freed.
const ENTRIES_MAX: usize = 256;
/// Number of buffers that stay even if memory is short, for requests that arrive in pieces.
const BUFFERS_MIN: usize = 4;
/// All threads together keep at most 1 / `PART_OF_LIMIT` of the limit.
const PART_OF_LIMIT: usize = 32;

/// See the module.
pub(crate) struct Spare {
    buffers: Vec<Buffer>,
    items: Vec<Item>,
    #[expect(clippy::vec_box, reason = "connections have them in boxes, as most have none")]
    rounds: Vec<Box<Round>>,
    /// Bytes charged for the kept entries.
    bytes: usize,
    /// Maximum number of entries of each kind.
    entries_max: usize,
    bytes_max: usize,
    /// The budget's refusals at the last check.
    refusals: usize,
    shared: Arc<Shared>,
}

impl Spare {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let entries_max = match shared.config.spares {
            Spares::Kept => ENTRIES_MAX,
            Spares::Freed => 0,
        };
        Self {
            buffers: Vec::with_capacity(entries_max),
            items: Vec::with_capacity(entries_max),
            rounds: Vec::with_capacity(entries_max),
            bytes: 0,
            entries_max,
            bytes_max: shared.budget.limit() / PART_OF_LIMIT / shared.posts.len(),
            refusals: 0,
            shared: Arc::clone(shared),
        }
    }

    pub(crate) fn take(&mut self) -> Buffer {
        match self.buffers.pop() {
            Some(buffer) => {
                self.bytes -= buffer.charged();
                buffer
            }
            None => Buffer::new(&self.shared.budget),
        }
    }

    pub(crate) fn give(&mut self, mut buffer: Buffer) {
        if buffer.clear()
            && self.buffers.len() < self.entries_max
            && self.has_room(buffer.charged())
        {
            self.buffers.push(buffer);
        }
    }

    pub(crate) fn take_item(&mut self) -> Item {
        match self.items.pop() {
            Some(mut item) => {
                self.bytes -= item.as_mut().body().charged();
                item
            }
            None => Handover::new(&self.shared, &self.shared.budget),
        }
    }

    pub(crate) fn take_round(&mut self) -> Box<Round> {
        match self.rounds.pop() {
            Some(round) => {
                self.bytes -= round.charged();
                round
            }
            None => Box::new(Round::new(self.shared.posts.len(), &self.shared.budget)),
        }
    }

    /// Keeps a finished round and its items.
    pub(crate) fn keep(&mut self, mut round: Box<Round>) {
        for mut item in round.items.iter_mut().filter_map(Option::take) {
            let body = item.as_mut().body();
            body.clear();
            if self.items.len() < self.entries_max && self.has_room(body.charged()) {
                self.items.push(item);
            }
        }
        round.clear();
        if self.rounds.len() < self.entries_max && self.has_room(round.charged()) {
            self.rounds.push(round);
        }
    }

    /// Frees almost everything if the budget has refused memory since the last call.
    #[inline]
    pub(crate) fn yield_to_others(&mut self) {
        let refusals = self.shared.budget.refusals();
        if refusals != self.refusals {
            self.refusals = refusals;
            self.empty();
        }
    }

    #[cold]
    fn empty(&mut self) {
        self.buffers.truncate(BUFFERS_MIN);
        self.items.clear();
        self.rounds.clear();
        self.bytes = self.buffers.iter().map(Buffer::charged).sum();
    }

    /// Whether `bytes` more may be kept; if so, they are counted.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.bytes + bytes <= self.bytes_max;
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Config;
    use crate::server::post::Post;

    const LIMIT: usize = 1 << 20;

    fn spare(queue: &str) -> Spare {
        spare_of(queue, Spares::Kept)
    }

    /// The spare memory of a server with one thread.
    fn spare_of(queue: &str, spares: Spares) -> Spare {
        let heavy = uwork::Queue::builder(queue).build().unwrap();
        let config = Config { memory_max: LIMIT, spares, ..Config::default() };
        let posts = vec![Post::current()];
        Spare::new(&Arc::new(Shared::new(config, 0, heavy, posts, "")))
    }

    fn filled(spare: &Spare, bytes: usize) -> Buffer {
        let mut buffer = Buffer::new(&spare.shared.budget);
        buffer.append(&vec![0; bytes]).unwrap();
        buffer
    }

    #[test]
    fn small_buffers_are_kept_and_large_ones_freed() {
        let mut spare = spare("spare-small");
        for (size, kept) in [(100, 4096), (64 * 1024 + 1, 0)] {
            let buffer = filled(&spare, size);
            spare.give(buffer);
            assert_eq!((spare.bytes, spare.shared.budget.used()), (kept, kept));
            drop(spare.take());
            assert_eq!((spare.bytes, spare.shared.budget.used()), (0, 0));
        }
    }

    #[test]
    fn all_kinds_together_keep_a_small_part_of_the_limit() {
        let mut spare = spare("spare-part");
        let budget = Arc::clone(&spare.shared.budget);
        let buffers: Vec<Buffer> = (0..20).map(|_| filled(&spare, 4096)).collect();
        buffers.into_iter().for_each(|buffer| spare.give(buffer));
        assert_eq!((spare.bytes, budget.used()), (LIMIT / 32, LIMIT / 32));
        let mut round = spare.take_round();
        round.here.append(&[0; 100]).unwrap();
        spare.keep(round);
        assert_eq!((spare.bytes, budget.used()), (LIMIT / 32, LIMIT / 32));
        drop(spare.take());
        let mut round = spare.take_round();
        round.here.append(&[0; 100]).unwrap();
        spare.keep(round);
        assert_eq!((spare.bytes, budget.used(), spare.rounds.len()), (LIMIT / 32, LIMIT / 32, 1));
    }

    #[test]
    fn nothing_is_kept_when_memory_is_freed() {
        let mut spare = spare_of("spare-freed", Spares::Freed);
        let buffer = filled(&spare, 100);
        let mut round = spare.take_round();
        round.here.append(&[0; 100]).unwrap();
        let item = spare.take_item();
        round.add(0, item);
        assert!(spare.shared.budget.used() > 0);
        spare.give(buffer);
        spare.keep(round);
        assert_eq!((spare.bytes, spare.shared.budget.used()), (0, 0));
        assert!(spare.buffers.is_empty() && spare.items.is_empty() && spare.rounds.is_empty());
    }

    #[test]
    fn little_is_kept_after_a_refusal() {
        let mut spare = spare("spare-refused");
        let budget = Arc::clone(&spare.shared.budget);
        let mut round = spare.take_round();
        round.here.append(&[0; 100]).unwrap();
        spare.keep(round);
        let mut fill = |buffers: usize| {
            let filled: Vec<Buffer> = (0..buffers).map(|_| filled(&spare, 100)).collect();
            filled.into_iter().for_each(|buffer| spare.give(buffer));
            spare.yield_to_others();
            (spare.bytes, budget.used())
        };
        assert_eq!(fill(5), (6 * 4096, 6 * 4096));
        assert!(!budget.take(LIMIT));
        assert_eq!(fill(0), (BUFFERS_MIN * 4096, BUFFERS_MIN * 4096));
        // Memory is kept again until the next refusal.
        assert_eq!(fill(1), (5 * 4096, 5 * 4096));
    }
}
