//! A lock for each CPU, at any address: the basis of this module. Their user decides what they
//! guard.

use std::ptr::NonNull;

use uwork_engine::QueueError;
use uwork_engine::percpu::{CpuLock, Place, Recursion, Row, Sections, Token};
use uwork_linux::rseq::Rseq;
use uwork_linux::{Error, engine};
use uwork_policy::percpu::Mode;

use super::mode::chosen;

/// See the module. `remote` takes other CPUs' locks.
pub struct Locks {
    row: Row<Rseq>,
}

impl Locks {
    /// Existing locks, used in the process's mode; the first call chooses that mode.
    ///
    /// # Safety
    /// The locks stay in place while this value is used, and are taken in that mode only.
    #[inline]
    pub unsafe fn new(place: Place) -> Locks {
        // SAFETY: by this function's contract.
        unsafe { Locks::in_mode(chosen().choice.mode, place) }
    }

    /// # Safety
    /// As for [`Locks::new`], in this mode.
    #[inline]
    pub(super) unsafe fn in_mode(mode: Mode, place: Place) -> Locks {
        let rseq = chosen().rseq;
        let rseq = if mode.needs_sections() { rseq } else { rseq.without_sections() };
        // SAFETY: by this function's contract; without restartable sections no lock is taken by the
        // fast path.
        Locks { row: unsafe { Row::new(place, mode, rseq) } }
    }

    /// The number of locks needed for the machine's possible CPUs.
    pub fn count() -> u32 {
        engine().config().topology.possible().last().map_or(1, |last| last + 1)
    }

    #[inline(always)]
    pub(super) fn row(&self) -> &Row<Rseq> {
        &self.row
    }

    #[inline(always)]
    pub(super) fn mode(&self) -> Mode {
        self.row.mode()
    }

    /// The number of CPUs that have a lock.
    #[inline(always)]
    pub fn cpus(&self) -> u32 {
        self.row.cpus()
    }

    /// An error if the CPU does not exist.
    pub(super) fn check(&self, cpu: u32) -> Result<(), Error> {
        if cpu < self.cpus() {
            return Ok(());
        }
        let there = engine().config().topology.possible().clone();
        Err(QueueError::NoPart { cpu, there }.into())
    }

    /// The CPU whose lock this is.
    #[inline]
    pub fn cpu_of(&self, lock: NonNull<CpuLock>) -> u32 {
        self.row.cpu_of(lock)
    }

    /// Takes the lock of the CPU that the caller is on, if it is free.
    #[inline(always)]
    pub fn try_here(&self) -> Option<NonNull<CpuLock>> {
        self.row.try_here()
    }

    /// As [`Locks::try_here`], but waits until it is free.
    ///
    /// # Errors
    /// The caller holds it; in debug builds, the caller holds any of these locks.
    #[inline(always)]
    pub fn lock_here(&self) -> Result<NonNull<CpuLock>, Recursion> {
        // Without this check the outcome would depend on whether the thread was moved.
        if cfg!(debug_assertions) && self.is_any_held() {
            return Err(Recursion);
        }
        self.row.lock_here()
    }

    /// Takes a CPU's lock from the caller's CPU, in any mode. Refused if `asker`, which waits for
    /// the caller, holds it.
    pub(super) fn lock_from_here(&self, cpu: u32, asker: Token) -> Result<(), Recursion> {
        self.row.lock_at(cpu, self.token(), asker)
    }

    /// As [`Locks::lock_from_here`], but only if it is free. Returns whether it was.
    pub(super) fn try_from_here(&self, cpu: u32, asker: Token) -> Result<bool, Recursion> {
        self.row.try_for(cpu, self.token(), asker)
    }

    /// Releases the lock of a CPU.
    ///
    /// # Safety
    /// The caller holds it. The CPU exists.
    pub unsafe fn release(&self, cpu: u32) {
        // SAFETY: by this function's contract.
        unsafe { self.row.at(cpu).release() };
    }

    /// Releases a lock, if the calling thread holds it. Returns whether it did.
    ///
    /// # Safety
    /// It is one of these locks.
    #[inline(always)]
    pub unsafe fn release_own(&self, lock: NonNull<CpuLock>) -> bool {
        // SAFETY: by this function's contract.
        let lock = unsafe { lock.as_ref() };
        let is_held = lock.is_held_by(self.token());
        if is_held {
            // SAFETY: the caller holds it, as checked above.
            unsafe { lock.release() };
        }
        is_held
    }

    /// Whether the calling thread holds the lock of a CPU.
    pub fn is_held_on(&self, cpu: u32) -> bool {
        self.row.at(cpu).is_held_by(self.token())
    }

    /// Whether the calling thread holds a lock of these: checks the lock of every CPU.
    pub fn is_any_held(&self) -> bool {
        (0..self.cpus()).any(|cpu| self.is_held_on(cpu))
    }

    /// The calling thread's identity.
    #[inline(always)]
    pub fn token(&self) -> Token {
        self.row.sections().token()
    }
}
