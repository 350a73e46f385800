//! Items with a timer.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use crate::attrs::cpu_of;
use crate::error::{failed, guard, misuse};
use crate::item::{Item, Kind, UwDelayedWork, UwWork, UwWorkFn, answer, delayed};
use crate::queue::{UwQueue, queue};
use crate::work::init;

const DEFERRABLE: c_uint = 1;

/// An idle item with a timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_delayed_work_init(
    item: *mut UwDelayedWork,
    func: UwWorkFn,
    flags: c_uint,
    slack_ns: u64,
) {
    let kind = if flags & DEFERRABLE != 0 { Kind::Deferrable } else { Kind::Delayed };
    if flags & !DEFERRABLE != 0 {
        misuse(libc::EINVAL, format!("{flags:#x} are no flags of an item; there is UW_DEFERRABLE"));
    }
    // SAFETY: by uwork.h.
    unsafe { init(item.cast(), func, kind, slack_ns) };
}

/// `$body` with the engine part of a delayed item and what queueing takes.
macro_rules! with_delayed {
    ($item:expr, |$work:ident, $pointer:ident| $body:expr) => {
        // SAFETY: null or a delayed item that stays for the call (uwork.h).
        match unsafe { crate::item::item($item.cast::<UwWork>(), Kind::Delayed) } {
            Ok(Item::Plain(known)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) =
                    // SAFETY: found to be a made item; that it is a delayed one says its type.
                    (unsafe { delayed(known) }, crate::item::ItemPointer(known));
                $body
            }
            Ok(Item::Timed(shadow)) => {
                #[allow(unused_variables, reason = "not every use has both")]
                let ($work, $pointer) = (shadow.delayed(), shadow.pointer());
                $body
            }
            Ok(Item::Graced(_)) => misuse(libc::EINVAL, "this is no delayed item, it is an rcu one"),
            Err(code) => code,
        }
    };
}

/// Queues an item later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_delayed_work(
    handle: *mut UwQueue,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    let (queue, delay) = match queue(handle) {
        Ok(queue) => (queue, Duration::from_nanos(delay_ns)),
        Err(code) => return code,
    };
    with_delayed!(item, |work, pointer| answer(queue.enqueue_delayed::<_, 0>(pointer, delay)))
}

/// The same, on a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_delayed_work_on(
    handle: *mut UwQueue,
    cpu: c_int,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    let (queue, cpu) = match queue(handle).and_then(|queue| Ok((queue, cpu_of(cpu)?))) {
        Ok(both) => both,
        Err(code) => return code,
    };
    let delay = Duration::from_nanos(delay_ns);
    with_delayed!(item, |work, pointer| {
        match queue.enqueue_delayed_on::<_, 0>(cpu, pointer, delay) {
            Ok(outcome) => answer(outcome),
            Err(rejected) => failed(&rejected.error),
        }
    })
}

/// 1 if the item was idle, 0 if it was pending: as of queueing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_mod_delayed_work(
    handle: *mut UwQueue,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    let (queue, delay) = match queue(handle) {
        Ok(queue) => (queue, Duration::from_nanos(delay_ns)),
        Err(code) => return code,
    };
    with_delayed!(item, |work, pointer| answer(queue.mod_delayed::<_, 0>(pointer, delay)))
}

/// The same, on a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_mod_delayed_work_on(
    handle: *mut UwQueue,
    cpu: c_int,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    let (queue, cpu) = match queue(handle).and_then(|queue| Ok((queue, cpu_of(cpu)?))) {
        Ok(both) => both,
        Err(code) => return code,
    };
    let delay = Duration::from_nanos(delay_ns);
    with_delayed!(item, |work, pointer| match queue.mod_delayed_on::<_, 0>(cpu, pointer, delay) {
        Ok(outcome) => answer(outcome),
        Err(rejected) => failed(&rejected.error),
    })
}

/// Queues an armed item at once, and waits until its last queueing has run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_delayed_work_flush(item: *mut UwDelayedWork) -> c_int {
    guard(|| with_delayed!(item, |work, pointer| c_int::from(work.flush())))
}
