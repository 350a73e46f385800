//! The work item: 40 bytes that users embed in the object to be processed.

mod function;
pub(crate) mod word;

pub use function::ForeignFn;
pub(crate) use function::ItemFn;
pub use word::DISABLE_DEPTH_MAX;

use std::ptr::NonNull;

use crate::inbox::Node;
use crate::item::word::Word;
use crate::sync::{AtomicU64, Cell, Link, Ordering, const_unless_modelled, item_moves, prefetch};

/// What the engine asks of an item's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the item. The function may free it.
    Run,
    /// The item was taken off without being run, and no holder is left: release it.
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

/// The name of an item's function, for people: they know their own types, and not the functions
/// that an interface derives from them. The function itself gives the name, because any other way
/// would cost the item space, or an entry in a table when the item is made. As a side effect,
/// functions that differ in their names differ in their code, so no linker merges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemName {
    /// The type that identifies the work: the type that embeds the item, or a closure's.
    pub type_name: &'static str,
    /// Which item of that type, if the type may have several; 0 for the first.
    pub id: u64,
}

impl ItemName {
    /// The name of the items of a type, or of a closure.
    pub fn of_type<T: ?Sized>(id: u64) -> ItemName {
        ItemName { type_name: std::any::type_name::<T>(), id }
    }

    /// Answers [`Action::Name`].
    ///
    /// # Safety
    /// `to` is the pointer that the function received together with that action.
    #[cold]
    pub unsafe fn report(self, to: NonNull<Work>) {
        // SAFETY: by this function's contract: `ask` passes the address of such a value.
        unsafe { to.cast::<Option<ItemName>>().write(Some(self)) };
    }

    /// Asks a function for its name.
    pub(crate) fn ask(func: WorkFn) -> Option<ItemName> {
        let mut name: Option<ItemName> = None;
        // SAFETY: with this action, the function only needs a location to write the name to.
        unsafe { func(NonNull::from(&mut name).cast(), Action::Name) };
        name
    }
}

impl std::fmt::Display for ItemName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.id {
            0 => f.write_str(self.type_name),
            id => write!(f, "{} (item {id})", self.type_name),
        }
    }
}

/// The list that a pending item is in. The thread that moves the item writes this, under the lock
/// that guards the list it leaves or enters. A read without that lock is a hint, to be checked
/// under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
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
    /// Taken off by a shutdown, in this list of its disposal (guard: the disposal's lock).
    Disposal(u32),
}

impl Place {
    #[inline]
    fn pack(self) -> u32 {
        match self {
            Place::Detached => 0,
            Place::Inbox => 1,
            Place::Worklist => 2,
            Place::Scheduled(slot) => 3 | slot << 3,
            Place::Deferred(slot) => 4 | slot << 3,
            Place::Timer(pool) => 5 | pool << 3,
            Place::Grace(list) => 6 | list << 3,
            Place::Disposal(list) => 7 | list << 3,
        }
    }

    fn unpack(packed: u32) -> Place {
        match packed & 7 {
            0 => Place::Detached,
            1 => Place::Inbox,
            2 => Place::Worklist,
            3 => Place::Scheduled(packed >> 3),
            4 => Place::Deferred(packed >> 3),
            5 => Place::Timer(packed >> 3),
            6 => Place::Grace(packed >> 3),
            _ => Place::Disposal(packed >> 3),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

const COLOUR_SHIFT: u32 = 24;
const COLLISION: u32 = 1 << 28;
const WAITED_FOR: u32 = 1 << 29;

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
    /// Written by the owner, or under the guard of the list that the item is in.
    prev: Cell<Link<Work>>,
    /// Constant after creation.
    func: ItemFn,
    /// [`Place`] in the low half, [`Ticket`] in the high half, so that a single store moves an
    /// item. Written by the owner, or under the guard of the list that the item is in. Atomic,
    /// because other threads read it without a lock, as a hint.
    spot: AtomicU64,
}

const _: () = assert!(std::mem::size_of::<Work>() <= crate::sync::WORK_SIZE_MAX);

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
                spot: AtomicU64::new(Work::IDLE_PLACEMENT),
            }
        }
    }

    /// In a child after a fork: makes the item idle, without informing its holder.
    pub(crate) fn forget(&self) {
        self.set_placement(Place::Detached, self.ticket().with_waited_for(false));
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
    pub(crate) fn spot(&self) -> (Place, Ticket) {
        // Acquire pairs with the Release in `set_placement`: a thread that finds an item detached sees
        // what was done to it before.
        let spot = self.spot.load(Ordering::Acquire);
        (Place::unpack(spot as u32), Ticket((spot >> 32) as u32))
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        self.spot().0
    }

    #[inline]
    pub(crate) fn ticket(&self) -> Ticket {
        self.spot().1
    }

    /// Only for the owner, or the holder of the guards of the list that the item is in.
    #[inline]
    pub(crate) fn set_placement(&self, place: Place, ticket: Ticket) {
        item_moves(|| self.place() == Place::Detached, place == Place::Detached);
        self.spot.store(pack(place, ticket), Ordering::Release);
    }

    #[inline]
    pub(crate) fn set_place(&self, place: Place) {
        self.set_placement(place, self.ticket());
    }

    #[inline]
    pub(crate) fn set_ticket(&self, ticket: Ticket) {
        self.set_placement(self.place(), ticket);
    }
}

