//! The engine's atomics, locks and cells: those of the standard library.

pub(crate) use std::sync::atomic::AtomicUsize as UnmodelledUsize;
pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

/// Whether this is the model.
pub(crate) const MODELLED: bool = false;

/// The maximum size of a work item, in bytes.
pub(crate) const WORK_SIZE_MAX: usize = 48;

/// The number of entries in a table's first chunk.
pub(crate) const SLAB_FIRST_CHUNK: u32 = 64;

/// A plain memory cell, in the form that lets the model see its accesses.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    #[inline(always)]
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

thread_local! {
    /// Where the calling thread says that it waits for a lock; null if no other thread asks.
    static LOCK_WAITS: std::cell::Cell<*const AtomicBool> = const { std::cell::Cell::new(std::ptr::null()) };
}

/// Sets where the calling thread says from now on that it waits for a lock: in `place`, or nowhere.
///
/// # Safety
/// The place lives until this is called again on the same thread, or until the thread ends.
pub(crate) unsafe fn set_lock_waits(place: *const AtomicBool) {
    LOCK_WAITS.set(place);
}

/// Takes a mutex. Poisoning is ignored.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // As cheap as `Mutex::lock` where the mutex is free: one compare-and-swap.
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => lock_contended(mutex),
    }
}

#[cold]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // SAFETY: by the contract of `set_lock_waits`.
    let waits = unsafe { LOCK_WAITS.get().as_ref() };
    // Before the thread sleeps, so that a thread that sees it sleep also sees the reason.
    waits.into_iter().for_each(|waits| waits.store(true, Ordering::SeqCst));
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    waits.into_iter().for_each(|waits| waits.store(false, Ordering::SeqCst));
    guard
}

/// The address of a pointer's low 32 bits, for a system call that compares them.
#[inline(always)]
pub(crate) fn low_half<T>(pointer: &AtomicPtr<T>) -> *const u32 {
    let halves: *const u32 = std::ptr::from_ref(pointer).cast();
    let low = if cfg!(target_endian = "little") { 0 } else { size_of::<*mut T>() / 4 - 1 };
    halves.wrapping_add(low)
}

/// A constructor that statics can use. The model's atomics have none that is `const`.
macro_rules! const_unless_modelled {
    ($(#[$about:meta])* $access:vis fn $($rest:tt)*) => {
        $(#[$about])* $access const fn $($rest)*
    };
}
pub(crate) use const_unless_modelled;

/// A number that no other thread has at the same time, and never 0.
pub(crate) fn thread_key() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Keeps the compiler from moving memory accesses across; it costs nothing at run time.
#[inline(always)]
pub fn compiler_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}
