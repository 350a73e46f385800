//! A value for each CPU with its lock: what everything here is built on. No poisoning, no user code.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::QueueError;
use uwork_engine::percpu::{CpuLock, Place, Recursion, Row, Sections, Token};
use uwork_policy::percpu::Mode;

use super::mode::chosen;
use crate::error::Error;
use crate::linux::engine;
use crate::linux::rseq::Rseq;

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

/// The parts of all CPUs that the machine can have.
pub(super) struct Parts<V> {
    row: Row<Rseq>,
    parts: Box<[Part<V>]>,
}

// SAFETY: a part's value is reached by the holder of its lock only, one thread at a time.
unsafe impl<V: Send> Send for Parts<V> {}
// SAFETY: as above.
unsafe impl<V: Send> Sync for Parts<V> {}

impl<V> Parts<V> {
    /// In the process's mode.
    pub(super) fn new(value: impl FnMut(u32) -> V) -> Parts<V> {
        Parts::in_mode(chosen().choice.mode, value)
    }

    pub(super) fn in_mode(mode: Mode, mut value: impl FnMut(u32) -> V) -> Parts<V> {
        let cpus = engine().config().topology.possible().last().map_or(1, |last| last + 1);
        let part = |cpu| Part {
            lock: CpuLock::default(),
            used: AtomicU32::new(0),
            poisoned: UnsafeCell::new(false),
            value: UnsafeCell::new(value(cpu)),
        };
        let parts: Box<[Part<V>]> = (0..cpus).map(part).collect();
        let first = NonNull::from(&*parts).cast();
        let place = Place { first, stride: size_of::<Part<V>>(), len: cpus };
        let rseq = chosen().rseq;
        let rseq = if mode.needs_sections() { rseq } else { rseq.without_sections() };
        // SAFETY: the parts are on the heap, where they stay as long as the row.
        let row = unsafe { Row::new(place, mode, rseq) };
        Parts { row, parts }
    }

    /// The locks.
    #[inline(always)]
    pub(super) fn row(&self) -> &Row<Rseq> {
        &self.row
    }

    pub(super) fn mode(&self) -> Mode {
        self.row.mode()
    }

    /// How many CPUs have a part.
    pub(super) fn len(&self) -> u32 {
        self.row.cpus()
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

    /// All values, of somebody who is alone.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = (&mut u32, &mut V)> {
        self.parts.iter_mut().map(|part| (part.used.get_mut(), part.value.get_mut()))
    }

    pub(super) fn into_values(self) -> Vec<V> {
        self.parts.into_iter().map(|part| part.value.into_inner()).collect()
    }

    /// An error if there is no such CPU.
    pub(super) fn check(&self, cpu: u32) -> Result<(), Error> {
        if cpu < self.len() {
            return Ok(());
        }
        let allowed = engine().config().topology.possible().clone();
        Err(QueueError::BadCpu { cpu, allowed }.into())
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
        self.row.cpu_of(NonNull::from(&held.part.lock))
    }

    #[inline(always)]
    pub(super) fn try_here(&self) -> Option<Held<'_, V>> {
        // SAFETY: taken just now.
        self.row.try_here().map(|lock| unsafe { self.held(lock) })
    }

    #[inline(always)]
    pub(super) fn lock_here(&self) -> Result<Held<'_, V>, Recursion> {
        // SAFETY: taken just now.
        self.row.lock_here().map(|lock| unsafe { self.held(lock) })
    }

    /// Takes a CPU's lock from where the caller is, whatever the mode says about that; not if `asker` holds
    /// it, who waits for the caller.
    pub(super) fn lock_from_here(&self, cpu: u32, asker: Token) -> Result<Held<'_, V>, Recursion> {
        self.row.lock_at(cpu, self.row.sections().token(), asker)?;
        // SAFETY: taken just now.
        Ok(unsafe { self.held_of(cpu) })
    }

    /// Who the calling thread is.
    pub(super) fn token(&self) -> Token {
        self.row.sections().token()
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