#[inline]
fn pack(place: Place, ticket: Ticket) -> u64 {
    u64::from(place.pack()) | u64::from(ticket.0) << 32
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

/// How many strides ahead a walk along a list prefetches.
const PREFETCH_AHEAD: usize = 8;

/// Prefetches an item further along a list whose next step is from `item` to `next`. Items are
/// often elements of an array, so that the distance repeats.
#[inline(always)]
pub(crate) fn prefetch_beyond(item: *const Work, next: *const Work) {
    let stride = next.addr().wrapping_sub(item.addr());
    prefetch(next.wrapping_byte_add(stride.wrapping_mul(PREFETCH_AHEAD)));
}

/// A doubly linked list of items, for lists from which a thread may take an item out of the middle.
///
/// Not synchronised: the holder of the list holds its guard. The `prev` link of the first item is
/// meaningless, so that taking items off the front need not update it.
pub(crate) struct WorkList {
    head: *mut Work,
    tail: *mut Work,
}

// SAFETY: the list's items belong to the holder of the list.
unsafe impl Send for WorkList {}

impl WorkList {
    pub(crate) const fn new() -> WorkList {
        WorkList { head: std::ptr::null_mut(), tail: std::ptr::null_mut() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    #[inline]
    pub(crate) fn front(&self) -> *mut Work {
        self.head
    }

    /// # Safety
    /// `item` is live, in no list, and the caller's.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, item: *mut Work) {
        // SAFETY: the caller owns `item`; `tail` is in this list, whose guard the caller holds.
        unsafe {
            (*item).next.set(Link(std::ptr::null_mut()));
            (*item).prev.set(Link(self.tail));
            if self.head.is_null() {
                self.head = item;
            } else {
                (*self.tail).next.set(Link(item));
            }
        }
        self.tail = item;
    }

    /// Takes the first item, or returns null.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> *mut Work {
        let item = self.head;
        if !item.is_null() {
            // SAFETY: `item` is in this list, whose guard the caller holds.
            self.head = unsafe { (*item).next.get().0 };
            // `tail` is meaningless in an empty list.
        }
        item
    }

    /// Takes the last item, or returns null.
    pub(crate) fn pop_back(&mut self) -> *mut Work {
        if self.head.is_null() {
            return std::ptr::null_mut();
        }
        let item = self.tail;
        // SAFETY: `item` is in this list.
        unsafe { self.remove(item) };
        item
    }

    /// # Safety
    /// `item` is in this list.
    pub(crate) unsafe fn remove(&mut self, item: *mut Work) {
        // SAFETY: `item` and its neighbours are in this list, whose guard the caller holds.
        unsafe {
            let (prev, next) = ((*item).prev.get().0, (*item).next.get().0);
            if item == self.head {
                self.head = next;
                return;
            }
            (*prev).next.set(Link(next));
            if next.is_null() {
                self.tail = prev;
            } else {
                (*next).prev.set(Link(prev));
            }
        }
    }

    /// Takes all items.
    pub(crate) fn take(&mut self) -> WorkList {
        std::mem::replace(self, WorkList::new())
    }

    /// Appends a stack from an inbox (last pushed first) in the order of the pushes; `visit` sees
    /// each item. Returns the number of items.
    ///
    /// # Safety
    /// The stack's items are live, in no list, and the caller's.
    pub(crate) unsafe fn append_stack(
        &mut self,
        stack: *mut Work,
        mut visit: impl FnMut(&Work),
    ) -> usize {
        let (mut item, mut newer, mut count) = (stack, std::ptr::null_mut::<Work>(), 0);
        let newest = stack;
        while !item.is_null() {
            // SAFETY: by this function's contract; each item is visited once.
            unsafe {
                let older = (*item).next.get().0;
                prefetch_beyond(item, older);
                (*item).next.set(Link(newer));
                (*item).prev.set(Link(older));
                visit(&*item);
                newer = item;
                item = older;
            }
            count += 1;
        }
        if count > 0 {
            // `newer` is the oldest item now.
            // SAFETY: as above; the tail is in this list.
            unsafe {
                (*newer).prev.set(Link(self.tail));
                if self.head.is_null() {
                    self.head = newer;
                } else {
                    (*self.tail).next.set(Link(newer));
                }
            }
            self.tail = newest;
        }
        count
    }

    /// Takes all items up to and including `last`.
    ///
    /// # Safety
    /// `last` is in this list.
    pub(crate) unsafe fn split_front(&mut self, last: *mut Work) -> WorkList {
        let front = WorkList { head: self.head, tail: last };
        // SAFETY: `last` is in this list.
        unsafe {
            self.head = (*last).next.get().0;
            (*last).next.set(Link(std::ptr::null_mut()));
        }
        front
    }

    /// Puts all items of `other` before this list.
    pub(crate) fn prepend(&mut self, mut other: WorkList) {
        other.append(self.take());
        *self = other;
    }

    /// Appends all items of `other`.
    pub(crate) fn append(&mut self, other: WorkList) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        // SAFETY: both ends are in lists that the caller holds.
        unsafe {
            (*self.tail).next.set(Link(other.head));
            (*other.head).prev.set(Link(self.tail));
        }
        self.tail = other.tail;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    unsafe fn nothing(_: NonNull<Work>, _: Action) {}

    fn order(list: &mut WorkList) -> Vec<*mut Work> {
        let mut items = Vec::new();
        loop {
            let item = list.pop_front();
            if item.is_null() {
                return items;
            }
            items.push(item);
        }
    }

    #[test]
    fn places_and_tickets_survive_packing() {
        for place in [
            Place::Detached,
            Place::Inbox,
            Place::Worklist,
            Place::Scheduled(65_534),
            Place::Deferred(7),
            Place::Timer(1 << 20),
            Place::Grace(1),
            Place::Disposal(9),
        ] {
            assert_eq!(Place::unpack(place.pack()), place);
        }
        let ticket = Ticket::new(Ticket::PWQS_MAX, true).with_colour(15).with_waited_for(true);
        assert_eq!(
            (ticket.pwq(), ticket.colour(), ticket.collision(), ticket.waited_for()),
            (Ticket::PWQS_MAX, 15, true, true)
        );
        assert_eq!(ticket.with_colour(3).with_waited_for(false).colour(), 3);
    }

    #[test]
    fn list_keeps_its_order_through_every_operation() {
        let items: Vec<Box<Work>> = (0..6).map(|_| Box::new(Work::new(nothing))).collect();
        let at = |i: usize| &*items[i] as *const Work as *mut Work;
        let mut list = WorkList::new();
        // SAFETY: every item is live and inserted once.
        unsafe {
            list.push_back(at(1));
            list.push_back(at(2));
            list.push_back(at(3));
            let mut first = WorkList::new();
            first.push_back(at(0));
            list.prepend(first);
            list.remove(at(2));
            let mut more = WorkList::new();
            more.push_back(at(4));
            more.push_back(at(5));
            list.append(more);
        }
        assert_eq!(list.pop_back(), at(5));
        assert_eq!(order(&mut list), vec![at(0), at(1), at(3), at(4)]);
        assert!(list.is_empty() && list.pop_back().is_null());
    }
}
