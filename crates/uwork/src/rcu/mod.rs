//! Read sides that delay grace periods, and items that wait for a grace period.
//!
//! A reader takes [`read_lock`] and reads data that writers may replace meanwhile. A writer that
//! has replaced data must not free the old data before every reader that may still see it has
//! ended: that is a *grace period*. [`Queue::enqueue_rcu`](crate::Queue::enqueue_rcu) queues an
//! item after one: its function may free data that was visible to readers before the call.
//!
//! ```text
//! reader A   [--------]
//! reader B        [------------]
//! reader C                   [------------------]
//! enqueue_rcu         |........|  a grace period: A and B have gone, C came later
//!                               run
//! ```
//!
//! **Guarantee.** If `enqueue_rcu` returns `Queued`, the function runs after every [`ReadGuard`]
//! that existed at the call has been dropped, and sees its reader's writes. Readers that start
//! later see the writes that the caller made before `enqueue_rcu`.
//!
//! **Cost.** Taking and dropping a guard: a fence and a few stores, without a write to a shared
//! cache line. While an item waits for a grace period, a worker checks after 1 ms, and then at
//! growing intervals of up to 16 ms. If no reader delays it, the grace period ends in the first
//! check. While no item waits, no thread checks.
//!
//! Grace periods are those of the crate `crossbeam-epoch`, in a collector of its own: guards of
//! other users of that crate do not count as readers here and delay no item.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicPtr, Ordering};
//!
//! static CONFIG: AtomicPtr<u32> = AtomicPtr::new(std::ptr::null_mut());
//!
//! /// Frees what was replaced.
//! struct Old { work: uwork::rcu::RcuWork<Old>, value: AtomicPtr<u32> }
//! uwork::has_work!(impl HasRcuWork for Old { work });
//! impl uwork::WorkItem for Old {
//!     type Pointer = Arc<Old>;
//!     fn run(this: Arc<Old>) {
//!         // SAFETY: no reader is left that may see the value, and it is freed once.
//!         drop(unsafe { Box::from_raw(this.value.load(Ordering::Relaxed)) });
//!     }
//! }
//!
//! let queue = uwork::Queue::builder("reclaim").build()?;
//! CONFIG.store(Box::into_raw(Box::new(1)), Ordering::Release);
//! {
//!     let _reader = uwork::rcu::read_lock();
//!     // SAFETY: what is published is not freed while a reader may see it.
//!     assert_eq!(unsafe { *CONFIG.load(Ordering::Acquire) }, 1);
//! }
//! let new = Box::into_raw(Box::new(2));
//! let old = CONFIG.swap(new, Ordering::AcqRel);
//! let item = Arc::new(Old { work: uwork::rcu::RcuWork::new(), value: AtomicPtr::new(old) });
//! assert!(queue.enqueue_rcu(item.clone()).is_queued());
//! item.work.flush();
//! assert!(!item.work.is_pending());
//! # // SAFETY: nobody reads any more.
//! # drop(unsafe { Box::from_raw(CONFIG.swap(std::ptr::null_mut(), Ordering::AcqRel)) });
//! # Ok::<(), uwork::Error>(())
//! ```

mod driver;
mod work;

use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, Ordering};

use crossbeam_epoch::{Collector, Guard, LocalHandle};

use driver::Driver;
use uwork_linux::readers::{self, Counted};
pub use work::{HasRcuWork, RcuWork};

/// The library's own epochs, and the driver that advances them. They are separate from other users
/// of the crate, so that no foreign deferred function runs on the library's workers, and no foreign
/// guard delays an item.
///
/// A child after a fork has an era of its own: in the old era, guards of threads that do not exist
/// in the child would delay all items for ever. Guards that the forking thread holds across the fork
/// are of the old era, which no thread advances again; they are counted ([`readers`]), and delay the
/// grace periods of the child's era. Their end in the old era changes the thread's own record only,
/// or without a registration (see [`with_handle`]) its lists, which are free of locks.
struct Era {
    forks: u32,
    collector: Collector,
    driver: Driver,
}

fn era() -> &'static Era {
    static ERA: AtomicPtr<Era> = AtomicPtr::new(std::ptr::null_mut());
    let forks = uwork_linux::forks();
    loop {
        // Acquire and release: a thread that finds an era finds it complete.
        let known = ERA.load(Ordering::Acquire);
        // SAFETY: null, or an era that is never freed.
        if let Some(era) = unsafe { known.as_ref() }
            && era.forks == forks
        {
            return era;
        }
        let fresh = Era { forks, collector: Collector::new(), driver: Driver::new() };
        let fresh = Box::into_raw(Box::new(fresh));
        let won = ERA.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire);
        if won.is_err() {
            // SAFETY: made above, and never published.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

fn collector() -> &'static Collector {
    &era().collector
}

/// A thread's registration with the epochs of the current process.
struct Handle {
    forks: u32,
    handle: LocalHandle,
}

impl Handle {
    fn new() -> Handle {
        Handle { forks: uwork_linux::forks(), handle: collector().register() }
    }
}

thread_local! {
    static HANDLE: RefCell<Handle> = RefCell::new(Handle::new());
}

/// Calls `f` with the thread's handle, or with a new one if the thread is ending.
fn with_handle<R>(f: impl FnOnce(&LocalHandle) -> R) -> R {
    let mut f = Some(f);
    let mut call = |handle: &LocalHandle| (f.take().expect("called once"))(handle);
    let outcome = HANDLE.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.forks != uwork_linux::forks() {
            // The old handle is of the parent's era. Guards from before the fork may use its record.
            std::mem::forget(std::mem::replace(&mut *kept, Handle::new()));
        }
        call(&kept.handle)
    });
    outcome.unwrap_or_else(|_| call(&collector().register()))
}

fn pin() -> Guard {
    with_handle(LocalHandle::pin)
}

/// While it lives, no grace period that begins after its creation ends. It stays on its thread.
/// From [`read_lock`].
#[must_use = "the read side ends where the guard is dropped"]
#[derive(Debug)]
#[allow(dead_code, reason = "dropped, that is what they are for")]
pub struct ReadGuard {
    guard: Guard,
    /// Dropped last.
    counted: Counted,
}

/// Begins a read side: no item of [`Queue::enqueue_rcu`](crate::Queue::enqueue_rcu) receives the
/// data visible now before the guard is dropped.
///
/// Guards nest. A guard that is never dropped delays every later item for ever. If the thread forks,
/// its guards delay items of the child too, until the child drops its copies. The thread may wait
/// while it holds a guard. But a thread that holds a guard and waits for an item of `enqueue_rcu`
/// waits for itself (see [`RcuWork::flush`]).
///
/// Acquire and release: a run sees the writes made under every guard that it waited for.
///
/// ```
/// let reader = uwork::rcu::read_lock();
/// assert!(uwork::rcu::is_read_locked());
/// drop(reader);
/// assert!(!uwork::rcu::is_read_locked());
/// ```
pub fn read_lock() -> ReadGuard {
    ReadGuard { counted: Counted::begin(), guard: pin() }
}

/// Whether the calling thread holds a [`ReadGuard`].
pub fn is_read_locked() -> bool {
    readers::is_held()
}
