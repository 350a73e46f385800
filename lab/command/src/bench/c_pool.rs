//! uwork through its C interface: the performance that a C program gets.
//!
//! Items, function and calls are those of `uwork.h`. Every call goes through an address that the
//! compiler cannot see through, as with a shared library.

use std::ffi::{CString, c_int};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use uwork_capi::{
    UwQueue, UwWork, UwWorkFn, uw_queue_create, uw_queue_destroy, uw_queue_work,
    uw_work_flush_helping, uw_work_init,
};
use uwork_rivals::{Pool, Producer, Progress};

const UNBOUND: u32 = 1 << 1;

/// The functions of the interface, as addresses.
#[derive(Clone, Copy)]
struct Abi {
    work_init: unsafe extern "C" fn(*mut UwWork, UwWorkFn),
    queue_work: unsafe extern "C" fn(*mut UwQueue, *mut UwWork) -> c_int,
    flush_helping: unsafe extern "C" fn(*mut UwWork) -> c_int,
}

/// A queue with the default scope.
pub(super) struct ThroughC {
    queue: *mut UwQueue,
    abi: Abi,
    joins: bool,
}

// SAFETY: a queue may be used by all threads (uwork.h).
unsafe impl Sync for ThroughC {}

impl ThroughC {
    pub(super) fn new(joins: bool) -> ThroughC {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("bench-c-{number}")).expect("a number has no zero byte");
        // SAFETY: the name is a valid C string.
        let queue = unsafe { uw_queue_create(name.as_ptr(), UNBOUND, 0) };
        assert!(!queue.is_null(), "a queue with a fresh name can be made");
        let abi = black_box(Abi {
            work_init: uw_work_init,
            queue_work: uw_queue_work,
            flush_helping: uw_work_flush_helping,
        });
        ThroughC { queue, abi, joins }
    }
}

impl Drop for ThroughC {
    fn drop(&mut self) {
        // SAFETY: no thread uses the queue any more.
        unsafe { uw_queue_destroy(self.queue) };
    }
}

/// An item as a C program defines it: the work item first, then the data of its function.
#[repr(C)]
struct Item {
    work: std::mem::MaybeUninit<UwWork>,
    progress: &'static Progress,
}

unsafe extern "C-unwind" fn run(work: *mut UwWork) {
    // SAFETY: `work` is the first field of the queued item.
    unsafe { (*work.cast::<Item>()).progress }.complete();
}

pub(super) struct CProducer<'a> {
    pool: &'a ThroughC,
    items: Box<[Item]>,
}

impl Pool for ThroughC {
    type Producer<'a> = CProducer<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, outstanding: usize) -> CProducer<'a> {
        let item = || Item { work: std::mem::MaybeUninit::uninit(), progress };
        let mut items: Box<[Item]> = (0..outstanding).map(|_| item()).collect();
        for item in &mut items {
            // SAFETY: the memory of an item, at its final address.
            unsafe { (self.abi.work_init)((&raw mut *item).cast(), Some(run)) };
        }
        CProducer { pool: self, items }
    }
}

impl Producer for CProducer<'_> {
    #[inline]
    unsafe fn submit(&mut self, index: usize) {
        let item = &raw mut self.items[index];
        // SAFETY: the item stays in place until everything that was queued has run.
        let queued = unsafe { (self.pool.abi.queue_work)(self.pool.queue, item.cast()) };
        debug_assert!(queued == 1, "the item queued last under this index has completed");
        let _ = queued;
    }

    fn settle(&mut self, progress: &'static Progress) {
        if self.pool.joins {
            // SAFETY: as in `submit`.
            unsafe { (self.pool.abi.flush_helping)((&raw mut self.items[0]).cast()) };
        } else {
            progress.wait();
        }
    }
}
