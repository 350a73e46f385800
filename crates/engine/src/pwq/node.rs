//! The limit that an unbound queue's pwqs on one NUMA node share.
//!
//! Holders are counted once for each batch. Pwqs that find the node full wait in a row; whoever
//! gives a place back hands it to the first. README.md has the protocol.

use std::collections::VecDeque;

use super::{Pwq, SATURATED};
use crate::host::Host;
use crate::sync::{AtomicU32, Line, Link, Lock, LockGuard, Ordering, Rank};

/// See the module. Lives as long as its queue.
pub(crate) struct Node<H: Host> {
    count: Line<Count>,
    /// Pwqs that wait for a place, first come first. Rank: after the pwq lock.
    row: Line<Lock<VecDeque<Link<Pwq<H>>>>>,
}

struct Count {
    /// Places that are taken, or granted to a pwq that waited.
    nr: AtomicU32,
    /// Places; 0 while the queue is frozen.
    max: AtomicU32,
    /// The length of the row. Written under its lock.
    waiting: AtomicU32,
}

/// What a pwq did with a place that was offered to it.
pub(super) enum Offered {
    /// It keeps the place. Whether the caller must put it on a ready list.
    Granted { ready: bool },
    /// It has no use for it.
    Declined,
}

impl<H: Host> Node<H> {
    pub(crate) fn new() -> Node<H> {
        let (nr, max, waiting) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        Node {
            count: Line(Count { nr, max, waiting }),
            row: Line(Lock::ranked(Rank::Row, VecDeque::new())),
        }
    }

    /// Places that are taken, places, and pwqs that wait, if several pwqs share them.
    pub(crate) fn figures(&self) -> Option<(u32, u32, usize)> {
        let row = self.row.0.lock();
        (row.capacity() > 0)
            .then(|| (self.count.0.nr.load(Ordering::SeqCst), self.max(), row.len()))
    }

    /// Holds on to who waits for a place.
    pub(crate) fn hold(&self) -> LockGuard<'_, VecDeque<Link<Pwq<H>>>> {
        self.row.0.lock()
    }

    /// In a child after a fork: nobody has a place or waits for one.
    pub(crate) fn forget(&self, row: &mut VecDeque<Link<Pwq<H>>>) {
        row.clear();
        self.count.0.nr.store(0, Ordering::SeqCst);
        self.count.0.waiting.store(0, Ordering::SeqCst);
    }

    /// Sees to it that so many pwqs can wait without an allocation.
    pub(crate) fn make_room(&self, pwqs: usize) {
        let mut larger = VecDeque::with_capacity(pwqs);
        let mut row = self.row.0.lock();
        if row.capacity() < pwqs {
            larger.append(&mut row);
            std::mem::swap(&mut *row, &mut larger);
        }
        drop(row);
    }

    /// Changes the limit. The caller goes on with [`Node::pass_on`].
    pub(crate) fn set_max(&self, max: u32) {
        // SeqCst: before the look at the row. Partner: a pwq that joins the row and then looks at
        // the limit (`enqueue`, then `try_take` or `has_free`).
        self.count.0.max.store(max, Ordering::SeqCst);
    }

    /// The limit.
    pub(super) fn max(&self) -> u32 {
        self.count.0.max.load(Ordering::SeqCst)
    }

    /// Places that are free, as far as can be seen.
    pub(super) fn free(&self) -> u32 {
        // SeqCst: with `enqueue` before it, one of this look and the look at the row of whoever
        // gives a place back sees the other.
        self.max().saturating_sub(self.count.0.nr.load(Ordering::SeqCst))
    }

    /// Takes a place if there is one.
    pub(super) fn try_take(&self) -> bool {
        let nr = &self.count.0.nr;
        // SeqCst: as in `free`.
        let mut taken = nr.load(Ordering::SeqCst);
        while taken < self.max() {
            match nr.compare_exchange(taken, taken + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
        false
    }

    /// Counts holders of a pwq that was alone on the node so far.
    pub(super) fn add(&self, holders: u32) {
        self.count.0.nr.fetch_add(holders, Ordering::SeqCst);
    }

    /// Gives places back. True if the caller must go on with [`Node::pass_on`].
    #[must_use]
    pub(super) fn give(&self, places: u32) -> bool {
        // SeqCst: first the place, then the row. Partner: a pwq joins the row first and then looks
        // for a place.
        self.count.0.nr.fetch_sub(places, Ordering::SeqCst);
        self.count.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Puts a pwq at the end of the row, unless it is in it. Under the pwq's lock; the caller looks
    /// for a place afterwards.
    pub(crate) fn enqueue(&self, pwq: &Pwq<H>) {
        let pwq = std::ptr::from_ref(pwq).cast_mut();
        let mut row = self.row.0.lock();
        if !row.iter().any(|waiting| waiting.0 == pwq) {
            debug_assert!(row.len() < row.capacity(), "nothing is allocated under this lock");
            row.push_back(Link(pwq));
            self.count.0.waiting.store(row.len() as u32, Ordering::SeqCst);
        }
    }

    /// Hands free places to those that wait, one to each in turn, until there are no more of either.
    /// `ready` is called for each pwq that must be put on a ready list. Without locks held; the
    /// caller keeps the queue.
    pub(crate) fn pass_on(&self, ready: &mut impl FnMut(&Pwq<H>)) {
        loop {
            let mut row = self.row.0.lock();
            if row.is_empty() || !self.try_take() {
                return;
            }
            let first = row.pop_front();
            self.count.0.waiting.store(row.len() as u32, Ordering::SeqCst);
            drop(row);
            // SAFETY: pwqs are never freed while their engine lives.
            let Some(pwq) = first.and_then(|first| unsafe { first.0.as_ref() }) else { return };
            match pwq.offer(self) {
                Offered::Granted { ready: true } => ready(pwq),
                Offered::Granted { ready: false } => {}
                // Whether somebody waits is looked at above.
                Offered::Declined => {
                    let _ = self.give(1);
                }
            }
        }
    }
}

impl<H: Host> Pwq<H> {
    /// Shares the node's limit from now on. True if the pwq has become ready and the caller must put
    /// it on a ready list.
    #[must_use]
    pub(crate) fn share(&self, node: &Node<H>) -> bool {
        let mut inner = self.lock();
        if !inner.node.is_null() {
            debug_assert!(std::ptr::eq(inner.node, node), "a pwq does not change nodes");
            return false;
        }
        node.add(inner.nr_active);
        inner.node = node;
        // Whoever takes it next puts it into the node's row, if the node is full.
        self.state.load(Ordering::Relaxed) & SATURATED != 0 && self.unsaturate(&inner)
    }

    /// A place of the node is free. A pwq in which nothing waits has no use for it.
    fn offer(&self, node: &Node<H>) -> Offered {
        let mut inner = self.lock();
        if !std::ptr::eq(inner.node, node) {
            // Its queue goes away.
            return Offered::Declined;
        }
        if node.max() == 0 {
            // Frozen since the place was taken for it: what was granted is taken back under our
            // lock after the limit was changed, so this look sees it or that comes after us.
            node.enqueue(self);
            return Offered::Declined;
        }
        // SeqCst: first the flag, then the inbox; see `unsaturate`.
        self.state.fetch_and(!SATURATED, Ordering::SeqCst);
        if inner.worklist.is_empty() && self.inbox.is_empty() {
            return Offered::Declined;
        }
        inner.granted += 1;
        Offered::Granted { ready: self.claim_ready() }
    }
}
