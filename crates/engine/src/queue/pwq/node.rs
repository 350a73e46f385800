//! The limit that an unbound queue's pwqs on one NUMA node share.
//!
//! Holders are counted once for each batch. Pwqs that find the node full wait in a row. A thread
//! that gives a permit back passes it to the first in the row. Where the limit is not below the
//! number of pwqs, each keeps a permit between its batches. README.md has the protocol.

use std::collections::VecDeque;

use super::{Pwq, SATURATED};
use crate::words::host::Host;
use crate::words::sync::{AtomicBool, AtomicU32, Line, Link, Lock, LockGuard, Ordering, Rank};

/// The epoch in which no pwq keeps a permit.
pub(super) const NO_EPOCH: u32 = 0;

/// The shared limit (see the module). It lives as long as its queue.
pub(crate) struct Node<H: Host> {
    /// Permits that are taken, kept, or granted to a pwq that waited.
    nr: Line<AtomicU32>,
    limit: Line<Limit>,
    /// Rank: after the pwq lock.
    row: Line<Lock<Row<H>>>,
}

/// Read in each batch, and written rarely.
struct Limit {
    /// The number of permits; 0 while the queue is frozen.
    max: AtomicU32,
    /// The length of the row. Written under its lock.
    waiting: AtomicU32,
    /// A number that is different after each change of the limit, or `NO_EPOCH`. A permit is kept only
    /// in the epoch in which it was taken. Written under the row's lock.
    epoch: AtomicU32,
    /// Whether pwqs may keep permits, and are more than half of the limit: then all permits may be
    /// taken although few pwqs are held. Written under the row's lock.
    tight: AtomicBool,
}

/// Guard: the row's lock.
pub(crate) struct Row<H: Host> {
    /// Pwqs that wait for a permit, first in, first out.
    waiting: VecDeque<Link<Pwq<H>>>,
    /// All pwqs that share the limit.
    pwqs: Vec<Link<Pwq<H>>>,
    /// The last epoch that is not `NO_EPOCH`.
    epoch: u32,
}

/// What a pwq did with a permit that was offered to it.
pub(super) enum Offered {
    /// It keeps the permit. `ready`: the caller must put it on a ready list.
    Granted { ready: bool },
    /// It has no use for the permit.
    Declined,
}

impl<H: Host> Node<H> {
    pub(crate) fn new() -> Node<H> {
        let [max, waiting, epoch] = std::array::from_fn(|_| AtomicU32::new(0));
        let row = Row { waiting: VecDeque::new(), pwqs: Vec::new(), epoch: NO_EPOCH };
        Node {
            nr: Line(AtomicU32::new(0)),
            limit: Line(Limit { max, waiting, epoch, tight: AtomicBool::new(false) }),
            row: Line(Lock::ranked(Rank::Row, row)),
        }
    }

    /// Permits in use, permits in total, and waiting pwqs; None unless several pwqs share the node.
    pub(crate) fn figures(&self) -> Option<(u32, u32, usize)> {
        let row = self.row.0.lock();
        let kept = row.kept();
        let used = self.nr.0.load(Ordering::SeqCst).saturating_sub(kept);
        (row.pwqs.len() > 1).then(|| (used, self.max(), row.waiting.len()))
    }

