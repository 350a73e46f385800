//! The engine's atomics, locks and cells for the loom models.

use std::ops::Deref;
pub(crate) use std::sync::atomic::AtomicUsize as UnmodelledUsize;

pub(crate) use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Whether this is the model.
pub(crate) const MODELLED: bool = true;

/// loom's atomics are larger.
pub(crate) const WORK_SIZE_MAX: usize = 1024;

/// Every atomic of every entry costs time in every execution.
pub(crate) const SLAB_FIRST_CHUNK: u32 = 2;

/// loom's atomics have no `const` constructor.
macro_rules! const_unless_modelled {
    ($($function:tt)*) => { $($function)* };
}
pub(crate) use const_unless_modelled;

/// loom has no notion of a compiler fence, so it is modelled as a full fence.
#[inline(always)]
pub fn compiler_fence() {
    fence(Ordering::SeqCst);
}

/// No thread asks whether another waits for a lock.
///
/// # Safety
/// None is needed: the place is not used.
pub(crate) unsafe fn set_lock_waits(_: *const AtomicBool) {}

/// Takes a mutex. Poisoning is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The model has no system call that reads there.
pub(crate) fn low_half<T>(_: &AtomicPtr<T>) -> *const u32 {
    std::ptr::null()
}

/// A number that no other thread has at the same time, and never 0.
pub(crate) fn thread_key() -> usize {
    static LAST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    loom::thread_local! {
        static KEY: usize = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    }
    KEY.with(|&key| key)
}

/// As loom's, but its initial value counts as sequentially consistent.
///
/// In the language, a `SeqCst` load cannot return a value that an earlier `SeqCst` store has
/// overwritten. loom obeys that only if the overwritten value was stored with `SeqCst` too, and the
/// initial value of its atomics was not: it would show lost wake-ups that no machine can produce.
#[derive(Debug)]
pub struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    /// A flag that holds `value`.
    pub fn new(value: bool) -> Self {
        let flag = loom::sync::atomic::AtomicBool::new(value);
        flag.store(value, Ordering::SeqCst);
        AtomicBool(flag)
    }
}

impl Deref for AtomicBool {
    type Target = loom::sync::atomic::AtomicBool;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// As [`AtomicBool`].
#[derive(Debug)]
pub struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    /// A number that holds `value`.
    pub fn new(value: u64) -> Self {
        let number = loom::sync::atomic::AtomicU64::new(value);
        number.store(value, Ordering::SeqCst);
        AtomicU64(number)
    }
}

impl Deref for AtomicU64 {
    type Target = loom::sync::atomic::AtomicU64;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// As [`AtomicBool`]. A `swap` counts as sequentially consistent for the same reason. This can only
/// hide a load that misses the swap. The engine's only swap is that of an inbox for null, where
/// such a load is a harmless "not empty".
#[derive(Debug)]
pub struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// A pointer that holds `value`.
    pub fn new(value: *mut T) -> Self {
        let pointer = loom::sync::atomic::AtomicPtr::new(value);
        pointer.store(value, Ordering::SeqCst);
        AtomicPtr(pointer)
    }

    /// Stores `value`, and returns the previous value.
    pub fn swap(&self, value: *mut T, _: Ordering) -> *mut T {
        self.0.swap(value, Ordering::SeqCst)
    }
}

impl<T> Deref for AtomicPtr<T> {
    type Target = loom::sync::atomic::AtomicPtr<T>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
