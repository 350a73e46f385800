//! The timers of one pool: a hierarchical wheel of armed delayed items.
//!
//! Placement is `uwork_policy::timer`'s. Each slot keeps a lower bound of its deadlines, so that
//! the next expiry is known to the nanosecond without looking at the timers, and a slot of a coarse
//! level is only taken apart when one of its timers is due. Insert and remove take constant time.

use uwork_policy::timer::{LEVELS, SLOTS, Spot, first_tick, place, tick_of};

use crate::delayed::Delayed;
use crate::host::Host;
use crate::pool::NEVER;
use crate::sync::Link;

/// The spot of a timer on the due list.
const DUE: (u8, u8) = (u8::MAX, 0);

/// Guard: the timers' lock of the pool. Rank: after the pool lock.
pub(crate) struct Timers<H: Host> {
    /// The tick that the wheel stands at. Nothing armed is due before it.
    tick: u64,
    armed: usize,
    /// Timers that were ever armed here: those for the same instant expire in that order.
    sequence: u64,
    /// Timers that are due and were not taken yet, in order. Removed as from a slot.
    due: *mut Delayed<H>,
    /// A bit for each slot that holds something.
    occupied: [u64; LEVELS],
    levels: Option<Box<[[Slot<H>; SLOTS]; LEVELS]>>,
}

struct Slot<H: Host> {
    head: *mut Delayed<H>,
    /// No deadline in the slot is earlier.
    earliest: u64,
}

// SAFETY: the armed items belong to whoever holds the wheel.
unsafe impl<H: Host> Send for Timers<H> {}

impl<H: Host> Timers<H> {
    pub(crate) fn new() -> Timers<H> {
        Timers {
            tick: 0,
            armed: 0,
            sequence: 0,
            due: std::ptr::null_mut(),
            occupied: [0; LEVELS],
            levels: None,
        }
    }

    fn slot(&mut self, spot: Spot) -> &mut Slot<H> {
        let levels = self.levels.get_or_insert_with(|| {
            Box::new(std::array::from_fn(|_| {
                std::array::from_fn(|_| Slot { head: std::ptr::null_mut(), earliest: NEVER })
            }))
        });
        &mut levels[spot.level][spot.slot]
    }

