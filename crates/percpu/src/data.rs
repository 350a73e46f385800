//! A value for each CPU, and the guards of its parts.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use uwork_linux::Error;

use super::error::LockError;
use super::parts::{Held, Lost, Parts};

/// A value for each CPU, each under a lock of its own.
///
/// Every CPU that the machine can have has its part, whether it is online or not: the data of a CPU
/// that went offline remains accessible.
///
/// Hold a guard for a few instructions only. Its holder can be preempted, and then threads on that
/// CPU wait for it.
///
/// In a child after `fork`, parts whose lock another thread held are unlocked and poisoned. Such a
/// value may be half written, which is worse than after a panic: the author of a multi-threaded
/// program that forks must know which operations on such a `T`, except overwriting it, are sound.
///
/// ```
/// use uwork::percpu::PerCpu;
///
/// let names = PerCpu::new(|cpu| vec![format!("of CPU {cpu}")]);
/// let mut here = names.lock_local().unwrap();
/// here.push("another".to_owned());
/// let cpu = here.cpu();
/// drop(here);
/// assert_eq!(names.lock(cpu).unwrap().len(), 2);
/// ```
pub struct PerCpu<T> {
    parts: Parts<T>,
}

/// How a child treats parts whose lock another thread held.
struct Poison;

impl<T> Lost<T> for Poison {
    fn lost(held: &mut Held<'_, T>) {
        held.set_poisoned(true);
    }
}

impl<T: Send> PerCpu<T> {
    /// Values that `value` makes, from CPU 0 on. The first call for per-CPU data chooses the
    /// process's mode.
    pub fn new(value: impl FnMut(u32) -> T) -> PerCpu<T> {
        PerCpu { parts: Parts::new::<Poison>(value) }
    }

    #[cfg(test)]
    pub(super) fn in_mode(mode: super::Mode, value: impl FnMut(u32) -> T) -> PerCpu<T> {
        PerCpu { parts: Parts::in_mode::<Poison>(mode, value) }
    }

    /// The CPUs that have a part.
    pub fn cpus(&self) -> Range<u32> {
        0..self.parts.len()
    }

    /// Takes the lock of the caller's CPU, as soon as it is free. A few instructions; in modes 0
    /// and 2 none of them is locked.
    ///
    /// The caller may be moved to another CPU at any time. The guard stays that of the CPU on which
    /// it was taken.
    ///
    /// So a thread that holds a guard of these values must not take a second one by this call: if
    /// the thread was moved meanwhile, it is another CPU's lock, and two such threads can wait for
    /// each other for ever. Builds with debug assertions detect that, on any CPU.
    ///
    /// # Errors
    /// The part is poisoned; or the caller holds its lock already. With debug assertions: or the
    /// caller holds the lock of any part.
    #[inline(always)]
    pub fn lock_local(&self) -> Result<Guard<'_, T>, LockError<Guard<'_, T>>> {
        match self.parts.lock_here() {
            Ok(held) => self.guard(held),
            Err(recursion) => Err(recursion.into()),
        }
    }

    /// As [`PerCpu::lock_local`], but only if the lock is free at once.
    ///
    /// # Errors
    /// As [`PerCpu::lock_local`]; and [`LockError::Busy`], also if the caller itself holds the
    /// lock.
    #[inline(always)]
    pub fn try_lock_local(&self) -> Result<Guard<'_, T>, LockError<Guard<'_, T>>> {
        match self.parts.try_here() {
            Some(held) => self.guard(held),
            None => Err(LockError::Busy),
        }
    }

    /// Takes the lock of `cpu`, as soon as it is free.
    ///
    /// In mode 0 a worker of that CPU takes it for the caller, and interrupts the thread that runs
    /// there; if that thread outranks the worker for ever, the call does not return. In mode 1 the
    /// calling thread takes it directly. In mode 2 as well, after it has interrupted that CPU for
    /// about a microsecond.
    ///
    /// # Errors
    /// The CPU does not exist; the part is poisoned; or the caller holds its lock already.
    pub fn lock(&self, cpu: u32) -> Result<Guard<'_, T>, LockError<Guard<'_, T>>> {
        self.guard(self.parts.lock_of(cpu)?)
    }

