//! Batches: items that are collected per CPU and handed on in bulk.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Drain;

use uwork::foreign::{hold_off, must_return};
use uwork::percpu::Bundle;

use super::{count, made, there};
use crate::cpu::given;
use crate::error::{Written, fail, guard, guarded, quick};

/// An item: an arbitrary pointer of the program.
#[repr(transparent)]
struct Item(*mut c_void);

// SAFETY: by uwork.h the sink accepts it on any thread.
unsafe impl Send for Item {}

/// The collection of items, with one part per CPU.
pub struct UwPercpuBatch {
    batch: Bundle<Item>,
    /// Identifies the batch to calls from its own sink.
    id: u64,
}

/// A call of a sink, on the calling thread's stack.
struct Call {
    id: u64,
    outer: *const Call,
}

thread_local! {
    /// The innermost call of a sink on this thread.
    static CALLS: Cell<*const Call> = const { Cell::new(ptr::null()) };
}

/// Calls the sink of this batch, and records the call in `CALLS` for its duration.
fn inside<R>(id: u64, sink: impl FnOnce() -> R) -> R {
    /// Ends the record also if the sink unwinds.
    struct Leave(*const Call);
    impl Drop for Leave {
        fn drop(&mut self) {
            CALLS.set(self.0);
        }
    }
    let call = Call { id, outer: CALLS.get() };
    let _leave = Leave(call.outer);
    CALLS.set(&raw const call);
    sink()
}

/// Whether the calling thread is in the sink of this batch.
fn is_inside(id: u64) -> bool {
    let mut call = CALLS.get();
    // SAFETY: the calls stay on this thread's stack for as long as they are in the list.
    while let Some(Call { id: other, outer }) = unsafe { call.as_ref() } {
        if *other == id {
            return true;
        }
        call = *outer;
    }
    false
}

/// The function that takes the items of a batch.
pub type UwPercpuSink = Option<unsafe extern "C-unwind" fn(*const *mut c_void, usize, *mut c_void)>;

const CAPACITY_MAX: c_uint = 1 << 20;

/// Creates a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_create(
    capacity: c_uint,
    sink: UwPercpuSink,
    arg: *mut c_void,
) -> *mut UwPercpuBatch {
    /// The argument of the sink.
    struct Arg(*mut c_void);
    // SAFETY: by uwork.h the sink is called on any thread, with that argument.
    unsafe impl Send for Arg {}
    // SAFETY: as above, by several threads at the same time.
    unsafe impl Sync for Arg {}
    impl Arg {
        fn get(&self) -> *mut c_void {
            self.0
        }
    }
    made(|| {
        let sink = given(sink)?;
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            let given = Written(capacity);
            let text = format!("a batch of {given} items: 1 to {CAPACITY_MAX} are allowed");
            return Err(fail(libc::EINVAL, text));
        }
        static BATCHES: AtomicU64 = AtomicU64::new(0);
        let (arg, id) = (Arg(arg), BATCHES.fetch_add(1, Ordering::Relaxed));
        let batch = Bundle::new(capacity as usize, move |items: Drain<'_, Item>| {
            let items: &[Item] = items.as_slice();
            // SAFETY: by uwork.h. An `Item` has the layout of a pointer.
            let sinks = || unsafe { sink(items.as_ptr().cast(), items.len(), arg.get()) };
            let _held_off = hold_off();
            inside(id, || must_return(sinks));
        });
        Ok(UwPercpuBatch { batch, id })
    })
}

/// Adds an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_add(
    batch: *mut UwPercpuBatch,
    item: *mut c_void,
) -> c_int {
    // SAFETY: by uwork.h.
    match unsafe { there(batch) } {
        Ok(batch) => quick(|| {
            batch.batch.add(Item(item));
            0
        }),
        Err(code) => code,
    }
}

/// Hands on the items of every CPU's part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_drain_all(batch: *mut UwPercpuBatch) -> i64 {
    // SAFETY: by uwork.h.
    let drained = unsafe { there(batch) }.and_then(|batch| guarded(|| batch.batch.drain_all()));
    drained.map_or_else(i64::from, count)
}

/// Hands on the remaining items, and frees the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_destroy(batch: *mut UwPercpuBatch) -> c_int {
    // SAFETY: by uwork.h.
    match unsafe { there(batch) } {
        Ok(known) if is_inside(known.id) => {
            return fail(libc::EDEADLK, "the caller is in the sink of this batch");
        }
        Ok(_) => {}
        Err(code) => return code,
    }
    guard(|| {
        // SAFETY: from `uw_percpu_batch_create`, and freed once (uwork.h).
        drop(unsafe { Box::from_raw(batch) });
        0
    })
}
