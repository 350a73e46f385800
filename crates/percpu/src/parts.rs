//! A value for each CPU with its lock: the basis of this module. No poisoning, no user code.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::percpu::{CpuLock, Place, Recursion};
use uwork_linux::Error;
use uwork_policy::percpu::Mode;

use super::forks::Registration;
use super::locks::Locks;
use super::mode::chosen;

/// One CPU's part. Aligned to two cache lines, as processors fetch lines in pairs.
#[repr(C, align(128))]
pub(super) struct Part<V> {
    /// First, so that its address is the part's.
    lock: CpuLock,
    /// How many things are in `value`, if its user counts them. Guard for writes: the lock; any
    /// thread may read it, to decide whether to visit the part.
    used: AtomicU32,
    /// A holder has panicked. Guard: the lock.
    poisoned: UnsafeCell<bool>,
    /// Guard: the lock.
    value: UnsafeCell<V>,
}

/// How a child of a fork treats a value whose lock another thread held.
pub(super) trait Lost<V> {
    /// The value may be half written and must not be read.
    fn lost(held: &mut Held<'_, V>);
}

/// # Safety
/// As for [`forks::Lost`](super::forks::Lost), for a row of `Part<V>`.
unsafe fn lost<V, L: Lost<V>>(lock: NonNull<CpuLock>) {
    // SAFETY: a lock of the row is the first field of a part.
    let part = unsafe { lock.cast::<Part<V>>().as_ref() };
    // Dropping `Held` releases the lock, whose holder does not exist in the child.
    L::lost(&mut Held { part, not_send: PhantomData });
}

/// The parts of all CPUs that the machine can have.
pub(super) struct Parts<V> {
    /// Dropped before the parts.
    registration: Registration,
    locks: Locks,
    parts: Box<[Part<V>]>,
}

// SAFETY: only the holder of a part's lock accesses its value, one thread at a time.
unsafe impl<V: Send> Send for Parts<V> {}
// SAFETY: as above.
unsafe impl<V: Send> Sync for Parts<V> {}

impl<V> Parts<V> {
    /// Parts in the process's mode.
    pub(super) fn new<L: Lost<V>>(value: impl FnMut(u32) -> V) -> Parts<V> {
        Parts::in_mode::<L>(chosen().choice.mode, value)
    }

    pub(super) fn in_mode<L: Lost<V>>(mode: Mode, mut value: impl FnMut(u32) -> V) -> Parts<V> {
        let cpus = Locks::count();
        let part = |cpu| Part {
            lock: CpuLock::default(),
            used: AtomicU32::new(0),
            poisoned: UnsafeCell::new(false),
            value: UnsafeCell::new(value(cpu)),
        };
        let parts: Box<[Part<V>]> = (0..cpus).map(part).collect();
        let first = NonNull::from(&*parts).cast();
        let place = Place { first, stride: size_of::<Part<V>>(), len: cpus };
        // SAFETY: the parts are on the heap, and stay there as long as their locks are used.
        let locks = unsafe { Locks::in_mode(mode, place) };
        // SAFETY: as above, and until `drop`; `lost` is for this row.
        let registration = unsafe { Registration::locks(place, lost::<V, L>) };
        Parts { registration, locks, parts }
    }

    pub(super) fn mode(&self) -> Mode {
        self.locks.mode()
    }

    /// How many CPUs have a part.
    pub(super) fn len(&self) -> u32 {
        self.locks.cpus()
    }

    /// How many things a CPU's part has, as counted by its last holder.
    pub(super) fn used(&self, cpu: u32) -> u32 {
        // Relaxed: a reader that must see a certain addition is ordered after it by other means.
        self.parts[cpu as usize].used.load(Ordering::Relaxed)
    }

    /// A CPU's value, with or without its lock.
    pub(super) fn value(&self, cpu: u32) -> *const V {
        self.parts[cpu as usize].value.get()
    }

    /// The CPUs whose parts are not empty, as counted by their last holders.
    pub(super) fn in_use(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).filter(|&cpu| self.used(cpu) > 0)
    }

