//! The standard library's atomics, locks and cells, which report each use to the calling thread's
//! [`Recorder`]. Only the simulator's model of costs is built with them.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::rc::Rc;
use std::sync::PoisonError;
use std::sync::atomic as real;
pub use std::sync::atomic::Ordering;

/// Whether this is the model.
pub(crate) const MODELLED: bool = false;

/// As in a production build: the wrappers are no larger than what they wrap.
pub(crate) const WORK_SIZE_MAX: usize = 48;

/// As in a production build.
pub(crate) const SLAB_FIRST_CHUNK: u32 = 64;

/// How memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A read.
    Read,
    /// A write that no locked instruction makes.
    Write,
    /// A locked instruction, whether or not it writes.
    Update,
}

/// Receives every use of shared memory by the engine.
pub trait Recorder {
    /// The calling thread is about to use the memory at this address, here in the engine's source.
    /// Helpers that many places call are `#[track_caller]`, so that this is the line of the caller.
    fn uses(&self, address: usize, how: Use, here: &'static Location<'static>);

    /// The calling thread executes a full fence.
    fn fences(&self);

    /// The calling thread is about to take the lock at this address. Returns when no other thread
    /// holds the lock.
    fn takes(&self, lock: usize, here: &'static Location<'static>);

    /// The calling thread has released the lock at this address.
    fn releases(&self, lock: usize, here: &'static Location<'static>);
}

thread_local! {
    static IS_RECORDED: Cell<bool> = const { Cell::new(false) };
    static RECORDER: RefCell<Option<Rc<dyn Recorder>>> = const { RefCell::new(None) };
}

/// Sets the calling thread's recorder, and returns the previous one.
pub fn set_recorder(recorder: Option<Rc<dyn Recorder>>) -> Option<Rc<dyn Recorder>> {
    IS_RECORDED.set(recorder.is_some());
    RECORDER.replace(recorder)
}

#[inline(always)]
fn report(f: impl FnOnce(&dyn Recorder)) {
    if IS_RECORDED.get() {
        // Not under the borrow: the recorder may run another thread of the simulation.
        let recorder = RECORDER.with_borrow(Clone::clone);
        if let Some(recorder) = recorder {
            f(&*recorder);
        }
    }
}

#[inline(always)]
#[track_caller]
fn uses<T>(what: &T, how: Use) {
    let here = Location::caller();
    report(|recorder| recorder.uses(std::ptr::from_ref(what).addr(), how, here));
}

/// A sequentially consistent store is a locked exchange.
fn of_store(order: Ordering) -> Use {
    if order == Ordering::SeqCst { Use::Update } else { Use::Write }
}

/// A fence, as in the standard library.
#[inline(always)]
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        report(|recorder| recorder.fences());
    }
    real::fence(order);
}

/// The part that all atomics have; `$value` is what they hold.
macro_rules! atomic {
    ($name:ident $(<$of:ident>)?, $real:ty, $value:ty) => {
        /// As in the standard library.
        #[derive(Debug)]
        #[allow(unreachable_pub, reason = "one of them is not exported")]
        #[repr(transparent)]
        pub struct $name $(<$of>)? ($real);

        #[allow(missing_docs, dead_code, unreachable_pub, reason = "as in the standard library")]
        impl $(<$of>)? $name $(<$of>)? {
            pub const fn new(value: $value) -> Self {
                $name(<$real>::new(value))
            }

            #[inline(always)]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                uses(self, Use::Read);
                self.0.load(order)
            }

            #[inline(always)]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                uses(self, of_store(order));
                self.0.store(value, order);
            }

            #[inline(always)]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                uses(self, Use::Update);
                self.0.swap(value, order)
            }

            #[inline(always)]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                uses(self, Use::Update);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Never fails without a cause, so that a run can be repeated.
            #[inline(always)]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            #[inline(always)]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            #[inline(always)]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            #[inline(always)]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }
    };
}

/// The operations that read, change and write.
macro_rules! operations {
    ($name:ident, $value:ty, $($operation:ident)*) => {
        #[allow(missing_docs, dead_code, unreachable_pub, reason = "as in the standard library")]
        impl $name {
            $(
                #[inline(always)]
                #[track_caller]
                pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    uses(self, Use::Update);
                    self.0.$operation(value, order)
                }
            )*

            #[inline(always)]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                uses(self, Use::Update);
                self.0.fetch_update(set, fetch, f)
            }
        }
    };
}

atomic!(AtomicBool, real::AtomicBool, bool);
atomic!(AtomicU32, real::AtomicU32, u32);
atomic!(AtomicU64, real::AtomicU64, u64);
atomic!(AtomicUsize, real::AtomicUsize, usize);
atomic!(AtomicPtr<T>, real::AtomicPtr<T>, *mut T);
operations!(AtomicBool, bool, fetch_and fetch_or fetch_xor);
operations!(AtomicU32, u32, fetch_add fetch_and fetch_min fetch_or fetch_sub fetch_xor);
operations!(AtomicU64, u64, fetch_add fetch_and fetch_min fetch_or fetch_sub fetch_xor);

/// A word that the models need not see.
pub(crate) type UnmodelledUsize = AtomicUsize;

/// A mutex whose holder the recorder knows.
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// The mutex is released first, then the recorder is told.
pub(crate) struct MutexGuard<'a, T> {
    guard: std::sync::MutexGuard<'a, T>,
    _released: Released,
}

/// Tells the recorder of a release of a lock that was taken here.
struct Released(usize, &'static Location<'static>);

impl Drop for Released {
    fn drop(&mut self) {
        report(|recorder| recorder.releases(self.0, self.1));
    }
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, PoisonError<MutexGuard<'_, T>>> {
        let (lock, here) = (std::ptr::from_ref(self).addr(), Location::caller());
        report(|recorder| recorder.takes(lock, here));
        let guarded = |guard| MutexGuard { guard, _released: Released(lock, here) };
        match self.0.lock() {
            Ok(guard) => Ok(guarded(guard)),
            Err(poisoned) => Err(PoisonError::new(guarded(poisoned.into_inner()))),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[track_caller]
    fn deref(&self) -> &T {
        uses(&*self.guard, Use::Read);
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        uses(&*self.guard, Use::Write);
        &mut self.guard
    }
}

/// A plain memory cell.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    #[inline(always)]
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        uses(self, Use::Read);
        f(self.0.get())
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        uses(self, Use::Write);
        f(self.0.get())
    }
}

/// No thread asks whether another waits for a lock.
///
/// # Safety
/// None is needed: the place is not used.
pub(crate) unsafe fn set_lock_waits(_: *const AtomicBool) {}

/// Takes a mutex. Poisoning is ignored.
#[track_caller]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of a pointer's low 32 bits. The simulator has no system call that reads there.
pub(crate) fn low_half<T>(_: &AtomicPtr<T>) -> *const u32 {
    std::ptr::null()
}

/// A constructor that statics can use.
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
    real::compiler_fence(Ordering::SeqCst);
}
