//! The deque of a thread that forks: its owner pushes and pops at one end without a locked
//! instruction, thieves take from the other.
//!
//! `tail` counts the entries that the owner pushed and has not popped, `head` those that thieves
//! took; the entries are at `head..tail`. Only the owner writes `tail`, only the thief that holds
//! the lock writes `head`. Both sides announce first and look afterwards: the owner stores the lower
//! `tail` and then reads `head`; a thief stores the higher `head` and then reads `tail`. Between the
//! two is the light fence of the owner and the heavy fence of the thief, so at least one of them
//! sees the other. A thief that sees the owner gives up. An owner that sees a thief takes the lock,
//! waits thereby for the thief's decision, and reads the outcome.
//!
//! **Visits.** Thieves do not search. The owner asks for one: `asked` says that a thief is on its
//! way and will look at the deque. Again both announce and look: the owner pushes and then reads
//! `asked`; a visit clears `asked` and then looks at the deque. So each push is seen by the visit
//! that was asked for, or the owner is told that none is on its way.
//!
//! | `tail - head` | state |
//! |---|---|
//! | 0 | empty |
//! | n > 0 | n entries |
//! | -1 | the owner and a thief want the same last entry; the lock decides |
//!
//! The protocol with its interleavings is in `crates/uwork/src/join/README.md`, the model in
//! `models/deque.rs`.

use std::ptr::NonNull;

use crate::words::host::Host;
use crate::words::sync::{AtomicBool, AtomicPtr, AtomicU64, Line, Lock, MODELLED, Ordering};

/// How many entries it can hold, plus one. A push to a full deque is refused: the caller then runs
/// both halves itself. With 255 halves open, there is enough for any number of thieves.
const CAPACITY: usize = if MODELLED { 4 } else { 256 };
const _: () = assert!(CAPACITY.is_power_of_two());

/// See the module.
pub struct Deque<T> {
    /// Written by the owner only.
    tail: Line<AtomicU64>,
    /// Guard: `lock`.
    head: Line<AtomicU64>,
    /// Held by a thief while it takes an entry, and by the owner while it waits for that.
    lock: Lock<()>,
    /// Set by the owner, cleared by the visit.
    asked: AtomicBool,
    /// Entry n is at n modulo the capacity. Written by the owner only.
    entries: [AtomicPtr<T>; CAPACITY],
}

/// The outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an entry that was not pushed is not to be popped"]
pub enum Pushed {
    /// The entry is in, and a visit that sees it was asked for.
    Covered,
    /// The entry is in. No visit was asked for.
    Uncovered,
    /// There is no room.
    Full,
}

/// The outcome of a pop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stolen entry is still in use"]
pub enum Popped {
    /// The entry is the owner's again. No thief has touched it.
    Own,
    /// A thief has taken it.
    Stolen,
}

impl<T> Default for Deque<T> {
    fn default() -> Deque<T> {
        Deque::new()
    }
}

impl<T> Deque<T> {
    /// An empty deque.
    pub fn new() -> Deque<T> {
        Deque {
            tail: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
            lock: Lock::new(()),
            asked: AtomicBool::new(false),
            entries: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        }
    }

    /// The owner pushes an entry.
    ///
    /// # Safety
    /// Only for the owner. If it is not refused, the entry stays live until a [`Deque::pop`] returns
    /// it, or, if that finds it stolen, until the thief has finished with it.
    #[inline]
    pub unsafe fn push(&self, host: &impl Host, entry: NonNull<T>) -> Pushed {
        // Relaxed: written by the owner only.
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Relaxed: an old value refuses too early at worst. One entry stays free, since a thief reads
        // its entry after it has raised `head` past it.
        let used = tail.wrapping_sub(self.head.0.load(Ordering::Relaxed)).cast_signed();
        if used >= CAPACITY as i64 - 1 {
            return Pushed::Full;
        }
        self.entries[tail as usize % CAPACITY].store(entry.as_ptr(), Ordering::Relaxed);
        // Release: a thief that reads this value sees the entry and what it points to.
        self.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        // Pairs with the fence in `begin_visit`: the visit sees the entry, or we see that it has
        // begun.
        host.light_fence();
        if self.asked.load(Ordering::Relaxed) { Pushed::Covered } else { Pushed::Uncovered }
    }

