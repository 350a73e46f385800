//! The limit that an unbound queue's pwqs on one NUMA node share.
//!
//! Holders are counted once for each batch. Pwqs that find the node full wait in a row. A thread
//! that gives a permit back passes it to the first in the row. README.md has the protocol.

use std::collections::VecDeque;

use super::{Pwq, SATURATED};
use crate::host::Host;
use crate::sync::{AtomicU32, Line, Link, Lock, LockGuard, Ordering, Rank};

/// The shared limit (see the module). It lives as long as its queue.
pub(crate) struct Node<H: Host> {
    count: Line<Count>,
    /// Pwqs that wait for a permit, first in, first out. Rank: after the pwq lock.
    row: Line<Lock<VecDeque<Link<Pwq<H>>>>>,
}

struct Count {
    /// Permits that are taken, or granted to a pwq that waited.
    nr: AtomicU32,
    /// The number of permits; 0 while the queue is frozen.
    max: AtomicU32,
    /// The length of the row. Written under its lock.
    waiting: AtomicU32,
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
        let (nr, max, waiting) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        Node {
            count: Line(Count { nr, max, waiting }),
            row: Line(Lock::ranked(Rank::Row, VecDeque::new())),
        }
    }

    /// Permits taken, permits in total, and waiting pwqs; None unless several pwqs share the node.
    pub(crate) fn figures(&self) -> Option<(u32, u32, usize)> {
        let row = self.row.0.lock();
        (row.capacity() > 0)
            .then(|| (self.count.0.nr.load(Ordering::SeqCst), self.max(), row.len()))
    }

    /// Locks the row of pwqs that wait for a permit.
    pub(crate) fn hold(&self) -> LockGuard<'_, VecDeque<Link<Pwq<H>>>> {
        self.row.0.lock()
    }

    /// In a child after a fork: no pwq has a permit or waits for one.
    pub(crate) fn forget(&self, row: &mut VecDeque<Link<Pwq<H>>>) {
        row.clear();
        self.count.0.nr.store(0, Ordering::SeqCst);
        self.count.0.waiting.store(0, Ordering::SeqCst);
    }

    /// Reserves room for so many waiting pwqs, so that joining the row does not allocate.
    pub(crate) fn make_room(&self, pwqs: usize) {
        let mut larger = VecDeque::with_capacity(pwqs);
        let mut row = self.row.0.lock();
        if row.capacity() < pwqs {
            larger.append(&mut row);
            std::mem::swap(&mut *row, &mut larger);
        }
        drop(row);
    }

    /// Changes the limit. The caller must call [`Node::pass_on`] next.
    pub(crate) fn set_max(&self, max: u32) {
        // SeqCst: before the read of the row. Partner: a pwq that joins the row first and reads the
        // limit second (`enqueue`, then `try_take` or `free`).
        self.count.0.max.store(max, Ordering::SeqCst);
    }

    /// The limit.
    pub(super) fn max(&self) -> u32 {
        self.count.0.max.load(Ordering::SeqCst)
    }

    /// Free permits at this moment.
    pub(super) fn free(&self) -> u32 {
        // SeqCst: partner of `give`, which changes `nr` first and reads the row second. A pwq calls
        // `enqueue` before this, so at least one side sees the other.
        self.max().saturating_sub(self.count.0.nr.load(Ordering::SeqCst))
    }

    /// Takes a permit if one is free.
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

    /// Adds the holders of a pwq that was alone on the node so far.
    pub(super) fn add(&self, holders: u32) {
        self.count.0.nr.fetch_add(holders, Ordering::SeqCst);
    }

    /// Gives permits back. Returns true if the caller must call [`Node::pass_on`] next.
    #[must_use]
    pub(super) fn give(&self, permits: u32) -> bool {
        // SeqCst: change `nr` first, read the row second. Partner: a pwq joins the row first and
        // reads `nr` second (`enqueue`, then `free`).
        self.count.0.nr.fetch_sub(permits, Ordering::SeqCst);
        self.count.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Puts a pwq at the end of the row, unless it is in it already. Under the pwq's lock; the
    /// caller reads the count of permits again afterwards.
    pub(crate) fn enqueue(&self, pwq: &Pwq<H>) {
        let pwq = std::ptr::from_ref(pwq).cast_mut();
        let mut row = self.row.0.lock();
        if !row.iter().any(|waiting| waiting.0 == pwq) {
            debug_assert!(row.len() < row.capacity(), "nothing is allocated under this lock");
            row.push_back(Link(pwq));
            self.count.0.waiting.store(row.len() as u32, Ordering::SeqCst);
        }
    }

    /// Passes free permits to the waiting pwqs, one to each in turn, until either runs out. `ready`
    /// is called for each pwq that must be put on a ready list. The caller holds no lock and keeps
    /// the queue alive.
    pub(crate) fn pass_on(&self, ready: &mut impl FnMut(&Pwq<H>)) {
        loop {
            let mut row = self.row.0.lock();
            if row.is_empty() || !self.try_take() {
                return;
            }
            let first = row.pop_front().expect("the row is not empty");
            self.count.0.waiting.store(row.len() as u32, Ordering::SeqCst);
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
        node.add(inner.nr_active);
        inner.node = node;
        // If the node is full, the worker that takes the pwq next puts it into the node's row.
        self.state.load(Ordering::Relaxed) & SATURATED != 0 && self.unsaturate(&inner)
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
