//! Items as C lays them out, and how the library reaches them.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use uwork::rcu::{HasRcuWork, RcuWork};
use uwork::{DelayedWork, Enqueued, HasDelayedWork, HasWork, Work, WorkItem, WorkPointer, foreign};

use crate::debug::{GracedShadow, TimedShadow};
use crate::error::{fail, misuse};

/// What an item does. It gets the item.
pub type UwWorkFn = Option<unsafe extern "C-unwind" fn(*mut UwWork)>;

/// `struct uw_work`, and the beginning of `struct uw_delayed_work` and `struct uw_rcu_work`: for those the
/// engine's part goes on behind it.
#[repr(C)]
pub struct UwWork {
    /// Changed by who initialises the item.
    pub(crate) func: UwWorkFn,
    work: Work<UwWork>,
}

/// `struct uw_delayed_work`.
#[repr(C)]
pub struct UwDelayedWork {
    pub(crate) work: UwWork,
    rest: [u64; 10],
}

/// `struct uw_rcu_work`.
#[repr(C)]
pub struct UwRcuWork {
    pub(crate) work: UwWork,
    rest: [u64; 2],
}

/// Where the engine's part begins.
pub(crate) const WORK_OFFSET: usize = std::mem::offset_of!(UwWork, work);

// uwork.h has the same sizes, and so has the ABI that programs were built with.
const _: () = assert!(size_of::<UwWork>() == 48 && align_of::<UwWork>() == 8);
const _: () = assert!(size_of::<UwDelayedWork>() == 128 && align_of::<UwDelayedWork>() == 8);
const _: () = assert!(size_of::<UwRcuWork>() == 64 && align_of::<UwRcuWork>() == 8);
const _: () = assert!(WORK_OFFSET == 8);
const _: () = assert!(WORK_OFFSET + size_of::<DelayedWork<UwWork>>() <= size_of::<UwDelayedWork>());
const _: () = assert!(WORK_OFFSET + size_of::<RcuWork<UwWork>>() <= size_of::<UwRcuWork>());
const _: () = assert!(align_of::<DelayedWork<UwWork>>() == 8 && align_of::<RcuWork<UwWork>>() == 8);

// SAFETY: the offset is that of the field.
unsafe impl HasWork for UwWork {
    const OFFSET: usize = WORK_OFFSET;
}
// SAFETY: the functions for delayed items get a `struct uw_delayed_work` (uwork.h), where the engine's
// part has the room that it needs (see the assertions).
unsafe impl HasDelayedWork for UwWork {}
// SAFETY: the same, with a `struct uw_rcu_work`.
unsafe impl HasRcuWork for UwWork {}

impl WorkItem for UwWork {
    type Pointer = ItemPointer;