    /// Locks the row of pwqs that wait for a permit.
    pub(crate) fn hold(&self) -> LockGuard<'_, Row<H>> {
        self.row.0.lock()
    }

    /// In a child after a fork: no pwq has a permit or waits for one.
    pub(crate) fn forget(&self, row: &mut Row<H>) {
        row.waiting.clear();
        self.nr.0.store(0, Ordering::SeqCst);
        self.limit.0.waiting.store(0, Ordering::SeqCst);
    }

    /// Reserves room for so many pwqs, so that joining the row does not allocate.
    pub(crate) fn make_room(&self, pwqs: usize) {
        let mut larger = VecDeque::with_capacity(pwqs);
        let mut more = Vec::with_capacity(pwqs);
        let mut row = self.row.0.lock();
        if row.waiting.capacity() < pwqs {
            larger.append(&mut row.waiting);
            std::mem::swap(&mut row.waiting, &mut larger);
        }
        if row.pwqs.capacity() < pwqs {
            more.append(&mut row.pwqs);
            std::mem::swap(&mut row.pwqs, &mut more);
        }
        drop(row);
    }

    /// Changes the limit. The caller must call [`Node::pass_on`] next.
    pub(crate) fn set_max(&self, max: u32) {
        // SeqCst: before the read of the row. Partner: a pwq that joins the row first and reads the
        // limit second (`enqueue`, then `try_take` or `free`).
        self.limit.0.max.store(max, Ordering::SeqCst);
        self.next_epoch(&mut self.row.0.lock());
    }

    /// The limit has changed, or more permits are taken than it was asked for: no permit is kept
    /// that was taken before.
    fn next_epoch(&self, row: &mut Row<H>) {
        row.epoch = row.epoch.wrapping_add(1).max(NO_EPOCH + 1);
        let suffices = self.max() as usize >= row.pwqs.len().max(1);
        let epoch = if suffices { row.epoch } else { NO_EPOCH };
        // SeqCst: change the limit first, the epoch second, and collect third. Partners: a pwq
        // that reads the epoch first and the limit second (`try_take`); and one that keeps a permit
        // first and reads the epoch second (`Pwq::keep_permit`).
        self.limit.0.epoch.store(epoch, Ordering::SeqCst);
        let tight = suffices && (self.max() as usize) < 2 * row.pwqs.len();
        self.limit.0.tight.store(tight, Ordering::Relaxed);
        self.collect(row);
    }

    /// Takes back the permits that pwqs keep. Returns whether there were any.
    fn collect(&self, row: &Row<H>) -> bool {
        let kept = row.pwqs().filter(|pwq| pwq.take_kept()).count() as u32;
        if kept > 0 {
            self.nr.0.fetch_sub(kept, Ordering::SeqCst);
        }
        kept > 0
    }

    /// Takes over a permit that another pwq keeps. Returns the epoch in which it may be kept. Each
    /// pwq begins its search at another one.
    pub(super) fn take_over(&self, id: u32) -> Option<u32> {
        // While pwqs wait for permits, none keeps one (README.md).
        if !self.keeps() || self.limit.0.waiting.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let row = self.row.0.lock();
        // First the epoch, then the limit, as in `try_take`. Where more permits are taken than the
        // limit permits, a kept one may be of an earlier epoch: it is to be given back.
        let epoch = self.epoch();
        if epoch == NO_EPOCH || self.is_exceeded() {
            return None;
        }
        let pwqs = row.pwqs.len().max(1);
        let (before, after) = row.pwqs.split_at(id as usize % pwqs);
        // SAFETY: `add` stores pointers to pwqs, which are never freed while their engine lives.
        let mut all = after.iter().chain(before).map(|pwq| unsafe { &*pwq.0 });
        all.any(Pwq::take_kept).then_some(epoch)
    }

    /// Whether more permits are taken than the limit permits.
    pub(super) fn is_exceeded(&self) -> bool {
        self.nr.0.load(Ordering::SeqCst) > self.max()
    }

    /// Whether pwqs may keep permits.
    pub(super) fn keeps(&self) -> bool {
        self.epoch() != NO_EPOCH
    }

    /// Whether all permits may be taken while pwqs keep many of them. A hint.
    pub(super) fn is_tight(&self) -> bool {
        self.limit.0.tight.load(Ordering::Relaxed)
    }

    /// Whether pwqs keep any permit.
    pub(super) fn keeps_any(&self) -> bool {
        self.epoch() != NO_EPOCH && self.row.0.lock().pwqs().any(Pwq::keeps_permit)
    }

    /// How many permits pwqs keep.
    pub(super) fn kept(&self) -> u32 {
        if self.epoch() == NO_EPOCH { 0 } else { self.row.0.lock().kept() }
    }

    /// The limit.
    pub(super) fn max(&self) -> u32 {
        self.limit.0.max.load(Ordering::SeqCst)
    }

    /// The present epoch of the limit.
    pub(super) fn epoch(&self) -> u32 {
        self.limit.0.epoch.load(Ordering::SeqCst)
    }

    /// Whether a pwq may keep a permit that it took in this epoch.
    pub(super) fn may_keep(&self, epoch: u32) -> bool {
        epoch != NO_EPOCH
            && self.epoch() == epoch
            && self.limit.0.waiting.load(Ordering::SeqCst) == 0
    }

    /// Free permits at this moment. Those that pwqs keep are not among them.
    pub(super) fn free(&self) -> u32 {
        // SeqCst: partner of `give`, which changes `nr` first and reads the row second. A pwq calls
        // `enqueue` before this, so at least one side sees the other.
        self.max().saturating_sub(self.nr.0.load(Ordering::SeqCst))
    }

    /// Takes a permit if one is free. Returns the epoch in which it may be kept.
    pub(crate) fn try_take(&self) -> Option<u32> {
        let nr = &self.nr.0;
        let epoch = self.epoch();
        // SeqCst: as in `free`.
        let mut taken = nr.load(Ordering::SeqCst);
        while taken < self.max() {
            match nr.compare_exchange(taken, taken + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(epoch),
                Err(now) => taken = now,
            }
        }
        None
    }

    /// Adds a pwq that was alone on the node so far, and its holders.
    pub(super) fn add(&self, pwq: &Pwq<H>, holders: u32) {
        let mut row = self.row.0.lock();
        debug_assert!(row.pwqs.len() < row.pwqs.capacity(), "as in `enqueue`");
        row.pwqs.push(Link(std::ptr::from_ref(pwq).cast_mut()));
        self.nr.0.fetch_add(holders, Ordering::SeqCst);
        if self.keeps() {
            // As in `next_epoch`.
            self.limit.0.epoch.store(NO_EPOCH, Ordering::SeqCst);
            self.collect(&row);
        }
    }

    /// All pwqs were added: they may keep permits again, if the limit suffices.
    pub(crate) fn end_adding(&self) {
        self.next_epoch(&mut self.row.0.lock());
    }

    /// Removes a pwq that no worker holds.
    pub(super) fn remove(&self, pwq: &Pwq<H>) {
        let mut row = self.row.0.lock();
        row.pwqs.retain(|sharer| !std::ptr::eq(sharer.0, pwq));
        if pwq.take_kept() {
            self.nr.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Gives permits back. Returns true if the caller must call [`Node::pass_on`] next.
    #[must_use]
    pub(super) fn give(&self, permits: u32) -> bool {
        // SeqCst: change `nr` first, read the row second. Partner: a pwq joins the row first and
        // reads `nr` second (`enqueue`, then `free`).
        self.nr.0.fetch_sub(permits, Ordering::SeqCst);
        self.limit.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Puts a pwq at the end of the row, unless it is in it already. The first in the row frees the
    /// permits that pwqs keep. Under the pwq's lock; the caller reads the count of permits again
    /// afterwards.
    pub(crate) fn enqueue(&self, pwq: &Pwq<H>) {
        let pwq = std::ptr::from_ref(pwq).cast_mut();
        let mut row = self.row.0.lock();
        if !row.waiting.iter().any(|waiting| waiting.0 == pwq) {
            debug_assert!(
                row.waiting.len() < row.waiting.capacity(),
                "nothing is allocated under this lock"
            );
            row.waiting.push_back(Link(pwq));
            self.limit.0.waiting.store(row.waiting.len() as u32, Ordering::SeqCst);
        }
        // SeqCst: join first, collect second. Partner: a pwq keeps a permit first and reads the row
        // second (`Pwq::keep_permit`). The second in the row need not collect: since the first
        // joined, a pwq that keeps a permit sees the row. Nor need any where none may be kept:
        // the change to `NO_EPOCH` collected under this lock, and a pwq that keeps one reads the
        // epoch.
        if row.waiting.len() == 1 && self.epoch() != NO_EPOCH {
            self.collect(&row);
        }
    }

    /// Passes free permits to the waiting pwqs, one to each in turn, until either runs out. `ready`
    /// is called for each pwq that must be put on a ready list. The caller holds no lock and keeps
    /// the queue alive.
    pub(crate) fn pass_on(&self, ready: &mut impl FnMut(&Pwq<H>)) {
        loop {
            let mut row = self.row.0.lock();
            if row.waiting.is_empty() || self.try_take().is_none() {
                return;
            }
            let first = row.waiting.pop_front().expect("the row is not empty");
            self.limit.0.waiting.store(row.waiting.len() as u32, Ordering::SeqCst);
            drop(row);
            // SAFETY: `enqueue` stores pointers to pwqs, which are never freed while their engine
            // lives.
            let pwq = unsafe { &*first.0 };
            match pwq.offer(self) {
                Offered::Granted { ready: true } => ready(pwq),
                Offered::Granted { ready: false } => {}
                // The next round of the loop reads the row, so the result of `give` is not needed.
                Offered::Declined => {
                    let _ = self.give(1);
                }
            }
        }
    }
}

impl<H: Host> Row<H> {
    fn pwqs(&self) -> impl Iterator<Item = &Pwq<H>> {
        // SAFETY: `add` stores pointers to pwqs, which are never freed while their engine lives.
        self.pwqs.iter().map(|pwq| unsafe { &*pwq.0 })
    }

    fn kept(&self) -> u32 {
        self.pwqs().filter(|pwq| pwq.keeps_permit()).count() as u32
    }
}

// The pwq's side of a shared limit.
impl<H: Host> Pwq<H> {
    /// Shares the node's limit from now on. Returns true if the pwq has become ready and the caller
    /// must put it on a ready list.
    #[must_use]
    pub(crate) fn share(&self, node: &Node<H>) -> bool {
        let mut inner = self.lock();
        if !inner.node.is_null() {
            debug_assert!(std::ptr::eq(inner.node, node), "a pwq does not change nodes");
            return false;
        }
        node.add(self, inner.nr_active);
        inner.node = node;
        self.shared_with.store(std::ptr::from_ref(node).cast_mut(), Ordering::Relaxed);
        // If the node is full, the worker that takes the pwq next puts it into the node's row.
        self.state.load(Ordering::Relaxed) & SATURATED != 0 && self.unsaturate(&inner)
    }

    /// Whether it keeps a permit for its next batch.
    pub(crate) fn keeps_permit(&self) -> bool {
        self.inner.0.kept.load(Ordering::SeqCst) != 0
    }

    /// Whether it shares this node's limit. False for an instant after it began to.
    pub(super) fn shares(&self, node: &Node<H>) -> bool {
        std::ptr::eq(self.shared_with.load(Ordering::Relaxed), node)
    }

    /// Takes the permit that the pwq keeps, if any: a worker for its batch, or a thread that collects
    /// under the lock of the node's row.
    pub(super) fn take_kept(&self) -> bool {
        self.keeps_permit() && self.inner.0.kept.swap(0, Ordering::SeqCst) != 0
    }

    /// Keeps a permit of the node that would otherwise be given back, or gives it back. The caller
    /// holds this pwq or another one of the queue. Returns true if the caller must call [`Node::pass_on`] next.
    #[must_use]
    pub(super) fn keep_permit(&self, node: &Node<H>, epoch: u32) -> bool {
        // SeqCst: keep first, read the row and the epoch second. Partners: a pwq that joins the row
        // first and collects second (`enqueue`), and a change of the limit that does the same with
        // the epoch (`next_epoch`). At least one side sees the other.
        let kept = &self.inner.0.kept;
        let keep = || kept.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !node.may_keep(epoch) || !keep() {
            return node.give(1);
        }
        if node.may_keep(epoch) {
            return false;
        }
        if self.take_kept() {
            let _ = node.give(1);
        }
        // Also if another thread collected the permit: that thread may have no use for it, and
        // others may wait in the row.
        true
    }

    /// Offers the pwq a permit of the node, which it declines if no item waits in it.
    fn offer(&self, node: &Node<H>) -> Offered {
        let mut inner = self.lock();
        if !std::ptr::eq(inner.node, node) {
            // The pwq was detached: its queue is being destroyed.
            return Offered::Declined;
        }
        if node.max() == 0 {
            // The queue was frozen after the permit was taken for this pwq. A freeze changes the
            // limit first, and takes grants back under our lock second. So this read sees the new
            // limit, or the freeze takes back what is granted here.
            node.enqueue(self);
            return Offered::Declined;
        }
        // SeqCst: clear the flag first, read the inbox second; see `unsaturate`.
        self.state.fetch_and(!SATURATED, Ordering::SeqCst);
        if inner.worklist.is_empty() && self.inbox.is_empty() {
            return Offered::Declined;
        }
        inner.granted += 1;
        Offered::Granted { ready: self.claim_ready() }
    }
}

#[cfg(all(test, loom))]
impl<H: Host> Node<H> {
    /// Frees all permits that pwqs keep, as a pwq that joins the row.
    pub(crate) fn collect_kept(&self) -> bool {
        self.collect(&self.row.0.lock())
    }
}
