//! Locks on per-CPU data: one word for each CPU. In two of three modes, a thread takes the lock of
//! its own CPU without a locked instruction. The protocol and the proof of mutual exclusion are in
//! the README of `uwork-percpu`.
//!
//! `lock.rs` has the word; this file decides how to take it. The platform owns the guarded data and
//! its layout; no user code runs here. `in_progress.rs` has the counter that a drain waits for.

mod in_progress;
mod lock;

use std::ptr::NonNull;

use uwork_policy::percpu::Mode;

pub use in_progress::{InProgress, Side};
pub use lock::{CpuLock, Token};

/// The platform's part of the locks. Any thread may call all methods.
pub trait Sections {
    /// The identity of the calling thread, for as long as it lives. Takes a nanosecond.
    fn token(&self) -> Token;

    /// The CPU that the caller runs on. A hint: stale by the time it is used.
    fn cpu(&self) -> u32;

    /// Takes the current CPU's lock in a section, which runs on one CPU without interruption or
    /// starts again: finds that CPU's lock, checks with acquire that it is free, and stores
    /// `token`. A nanosecond or two.
    ///
    /// Returns `None` if the lock is not free, its CPU is not in the row, or the thread has no
    /// sections.
    ///
    /// # Safety
    /// `place` leads to the locks of a live row.
    unsafe fn claim(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>>;

    /// The same, if finding the thread's section costs nothing; may return `None` if it does, and
    /// always does so in mode 1.
    ///
    /// # Safety
    /// As for [`Sections::claim`].
    unsafe fn claim_fast(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>>;

    /// [`Sections::cpu`] if it costs nothing; else `None`.
    fn cpu_fast(&self) -> Option<u32>;

    /// Whether the calling thread has sections, on a CPU below `len`.
    fn has_sections(&self, len: u32) -> bool;

    /// Restarts the section that a thread runs on `cpu`, if there is one, with a full barrier on
    /// both sides. Takes a microsecond.
    fn restart(&self, cpu: u32);

    /// Waits a little for the holder of a lock, longer from `round` to `round`. A holder with a
    /// lower priority than the caller gets to run.
    fn relax(&self, round: u32);
}

/// The location of a row's locks. Sections load its fields by their offsets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Place {
    /// The lock of CPU 0.
    pub first: NonNull<CpuLock>,
    /// The distance between two locks, in bytes.
    pub stride: usize,
    /// How many there are. Not 0.
    pub len: u32,
}

/// The locks of all CPUs' parts of one object.
pub struct Row<S> {
    place: Place,
    mode: Mode,
    sections: S,
}

// SAFETY: `place` leads to locks, which are atomic.
unsafe impl<S: Send> Send for Row<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Row<S> {}

/// The calling thread already holds the lock that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recursion;

impl<S: Sections> Row<S> {
    /// Makes a row of these locks.
    ///
    /// # Safety
    /// The locks stay in place while the row is used, and are taken through this row only. In mode
    /// 1, `claim_fast` of `sections` returns `None`.
    ///
    /// # Panics
    /// If there are no locks.
    pub unsafe fn new(place: Place, mode: Mode, sections: S) -> Row<S> {
        assert!(place.len > 0, "a machine has CPUs");
        Row { place, mode, sections }
    }

    /// The mode in which the locks are taken.
    #[inline(always)]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How many CPUs have a lock.
    #[inline(always)]
    pub fn cpus(&self) -> u32 {
        self.place.len
    }

    /// The platform.
    #[inline(always)]
    pub fn sections(&self) -> &S {
        &self.sections
    }

    /// The lock of a CPU.
    ///
    /// # Panics
    /// If the CPU has no lock.
    #[inline]
    pub fn at(&self, cpu: u32) -> &CpuLock {
        assert!(cpu < self.place.len, "CPU {cpu} of {}", self.place.len);
        // SAFETY: checked just now.
        unsafe { self.at_unchecked(cpu) }
    }

    /// # Safety
    /// The CPU has a lock.
    #[inline(always)]
    unsafe fn at_unchecked(&self, cpu: u32) -> &CpuLock {
        // SAFETY: a lock of the row, by this function's contract and the promise of `new`.
        unsafe { self.place.first.byte_add(self.place.stride * cpu as usize).as_ref() }
    }

    /// The CPU of a lock.
    #[inline]
    pub fn cpu_of(&self, lock: NonNull<CpuLock>) -> u32 {
        let offset = lock.addr().get() - self.place.first.addr().get();
        (offset / self.place.stride) as u32
    }

    /// The CPU whose part a thread on the current CPU uses. CPUs that did not exist when the row
    /// was made share the parts of others.
    fn here(&self) -> u32 {
        let cpu = self.sections.cpu();
        if cpu < self.place.len { cpu } else { cpu % self.place.len }
    }