    /// All values, for an exclusive owner.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = (&mut u32, &mut V)> {
        self.parts.iter_mut().map(|part| (part.used.get_mut(), part.value.get_mut()))
    }

    pub(super) fn into_values(self) -> Vec<V> {
        drop(self.registration);
        self.parts.into_iter().map(|part| part.value.into_inner()).collect()
    }

    /// # Safety
    /// The caller has the lock, and no other `Held` exists for it.
    #[inline(always)]
    pub(super) unsafe fn held(&self, lock: NonNull<CpuLock>) -> Held<'_, V> {
        // SAFETY: a lock of the row is the first field of a part.
        let part = unsafe { lock.cast::<Part<V>>().as_ref() };
        Held { part, not_send: PhantomData }
    }

    /// # Safety
    /// As for [`Parts::held`].
    pub(super) unsafe fn held_of(&self, cpu: u32) -> Held<'_, V> {
        Held { part: &self.parts[cpu as usize], not_send: PhantomData }
    }

    /// The CPU whose part this is.
    pub(super) fn cpu_of(&self, held: &Held<'_, V>) -> u32 {
        self.locks.cpu_of(NonNull::from(&held.part.lock))
    }

    #[inline(always)]
    pub(super) fn try_here(&self) -> Option<Held<'_, V>> {
        // SAFETY: taken just now.
        self.locks.try_here().map(|lock| unsafe { self.held(lock) })
    }

    #[inline(always)]
    pub(super) fn lock_here(&self) -> Result<Held<'_, V>, Recursion> {
        // SAFETY: taken just now.
        self.locks.lock_here().map(|lock| unsafe { self.held(lock) })
    }

    /// As [`Locks::lock_of`].
    pub(super) fn lock_of(&self, cpu: u32) -> Result<Held<'_, V>, Error> {
        self.locks.lock_of(cpu)?;
        // SAFETY: taken just now.
        Ok(unsafe { self.held_of(cpu) })
    }

    /// As [`Locks::try_lock_of`].
    pub(super) fn try_lock_of(&self, cpu: u32) -> Result<Option<Held<'_, V>>, Error> {
        // SAFETY: taken just now.
        Ok(self.locks.try_lock_of(cpu)?.then(|| unsafe { self.held_of(cpu) }))
    }
}

impl<V: Send> Parts<V> {
    /// As [`Locks::visit`].
    pub(super) fn visit<R: Send>(
        &self,
        cpu: u32,
        f: impl FnOnce(Held<'_, V>) -> R + Send,
    ) -> Result<R, Error> {
        // SAFETY: taken just now, for this call.
        self.locks.visit(cpu, || f(unsafe { self.held_of(cpu) }))
    }

    /// As [`Locks::visit_all`].
    pub(super) fn visit_all(
        &self,
        cpus: impl IntoIterator<Item = u32>,
        f: impl Fn(u32, Held<'_, V>) + Sync,
    ) -> Result<(), Error> {
        // SAFETY: taken just now, for this call.
        self.locks.visit_all(cpus, |cpu| f(cpu, unsafe { self.held_of(cpu) }))
    }
}

/// The lock of a part, held by the thread that has this.
pub(super) struct Held<'a, V> {
    part: &'a Part<V>,
    /// The lock records the thread that holds it, so the guard must stay on it.
    not_send: PhantomData<*mut ()>,
}

impl<V> Held<'_, V> {
    #[inline(always)]
    pub(super) fn used(&self) -> u32 {
        // Relaxed: ordered by the lock.
        self.part.used.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn set_used(&mut self, used: u32) {
        // Relaxed: as above.
        self.part.used.store(used, Ordering::Relaxed);
    }

    /// Whether a holder has panicked.
    #[inline(always)]
    pub(super) fn is_poisoned(&self) -> bool {
        // SAFETY: this thread has the lock.
        unsafe { *self.part.poisoned.get() }
    }

    pub(super) fn set_poisoned(&mut self, poisoned: bool) {
        // SAFETY: this thread has the lock.
        unsafe { *self.part.poisoned.get() = poisoned };
    }

    /// The value, for a user that also accesses it without the lock.
    #[inline(always)]
    pub(super) fn value(&self) -> *mut V {
        self.part.value.get()
    }
}

impl<V> Deref for Held<'_, V> {
    type Target = V;
    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: this thread has the lock.
        unsafe { &*self.part.value.get() }
    }
}

impl<V> DerefMut for Held<'_, V> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: this thread has the lock.
        unsafe { &mut *self.part.value.get() }
    }
}

impl<V> Drop for Held<'_, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread has the lock, and releases it.
        unsafe { self.part.lock.release() };
    }
}
