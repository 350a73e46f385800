//! The one place that chooses between std and loom. Everything atomic in the engine comes from here.

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::sync::Mutex;
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

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
}

#[cfg(loom)]
#[path = "modelled.rs"]
mod imp;

pub use imp::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

pub(crate) use imp::{
    MODELLED, SLAB_FIRST_CHUNK, UnsafeCell, WORK_SIZE_MAX, const_unless_modelled, low_half,
    thread_key,
};

#[cfg(all(debug_assertions, not(loom)))]
#[path = "checked.rs"]
mod held;
#[cfg(any(not(debug_assertions), loom))]
#[path = "unchecked.rs"]
mod held;
mod rank;

pub use held::{Holding, assert_nothing_held, exchange};
pub(crate) use held::{assert_may_wake, item_attached, item_detached, item_moves, take_all};
pub use rank::Rank;

/// A mutual exclusion lock without poisoning: the only user code that runs under one is the matcher
/// of a task list, which may unwind and leaves the list as it was. Builds with debug assertions
/// check the order in which a thread takes them.
pub struct Lock<T> {
    mutex: imp::Mutex<T>,
    rank: held::Ranked,
}

#[cfg(not(loom))]
type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(loom)]
type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// A [`Lock`] that is held until this is dropped. The mutex is released first, then the record of
/// it.
pub struct LockGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> std::ops::Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> std::ops::DerefMut for LockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Lock<T> {
    /// A lock around `value`, under which no other lock is taken.
    pub fn new(value: T) -> Self {
        Lock::ranked(Rank::Last, value)
    }

    /// A lock around `value` with a rank in the lock order.
    pub fn ranked(rank: Rank, value: T) -> Self {
        Lock { mutex: imp::Mutex::new(value), rank: held::Ranked::new(rank) }
    }

    /// Waits for the lock and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T> {
        let held = self.rank.take();
        match self.mutex.lock() {
            Ok(guard) => LockGuard { guard, _held: held },
            Err(poisoned) => LockGuard { guard: poisoned.into_inner(), _held: held },
        }
    }
}

/// A value that begins a cache line of its own.
#[repr(align(64))]
pub struct Line<T>(pub T);

/// A plain memory cell. Its user names the guard that orders its accesses.
pub struct Cell<T: Copy>(imp::UnsafeCell<T>);

// SAFETY: a `Cell` only stores the value. `get` and `set` are unsafe, and their callers promise
// that no two accesses race.
unsafe impl<T: Copy + Send> Sync for Cell<T> {}

/// A raw pointer for a [`Cell`] that threads share.
#[derive(Debug)]
pub struct Link<T>(pub *mut T);

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Link<T> {}
// SAFETY: a `Link` is an address; the code that dereferences it is responsible for its target.
unsafe impl<T> Send for Link<T> {}

impl<T: Copy> Cell<T> {
    const_unless_modelled! {
        /// A cell that holds `value`.
        #[inline]
        pub fn new(value: T) -> Self {
            Cell(imp::UnsafeCell::new(value))
        }
    }

    /// Reads the cell.
    ///
    /// # Safety
    /// No other thread writes the cell at the same time.
    #[inline(always)]
    pub unsafe fn get(&self) -> T {
        // SAFETY: the caller excludes a concurrent write; `T: Copy` makes a plain read sufficient.
        self.0.with(|at| unsafe { *at })
    }

    /// Writes the cell.
    ///
    /// # Safety
    /// No other thread reads or writes the cell at the same time.
    #[inline(always)]
    pub unsafe fn set(&self, value: T) {
        // SAFETY: the caller excludes every concurrent access.
        self.0.with_mut(|at| unsafe { *at = value });
    }
}

/// A number that the models need not see, and do not pay for: it may be out of date where it is
/// read. It is for display, and for decisions that such a value cannot make wrong: the code that
/// decides says why.
pub(crate) struct Hint(std::sync::atomic::AtomicUsize);

impl Hint {
    pub(crate) fn new(value: usize) -> Hint {
        Hint(std::sync::atomic::AtomicUsize::new(value))
    }

    /// Release: a thread that sees this value sees everything that was stored before it.
    #[inline(always)]
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, std::sync::atomic::Ordering::Release);
    }

    /// Acquire: see [`Hint::set`].
    #[inline(always)]
    pub(crate) fn get(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// A number of events, for statistics. The models do not see it.
pub(crate) struct Count(std::sync::atomic::AtomicU64);

impl Count {
    pub(crate) fn new() -> Count {
        Count(std::sync::atomic::AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, events: u64) {
        if events > 0 {
            self.0.fetch_add(events, std::sync::atomic::Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Prefetches the cache line at `address`. Any address is valid: a prefetch accesses nothing that
/// the program can observe.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
