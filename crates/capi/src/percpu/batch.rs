//! Items collected for each CPU and handed on in bulk.

use std::ffi::{c_int, c_uint, c_void};
use std::vec::Drain;

use uwork::percpu::Batch;

use super::{count, made, there};
use crate::cpu::given;
use crate::error::{fail, guard, guarded, misuse};

/// An item: the user's, whatever it is.
#[repr(transparent)]
struct Item(*mut c_void);

// SAFETY: uwork.h says that the sink gets it on any thread.
unsafe impl Send for Item {}

/// See the module.
pub struct UwPercpuBatch(Batch<Item>);

/// What takes the items of a batch.
pub type UwPercpuSink = Option<unsafe extern "C-unwind" fn(*const *mut c_void, usize, *mut c_void)>;

const CAPACITY_MAX: c_uint = 1 << 20;

/// Makes batches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_create(
    capacity: c_uint,
    sink: UwPercpuSink,
    arg: *mut c_void,
) -> *mut UwPercpuBatch {
    /// What the sink gets.
    struct Arg(*mut c_void);
    // SAFETY: uwork.h says that the sink is called on any thread, with that argument.
    unsafe impl Send for Arg {}
    // SAFETY: as above, on several at once.
    unsafe impl Sync for Arg {}
    impl Arg {
        fn get(&self) -> *mut c_void {
            self.0
        }
    }
    made(|| {
        let sink = given(sink)?;
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            let text = format!("a batch of {capacity} items: 1 to {CAPACITY_MAX} are allowed");
            return Err(fail(libc::EINVAL, text));
        }
        let arg = Arg(arg);
        Ok(UwPercpuBatch(Batch::new(capacity as usize, move |items: Drain<'_, Item>| {
            let items: &[Item] = items.as_slice();
            // SAFETY: by uwork.h; an `Item` is a pointer.
            unsafe { sink(items.as_ptr().cast(), items.len(), arg.get()) };
        })))
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
        Ok(batch) => guard(|| {
            batch.0.add(Item(item));
            0
        }),
        Err(code) => code,
    }
}

/// Hands on what is in all batches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_drain_all(batch: *mut UwPercpuBatch) -> i64 {
    // SAFETY: by uwork.h.
    let drained = unsafe { there(batch) }.and_then(|batch| guarded(|| batch.0.drain_all()));
    drained.map_or_else(i64::from, count)
}

/// Hands on what is left, and gives the batches back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_batch_destroy(batch: *mut UwPercpuBatch) -> c_int {
    if batch.is_null() {
        return misuse(libc::EINVAL, "the handle is NULL");
    }
    guard(|| {
        // SAFETY: from `uw_percpu_batch_create`, and given back once (uwork.h).
        drop(unsafe { Box::from_raw(batch) });
        0
    })
}
