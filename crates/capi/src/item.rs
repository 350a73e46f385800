//! Items as C lays them out, and the conversion to the library's types.

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

/// The function of an item. Its argument is the item.
pub type UwWorkFn = Option<unsafe extern "C-unwind" fn(*mut UwWork)>;

/// `struct uw_work`, which is also the beginning of `struct uw_delayed_work` and `struct
/// uw_rcu_work`. In those two, the engine's part continues behind it. The engine calls the function
/// itself.
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

// uwork.h defines the same sizes and offsets, and compiled programs depend on them.
const _: () = assert!(size_of::<UwWork>() == 40 && align_of::<UwWork>() == 8);
const _: () = assert!(size_of::<UwDelayedWork>() == 128 && align_of::<UwDelayedWork>() == 8);
const _: () = assert!(size_of::<UwRcuWork>() == 56 && align_of::<UwRcuWork>() == 8);
const _: () = assert!(size_of::<DelayedWork<UwWork>>() <= size_of::<UwDelayedWork>());
const _: () = assert!(size_of::<RcuWork<UwWork>>() <= size_of::<UwRcuWork>());
const _: () = assert!(align_of::<DelayedWork<UwWork>>() == 8 && align_of::<RcuWork<UwWork>>() == 8);
const _: () = assert!(FUNCTION_OFFSET == 3 * 8 && IDLE_PLACEMENT == 0x00ff_ffff << 32);
const _: () = assert!(DEFERRABLE_OFFSET == (5 + 8) * 8);
// A static initialiser leaves the rest of a delayed item zero, so zero bytes must mean "no CPU".
// SAFETY: zero bytes are valid for every variant of the type that has a value.
const _: () = assert!(unsafe { std::mem::transmute::<[u32; 2], Option<u32>>([0, 0]) }.is_none());

// SAFETY: the item is its work, at offset 0.
unsafe impl HasWork for UwWork {
    const OFFSET: usize = 0;
}
// SAFETY: the functions for delayed items get a `struct uw_delayed_work` (uwork.h). It has room for
// the engine's part (see the assertions).
unsafe impl HasDelayedWork for UwWork {}
// SAFETY: the same holds for `struct uw_rcu_work`.
unsafe impl HasRcuWork for UwWork {}

impl WorkItem for UwWork {
    type Pointer = ItemPointer;

    /// The engine calls the item's own function directly, and never this one. The trait requires
    /// it.
    fn run(this: ItemPointer) {
        // SAFETY: the item is live until its function was called.
        let func = unsafe { *func(this.0).as_ptr() };
        // SAFETY: the function belongs to this item (uwork.h).
        unsafe { func.expect("an item has a function")(this.0.as_ptr()) };
    }
}

/// A pointer to the program's item. It holds no reference count: the program keeps the item alive.
pub struct ItemPointer(pub(crate) NonNull<UwWork>);

// SAFETY: a queued item stays in place until it has run or was cancelled (uwork.h).
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

/// The object that the engine queues for an item of the program.
pub(crate) enum Item {
    /// The item itself.
    Plain(NonNull<UwWork>),
    /// With `UWORK_DEBUG=objects`: the shadow of the item, which the library owns.
    Timed(&'static TimedShadow),
    /// The same, for an item that can wait for a grace period.
    Graced(&'static GracedShadow),
}

/// The kinds of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Delayed,
    Deferrable,
    Rcu,
}

/// The address of an item's function pointer. The engine calls the function through it.
#[inline]
pub(crate) fn func(item: NonNull<UwWork>) -> NonNull<UwWorkFn> {
    // SAFETY: the field is within the item.
    unsafe { item.byte_add(FUNCTION_OFFSET).cast() }
}

/// Initialises the engine's part of an item and overwrites its previous content.
///
/// # Safety
/// `item` points to memory for an item of that kind, which no other thread uses.
pub(crate) unsafe fn make(item: NonNull<UwWork>, func: UwWorkFn, kind: Kind, slack_ns: u64) {
    type CFn = unsafe extern "C-unwind" fn(*mut UwWork);
    // SAFETY: the types differ only in the pointer's target: an item, which begins with its work.
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
            // A null function marks the item as invalid for later calls.
            crate::item::func(item).write(None);
        }
    }
}

/// The function of an item that was made without one.
unsafe extern "C-unwind" fn absent(_: NonNull<RawWork>) {
    panic!("an item without a function");
}

/// No address in a process reaches this bound.
const ADDRESS_END: usize = 1 << 56;

/// The object to queue for `item`, or the error code. `kind` is the kind that the calling function
/// expects.
///
/// # Safety
/// `item` is null, or points to memory of an item of that kind.
#[inline]
pub(crate) unsafe fn item(item: *mut UwWork, kind: Kind) -> Result<Item, c_int> {
    if let Some(item) = NonNull::new(item)
        // SAFETY: by this function's contract. The function is constant from the item's
        // initialisation on.
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

/// The engine's part of an item, for every operation except queueing.
///
/// # Safety
/// `item` is initialised and stays valid for the call.
#[inline]
pub(crate) unsafe fn plain<'a>(item: NonNull<UwWork>) -> &'a Work<UwWork> {
    // SAFETY: by this function's contract; each kind begins with a `Work`.
    unsafe { item.cast().as_ref() }
}

/// The same, for an item that the caller declares to be delayed.
///
/// # Safety
/// As [`plain`], for a `struct uw_delayed_work`.
pub(crate) unsafe fn delayed<'a>(item: NonNull<UwWork>) -> &'a DelayedWork<UwWork> {
    // SAFETY: by this function's contract.
    unsafe { item.cast().as_ref() }
}

/// The same, for an item that the caller declares able to wait for a grace period.
///
/// # Safety
/// As [`plain`], for a `struct uw_rcu_work`.
pub(crate) unsafe fn graced<'a>(item: NonNull<UwWork>) -> &'a RcuWork<UwWork> {
    // SAFETY: by this function's contract.
    unsafe { item.cast().as_ref() }
}

/// Converts the outcome of queueing on a CPU or node, which may not exist, to a code.
#[inline]
pub(crate) fn answer_in_place<P>(outcome: Result<Enqueued<P>, RejectedError<P>>) -> c_int {
    outcome.map_or_else(|rejected| failed(&rejected.error), answer)
}

/// Converts the outcome of queueing to a code.
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

/// An item of the program: its engine part, and the pointer that queueing takes.
pub(crate) struct Found<'a, W, P> {
    pub(crate) work: &'a W,
    pub(crate) pointer: P,
}

/// Evaluates `$body` with the [`Found`] of an item. For an unusable item, the value is the error
/// code.
macro_rules! with_item {
    ($item:expr, |$found:ident| $body:expr) => {
        // SAFETY: the pointer is null, or an item that stays valid for the call (uwork.h).
        match unsafe { $crate::item::item($item, $crate::item::Kind::Plain) } {
            Ok($crate::item::Item::Plain(item)) => {
                // SAFETY: `item` has found an initialised item.
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