    #[inline]
    fn run(this: ItemPointer) {
        // SAFETY: the item is live until its function was called.
        let func = unsafe { this.0.as_ref() }.func.expect("an item has a function");
        // SAFETY: the function is for this item (uwork.h).
        unsafe { func(this.0.as_ptr()) };
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

/// Kinds of items, and the marks that the initialisers of uwork.h leave where the engine's function belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Delayed,
    Deferrable,
    Rcu,
}

/// `UW_STATIC_*`. No function has such an address: they are odd and in the first page.
const STATIC: [(usize, Kind); 4] =
    [(0x301, Kind::Plain), (0x303, Kind::Delayed), (0x305, Kind::Deferrable), (0x307, Kind::Rcu)];
/// Somebody is about to replace one of those.
const BUSY: usize = 0x30f;
/// The item has a shadow.
pub(crate) const SHADOWED: usize = 0x311;

/// Where the engine keeps an item's function.
///
/// # Safety
/// `item` has the memory of a `struct uw_work`.
#[inline]
pub(crate) unsafe fn slot<'a>(item: NonNull<UwWork>) -> &'a AtomicUsize {
    // SAFETY: within the item, and aligned; written by the initialisers, and here, as an atomic.
    unsafe { item.byte_add(WORK_OFFSET + foreign::FUNCTION_OFFSET).cast().as_ref() }
}

#[inline]
fn function() -> usize {
    foreign::function_of::<UwWork, 0>()
}

/// Makes the engine's part of an item, whatever was there.
///
/// # Safety
/// `item` has the memory of an item of that kind, which nobody uses.
pub(crate) unsafe fn make(item: NonNull<UwWork>, kind: Kind, slack_ns: u64) {
    let slack = std::time::Duration::from_nanos(slack_ns);
    // SAFETY: by this function's contract; the sizes are asserted above.
    unsafe {
        let part = item.byte_add(WORK_OFFSET);
        match kind {
            Kind::Plain => part.cast().write(Work::<UwWork>::new()),
            Kind::Delayed => part.cast().write(DelayedWork::<UwWork>::new().with_slack(slack)),
            Kind::Deferrable => {
                part.cast().write(DelayedWork::<UwWork>::deferrable().with_slack(slack));
            }
            Kind::Rcu => part.cast().write(RcuWork::<UwWork>::new()),
        }
    }
}

/// What to queue for `item`, or what is wrong with it.
///
/// # Safety
/// `item` is null or has the memory of a `struct uw_work`.
#[inline]
pub(crate) unsafe fn item(item: *mut UwWork) -> Result<Item, c_int> {
    if let Some(item) = NonNull::new(item)
        // Acquire: whoever made the item has made it whole.
        // SAFETY: by this function's contract.
        && unsafe { slot(item) }.load(Ordering::Acquire) == function()
    {
        return Ok(Item::Plain(item));
    }
    // SAFETY: as above.
    unsafe { unusual_item(item) }
}

/// # Safety
/// As [`item`].
#[cold]
unsafe fn unusual_item(item: *mut UwWork) -> Result<Item, c_int> {
    let Some(known) = NonNull::new(item) else {
        return Err(misuse(libc::EINVAL, "the item is NULL"));
    };
    // SAFETY: by this function's contract.
    let slot = unsafe { slot(known) };
    loop {
        let mark = slot.load(Ordering::Acquire);
        if mark == BUSY {
            std::thread::yield_now();
        } else if let Some(&(_, kind)) = STATIC.iter().find(|&&(value, _)| value == mark) {
            let claimed =
                slot.compare_exchange(mark, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if claimed {
                // SAFETY: we alone have claimed the item, which nobody has used before.
                unsafe { settle(known, kind) };
            }
        } else if mark == function() {
            return Ok(Item::Plain(known));
        } else if mark == SHADOWED {
            return crate::debug::shadow_of(known);
        } else {
            return Err(crate::debug::unknown_item(known));
        }
    }
}

/// Makes what an initialiser of uwork.h has begun. The mark goes last, for those who wait for it.
///
/// # Safety
/// As [`make`], and the slot says `BUSY`.
unsafe fn settle(item: NonNull<UwWork>, kind: Kind) {
    if crate::debug::is_on() {
        crate::debug::attach(item, kind, 0);
        return;
    }
    let mut whole = std::mem::MaybeUninit::<UwDelayedWork>::uninit();
    let draft = NonNull::from(&mut whole).cast::<UwWork>();
    let size = match kind {
        Kind::Plain => size_of::<UwWork>(),
        Kind::Delayed | Kind::Deferrable => size_of::<UwDelayedWork>(),
        Kind::Rcu => size_of::<UwRcuWork>(),
    };
    // SAFETY: the draft has room for each kind; it is copied around the slot, which others look at.
    unsafe {
        make(draft, kind, 0);
        let at = WORK_OFFSET + foreign::FUNCTION_OFFSET;
        let after = at + size_of::<usize>();
        let (from, to) = (draft.cast::<u8>(), item.cast::<u8>());
        to.add(WORK_OFFSET).copy_from_nonoverlapping(from.add(WORK_OFFSET), at - WORK_OFFSET);
        to.add(after).copy_from_nonoverlapping(from.add(after), size - after);
        slot(item).store(function(), Ordering::Release);
    }
}

/// An item's engine part by which everything but queueing is done.
///
/// # Safety
/// `item` is a made item that stays for the call.
#[inline]
pub(crate) unsafe fn plain<'a>(item: NonNull<UwWork>) -> &'a Work<UwWork> {
    // SAFETY: by this function's contract; each kind begins with a `Work`.
    unsafe { item.byte_add(WORK_OFFSET).cast().as_ref() }
}

/// The same, of one that the user says is delayed.
///
/// # Safety
/// As [`plain`], of a `struct uw_delayed_work`.
pub(crate) unsafe fn delayed<'a>(item: NonNull<UwWork>) -> &'a DelayedWork<UwWork> {
    // SAFETY: by this function's contract.
    unsafe { item.byte_add(WORK_OFFSET).cast().as_ref() }
}

/// The same, of one that the user says can wait for a grace period.
///
/// # Safety
/// As [`plain`], of a `struct uw_rcu_work`.
pub(crate) unsafe fn graced<'a>(item: NonNull<UwWork>) -> &'a RcuWork<UwWork> {
    // SAFETY: by this function's contract.
    unsafe { item.byte_add(WORK_OFFSET).cast().as_ref() }
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

/// `$body` with what is queued for an item: `$work` is its engine part, `$pointer` what queueing takes. With
/// an item that cannot be used, the error is the value.
macro_rules! with_item {
    ($item:expr, |$work:ident, $pointer:ident| $body:expr) => {
        // SAFETY: null or an item that stays for the call (uwork.h).
        match unsafe { $crate::item::item($item) } {
            Ok($crate::item::Item::Plain(item)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) =
                    // SAFETY: found to be a made item.
                    (unsafe { $crate::item::plain(item) }, $crate::item::ItemPointer(item));
                $body
            }
            Ok($crate::item::Item::Timed(shadow)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) = (shadow.plain(), shadow.pointer());
                $body
            }
            Ok($crate::item::Item::Graced(shadow)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) = (shadow.plain(), shadow.pointer());
                $body
            }
            Err(code) => code,
        }
    };
}
pub(crate) use with_item;
