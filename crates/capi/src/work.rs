//! Items: initialise, queue, wait, cancel, disable.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr::NonNull;

use uwork::{DisableDepthError, Enqueued};

use crate::attrs::{cpu_of, write_text};
use crate::debug;
use crate::error::{fail, guard, misuse, quick};
use crate::item::{Kind, answer, answer_in_place, make, with_item};
pub use crate::item::{UwDelayedWork, UwRcuWork, UwWork, UwWorkFn};
use crate::queue::{UwQueue, queue};

/// Initialises an item of a kind.
///
/// # Safety
/// `item` is null, or points to memory for an item of that kind, which no other thread uses.
pub(crate) unsafe fn init(item: *mut UwWork, func: UwWorkFn, kind: Kind, slack_ns: u64) {
    let Some(item) = NonNull::new(item) else {
        misuse(libc::EINVAL, "the item is NULL");
        return;
    };
    if func.is_none() {
        misuse(libc::EINVAL, "an item's function is NULL");
    }
    // SAFETY: by this function's contract.
    unsafe {
        if debug::is_on() {
            debug::check_before_init(item);
        }
        make(item, func, kind, slack_ns);
        if debug::is_on() {
            debug::attach(item, kind, slack_ns);
        }
    }
}

/// Initialises an idle item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_init(item: *mut UwWork, func: UwWorkFn) {
    // SAFETY: by uwork.h.
    unsafe { init(item, func, Kind::Plain, 0) };
}

/// Queues an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_work(handle: *mut UwQueue, item: *mut UwWork) -> c_int {
    match queue(handle) {
        Ok(queue) => with_item!(item, |found| answer(queue.enqueue::<_, 0>(found.pointer))),
        Err(code) => code,
    }
}

/// Queues an item as if called on that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_work_on(
    handle: *mut UwQueue,
    cpu: c_int,
    item: *mut UwWork,
) -> c_int {
    let (queue, cpu) = match queue(handle).and_then(|queue| Ok((queue, cpu_of(cpu)?))) {
        Ok(both) => both,
        Err(code) => return code,
    };
    with_item!(item, |found| answer_in_place(queue.enqueue_on::<_, 0>(cpu, found.pointer)))
}

/// Queues an item near a CPU of that NUMA node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_work_node(
    handle: *mut UwQueue,
    node: c_int,
    item: *mut UwWork,
) -> c_int {
    let queue = match queue(handle) {
        Ok(queue) => queue,
        Err(code) => return code,
    };
    // A negative node is treated like any node that does not exist: as by `uw_queue_work`.
    let node = u32::try_from(node).unwrap_or(u32::MAX);
    with_item!(item, |found| answer_in_place(queue.enqueue_node::<_, 0>(node, found.pointer)))
}

/// Undoes one disable, and queues the item if that was the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_enable_and_queue_work(
    handle: *mut UwQueue,
    item: *mut UwWork,
) -> c_int {
    let queue = match queue(handle) {
        Ok(queue) => queue,
        Err(code) => return code,
    };
    with_item!(item, |found| match queue.enable_and_enqueue::<_, 0>(found.pointer) {
        Ok(Enqueued::Queued) => 1,
        // Still disabled, already pending, or refused: this call did not queue it.
        Ok(outcome @ Enqueued::Refused(_)) => answer(outcome),
        Ok(_) => 0,
        Err((error, _)) => unbalanced(error),
    })
}

#[cold]
fn too_deep(error: DisableDepthError) -> c_int {
    fail(libc::EOVERFLOW, error.to_string())
}

#[cold]
fn unbalanced(error: DisableDepthError) -> c_int {
    misuse(libc::EINVAL, error.to_string())
}

fn was_pending<P>(outcome: Result<Option<P>, DisableDepthError>) -> c_int {
    outcome.map_or_else(too_deep, |back| c_int::from(back.is_some()))
}

/// Removes an item from its queue or timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_cancel(item: *mut UwWork) -> c_int {
    quick(|| with_item!(item, |found| c_int::from(found.work.cancel().is_some())))
}

/// The same, and waits for a run in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_cancel_sync(item: *mut UwWork) -> c_int {
    guard(|| with_item!(item, |found| was_pending(found.work.cancel_sync())))
}

/// Disables an item once, and removes it from its queue or timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_disable(item: *mut UwWork) -> c_int {
    quick(|| with_item!(item, |found| was_pending(found.work.disable())))
}

/// The same, and waits for a run in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_disable_sync(item: *mut UwWork) -> c_int {
    guard(|| with_item!(item, |found| was_pending(found.work.disable_sync())))
}

/// Undoes one disable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_enable(item: *mut UwWork) -> c_int {
    quick(|| with_item!(item, |found| found.work.enable().map_or_else(unbalanced, c_int::from)))
}

/// Waits until an item's last queueing has run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_flush(item: *mut UwWork) -> c_int {
    guard(|| with_item!(item, |found| c_int::from(found.work.flush())))
}

/// The same; runs the item on the caller's stack if it has not started and its queue allows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_flush_helping(item: *mut UwWork) -> c_int {
    guard(|| with_item!(item, |found| c_int::from(found.work.flush_helping())))
}

/// Whether an item is queued or armed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_is_pending(item: *const UwWork) -> c_int {
    with_item!(item.cast_mut(), |found| c_int::from(found.work.is_pending()))
}

/// `UW_BUSY_PENDING`, `UW_BUSY_RUNNING`, both, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_busy(item: *const UwWork) -> c_int {
    with_item!(item.cast_mut(), |found| {
        let busy = found.work.busy();
        (c_uint::from(busy.pending) | c_uint::from(busy.running) << 1) as c_int
    })
}

/// The description that an item's run has set with `uw_set_worker_desc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_work_description(
    item: *const UwWork,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    with_item!(item.cast_mut(), |found| {
        let text = found.work.description().unwrap_or_default();
        // SAFETY: by uwork.h.
        unsafe { write_text(&text, buffer, size) }
    })
}
