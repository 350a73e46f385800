//! A lock for each CPU, wherever they lie: what everything here is built on. What they guard is their user's.

use std::ptr::NonNull;

use uwork_engine::QueueError;
use uwork_engine::percpu::{CpuLock, Place, Recursion, Row, Sections, Token};
use uwork_policy::percpu::Mode;

use super::mode::chosen;
use crate::error::Error;
use crate::linux::engine;
use crate::linux::rseq::Rseq;

/// See the module. How other CPUs' locks are reached is in `remote`.
pub struct Locks {
    row: Row<Rseq>,
}

impl Locks {
    /// Locks that are there, taken in the process's mode, which is chosen by this if nothing has before.
    ///
    /// # Safety
    /// The locks stay where they are while this is used, and are taken in that mode only.
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
        // SAFETY: by this function's contract; without sections nothing is claimed quickly.
        Locks { row: unsafe { Row::new(place, mode, rseq) } }
    }

    /// How many CPUs have a lock where the machine's possible ones have.
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

    /// How many there are.
    #[inline(always)]
    pub fn cpus(&self) -> u32 {
        self.row.cpus()
    }

    /// An error if there is no such CPU.
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

    /// The same, as soon as it is free.
    ///
    /// # Errors
    /// The caller holds it; in debug builds, any of these.
    #[inline(always)]
    pub fn lock_here(&self) -> Result<NonNull<CpuLock>, Recursion> {
        // What happens else depends on whether the thread was moved.
        if cfg!(debug_assertions) && self.is_any_held() {
            return Err(Recursion);
        }
        self.row.lock_here()
    }

    /// Takes a CPU's lock from where the caller is, whatever the mode says about that; not if `asker` holds
    /// it, who waits for the caller.
    pub(super) fn lock_from_here(&self, cpu: u32, asker: Token) -> Result<(), Recursion> {
        self.row.lock_at(cpu, self.token(), asker)
    }

    /// The same if it is free. Whether it was.
    pub(super) fn try_from_here(&self, cpu: u32, asker: Token) -> Result<bool, Recursion> {
        self.row.try_for(cpu, self.token(), asker)
    }

    /// Gives up the lock of a CPU.
    ///
    /// # Safety
    /// The caller holds it. There is such a CPU.
    pub unsafe fn release(&self, cpu: u32) {
        // SAFETY: by this function's contract.
        unsafe { self.row.at(cpu).release() };
    }

    /// Gives up a lock, if the calling thread holds it. Whether it did.
    ///
    /// # Safety
    /// It is one of these.
    #[inline(always)]
    pub unsafe fn release_own(&self, lock: NonNull<CpuLock>) -> bool {
        // SAFETY: by this function's contract.
        let lock = unsafe { lock.as_ref() };
        let is_held = lock.is_held_by(self.token());
        if is_held {
            // SAFETY: just seen.
            unsafe { lock.release() };
        }
        is_held
    }

    /// Whether the calling thread holds the lock of a CPU.
    pub fn is_held_on(&self, cpu: u32) -> bool {
        self.row.at(cpu).is_held_by(self.token())
    }

    /// Whether the calling thread holds a lock of these: as many looks as there are CPUs.
    pub fn is_any_held(&self) -> bool {
        (0..self.cpus()).any(|cpu| self.is_held_on(cpu))
    }

    /// Who the calling thread is.
    #[inline(always)]
    pub fn token(&self) -> Token {
        self.row.sections().token()
    }
}
