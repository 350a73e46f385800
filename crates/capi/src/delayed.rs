//! Items with a timer.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use crate::attrs::cpu_of;
use crate::error::{guard, misuse};
use crate::item::{
    Found, Item, ItemPointer, Kind, UwDelayedWork, UwWork, UwWorkFn, answer, answer_in_place,
    delayed,
};
use crate::queue::{UwQueue, queue};
use crate::work::init;

const DEFERRABLE: c_uint = 1;

/// A time as a duration, or the error code: a number beyond `INT64_MAX` was negative before it was
/// converted.
pub(crate) fn duration_of(name: &str, ns: u64) -> Result<Duration, c_int> {
    if i64::try_from(ns).is_ok() {
        return Ok(Duration::from_nanos(ns));
    }
    let text =
        format!("{name} is {ns}, or negative as {}; allowed are 0 to INT64_MAX", ns.cast_signed());
    Err(misuse(libc::EINVAL, text))
}

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
        misuse(libc::EINVAL, format!("{flags:#x}: the only flag of an item is UW_DEFERRABLE"));
    }
    let slack_ns = duration_of("slack_ns", slack_ns).map_or(0, |_| slack_ns);
    // SAFETY: by uwork.h.
    unsafe { init(item.cast(), func, kind, slack_ns) };
}

/// Evaluates `$body` with the [`Found`] of a delayed item.
macro_rules! with_delayed {
    ($item:expr, |$found:ident| $body:expr) => {
        // SAFETY: the pointer is null, or a delayed item that stays valid for the call (uwork.h).
        match unsafe { crate::item::item($item.cast::<UwWork>(), Kind::Delayed) } {
            Ok(Item::Plain(known)) => {
                // SAFETY: `item` has found an initialised item; its C type says that it is a
                // delayed one.
                let work = unsafe { delayed(known) };
                let $found = Found { work, pointer: ItemPointer(known) };
                $body
            }
            Ok(Item::Timed(shadow)) => {
                let $found = Found { work: shadow.delayed(), pointer: shadow.pointer() };
                $body
            }
            Ok(Item::Graced(_)) => {
                misuse(libc::EINVAL, "this is an RCU item and not a delayed item")
            }
            Err(code) => code,
        }
    };
}

/// How to treat an item that is already armed.
#[derive(Clone, Copy)]
enum Armed {
    Stays,
    GetsTheNewTime,
}

/// Arms an item, for `cpu` or for any CPU.
///
/// # Safety
/// Each pointer is null, or a queue of this library and a delayed item that stays valid (uwork.h).
unsafe fn arm(
    handle: *mut UwQueue,
    cpu: Option<c_int>,
    item: *mut UwDelayedWork,
    delay_ns: u64,
    armed: Armed,
) -> c_int {
    let valid = queue(handle).and_then(|queue| {
        Ok((queue, cpu.map(cpu_of).transpose()?, duration_of("delay_ns", delay_ns)?))
    });
    let (queue, cpu, delay) = match valid {
        Ok(valid) => valid,
        Err(code) => return code,
    };
    with_delayed!(item, |found| match (armed, cpu) {
        (Armed::Stays, None) => answer(queue.enqueue_delayed::<_, 0>(found.pointer, delay)),
        (Armed::Stays, Some(cpu)) =>
            answer_in_place(queue.enqueue_delayed_on::<_, 0>(cpu, found.pointer, delay)),
        (Armed::GetsTheNewTime, None) => answer(queue.mod_delayed::<_, 0>(found.pointer, delay)),
        (Armed::GetsTheNewTime, Some(cpu)) =>
            answer_in_place(queue.mod_delayed_on::<_, 0>(cpu, found.pointer, delay)),
    })
}

/// Queues an item after a delay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_delayed_work(
    handle: *mut UwQueue,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { arm(handle, None, item, delay_ns, Armed::Stays) }
}

/// The same, on a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_delayed_work_on(
    handle: *mut UwQueue,
    cpu: c_int,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { arm(handle, Some(cpu), item, delay_ns, Armed::Stays) }
}

/// Sets the delay. Returns 1 if the item was idle and 0 if it was pending, as queueing does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_mod_delayed_work(
    handle: *mut UwQueue,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { arm(handle, None, item, delay_ns, Armed::GetsTheNewTime) }
}

/// The same, on a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_mod_delayed_work_on(
    handle: *mut UwQueue,
    cpu: c_int,
    item: *mut UwDelayedWork,
    delay_ns: u64,
) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { arm(handle, Some(cpu), item, delay_ns, Armed::GetsTheNewTime) }
}

/// Queues an armed item immediately, and waits until its last queueing has run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_delayed_work_flush(item: *mut UwDelayedWork) -> c_int {
    guard(|| with_delayed!(item, |found| c_int::from(found.work.flush())))
}