    /// The owner takes the entry that it pushed last back.
    ///
    /// # Safety
    /// Only for the owner, once for each push that was not refused.
    #[inline]
    pub unsafe fn pop(&self, host: &impl Host) -> Popped {
        let tail = self.tail.0.load(Ordering::Relaxed).wrapping_sub(1);
        // Release: a thief that reads this value sees the entries below it, as in `push`.
        self.tail.0.store(tail, Ordering::Release);
        // Pairs with the fence in `steal`: the thief sees the lower tail, or we see its head.
        host.light_fence();
        if self.head.0.load(Ordering::Relaxed).wrapping_sub(tail).cast_signed() <= 0 {
            return Popped::Own;
        }
        self.pop_contended(tail)
    }

    #[cold]
    fn pop_contended(&self, tail: u64) -> Popped {
        let _locked = self.lock.lock();
        // Stable under the lock.
        if self.head.0.load(Ordering::Relaxed).wrapping_sub(tail).cast_signed() <= 0 {
            return Popped::Own;
        }
        // Thieves have taken all entries: the deque is empty again.
        self.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        Popped::Stolen
    }

    /// As [`Deque::pop`], in a forked child: whatever a thief of the parent was doing at the fork, it
    /// does not go on here, and may hold the lock for ever. An entry that it was about to take counts
    /// as stolen. The deque is used for further pops only.
    ///
    /// # Safety
    /// As for [`Deque::pop`]. No other thread of the process uses the deque.
    #[cold]
    pub unsafe fn pop_in_child(&self) -> Popped {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let head = self.head.0.load(Ordering::Relaxed);
        if head.wrapping_sub(tail).cast_signed() >= 0 {
            return Popped::Stolen;
        }
        self.tail.0.store(tail.wrapping_sub(1), Ordering::Relaxed);
        Popped::Own
    }

    /// The owner asks for a visit, and then sends the thief. After [`Pushed::Uncovered`].
    pub fn ask(&self) {
        // Relaxed: sending the thief publishes it.
        self.asked.store(true, Ordering::Relaxed);
    }

    /// No thief was sent, or the thief was turned back.
    pub fn take_request_back(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// A thief that was asked for begins its visit: it sees every entry whose push is not told
    /// [`Pushed::Uncovered`].
    pub fn begin_visit(&self, host: &impl Host) {
        self.asked.store(false, Ordering::Relaxed);
        // Pairs with the fence in `push`.
        host.heavy_fence();
    }

    /// A thief takes the oldest entry, if `accept` says so. From there on the thief is responsible for
    /// what the entry points to.
    ///
    /// `accept` is called with the entry while the owner can neither take it back nor find it stolen:
    /// what it sees is true of the moment of the theft. It sees everything that the owner did before
    /// the push. It must not use this deque.
    pub fn steal(
        &self,
        host: &impl Host,
        accept: impl FnOnce(NonNull<T>) -> bool,
    ) -> Option<NonNull<T>> {
        // An empty deque costs two loads. Relaxed: a visit's fence comes before this.
        if self.used(Ordering::Relaxed) <= 0 {
            return None;
        }
        let _locked = self.lock.lock();
        if self.used(Ordering::Relaxed) <= 0 {
            return None;
        }
        let head = self.head.0.load(Ordering::Relaxed);
        self.head.0.store(head.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `pop`.
        host.heavy_fence();
        // Acquire: the entry, what it points to, and everything before its push.
        let taken = (self.used(Ordering::Acquire) >= 0)
            .then(|| self.entries[head as usize % CAPACITY].load(Ordering::Relaxed))
            .map(|entry| NonNull::new(entry).expect("an entry below the tail was pushed"))
            .filter(|&entry| accept(entry));
        if taken.is_none() {
            // A push that saw the higher head meanwhile may have filled the place that stays free. It
            // does not reuse the place of this entry.
            self.head.0.store(head, Ordering::Relaxed);
        }
        taken
    }

    /// The number of entries; -1 if the head is past the tail.
    fn used(&self, order: Ordering) -> i64 {
        let tail = self.tail.0.load(order);
        tail.wrapping_sub(self.head.0.load(Ordering::Relaxed)).cast_signed()
    }
}
