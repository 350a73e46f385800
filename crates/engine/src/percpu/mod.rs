//! Locks on per-CPU data: one word for each CPU, taken without a locked instruction on its own CPU in
//! two of three modes. The protocol and why it excludes are in `docs/percpu.md`.
//!
//! `lock.rs` is the word, this file is who takes it when. What is guarded, and where it lies, is the
//! platform's; nothing here runs a user's code. `underway.rs` is what a drain waits by.

mod lock;
mod underway;

use std::ptr::NonNull;

use uwork_policy::percpu::Mode;

pub use lock::{CpuLock, Token};
pub use underway::{Side, Underway};

/// What the locks need from the platform. All methods may be called from any thread.
pub trait Sections {
    /// Who the calling thread is, for as long as it lives. A nanosecond.
    fn token(&self) -> Token;

    /// The CPU that the caller runs on. A hint, stale by the time it is used.
    fn cpu(&self) -> u32;

    /// In a section, which runs on one CPU without interruption or from its start again: finds that
    /// CPU's lock, looks with acquire whether it is free, and stores `token`. A nanosecond or two.
    ///
    /// Nothing if it is not free, its CPU is not in the row, or the thread has no sections.
    ///
    /// # Safety
    /// `place` leads to the locks of a row that lives.
    unsafe fn claim(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>>;

    /// The same where it costs nothing to find the thread's section; may give nothing where not, and does
    /// so in mode 1.
    ///
    /// # Safety
    /// As for [`Sections::claim`].
    unsafe fn claim_quickly(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>>;

    /// [`Sections::cpu`] where it costs nothing; nothing where it does.
    fn cpu_quickly(&self) -> Option<u32>;

    /// Whether the calling thread has sections, on a CPU below `len`.
    fn has_sections(&self, len: u32) -> bool;

    /// Restarts the section that a thread is in on `cpu`, if there is one, with a full barrier on both
    /// sides. A microsecond.
    fn restart(&self, cpu: u32);

    /// Waits a little for the holder of a lock, longer from `round` to `round`, such that a holder which
    /// the caller outranks gets to run.
    fn relax(&self, round: u32);
}

/// Where the locks of a row lie. Sections load its fields by their offsets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Place {
    /// That of CPU 0.
    pub first: NonNull<CpuLock>,
    /// From one to the next, in bytes.
    pub stride: usize,
    /// How many there are. Not 0.
    pub len: u32,
}

/// The locks of all CPUs' parts of something.
pub struct Row<S> {
    place: Place,
    mode: Mode,
    sections: S,
}

// SAFETY: `place` leads to locks, which are atomic.
unsafe impl<S: Send> Send for Row<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Row<S> {}

/// The calling thread holds the lock that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recursion;

impl<S: Sections> Row<S> {
    /// # Safety
    /// The locks stay where they are while the row is used, and are taken through this row only. In mode 1,
    /// `sections` claims nothing quickly.
    ///
    /// # Panics
    /// Without locks.
    pub unsafe fn new(place: Place, mode: Mode, sections: S) -> Row<S> {
        assert!(place.len > 0, "a machine has CPUs");
        Row { place, mode, sections }
    }

    /// How the locks are taken.
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
    /// There is none for it.
    #[inline]
    pub fn at(&self, cpu: u32) -> &CpuLock {
        assert!(cpu < self.place.len, "CPU {cpu} of {}", self.place.len);
        // SAFETY: looked just now.
        unsafe { self.at_unchecked(cpu) }
    }

    /// # Safety
    /// There is one for this CPU.
    #[inline(always)]
    unsafe fn at_unchecked(&self, cpu: u32) -> &CpuLock {
        // SAFETY: of the row, by this function's contract and the promise of `new`.
        unsafe { self.place.first.byte_add(self.place.stride * cpu as usize).as_ref() }
    }

    /// Whose lock this is.
    #[inline]
    pub fn cpu_of(&self, lock: NonNull<CpuLock>) -> u32 {
        let offset = lock.addr().get() - self.place.first.addr().get();
        (offset / self.place.stride) as u32
    }

    /// The CPU whose part a thread uses that runs on the CPU it runs on. CPUs that were not there when the
    /// row was made share the parts of others.
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
    /// The caller holds it.
    #[inline(always)]
    pub fn lock_here(&self) -> Result<NonNull<CpuLock>, Recursion> {
        match self.try_here_quickly() {
            Some(lock) => Ok(lock),
            None => self.wait_here(),
        }
    }

    /// What is worth to stand in every caller's code. May give nothing although the lock is free.
    #[inline(always)]
    fn try_here_quickly(&self) -> Option<NonNull<CpuLock>> {
        let token = self.sections.token();
        // First what is cheapest, which is nothing in the mode without sections.
        // SAFETY: the row lives, by the promise of `new`.
        let claimed = unsafe { self.sections.claim_quickly(&self.place, token) };
        if claimed.is_some() || self.mode != Mode::Remote {
            return claimed;
        }
        let cpu = self.sections.cpu_quickly().filter(|&cpu| cpu < self.place.len)?;
        // SAFETY: looked just now.
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
        // A thread without sections takes its CPU's lock as it does another CPU's.
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
            // Of the CPU that we are on by now.
            if self.at(self.here()).is_held_by(token) {
                return Err(Recursion);
            }
            self.sections.relax(round);
        }
        unreachable!("the rounds do not end")
    }

    /// Takes the lock of `cpu` for the thread `token` if it is free, from where the caller is. In the modes with
    /// sections that is by force, unless the caller is on that CPU.
    pub fn try_at(&self, cpu: u32, token: Token) -> bool {
        match self.mode {
            Mode::Remote => self.at(cpu).try_exchange(token),
            Mode::Local | Mode::Asymmetric => {
                self.try_in_section(cpu, token) || self.force(cpu, token)
            }
        }
    }

    /// The same; whether it was free.
    ///
    /// # Errors
    /// `token` has it, or `asker`, who waits for the caller.
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

    /// The same, as soon as it is free.
    ///
    /// # Errors
    /// One of the two holds it.
    pub fn lock_at(&self, cpu: u32, token: Token, asker: Token) -> Result<(), Recursion> {
        let mut round = 0;
        while !self.try_for(cpu, token, asker)? {
            self.sections.relax(round);
            round = round.saturating_add(1);
        }
        Ok(())
    }

    /// Waits until the lock of `cpu` looks free.
    pub fn wait_for(&self, cpu: u32) {
        let mut round = 0;
        while self.at(cpu).is_held() {
            self.sections.relax(round);
            round = round.saturating_add(1);
        }
    }

    /// Takes the lock of `cpu` in a section, if the caller is there and it is free.
    fn try_in_section(&self, cpu: u32, token: Token) -> bool {
        if self.sections.cpu() != cpu {
            return false;
        }
        // SAFETY: the row lives, by the promise of `new`.
        let Some(lock) = (unsafe { self.sections.claim(&self.place, token) }) else { return false };
        if self.cpu_of(lock) == cpu {
            return true;
        }
        // We were moved in between: what we have is another one's.
        // SAFETY: taken just now.
        unsafe { lock.as_ref().release() };
        false
    }

    fn force(&self, cpu: u32, token: Token) -> bool {
        self.at(cpu).try_force(token, || self.sections.restart(cpu))
    }
}
