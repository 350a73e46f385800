//! Items that are collected and passed on in batches, generic over the collector.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;

use uwork::percpu::Bundle;
use uwork_capi::{
    UwPercpuBatch, uw_percpu_batch_add, uw_percpu_batch_create, uw_percpu_batch_drain_all,
};
use uwork_rivals::collect::{CAPACITY, Collect, Sink};

use super::allocators::{Timed, fastest_round};
use super::threads::together;

/// uwork's bundle.
pub(super) struct PerCpuBatch(Bundle<u64>);

impl PerCpuBatch {
    pub(super) fn new(sink: &Arc<Sink>) -> Self {
        let sink = sink.clone();
        Self(Bundle::new(CAPACITY, move |items| sink.take(items.as_slice())))
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

/// uwork's bundle through the C interface, called as in a shared library.
pub(super) struct ThroughC {
    batch: *mut UwPercpuBatch,
    add: unsafe extern "C" fn(*mut UwPercpuBatch, *mut c_void) -> i32,
}

// SAFETY: all threads may use a batch (uwork.h).
unsafe impl Sync for ThroughC {}

unsafe extern "C-unwind" fn take(items: *const *mut c_void, count: usize, sink: *mut c_void) {
    // SAFETY: the pointers are the sink of `new` and the items of a batch. A pointer has the size
    // of a `u64` on the supported systems.
    let (sink, items) =
        unsafe { (&*sink.cast::<Sink>(), std::slice::from_raw_parts(items.cast::<u64>(), count)) };
    sink.take(items);
}

impl ThroughC {
    pub(super) fn new(sink: &Arc<Sink>) -> Self {
        const { assert!(size_of::<*mut c_void>() == size_of::<u64>()) };
        // Leaked, because the batch lives as long as the process.
        let sink = Arc::into_raw(sink.clone()).cast_mut().cast();
        // SAFETY: `take` accepts the sink that it is called with.
        let batch = unsafe { uw_percpu_batch_create(CAPACITY as u32, Some(take), sink) };
        // Hides the function from the compiler, so that it is not inlined.
        let add = black_box(uw_percpu_batch_add as unsafe extern "C" fn(_, _) -> _);
        Self { batch, add }
    }
}

impl Collect for ThroughC {
    #[inline(always)]
    fn add(&self, item: u64) {
        // SAFETY: a valid batch; items are not dereferenced.
        unsafe { (self.add)(self.batch, ptr::without_provenance_mut(item as usize)) };
    }

    fn finish(&self) {
        // SAFETY: a valid batch.
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

/// Four threads add `each` items.
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
