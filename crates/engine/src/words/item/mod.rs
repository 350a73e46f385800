//! The work item: 40 bytes that users embed in the object to be processed.

mod function;
mod list;
mod name;
pub(crate) mod word;

pub(crate) use function::ItemFn;
pub use function::{ForeignFn, must_return};
pub(crate) use list::{WorkList, prefetch_beyond};
pub use name::ItemName;
pub use word::DISABLE_DEPTH_MAX;

use std::ptr::NonNull;

use crate::words::inbox::Node;
use crate::words::item::word::Word;
use crate::words::sync::{AtomicU64, Cell, Link, Ordering, const_unless_modelled, item_moves};

/// What the engine asks of an item's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the item. The function may free it.
    Run,
    /// The item was removed without being run, and no holder is left: release it.
    Release,
    /// There is no item. Give the item's name by [`ItemName::report`], or return at once; do nothing
    /// else. Any thread may ask, at any time.
    Name,
}

/// An item's function.
///
/// # Safety (for callers)
/// The engine calls it with an item that it owned until then, once for each time that the item was
/// enqueued. It also calls it with the argument for [`ItemName::report`], to ask for the item's name.
pub type WorkFn = unsafe fn(NonNull<Work>, Action);

/// The list that a pending item is in. The thread that moves the item writes this, under the lock
/// that guards the list it leaves or enters. A read without that lock is a hint, to be checked
/// under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In no list: idle, or detached for an instant by the thread that moves it.
    Detached,
    /// In the inbox of its pwq, or about to be pushed there.
    Inbox,
    /// In its pwq's worklist (guard: pwq lock).
    Worklist,
    /// In a slot's scheduled list (guard: pwq lock, then the slot's lock).
    Scheduled(u32),
    /// Deferred in a slot until the slot's current run ends (guard: pwq lock, then the slot's
    /// lock).
    Deferred(u32),
    /// Armed in the timer wheel of the pool with this id (guard: the wheel's lock).
    Timer(u32),
    /// In one of the two lists for grace periods (guard: the grace lock).
    Grace(u32),
    /// Removed by a shutdown, in this list of its disposal (guard: the disposal's lock).
    Disposal(u32),
}

impl Location {
    #[inline]
    fn pack(self) -> u32 {
        match self {
            Location::Detached => 0,
            Location::Inbox => 1,
            Location::Worklist => 2,
            Location::Scheduled(slot) => 3 | slot << 3,
            Location::Deferred(slot) => 4 | slot << 3,
            Location::Timer(pool) => 5 | pool << 3,
            Location::Grace(list) => 6 | list << 3,
            Location::Disposal(list) => 7 | list << 3,
        }
    }

    fn unpack(packed: u32) -> Location {
        match packed & 7 {
            0 => Location::Detached,
            1 => Location::Inbox,
            2 => Location::Worklist,
            3 => Location::Scheduled(packed >> 3),
            4 => Location::Deferred(packed >> 3),
            5 => Location::Timer(packed >> 3),
            6 => Location::Grace(packed >> 3),
            _ => Location::Disposal(packed >> 3),
        }
    }
}

/// The pwq that an item was last enqueued on, its flush colour, and two marks, in 32 bits.
///
/// | bits | meaning |
/// |---|---|
/// | 0..=23 | pwq id |
/// | 24..=27 | flush colour, given when the inbox is spliced |
/// | 28 | collision: the item was still running when it was enqueued |
/// | 29 | waited for: a thread waits for the next run |
/// | 30 | traced: the submission was recorded, and the run is to be |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

const COLOUR_SHIFT: u32 = 24;
const COLLISION: u32 = 1 << 28;
const WAITED_FOR: u32 = 1 << 29;
const TRACED: u32 = 1 << 30;

impl Ticket {
    /// The greatest number of pwqs, for the field that names one.
    pub(crate) const PWQS_MAX: u32 = (1 << COLOUR_SHIFT) - 1;

    #[inline]
    pub(crate) fn new(pwq: u32, collision: bool) -> Ticket {
        Ticket(pwq | if collision { COLLISION } else { 0 })
    }

    #[inline]
    pub(crate) fn pwq(self) -> u32 {
        self.0 & Ticket::PWQS_MAX
    }

    #[inline]
    pub(crate) fn colour(self) -> usize {
        ((self.0 >> COLOUR_SHIFT) & 15) as usize
    }

    #[inline]
    pub(crate) fn with_colour(self, colour: usize) -> Ticket {
        Ticket(self.0 & !(15 << COLOUR_SHIFT) | (colour as u32) << COLOUR_SHIFT)
    }

    #[inline]
    pub(crate) fn traced(self) -> bool {
        self.0 & TRACED != 0
    }

    #[inline]
    pub(crate) fn with_traced(self, yes: bool) -> Ticket {
        Ticket(if yes { self.0 | TRACED } else { self.0 & !TRACED })
    }

    #[inline]
    pub(crate) fn collision(self) -> bool {
        self.0 & COLLISION != 0
    }

    #[inline]
    pub(crate) fn waited_for(self) -> bool {
        self.0 & WAITED_FOR != 0
    }

    #[inline]
    pub(crate) fn with_waited_for(self, yes: bool) -> Ticket {
        Ticket(if yes { self.0 | WAITED_FOR } else { self.0 & !WAITED_FOR })
    }
}