    /// The first slot that holds something: everything else is due later.
    fn first(&self) -> Option<Spot> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some(Spot { level, slot: self.occupied[level].trailing_zeros() as usize })
    }

    /// The next expiry: exact, or early when its timer was removed. `NEVER` when nothing is armed.
    pub(crate) fn next(&mut self) -> u64 {
        match self.first() {
            _ if !self.due.is_null() => 0,
            Some(spot) => self.slot(spot).earliest,
            None => NEVER,
        }
    }

    /// Arms `item` for the deadline in its node.
    ///
    /// # Safety
    /// `item` is live, in no list, and the caller's.
    pub(crate) unsafe fn insert(&mut self, item: *mut Delayed<H>, now: u64) {
        if self.armed == 0 {
            self.tick = tick_of(now);
        }
        self.armed += 1;
        self.sequence += 1;
        // SAFETY: by this function's contract.
        unsafe {
            (*item).node.sequence.set(self.sequence);
            self.link(item);
        }
    }

    unsafe fn link(&mut self, item: *mut Delayed<H>) {
        // SAFETY: the caller owns `item`; the slot's head is in this wheel.
        unsafe {
            let node = &(*item).node;
            let deadline = node.deadline.get();
            let spot = place(self.tick, deadline);
            self.occupied[spot.level] |= 1 << spot.slot;
            let slot = self.slot(spot);
            slot.earliest = slot.earliest.min(deadline);
            node.spot.set((spot.level as u8, spot.slot as u8));
            link_front(&mut slot.head, item);
        }
    }

    /// Takes an armed item out.
    ///
    /// # Safety
    /// `item` is in this wheel.
    pub(crate) unsafe fn remove(&mut self, item: *mut Delayed<H>) {
        // SAFETY: `item` and its neighbours are in this wheel.
        unsafe {
            let node = &(*item).node;
            let (level, slot) = node.spot.get();
            let (prev, next) = (node.prev.get().0, node.next.get().0);
            if !next.is_null() {
                (*next).node.prev.set(Link(prev));
            }
            if !prev.is_null() {
                (*prev).node.next.set(Link(next));
            } else if (level, slot) == DUE {
                self.due = next;
            } else {
                let spot = Spot { level: level as usize, slot: slot as usize };
                self.slot(spot).head = next;
                if next.is_null() {
                    self.slot(spot).earliest = NEVER;
                    self.occupied[spot.level] &= !(1 << spot.slot);
                }
            }
        }
        self.armed -= 1;
    }

    /// Takes out the timer that is due first, or null if none is due.
    pub(crate) fn pop_due(&mut self, now: u64) -> *mut Delayed<H> {
        while self.due.is_null() {
            let Some(spot) = self.first() else { break };
            if self.slot(spot).earliest > now {
                break;
            }
            self.tick = self.tick.max(first_tick(self.tick, spot));
            if spot.level == 0 {
                self.gather_due(spot, now);
            } else {
                self.take_apart(spot);
            }
        }
        let item = self.due;
        if !item.is_null() {
            // SAFETY: the timers on the due list are in this wheel.
            unsafe { self.remove(item) };
        }
        item
    }

    /// How many are armed.
    pub(crate) fn armed(&self) -> usize {
        self.armed
    }

    /// Visits the armed timers, in no order, as long as `f` says that it wants more.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Delayed<H>) -> bool) {
        let slots = self.levels.iter().flat_map(|levels| levels.as_flattened());
        for head in std::iter::once(self.due).chain(slots.map(|slot| slot.head)) {
            let mut item = head;
            // SAFETY: the timers of a slot are in this wheel.
            while let Some(timer) = unsafe { item.as_ref() } {
                if !f(timer) {
                    return;
                }
                // SAFETY: as above; the links are this wheel's.
                item = unsafe { timer.node.next.get().0 };
            }
        }
    }

    /// Takes out any timer, or null if nothing is armed.
    pub(crate) fn pop_any(&mut self) -> *mut Delayed<H> {
        let item = match self.first() {
            _ if !self.due.is_null() => self.due,
            Some(spot) => self.slot(spot).head,
            None => return std::ptr::null_mut(),
        };
        // SAFETY: an item of one of our lists is in this wheel.
        unsafe { self.remove(item) };
        item
    }

    /// Empties a slot. Its timers as a list through `next`.
    fn empty(&mut self, spot: Spot) -> *mut Delayed<H> {
        self.occupied[spot.level] &= !(1 << spot.slot);
        let slot = self.slot(spot);
        slot.earliest = NEVER;
        std::mem::replace(&mut slot.head, std::ptr::null_mut())
    }

    /// Moves the timers of a coarse slot, which the wheel has reached, to finer ones.
    fn take_apart(&mut self, spot: Spot) {
        let mut item = self.empty(spot);
        while !item.is_null() {
            // SAFETY: the items of a slot are in this wheel; each is moved once.
            unsafe {
                let next = (*item).node.next.get().0;
                self.link(item);
                item = next;
            }
        }
    }

    /// Moves what is due of a slot of the finest level to the due list, in order.
    fn gather_due(&mut self, spot: Spot, now: u64) {
        let mut item = self.empty(spot);
        let mut due: Vec<(u64, u64, *mut Delayed<H>)> = Vec::new();
        while !item.is_null() {
            // SAFETY: the items of a slot are in this wheel; each is moved once.
            unsafe {
                let node = &(*item).node;
                let next = node.next.get().0;
                if node.deadline.get() <= now {
                    due.push((node.deadline.get(), node.sequence.get(), item));
                } else {
                    self.link(item);
                }
                item = next;
            }
        }
        due.sort_unstable_by_key(|&(deadline, sequence, _)| (deadline, sequence));
        for (_, _, item) in due.into_iter().rev() {
            // SAFETY: as above; the due list is this wheel's.
            unsafe {
                (*item).node.spot.set(DUE);
                link_front(&mut self.due, item);
            }
        }
    }
}

/// Puts `item` at the front of a list.
///
/// # Safety
/// `item` is in no list, and the list is the caller's.
unsafe fn link_front<H: Host>(head: &mut *mut Delayed<H>, item: *mut Delayed<H>) {
    // SAFETY: by this function's contract.
    unsafe {
        let first = std::mem::replace(head, item);
        (*item).node.prev.set(Link(std::ptr::null_mut()));
        (*item).node.next.set(Link(first));
        if !first.is_null() {
            (*first).node.prev.set(Link(item));
        }
    }
}
