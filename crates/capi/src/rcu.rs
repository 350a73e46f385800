//! Items that are queued after a grace period, and the readers that hold it back.

use std::cell::RefCell;
use std::ffi::c_int;

use uwork::rcu::{ReadGuard, is_read_locked, read_lock};

use crate::error::{guard, misuse};
use crate::item::{Item, Kind, UwRcuWork, UwWorkFn, answer, graced};
use crate::queue::{UwQueue, with_queue};
use crate::work::init;

/// An idle item that can wait for a grace period.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_rcu_work_init(item: *mut UwRcuWork, func: UwWorkFn) {
    // SAFETY: by uwork.h.
    unsafe { init(item.cast(), func, Kind::Rcu, 0) };
}

/// `$body` with the engine part of an rcu item and what queueing takes.
macro_rules! with_graced {
    ($item:expr, |$work:ident, $pointer:ident| $body:expr) => {
        // SAFETY: null or an rcu item that stays for the call (uwork.h).
        match unsafe { crate::item::item($item.cast(), Kind::Rcu) } {
            Ok(Item::Plain(known)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) =
                    // SAFETY: found to be a made item; that it is an rcu one says its type.
                    (unsafe { graced(known) }, crate::item::ItemPointer(known));
                $body
            }
            Ok(Item::Graced(shadow)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) = (shadow.graced(), shadow.pointer());
                $body
            }
            Ok(Item::Timed(_)) => misuse(libc::EINVAL, "this item was not made by uw_rcu_work_init"),
            Err(code) => code,
        }
    };
}

/// Queues an item after a grace period.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_rcu_work(handle: *mut UwQueue, item: *mut UwRcuWork) -> c_int {
    with_queue(handle, |queue| {
        with_graced!(item, |work, pointer| answer(queue.enqueue_rcu::<_, 0>(pointer)))
    })
}

/// Waits for the grace period and for the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_rcu_work_flush(item: *mut UwRcuWork) -> c_int {
    guard(|| with_graced!(item, |work, pointer| c_int::from(work.flush())))
}

thread_local! {
    static GUARDS: RefCell<Vec<ReadGuard>> = const { RefCell::new(Vec::new()) };
}

/// Begins a read side.
#[unsafe(no_mangle)]
pub extern "C" fn uw_rcu_read_lock() -> c_int {
    guard(|| {
        GUARDS.with_borrow_mut(|guards| guards.push(read_lock()));
        0
    })
}

/// Ends the read side that began last.
#[unsafe(no_mangle)]
pub extern "C" fn uw_rcu_read_unlock() -> c_int {
    guard(|| match GUARDS.with_borrow_mut(Vec::pop) {
        Some(read_side) => {
            drop(read_side);
            0
        }
        None => misuse(libc::EINVAL, "uw_rcu_read_unlock without a uw_rcu_read_lock"),
    })
}

/// Whether the calling thread is in a read side.
#[unsafe(no_mangle)]
pub extern "C" fn uw_rcu_is_read_locked() -> bool {
    is_read_locked()
}