/// A work item: a function and the links to enqueue it. Embed it: enqueueing allocates no memory.
///
/// From the moment that an item is enqueued, it must stay at its address and must not be freed,
/// until its function has been called or a cancel has taken it back. The function itself may free
/// it.
#[repr(C)]
pub struct Work {
    /// See the module `word`. Written by any thread, through the word's transitions only.
    pub(crate) word: Word,
    /// Written by the owner, or under the guard of the list that the item is in.
    next: Cell<Link<Work>>,
    /// Written by the owner, or under the guard of the list that the item is in. In an inbox, the
    /// first item has the time here at which it was queued.
    prev: Cell<Link<Work>>,
    /// Constant after creation.
    func: ItemFn,
    /// [`Location`] in the low half, [`Ticket`] in the high half, so that a single store moves an
    /// item. Written by the owner, or under the guard of the list that the item is in. Atomic,
    /// because other threads read it without a lock, as a hint.
    placement: AtomicU64,
}

const _: () = assert!(std::mem::size_of::<Work>() <= crate::words::sync::WORK_SIZE_MAX);

impl Work {
    /// The offset of the function, in bytes, for languages that lay out items themselves.
    #[doc(hidden)]
    pub const FUNCTION_OFFSET: usize = std::mem::offset_of!(Work, func);

    /// The last word of an item that was never enqueued: in no list, of no pwq.
    #[doc(hidden)]
    pub const IDLE_PLACEMENT: u64 = (Ticket::PWQS_MAX as u64) << 32;

    const_unless_modelled! {
        /// An idle item that will call `func`.
        pub fn new(func: WorkFn) -> Work {
            Self::of(ItemFn::new(func))
        }
    }

    const_unless_modelled! {
        /// An idle item that will call a function of another language.
        ///
        /// Another language can make such an item itself. Its function's plain address is at
        /// [`FUNCTION_OFFSET`](Work::FUNCTION_OFFSET), its last word is [`IDLE_PLACEMENT`](Work::IDLE_PLACEMENT),
        /// and all other bytes are zero.
        pub fn foreign(func: ForeignFn) -> Work {
            Self::of(ItemFn::foreign(func))
        }
    }

    const_unless_modelled! {
        fn of(func: ItemFn) -> Work {
            Work {
                word: Word::new(),
                next: Cell::new(Link(std::ptr::null_mut())),
                prev: Cell::new(Link(std::ptr::null_mut())),
                func,
                placement: AtomicU64::new(Work::IDLE_PLACEMENT),
            }
        }
    }

    /// In a child after a fork: makes the item idle, without informing its holder.
    pub(crate) fn forget(&self) {
        self.set_placement(Location::Detached, self.ticket().with_waited_for(false));
        self.word.release(self.word.owned());
    }

    /// Whether the item is queued, armed, or about to be.
    pub fn is_pending(&self) -> bool {
        self.word.is_pending()
    }

    /// How many `disable` calls have no `enable` yet.
    pub fn disable_depth(&self) -> u32 {
        self.word.disable_depth()
    }

    #[inline]
    pub(crate) fn func(&self) -> ItemFn {
        self.func
    }

    /// The list that the item is in, and the pwq that it was last enqueued on.
    #[inline]
    #[track_caller]
    pub(crate) fn placement(&self) -> (Location, Ticket) {
        // Acquire pairs with the Release in `set_placement`: a thread that finds an item detached sees
        // what was done to it before.
        let placement = self.placement.load(Ordering::Acquire);
        (Location::unpack(placement as u32), Ticket((placement >> 32) as u32))
    }

    #[inline]
    #[track_caller]
    pub(crate) fn location(&self) -> Location {
        self.placement().0
    }

    #[inline]
    #[track_caller]
    pub(crate) fn ticket(&self) -> Ticket {
        self.placement().1
    }

    /// The item will be the first in its inbox, and is queued at this time; 0 if that is not measured.
    ///
    /// # Safety
    /// Only for the owner.
    #[inline]
    pub(crate) unsafe fn note_queued_at(&self, now: u64) {
        // SAFETY: by this function's contract.
        unsafe { self.prev.set(Link(std::ptr::without_provenance_mut(now as usize))) };
    }

    /// Only for the owner, or the holder of the guards of the list that the item is in.
    #[inline]
    #[track_caller]
    pub(crate) fn set_placement(&self, location: Location, ticket: Ticket) {
        item_moves(|| self.location() == Location::Detached, location == Location::Detached);
        self.placement.store(pack(location, ticket), Ordering::Release);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn set_location(&self, location: Location) {
        self.set_placement(location, self.ticket());
    }

    #[inline]
    #[track_caller]
    pub(crate) fn set_ticket(&self, ticket: Ticket) {
        self.set_placement(self.location(), ticket);
    }
}

#[inline]
fn pack(location: Location, ticket: Ticket) -> u64 {
    u64::from(location.pack()) | u64::from(ticket.0) << 32
}

// SAFETY: both methods touch nothing but the `next` link.
unsafe impl Node for Work {
    #[inline]
    unsafe fn set_next(this: *mut Work, next: *mut Work) {
        // SAFETY: the caller alone may touch the node.
        unsafe { (*this).next.set(Link(next)) }
    }

    #[inline]
    unsafe fn next(this: *mut Work) -> *mut Work {
        // SAFETY: the caller alone may touch the node.
        unsafe { (*this).next.get().0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn locations_and_tickets_survive_packing() {
        for location in [
            Location::Detached,
            Location::Inbox,
            Location::Worklist,
            Location::Scheduled(65_534),
            Location::Deferred(7),
            Location::Timer(1 << 20),
            Location::Grace(1),
            Location::Disposal(9),
        ] {
            assert_eq!(Location::unpack(location.pack()), location);
        }
        let ticket = Ticket::new(Ticket::PWQS_MAX, true).with_colour(15).with_waited_for(true);
        assert_eq!(
            (ticket.pwq(), ticket.colour(), ticket.collision(), ticket.waited_for()),
            (Ticket::PWQS_MAX, 15, true, true)
        );
        assert_eq!(ticket.with_colour(3).with_waited_for(false).colour(), 3);
    }
}
