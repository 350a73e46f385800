//! A value for each CPU with its lock: what everything here is built on. No poisoning, no user code.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::percpu::{CpuLock, Place, Recursion};
use uwork_policy::percpu::Mode;

use super::forks::Registration;
use super::locks::Locks;
use super::mode::chosen;
use crate::error::Error;

/// One CPU's part. On cache lines of its own, two of them, as processors fetch lines in pairs.
#[repr(C, align(128))]
pub(super) struct Part<V> {
    /// First, so that its address is the part's.
    lock: CpuLock,
    /// How many things are in `value`, where its user counts them. Guard for writes: the lock; read by
    /// anybody, to see whether a visit is worth it.
    used: AtomicU32,
    /// A holder has panicked. Guard: the lock.
    poisoned: UnsafeCell<bool>,
    /// Guard: the lock.
    value: UnsafeCell<V>,
}

/// What a child of a fork does with a value whose lock another thread held.
pub(super) trait Lost<V> {
    /// The value may be half written: it is not to be read.
    fn lost(held: &mut Held<'_, V>);
}

/// # Safety
/// As [`forks::Lost`](super::forks::Lost) says, for a row of `Part<V>`.
unsafe fn lost<V, L: Lost<V>>(lock: NonNull<CpuLock>) {
    // SAFETY: a lock of the row is the first field of a part.
    let part = unsafe { lock.cast::<Part<V>>().as_ref() };
    // Gives the lock up, which its holder has left to us.
    L::lost(&mut Held { part, not_send: PhantomData });
}

/// The parts of all CPUs that the machine can have.
pub(super) struct Parts<V> {
    /// Dropped before the parts.
    registration: Registration,
    locks: Locks,
    parts: Box<[Part<V>]>,
}

// SAFETY: a part's value is reached by the holder of its lock only, one thread at a time.
unsafe impl<V: Send> Send for Parts<V> {}
// SAFETY: as above.
unsafe impl<V: Send> Sync for Parts<V> {}

impl<V> Parts<V> {
    /// In the process's mode.
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
        // SAFETY: the parts are on the heap, where they stay as long as their locks are used.
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

    /// How many things a CPU's part has, by its last holder's account.
    pub(super) fn used(&self, cpu: u32) -> u32 {
        // Relaxed: whoever wants to find what somebody has put in knows of that by other means.
        self.parts[cpu as usize].used.load(Ordering::Relaxed)
    }

    /// A CPU's value, whoever holds its lock.
    pub(super) fn value(&self, cpu: u32) -> *const V {
        self.parts[cpu as usize].value.get()
    }

    /// The CPUs whose parts have something in them, by their last holders' accounts.
    pub(super) fn in_use(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).filter(|&cpu| self.used(cpu) > 0)
    }

    /// All values, of somebody who is alone.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = (&mut u32, &mut V)> {
        self.parts.iter_mut().map(|part| (part.used.get_mut(), part.value.get_mut()))
    }

    pub(super) fn into_values(self) -> Vec<V> {
        drop(self.registration);
        self.parts.into_iter().map(|part| part.value.into_inner()).collect()
    }

    /// # Safety
    /// The caller has the lock, and nobody holds it by another `Held`.
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
    /// The thread is known to the lock.
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
        // SAFETY: we have the lock.
        unsafe { *self.part.poisoned.get() }
    }

    pub(super) fn set_poisoned(&mut self, poisoned: bool) {
        // SAFETY: we have the lock.
        unsafe { *self.part.poisoned.get() = poisoned };
    }

    /// The value, for a user who shares it with others beside the lock.
    #[inline(always)]
    pub(super) fn value(&self) -> *mut V {
        self.part.value.get()
    }
}

impl<V> Deref for Held<'_, V> {
    type Target = V;
    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: we have the lock.
        unsafe { &*self.part.value.get() }
    }
}

impl<V> DerefMut for Held<'_, V> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: we have the lock.
        unsafe { &mut *self.part.value.get() }
    }
}

impl<V> Drop for Held<'_, V> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: we have the lock, and give it up.
        unsafe { self.part.lock.release() };
    }
}
