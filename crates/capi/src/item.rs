//! Items as C lays them out, and how the library reaches them.

use std::ffi::c_int;
use std::ptr::NonNull;

use uwork::foreign::{
    self, DEFERRABLE_OFFSET, FUNCTION_OFFSET, ForeignFn, IDLE_PLACEMENT, RawWork,
};
use uwork::rcu::{HasRcuWork, RcuWork};
use uwork::{
    DelayedWork, Enqueued, HasDelayedWork, HasWork, RejectedError, Work, WorkItem, WorkPointer,
};

use crate::debug::{GracedShadow, TimedShadow};
use crate::error::{fail, failed, misuse};

/// What an item does. It gets the item.
pub type UwWorkFn = Option<unsafe extern "C-unwind" fn(*mut UwWork)>;

/// `struct uw_work`, and the beginning of `struct uw_delayed_work` and `struct uw_rcu_work`: for those the
/// engine's part goes on behind it. The engine calls the function itself.
#[repr(transparent)]
pub struct UwWork(Work<UwWork>);

/// `struct uw_delayed_work`.
#[repr(C)]
pub struct UwDelayedWork {
    pub(crate) work: UwWork,
    rest: [u64; 11],
}

/// `struct uw_rcu_work`.
#[repr(C)]
pub struct UwRcuWork {
    pub(crate) work: UwWork,
    rest: [u64; 2],
}

// uwork.h has the same sizes and places, and so have programs that were built with it.
const _: () = assert!(size_of::<UwWork>() == 40 && align_of::<UwWork>() == 8);
const _: () = assert!(size_of::<UwDelayedWork>() == 128 && align_of::<UwDelayedWork>() == 8);
const _: () = assert!(size_of::<UwRcuWork>() == 56 && align_of::<UwRcuWork>() == 8);
const _: () = assert!(size_of::<DelayedWork<UwWork>>() <= size_of::<UwDelayedWork>());
const _: () = assert!(size_of::<RcuWork<UwWork>>() <= size_of::<UwRcuWork>());
const _: () = assert!(align_of::<DelayedWork<UwWork>>() == 8 && align_of::<RcuWork<UwWork>>() == 8);
const _: () = assert!(FUNCTION_OFFSET == 3 * 8 && IDLE_PLACEMENT == 0x00ff_ffff << 32);
const _: () = assert!(DEFERRABLE_OFFSET == (5 + 8) * 8);
// An initialiser leaves the rest of a delayed item zero, so its CPU is zero bytes.
// SAFETY: zero bytes are a value of each of its variants that has one.
const _: () = assert!(unsafe { std::mem::transmute::<[u32; 2], Option<u32>>([0, 0]) }.is_none());

// SAFETY: the item is its work.
unsafe impl HasWork for UwWork {
    const OFFSET: usize = 0;
}
// SAFETY: the functions for delayed items get a `struct uw_delayed_work` (uwork.h), where the engine's
// part has the room that it needs (see the assertions).
unsafe impl HasDelayedWork for UwWork {}
// SAFETY: the same, with a `struct uw_rcu_work`.
unsafe impl HasRcuWork for UwWork {}

impl WorkItem for UwWork {
    type Pointer = ItemPointer;

    /// What the engine calls is the item's own function; this is for completeness.
    fn run(this: ItemPointer) {
        // SAFETY: the item is live until its function was called.
        let func = unsafe { *func(this.0).as_ptr() };
        // SAFETY: the function is for this item (uwork.h).
        unsafe { func.expect("an item has a function")(this.0.as_ptr()) };
    }
}

/// The user's item. Nobody counts such pointers: it is the user who sees to it that the item stays.
pub struct ItemPointer(pub(crate) NonNull<UwWork>);

// SAFETY: an item that is queued stays where it is until it has run or was taken back (uwork.h).
unsafe impl WorkPointer for ItemPointer {
    type Target = UwWork;

    #[inline]
    fn into_raw(self) -> NonNull<UwWork> {
        self.0
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<UwWork>) -> Self {
        ItemPointer(raw)
    }
}

