//! The one place that chooses between std, loom and std with a record of every use. Everything
//! atomic in the engine comes from here.

#[cfg(not(any(loom, feature = "recorded")))]
#[path = "plain.rs"]
mod imp;
#[cfg(all(not(loom), feature = "recorded"))]
#[path = "recorded.rs"]
mod imp;
#[cfg(loom)]
#[path = "modelled.rs"]
mod imp;

pub use imp::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
#[cfg(all(not(loom), feature = "recorded"))]
pub use imp::{Recorder, Use, set_recorder};

pub(crate) use imp::{
    MODELLED, SLAB_FIRST_CHUNK, UnsafeCell, WORK_SIZE_MAX, const_unless_modelled, low_half,
    set_lock_waits, thread_key,
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

/// A [`Lock`] that is held until this is dropped. The mutex is released first, then the record of
/// it.
pub struct LockGuard<'a, T> {
    guard: imp::MutexGuard<'a, T>,
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
        LockGuard { guard: imp::lock(&self.mutex), _held: held }
    }
}

/// A right that one thread has at a time and for which no thread waits. The checks treat it as a lock of
/// this rank.
pub(crate) struct Right {
    _held: held::Held,
}

impl Right {
    /// The calling thread has claimed the right, until this is dropped.
    #[inline]
    #[track_caller]
    pub(crate) fn ranked(rank: Rank) -> Right {
        Right { _held: held::Ranked::new(rank).take() }
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
    #[track_caller]
    pub unsafe fn get(&self) -> T {
        // SAFETY: the caller excludes a concurrent write; `T: Copy` makes a plain read sufficient.
        self.0.with(|at| unsafe { *at })
    }

    /// Writes the cell.
    ///
    /// # Safety
    /// No other thread reads or writes the cell at the same time.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(&self, value: T) {
        // SAFETY: the caller excludes every concurrent access.
        self.0.with_mut(|at| unsafe { *at = value });
    }
}

/// A number that the models need not see, and do not pay for: it may be out of date where it is
/// read. It is for display, and for decisions that such a value cannot make wrong: the code that
/// decides says why.
pub(crate) struct Hint(imp::UnmodelledUsize);

impl Hint {
    pub(crate) fn new(value: usize) -> Hint {
        Hint(imp::UnmodelledUsize::new(value))
    }

    /// Release: a thread that sees this value sees everything that was stored before it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Release);
    }

    /// Acquire: see [`Hint::set`].
    #[inline(always)]
    #[track_caller]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Another thread needs to know that, and needs no longer than the wait lasts.
    #[test]
    fn a_thread_says_that_it_waits_for_a_lock() {
        let (lock, waits) = (Lock::new(0), AtomicBool::new(false));
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: the flag outlives this thread.
                unsafe { set_lock_waits(&raw const waits) };
                *lock.lock() += 1;
                waits.load(Ordering::SeqCst)
            });
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(held);
            assert!(!waiter.join().expect("it does not panic"), "the wait is over");
        });
        assert_eq!(*lock.lock(), 1);
        assert!(!waits.load(Ordering::SeqCst), "a free lock is not waited for");
    }
}
