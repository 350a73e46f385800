//! Restartable sequences, `rseq(2)`: a few instructions that either run on one CPU without
//! interruption, or restart. The README of `uwork-percpu` describes their use.
//!
//! The kernel has one registered area for each thread. There it writes the current CPU, and the
//! thread stores the section that it is in. glibc has registered an area for every thread since
//! 2.35; where it does not, `own.rs` does. The sections themselves are assembly, in a file for each
//! architecture.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "absent.rs")]
mod arch;
mod own;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, Ordering};

use uwork_engine::percpu::{CpuLock, Place, Sections, Token};

use super::membarrier;

/// `struct rseq` of linux/rseq.h, as far as it is used here. Its first field is `cpu_id_start`.
mod field {
    /// The CPU, or a negative number if the thread is not registered.
    pub(super) const CPU_ID: usize = 4;
    /// The section that the thread is in, or was in last: the kernel compares the instruction
    /// pointer to decide.
    pub(super) const RSEQ_CS: usize = 8;
}

/// The address at which the kernel keeps this thread's CPU up to date, if glibc has registered an
/// area.
pub(super) fn cpu_id() -> Option<*const u32> {
    let offset = glibc_offset()?;
    Some(arch::thread_pointer().wrapping_offset(offset).wrapping_add(field::CPU_ID).cast())
}

/// The library that has registered the area in which the calling thread finds its CPU: `glibc`, or
/// `none`. Without an area each submission asks the system for the CPU, and a thread that uses
/// per-CPU data registers one of its own.
pub fn registered_by() -> &'static str {
    // SAFETY: the calling thread's area, which the kernel writes only while the thread does not run.
    // Negative if glibc's registration has failed.
    let is_registered = cpu_id().is_some_and(|place| unsafe { place.read_volatile() } as i32 >= 0);
    if is_registered { "glibc" } else { "none" }
}

/// The offset from the thread pointer to the area that glibc registers, if it does so.
///
/// Looked up once, as the library is loaded. The lookup takes a lock of the dynamic linker's, which
/// `dlopen` holds while the constructors of a library run: a worker that took it would wait for a
/// constructor that waits for the worker's item.
fn glibc_offset() -> Option<isize> {
    /// Neither is a real offset, as areas are aligned.
    const UNKNOWN: isize = 1;
    const NONE: isize = 2;
    // Not a `OnceLock`: a fork could find it half initialized. Threads that look at once find the same.
    static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
    let known = OFFSET.load(Ordering::Relaxed);
    if known == UNKNOWN {
        let found = look_up_offset();
        OFFSET.store(found.unwrap_or(NONE), Ordering::Relaxed);
        return found;
    }
    (known != NONE).then_some(known)
}

/// As [`glibc_offset`], by name.
///
/// In a statically linked program the symbols are not found. A weak reference would find them
/// there. But the linker binds such a reference to glibc 2.35, which a shared library that uses
/// thread-local memory would then require for ever.
fn look_up_offset() -> Option<isize> {
    if !arch::HAS_SECTIONS {
        return None;
    }
    // SAFETY: looks symbols up by name; glibc has both or neither (since 2.35).
    let (offset, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()),
        )
    };
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: constants of glibc: a ptrdiff_t and an unsigned int. A size of 0 means that there is
    // no registration.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    (size != 0).then_some(offset)
}

/// The restartable sections of this process.
#[derive(Clone, Copy, Debug)]
pub struct Rseq {
    /// The offset of the thread's area from its thread pointer; 0 if each thread registers its own,
    /// as an area never begins at the pointer.
    offset: isize,
    /// The same, for the fast path: 0 to use no sections, [`OWN`] if each thread registers its own
    /// area.
    section_offset: isize,
}

/// Never a real offset, as areas are aligned.
const OWN: isize = 1;

impl Rseq {
    /// The sections of this system, or the reason for which it has none. Threads have a token in
    /// both cases.
    pub fn new() -> (Rseq, Result<(), String>) {
        let offset = glibc_offset().unwrap_or(0);
        let rseq = Rseq { offset, section_offset: if offset == 0 { OWN } else { offset } };
        (rseq, rseq.check())
    }

    /// For locks that are never taken by a section.
    pub fn without_sections(self) -> Rseq {
        Rseq { section_offset: 0, ..self }
    }