/// What the engine queues for an item of the user's.
pub(crate) enum Item {
    /// That very item.
    Plain(NonNull<UwWork>),
    /// With `UWORK_DEBUG=objects`: an item of the library's own.
    Timed(&'static TimedShadow),
    /// The same, where it can wait for a grace period.
    Graced(&'static GracedShadow),
}

/// Kinds of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Delayed,
    Deferrable,
    Rcu,
}

/// Where an item has its function, which is also what the engine calls.
#[inline]
pub(crate) fn func(item: NonNull<UwWork>) -> NonNull<UwWorkFn> {
    // SAFETY: within the item.
    unsafe { item.byte_add(FUNCTION_OFFSET).cast() }
}

/// Makes the engine's part of an item, whatever was there.
///
/// # Safety
/// `item` has the memory of an item of that kind, which nobody uses.
pub(crate) unsafe fn make(item: NonNull<UwWork>, func: UwWorkFn, kind: Kind, slack_ns: u64) {
    type CFn = unsafe extern "C-unwind" fn(*mut UwWork);
    // SAFETY: the same, but for what the pointer points to: an item, which begins with its work.
    let cast = |func: CFn| unsafe { std::mem::transmute::<CFn, ForeignFn>(func) };
    let is_absent = func.is_none();
    let func = func.map_or(absent as ForeignFn, cast);
    let slack = std::time::Duration::from_nanos(slack_ns);
    // SAFETY: by this function's contract; the sizes are asserted above.
    unsafe {
        match kind {
            Kind::Plain => item.cast().write(foreign::work::<UwWork, 0>(func)),
            Kind::Delayed | Kind::Deferrable => {
                let deferrable = kind == Kind::Deferrable;
                item.cast().write(foreign::delayed_work::<UwWork, 0>(func, deferrable, slack));
            }
            Kind::Rcu => item.cast().write(foreign::rcu_work::<UwWork, 0>(func)),
        }
        if is_absent {
            // So that it is no item for whoever gets it.
            crate::item::func(item).write(None);
        }
    }
}

/// The function of an item that was made without one.
unsafe extern "C-unwind" fn absent(_: NonNull<RawWork>) {
    panic!("an item without a function");
}

/// Above what an address in a process can be.
const ADDRESS_END: usize = 1 << 56;

/// What to queue for `item`, or what is wrong with it. `kind` is what its caller takes it for.
///
/// # Safety
/// `item` is null or has the memory of an item of that kind.
#[inline]
pub(crate) unsafe fn item(item: *mut UwWork, kind: Kind) -> Result<Item, c_int> {
    if let Some(item) = NonNull::new(item)
        // SAFETY: by this function's contract; constant since the item was made.
        && (1..ADDRESS_END).contains(&unsafe { func(item).cast::<usize>().read() })
        && crate::debug::is_off()
    {
        return Ok(Item::Plain(item));
    }
    // SAFETY: as above.
    unsafe { unusual_item(item, kind) }
}

/// # Safety
/// As [`item`].
#[cold]
unsafe fn unusual_item(item: *mut UwWork, kind: Kind) -> Result<Item, c_int> {
    let Some(known) = NonNull::new(item) else {
        return Err(misuse(libc::EINVAL, "the item is NULL"));
    };
    if crate::debug::is_on() {
        return crate::debug::shadow_of(known, kind);
    }
    // SAFETY: by this function's contract.
    if (1..ADDRESS_END).contains(&unsafe { func(known).cast::<usize>().read() }) {
        return Ok(Item::Plain(known));
    }
    Err(crate::debug::unknown_item(known))
}

/// An item's engine part by which everything but queueing is done.
///
/// # Safety
/// `item` is a made item that stays for the call.
#[inline]
pub(crate) unsafe fn plain<'a>(item: NonNull<UwWork>) -> &'a Work<UwWork> {
    // SAFETY: by this function's contract; each kind begins with a `Work`.
    unsafe { item.cast().as_ref() }
}

/// The same, of one that the user says is delayed.
///
/// # Safety
/// As [`plain`], of a `struct uw_delayed_work`.
pub(crate) unsafe fn delayed<'a>(item: NonNull<UwWork>) -> &'a DelayedWork<UwWork> {
    // SAFETY: by this function's contract.
    unsafe { item.cast().as_ref() }
}

/// The same, of one that the user says can wait for a grace period.
///
/// # Safety
/// As [`plain`], of a `struct uw_rcu_work`.
pub(crate) unsafe fn graced<'a>(item: NonNull<UwWork>) -> &'a RcuWork<UwWork> {
    // SAFETY: by this function's contract.
    unsafe { item.cast().as_ref() }
}

/// The answer of queueing in a place, which there may not be, as a number.
#[inline]
pub(crate) fn answer_in_place<P>(outcome: Result<Enqueued<P>, RejectedError<P>>) -> c_int {
    outcome.map_or_else(|rejected| failed(&rejected.error), answer)
}

/// The answer of queueing, as a number.
#[inline]
pub(crate) fn answer<P>(outcome: Enqueued<P>) -> c_int {
    match outcome {
        Enqueued::Queued => 1,
        Enqueued::Pending(_) => 0,
        Enqueued::Disabled(_) => fail(libc::EPERM, "the item is disabled"),
        Enqueued::Refused(_) => {
            fail(libc::ESHUTDOWN, "the queue drains or was destroyed, or the process was shut down")
        }
    }
}

/// What is queued for an item of the user's: its engine part, and the pointer that queueing takes.
pub(crate) struct Found<'a, W, P> {
    pub(crate) work: &'a W,
    pub(crate) pointer: P,
}

/// `$body` with what was [`Found`] for an item. With an item that cannot be used, the error is the value.
macro_rules! with_item {
    ($item:expr, |$found:ident| $body:expr) => {
        // SAFETY: null or an item that stays for the call (uwork.h).
        match unsafe { $crate::item::item($item, $crate::item::Kind::Plain) } {
            Ok($crate::item::Item::Plain(item)) => {
                // SAFETY: found to be a made item.
                let work = unsafe { $crate::item::plain(item) };
                let pointer = $crate::item::ItemPointer(item);
                let $found = $crate::item::Found { work, pointer };
                $body
            }
            Ok($crate::item::Item::Timed(shadow)) => {
                let $found =
                    $crate::item::Found { work: shadow.plain(), pointer: shadow.pointer() };
                $body
            }
            Ok($crate::item::Item::Graced(shadow)) => {
                let $found =
                    $crate::item::Found { work: shadow.plain(), pointer: shadow.pointer() };
                $body
            }
            Err(code) => code,
        }
    };
}
pub(crate) use with_item;
