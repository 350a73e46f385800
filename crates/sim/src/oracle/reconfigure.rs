//! Changes of the pools: CPUs that go and come back, attributes of queues. And drains.
//!
//! While the pools change, the oracle does not know which pool has an item, and checks nothing. It
//! forgets where every item is. After the change it checks nothing while an item runs that began or
//! was queued before, because that run is in a pool of before. Items that are queued from then on are checked
//! again. Items that are never found again fail the test at its end, which waits for all of them.

use super::{ItemNo, NEVER, Oracle, PoolNo, QueueNo, State};

/// What the oracle knows of the present changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    in_progress: u32,
    /// Queues that drain, once for each drain.
    draining: Vec<QueueNo>,
    /// Items that may have been queued before the end of the last change, in pools of before.
    old_items: Vec<ItemNo>,
    /// Items whose present runs began before the end of the last change, or were queued before it.
    old_runs: Vec<ItemNo>,
}

impl Oracle {
    /// A change of the pools begins.
    pub fn begin_change(&mut self) {
        self.changes.in_progress += 1;
        self.forget_all();
    }

    fn forget_all(&mut self) {
        for item in 0..self.items.len() {
            if self.items[item].state != State::Idle {
                self.forget(item);
            }
        }
    }

    /// A change of the pools ends.
    pub fn end_change(&mut self) {
        self.changes.in_progress -= 1;
        self.queues.iter_mut().for_each(|rules| rules.has_old_pools = true);
        // Also those that a call offered during the change.
        self.forget_all();
        let is_old = |&item: &ItemNo| self.items[item].state != State::Idle;
        self.changes.old_items = (0..self.items.len()).filter(is_old).collect();
        let runs = self.threads.iter().flat_map(|thread| &thread.runs);
        self.changes.old_runs = runs.map(|run| run.item).collect();
    }

    /// A drain begins: the queue refuses items whose timers expire before its end.
    pub fn begin_drain(&mut self, queue: QueueNo) {
        self.changes.draining.push(queue);
        let of_queue = self.groups.iter().filter(|group| group.queue == queue);
        let overdue = of_queue.flat_map(|group| &group.pending).filter(|pending| pending.is_timer);
        let refused = overdue.map(|pending| pending.item);
        // A call that has armed an item and not told the oracle counts as one that has.
        let armed = (0..self.items.len()).filter(|&item| {
            let book = &self.items[item];
            book.queue == queue && matches!(book.state, State::Armed(_) | State::Offered)
        });
        let refused = refused.chain(armed);
        for item in refused.collect::<Vec<_>>() {
            self.forget(item);
        }
    }

    /// A drain ends.
    pub fn end_drain(&mut self, queue: QueueNo) {
        let at = self.changes.draining.iter().position(|&known| known == queue);
        let _ = self.changes.draining.swap_remove(at.expect("a drain that has begun"));
        // Items whose timers a call has armed during the drain, and which may have expired in it.
        for item in 0..self.items.len() {
            let book = &self.items[item];
            if book.queue == queue && book.state == State::Offered {
                self.forget(item);
            }
        }
    }

    /// Whether the queue refuses items whose timers expire.
    pub(super) fn is_draining(&self, queue: QueueNo) -> bool {
        self.changes.draining.contains(&queue)
    }

    /// The queue's items run in these pools, one for each CPU.
    pub fn set_pools(&mut self, queue: QueueNo, pools: Vec<PoolNo>) {
        self.queues[queue].pools = pools;
    }

    /// Whether pools change, so that it is unknown which pool has an item.
    pub(super) fn changes(&self) -> bool {
        self.changes.in_progress > 0
    }

    /// Whether nothing can be checked, because pools change or have just changed.
    pub(super) fn is_blind(&self) -> bool {
        self.changes() || !self.changes.old_runs.is_empty()
    }

    /// A call queues this item anew.
    pub(super) fn offer_anew(&mut self, item: ItemNo) {
        self.changes.old_items.retain(|&old| old != item);
    }

    /// A run of this item starts.
    pub(super) fn start_old_run(&mut self, item: ItemNo) {
        if let Some(at) = self.changes.old_items.iter().position(|&old| old == item) {
            let _ = self.changes.old_items.swap_remove(at);
            self.changes.old_runs.push(item);
        }
    }

    /// A run of this item ends.
    pub(super) fn end_old_run(&mut self, item: ItemNo) {
        let was_blind = self.is_blind();
        self.changes.old_runs.retain(|&old| old != item);
        if !was_blind || self.is_blind() {
            return;
        }
        // What waited, and so what the watcher has seen, was not known while an old run held a permit.
        for run in self.threads.iter_mut().flat_map(|thread| &mut thread.runs) {
            (run.met_at, run.hog_ns) = (NEVER, 0);
        }
    }
}