    /// Takes the lock of the CPU that the caller is on, if it is free.
    #[inline(always)]
    pub fn try_here(&self) -> Option<NonNull<CpuLock>> {
        let lock = self.try_here_quickly();
        if lock.is_some() { lock } else { self.try_here_slowly() }
    }

    /// Takes the lock of the CPU that the caller is on, as soon as it is free.
    ///
    /// # Errors
    /// If the caller holds it.
    #[inline(always)]
    pub fn lock_here(&self) -> Result<NonNull<CpuLock>, Recursion> {
        match self.try_here_quickly() {
            Some(lock) => Ok(lock),
            None => self.wait_here(),
        }
    }

    /// The part that is worth inlining into every caller. May return `None` although the lock is
    /// free.
    #[inline(always)]
    fn try_here_quickly(&self) -> Option<NonNull<CpuLock>> {
        let token = self.sections.token();
        // The cheapest way first; in the mode without sections it does nothing.
        // SAFETY: the row lives, by the promise of `new`.
        let claimed = unsafe { self.sections.claim_fast(&self.place, token) };
        if claimed.is_some() || self.mode != Mode::Remote {
            return claimed;
        }
        let cpu = self.sections.cpu_fast().filter(|&cpu| cpu < self.place.len)?;
        // SAFETY: checked just now.
        let lock = unsafe { self.at_unchecked(cpu) };
        lock.try_exchange(token).then(|| NonNull::from(lock))
    }

    #[cold]
    fn try_here_slowly(&self) -> Option<NonNull<CpuLock>> {
        let token = self.sections.token();
        if self.mode != Mode::Remote {
            // SAFETY: the row lives, by the promise of `new`.
            let claimed = unsafe { self.sections.claim(&self.place, token) };
            if claimed.is_some() || self.sections.has_sections(self.place.len) {
                return claimed;
            }
        }
        // A thread without sections takes its own CPU's lock as it takes another CPU's.
        let cpu = self.here();
        self.try_at(cpu, token).then(|| NonNull::from(self.at(cpu)))
    }

    #[cold]
    fn wait_here(&self) -> Result<NonNull<CpuLock>, Recursion> {
        let token = self.sections.token();
        for round in 0.. {
            if let Some(lock) = self.try_here_slowly() {
                return Ok(lock);
            }
            // Check the CPU that the caller is on by now.
            if self.at(self.here()).is_held_by(token) {
                return Err(Recursion);
            }
            self.sections.relax(round);
        }
        unreachable!("the rounds do not end")
    }

    /// Takes the lock of `cpu` for the thread `token` if it is free, from any CPU. In the modes
    /// with sections it takes the lock by force, unless the caller is on that CPU.
    pub fn try_at(&self, cpu: u32, token: Token) -> bool {
        match self.mode {
            Mode::Remote => self.at(cpu).try_exchange(token),
            Mode::Local | Mode::Asymmetric => {
                self.try_in_section(cpu, token) || self.force(cpu, token)
            }
        }
    }

    /// As [`Row::try_at`]. Returns whether it was free.
    ///
    /// # Errors
    /// `token` holds it, or `asker`, the thread that waits for the caller.
    pub fn try_for(&self, cpu: u32, token: Token, asker: Token) -> Result<bool, Recursion> {
        let lock = self.at(cpu);
        if self.try_at(cpu, token) {
            Ok(true)
        } else if lock.is_held_by(token) || lock.is_held_by(asker) {
            Err(Recursion)
        } else {
            Ok(false)
        }
    }

    /// As [`Row::try_for`], but waits until the lock is free.
    ///
    /// # Errors
    /// `token` or `asker` holds it.
    pub fn lock_at(&self, cpu: u32, token: Token, asker: Token) -> Result<(), Recursion> {
        let mut round = 0;
        while !self.try_for(cpu, token, asker)? {
            self.sections.relax(round);
            round = round.saturating_add(1);
        }
        Ok(())
    }

    /// Waits until the lock of `cpu` is observed free.
    pub fn wait_for(&self, cpu: u32) {
        let mut round = 0;
        while self.at(cpu).is_held() {
            self.sections.relax(round);
            round = round.saturating_add(1);
        }
    }

    /// Takes the lock of `cpu` in a section, if the caller is on that CPU and the lock is free.
    fn try_in_section(&self, cpu: u32, token: Token) -> bool {
        if self.sections.cpu() != cpu {
            return false;
        }
        // SAFETY: the row lives, by the promise of `new`.
        let Some(lock) = (unsafe { self.sections.claim(&self.place, token) }) else { return false };
        if self.cpu_of(lock) == cpu {
            return true;
        }
        // The thread moved in between and has taken another CPU's lock.
        // SAFETY: taken just now.
        unsafe { lock.as_ref().release() };
        false
    }

    fn force(&self, cpu: u32, token: Token) -> bool {
        self.at(cpu).try_force(token, || self.sections.restart(cpu))
    }
}
