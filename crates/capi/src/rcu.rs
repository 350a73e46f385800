//! Items that are queued after a grace period, and the read sides that delay it.

use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;

use uwork::foreign;
use uwork::rcu::{ReadGuard, is_read_locked, read_lock};

use crate::error::{guard, misuse, quick};
use crate::item::{Found, Item, ItemPointer, Kind, UwRcuWork, UwWorkFn, answer, graced};
use crate::queue::{UwQueue, queue};
use crate::work::init;

/// Initialises an idle item that can wait for a grace period.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_rcu_work_init(item: *mut UwRcuWork, func: UwWorkFn) {
    // SAFETY: by uwork.h.
    unsafe { init(item.cast(), func, Kind::Rcu, 0) };
}

/// Evaluates `$body` with the [`Found`] of an RCU item.
macro_rules! with_graced {
    ($item:expr, |$found:ident| $body:expr) => {
        // SAFETY: the pointer is null, or an RCU item that stays valid for the call (uwork.h).
        match unsafe { crate::item::item($item.cast(), Kind::Rcu) } {
            Ok(Item::Plain(known)) => {
                // SAFETY: `item` has found an initialised item; its C type says that it is an RCU
                // one.
                let work = unsafe { graced(known) };
                let $found = Found { work, pointer: ItemPointer(known) };
                $body
            }
            Ok(Item::Graced(shadow)) => {
                let $found = Found { work: shadow.graced(), pointer: shadow.pointer() };
                $body
            }
            Ok(Item::Timed(_)) => {
                misuse(libc::EINVAL, "this item was not initialised by uw_rcu_work_init")
            }
            Err(code) => code,
        }
    };
}

/// Queues an item after a grace period.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_rcu_work(handle: *mut UwQueue, item: *mut UwRcuWork) -> c_int {
    match queue(handle) {
        Ok(queue) => {
            quick(|| with_graced!(item, |found| answer(queue.enqueue_rcu::<_, 0>(found.pointer))))
        }
        Err(code) => code,
    }
}

/// Waits for the grace period and for the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_rcu_work_flush(item: *mut UwRcuWork) -> c_int {
    guard(|| {
        end_leftover_sides();
        with_graced!(item, |found| c_int::from(found.work.flush()))
    })
}

/// The item run in which a read side began.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Begun {
    frame: usize,
    /// The address of the item that the engine runs: the shadow's, in the debug mode.
    item: usize,
    function: usize,
}

impl Begun {
    /// `None` outside of items.
    fn here() -> Option<Begun> {
        let (item, function) = foreign::current_item()?;
        Some(Begun { frame: foreign::context().frame, item, function })
    }
}

/// The read sides of a thread. The innermost one is the last.
struct Sides {
    guards: Vec<ReadGuard>,
    /// The item run in which the first of them began.
    begun: Option<Begun>,
}

impl Sides {
    const NONE: Sides = Sides { guards: Vec::new(), begun: None };
}

thread_local! {
    static SIDES: RefCell<Sides> = const { RefCell::new(Sides::NONE) };
    /// The read sides of a thread whose local data was destroyed, which begin and end in destructors of
    /// the program. Without a destructor, so it is valid until the thread has ended.
    static LATE: RefCell<ManuallyDrop<Sides>> =
        const { RefCell::new(ManuallyDrop::new(Sides::NONE)) };
}

fn with_sides<R>(f: impl FnOnce(&mut Sides) -> R) -> R {
    let mut f = Some(f);
    let mut call = |sides: &mut Sides| f.take().expect("called once")(sides);
    SIDES.try_with(|sides| call(&mut sides.borrow_mut())).unwrap_or_else(|_| {
        LATE.with_borrow_mut(|sides| {
            let result = call(sides);
            if sides.guards.is_empty() {
                // Its memory.
                **sides = Sides::NONE;
            }
            result
        })
    })
}

fn publish(sides: &Sides) {
    foreign::set_read_sides(sides.guards.len() as u32, end_sides_beyond);
}

/// Ends all read sides except the first `keep`, because an item has returned without ending them.
/// Returns the name of the item's function.
fn end_sides_beyond(keep: u32) -> Option<String> {
    let begun = with_sides(|sides| {
        sides.guards.truncate(keep as usize);
        publish(sides);
        sides.begun.filter(|_| keep == 0)
    })?;
    let function = crate::debug::function_of(begun.item).unwrap_or(begun.function);
    Some(crate::debug::named_function(function))
}

/// Called before the thread waits for a grace period. A read side that an earlier item on this
/// thread has left open would block the grace period, and so this wait, forever.
fn end_leftover_sides() {
    let begun = with_sides(|sides| sides.begun.filter(|_| !sides.guards.is_empty()));
    let left = begun
        .zip(Begun::here())
        .is_some_and(|(begun, here)| begun.frame == here.frame && begun.item != here.item);
    if left {
        foreign::end_left_read_sides();
    }
}

/// Begins a read side.
#[unsafe(no_mangle)]
pub extern "C" fn uw_rcu_read_lock() -> c_int {
    quick(|| {
        with_sides(|sides| {
            if sides.guards.is_empty() {
                sides.begun = Begun::here();
            }
            sides.guards.push(read_lock());
            publish(sides);
        });
        0
    })
}

/// Ends the most recent read side.
#[unsafe(no_mangle)]
pub extern "C" fn uw_rcu_read_unlock() -> c_int {
    quick(|| {
        let ended = with_sides(|sides| {
            let ended = sides.guards.pop();
            publish(sides);
            ended
        });
        match ended {
            Some(read_side) => {
                drop(read_side);
                0
            }
            None => misuse(libc::EINVAL, "uw_rcu_read_unlock without a uw_rcu_read_lock"),
        }
    })
}

/// Whether the calling thread is in a read side.
#[unsafe(no_mangle)]
pub extern "C" fn uw_rcu_is_read_locked() -> bool {
    is_read_locked()
}
