//! Items that are collected and handed on by the dozen, over anything that does so.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;

use uwork::percpu::Batch;
use uwork_capi::{
    UwPercpuBatch, uw_percpu_batch_add, uw_percpu_batch_create, uw_percpu_batch_drain_all,
};
use uwork_rivals::collect::{CAPACITY, Collect, Sink};

use super::allocators::{Timed, fastest_round};
use super::threads::together;

/// uwork's.
pub(super) struct PerCpuBatch(Batch<u64>);

impl PerCpuBatch {
    pub(super) fn new(sink: &Arc<Sink>) -> Self {
        let sink = sink.clone();
        Self(Batch::new(CAPACITY, move |items| sink.take(items.as_slice())))
    }
}

impl Collect for PerCpuBatch {
    #[inline(always)]
    fn add(&self, item: u64) {
        self.0.add(item);
    }

    fn finish(&self) {
        self.0.drain_all().expect("not in the sink");
    }
}

/// The same through the C interface, called as a program calls a shared library.
pub(super) struct ThroughC {
    batch: *mut UwPercpuBatch,
    add: unsafe extern "C" fn(*mut UwPercpuBatch, *mut c_void) -> i32,
}

// SAFETY: batches are for all threads (uwork.h).
unsafe impl Sync for ThroughC {}

unsafe extern "C-unwind" fn take(items: *const *mut c_void, count: usize, sink: *mut c_void) {
    // SAFETY: what it was made with, and the items of a batch: as large as a `u64` on the systems that this is for.
    let (sink, items) =
        unsafe { (&*sink.cast::<Sink>(), std::slice::from_raw_parts(items.cast::<u64>(), count)) };
    sink.take(items);
}

impl ThroughC {
    pub(super) fn new(sink: &Arc<Sink>) -> Self {
        const { assert!(size_of::<*mut c_void>() == size_of::<u64>()) };
        // Kept for ever, as the batch is.
        let sink = Arc::into_raw(sink.clone()).cast_mut().cast();
        // SAFETY: the sink takes what it is called with.
        let batch = unsafe { uw_percpu_batch_create(CAPACITY as u32, Some(take), sink) };
        // So that it is called.
        let add = black_box(uw_percpu_batch_add as unsafe extern "C" fn(_, _) -> _);
        Self { batch, add }
    }
}

impl Collect for ThroughC {
    #[inline(always)]
    fn add(&self, item: u64) {
        // SAFETY: a batch; items are not followed.
        unsafe { (self.add)(self.batch, ptr::without_provenance_mut(item as usize)) };
    }

    fn finish(&self) {
        // SAFETY: a batch.
        unsafe { uw_percpu_batch_drain_all(self.batch) };
    }
}

/// One thread adds.
pub(super) fn alone(sink: &Sink, collector: &impl Collect) -> Timed {
    let (timed, items) = fastest_round(|| collector.add(black_box(1)));
    collector.finish();
    check(sink, items);
    timed
}

/// Four threads do, `each` as many.
pub(super) fn four(sink: &Sink, collector: &impl Collect, each: u64) -> Timed {
    let one = || {
        (0..each).for_each(|_| collector.add(black_box(1)));
        collector.finish();
    };
    let timed = together(one, each);
    check(sink, timed.1);
    timed
}

fn check(sink: &Sink, items: u64) {
    assert_eq!(sink.taken(), (items, items), "the sink gets every item once");
}
