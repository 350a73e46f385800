//! The trace of a history, printed when it fails.

use std::fmt::Write;

use super::{ItemNo, Oracle, PoolNo};
use crate::machine::ThreadId;
use crate::setup::US;

/// Entries of the trace that a failure prints.
const PRINTED: usize = 150;

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    thread: ThreadId,
    what: &'static str,
    item: usize,
    more: u64,
}

/// The trace; see the module.
#[derive(Default)]
pub struct Trace(Vec<Entry>);

impl Trace {
    pub fn note(&mut self, at: u64, thread: ThreadId, what: &'static str, item: ItemNo, more: u64) {
        self.0.push(Entry { at, thread, what, item, more });
    }

    /// The last entries about these items. `queue_of` maps an item to its queue.
    pub(super) fn describe(
        &self,
        is_shown: impl Fn(ItemNo) -> bool,
        queue_of: impl Fn(ItemNo) -> Option<usize>,
    ) -> String {
        let entries: Vec<_> = self.0.iter().filter(|entry| is_shown(entry.item)).collect();
        let mut text = String::new();
        for entry in &entries[entries.len().saturating_sub(PRINTED)..] {
            let Entry { at, thread, what, item, more } = entry;
            let _ = write!(text, "{:>12} us  thread {thread:<3} {what} {item} {more}", at / US);
            let _ = match queue_of(*item) {
                Some(queue) => writeln!(text, ", queue {queue}"),
                None => writeln!(text),
            };
        }
        text
    }
}

impl Oracle {
    /// The end of the trace, and the current state.
    pub(super) fn describe(&self, pool: PoolNo) -> String {
        let is_shown = |item: ItemNo| {
            let group = self.items.get(item).and_then(|book| book.group);
            group.is_none_or(|group| self.groups[group].pool == pool)
        };
        let queue_of = |item: ItemNo| self.items.get(item).map(|book| book.queue);
        let mut text = format!("{:?}\n{}", self.rules, self.trace.describe(is_shown, queue_of));
        for pool in &self.pools {
            let _ = writeln!(text, "{pool:?}");
        }
        for group in
            self.groups.iter().filter(|group| group.running > 0 || !group.pending.is_empty())
        {
            let _ = writeln!(text, "{group:?} of {:?}", self.queues[group.queue]);
        }
        for thread in &self.threads {
            let _ = writeln!(text, "{thread:?}");
        }
        text
    }
}