    /// As [`PerCpu::lock`], but only if the lock is free. In mode 0 it still waits for a worker of
    /// that CPU.
    ///
    /// # Errors
    /// As [`PerCpu::lock`]; and [`LockError::Busy`].
    pub fn try_lock(&self, cpu: u32) -> Result<Guard<'_, T>, LockError<Guard<'_, T>>> {
        match self.parts.try_lock_of(cpu)? {
            Some(held) => self.guard(held),
            None => Err(LockError::Busy),
        }
    }

    /// Calls `f` with the part of `cpu`: on that CPU in mode 0, in the calling thread in modes 1
    /// and 2. In mode 0 another thread calls it, which would wait for locks that the caller holds.
    ///
    /// # Errors
    /// As [`PerCpu::lock`]; `f` is not called for a poisoned part.
    ///
    /// # Panics
    /// If `f` panics; that part is then poisoned.
    pub fn with<R: Send>(
        &self,
        cpu: u32,
        f: impl FnOnce(&mut T) -> R + Send,
    ) -> Result<R, LockError<()>> {
        let visited = self.parts.visit(cpu, |held| match self.guard(held) {
            Ok(mut guard) => Ok(f(&mut guard)),
            Err(_) => Err(LockError::Poisoned(())),
        });
        visited.map_err(LockError::Failed)?
    }

    /// Calls `f` with each CPU's number and part, poisoned ones included: on those CPUs and at the
    /// same time in mode 0, in the calling thread and one after the other in modes 1 and 2.
    ///
    /// # Errors
    /// The caller holds the lock of a part. All others were visited.
    ///
    /// # Panics
    /// If `f` panics, in mode 0 after all parts were visited; the part that it was called with is
    /// poisoned.
    pub fn for_each(&self, f: impl Fn(u32, &mut T) + Sync) -> Result<(), Error> {
        self.parts.visit_all(self.cpus(), |cpu, held| f(cpu, &mut Guard::new(self, held)))
    }

    /// Clears the poison of a CPU's part, under its lock.
    ///
    /// # Errors
    /// As [`PerCpu::lock`], except for poison.
    pub fn clear_poison(&self, cpu: u32) -> Result<(), Error> {
        self.parts.lock_of(cpu)?.set_poisoned(false);
        Ok(())
    }

    /// All values, from CPU 0 on, poisoned ones included.
    pub fn into_inner(self) -> Vec<T> {
        self.parts.into_values()
    }

    #[inline(always)]
    fn guard<'a>(&'a self, held: Held<'a, T>) -> Result<Guard<'a, T>, LockError<Guard<'a, T>>> {
        let guard = Guard::new(self, held);
        if guard.held.is_poisoned() {
            return Err(LockError::Poisoned(guard));
        }
        Ok(guard)
    }
}

impl<T> fmt::Debug for PerCpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpu")
            .field("cpus", &self.parts.len())
            .field("mode", &self.parts.mode())
            .finish_non_exhaustive()
    }
}

/// One CPU's part, locked. Dropping it unlocks it: a plain store, from any CPU.
///
/// If its thread panics meanwhile, the part is poisoned.
///
/// A guard that is leaked, by [`std::mem::forget`] for instance, leaves the part locked: other
/// threads wait for it for ever. A lock identifies its holder by an address of the thread. So if
/// the holder has ended, a new thread at the same address counts as the holder, and gets the error
/// that it [would wait for itself](crate::LockError::would_deadlock).
#[must_use = "the lock is given up at once"]
pub struct Guard<'a, T> {
    held: Held<'a, T>,
    parts: &'a Parts<T>,
    /// The thread was panicking already when it took the lock.
    panicking: bool,
}

impl<'a, T> Guard<'a, T> {
    #[inline(always)]
    fn new(data: &'a PerCpu<T>, held: Held<'a, T>) -> Guard<'a, T> {
        Guard { held, parts: &data.parts, panicking: std::thread::panicking() }
    }

    /// The CPU whose part this is.
    pub fn cpu(&self) -> u32 {
        self.parts.cpu_of(&self.held)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicking {
            self.held.set_poisoned(true);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