    fn check(self) -> Result<(), String> {
        if !arch::HAS_SECTIONS {
            return Err("uwork has no sections for this architecture".to_owned());
        }
        if !membarrier::register_restart() {
            return Err("membarrier(2) has no RSEQ command: Linux 5.10 is needed".to_owned());
        }
        // Accepts any CPU: checks only that this thread is registered.
        if !self.has_sections(u32::MAX) {
            return Err("rseq(2) is missing or refused, and no registration of glibc's was found: it has none, or the \
                        program is linked statically"
                .to_owned());
        }
        Ok(())
    }

    /// Unregisters the calling thread's area, for tests of threads without sections.
    ///
    /// # Panics
    /// If no area is registered.
    #[doc(hidden)]
    pub fn unregister_this_thread(self) {
        const LENGTHS: [u32; 2] = [32, 64];
        let unregister = |length: u32| {
            // SAFETY: the area that was registered; the kernel refuses any length except the
            // registered one.
            unsafe { libc::syscall(libc::SYS_rseq, self.area(), length, 1, arch::SIGNATURE) == 0 }
        };
        assert!(LENGTHS.into_iter().any(unregister), "{}", std::io::Error::last_os_error());
        assert!(!self.has_sections(u32::MAX));
    }

    /// Claims with the area that the thread has registered itself.
    ///
    /// # Safety
    /// As for [`Sections::claim`].
    #[cold]
    unsafe fn claim_in_own_area(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>> {
        let area = own::registered();
        if area.is_null() {
            return None;
        }
        let offset = area.addr().wrapping_sub(arch::thread_pointer().addr()) as isize;
        // SAFETY: the area of the calling thread, and a live row, by this function's contract.
        NonNull::new(unsafe { arch::claim(offset, place, token.value()) })
    }

    /// The calling thread's area; null if it has none.
    #[inline(always)]
    fn area(&self) -> *mut u8 {
        if self.offset != 0 {
            arch::thread_pointer().wrapping_offset(self.offset)
        } else {
            own::area()
        }
    }
}

impl Sections for Rseq {
    #[inline(always)]
    fn token(&self) -> Token {
        Token::new(arch::thread_pointer().addr() as u64)
    }

    #[inline]
    fn cpu(&self) -> u32 {
        if self.offset == 0 {
            // Registers the area, through which the CPU is known from now on.
            own::area();
        }
        super::cpu::current()
    }

    unsafe fn claim(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>> {
        let area = self.area();
        if area.is_null() {
            return None;
        }
        let offset = area.addr().wrapping_sub(arch::thread_pointer().addr()) as isize;
        // SAFETY: the area of the calling thread, and a live row, by this function's contract.
        NonNull::new(unsafe { arch::claim(offset, place, token.value()) })
    }

    #[inline(always)]
    unsafe fn claim_fast(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>> {
        // One comparison covers both special cases, so that the common case, an area of glibc's,
        // pays for one; without sections no call is made.
        if self.section_offset as usize <= OWN as usize {
            if self.section_offset != OWN {
                return None;
            }
            // SAFETY: by this function's contract.
            return unsafe { self.claim_in_own_area(place, token) };
        }
        // SAFETY: the area of every thread, and a live row, by this function's contract.
        NonNull::new(unsafe { arch::claim(self.section_offset, place, token.value()) })
    }

    #[inline(always)]
    fn cpu_fast(&self) -> Option<u32> {
        let area = if self.offset == 0 {
            own::registered()
        } else {
            arch::thread_pointer().wrapping_offset(self.offset)
        };
        if area.is_null() {
            return None;
        }
        // SAFETY: the area of the calling thread, which the kernel writes while the thread does not
        // run.
        Some(unsafe { area.add(field::CPU_ID).cast::<u32>().read_volatile() })
    }

    fn has_sections(&self, len: u32) -> bool {
        let area = self.area();
        if area.is_null() {
            return false;
        }
        // SAFETY: the area of the calling thread, which the kernel writes while the thread does not
        // run. Negative if glibc's registration has failed.
        let cpu = unsafe { area.add(field::CPU_ID).cast::<u32>().read_volatile() };
        cpu < len && cpu as i32 >= 0
    }

    fn restart(&self, cpu: u32) {
        membarrier::restart(cpu);
    }

    fn relax(&self, round: u32) {
        super::relax(round);
    }
}
