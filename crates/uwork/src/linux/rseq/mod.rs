//! Restartable sequences, `rseq(2)`: a few instructions that run on one CPU without interruption, or from
//! their start again. What they are used for is in `docs/percpu.md`.
//!
//! The kernel knows one area of each thread: where it writes the CPU, and where the thread says which section
//! it is in. glibc registers one for every thread since 2.35; where it has not, [`own`] does. The
//! sections themselves are assembly, in a file for each architecture.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "absent.rs")]
mod arch;
mod own;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use uwork_engine::percpu::{CpuLock, Place, Sections, Token};

use super::membarrier;

/// `struct rseq` of linux/rseq.h, as far as it is used here. Its first field is `cpu_id_start`.
mod field {
    /// The CPU, or a negative number where the thread is not registered.
    pub(super) const CPU_ID: usize = 4;
    /// The section that the thread is in, or was in last: the kernel finds out.
    pub(super) const RSEQ_CS: usize = 8;
}

/// Where the kernel keeps the CPU of this thread up to date, if glibc has registered an area.
pub(super) fn cpu_id() -> Option<*const u32> {
    let offset = glibc_offset()?;
    Some(arch::thread_pointer().wrapping_offset(offset).wrapping_add(field::CPU_ID).cast())
}

/// From the thread pointer to the area that glibc registers, if it does so.
///
/// Not found in a program that is linked statically. A weak reference would find it there, but gives a shared
/// library that uses thread-local memory a need of glibc 2.35 for all time, as the linker binds it to that version.
fn glibc_offset() -> Option<isize> {
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

/// The sections of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rseq {
    /// Of the thread's area from its pointer; 0 where each thread registers its own, as an area never
    /// begins at the pointer.
    offset: isize,
    /// The same, for sections that are to be quick: 0 where there are to be none, [`OWN`] where each thread
    /// registers its own area.
    section_offset: isize,
}

/// No offset: areas are aligned.
const OWN: isize = 1;

impl Rseq {
    /// What can be had here: sections, or why there are none. Threads have a token either way.
    pub(crate) fn new() -> (Rseq, Result<(), String>) {
        let offset = glibc_offset().unwrap_or(0);
        let rseq = Rseq { offset, section_offset: if offset == 0 { OWN } else { offset } };
        (rseq, rseq.check())
    }

    /// For locks that no section takes.
    pub(crate) fn without_sections(self) -> Rseq {
        Rseq { section_offset: 0, ..self }
    }

    fn check(self) -> Result<(), String> {
        if !arch::HAS_SECTIONS {
            return Err("uwork has no sections for this architecture".to_owned());
        }
        if !membarrier::register_restart() {
            return Err("membarrier(2) has no RSEQ command: Linux 5.10 is needed".to_owned());
        }
        // Any CPU will do: whether this thread is registered.
        if !self.has_sections(u32::MAX) {
            return Err("rseq(2) is missing or refused, and no registration of glibc's was found: it has none, or the \
                        program is linked statically"
                .to_owned());
        }
        Ok(())
    }

    /// Takes the calling thread's area from the kernel.
    #[cfg(test)]
    pub(crate) fn unregister_this_thread(self) {
        const LENGTHS: [u32; 2] = [32, 64];
        let unregister = |length: u32| {
            // SAFETY: the area that was registered; the kernel refuses any other length than it was told.
            unsafe { libc::syscall(libc::SYS_rseq, self.area(), length, 1, arch::SIGNATURE) == 0 }
        };
        assert!(LENGTHS.into_iter().any(unregister), "{}", std::io::Error::last_os_error());
        assert!(!self.has_sections(u32::MAX));
    }

    /// In the area that the thread has registered itself.
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
        // SAFETY: the area of the calling thread, and a row that lives, by this function's contract.
        NonNull::new(unsafe { arch::claim(offset, place, token.value()) })
    }

    /// The calling thread's area; null where it has none.
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
            // Registers it, which tells the CPU from then on.
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
        // SAFETY: the area of the calling thread, and a row that lives, by this function's contract.
        NonNull::new(unsafe { arch::claim(offset, place, token.value()) })
    }

    #[inline(always)]
    unsafe fn claim_quickly(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>> {
        // One comparison for the two where glibc has an area, and no call where there are to be no sections.
        if self.section_offset as usize <= OWN as usize {
            if self.section_offset != OWN {
                return None;
            }
            // SAFETY: by this function's contract.
            return unsafe { self.claim_in_own_area(place, token) };
        }
        // SAFETY: the area of every thread, and a row that lives, by this function's contract.
        NonNull::new(unsafe { arch::claim(self.section_offset, place, token.value()) })
    }

    #[inline(always)]
    fn cpu_quickly(&self) -> Option<u32> {
        let area = if self.offset == 0 {
            own::registered()
        } else {
            arch::thread_pointer().wrapping_offset(self.offset)
        };
        if area.is_null() {
            return None;
        }
        // SAFETY: the area of the calling thread, which the kernel writes while the thread does not run.
        Some(unsafe { area.add(field::CPU_ID).cast::<u32>().read_volatile() })
    }

    fn has_sections(&self, len: u32) -> bool {
        let area = self.area();
        if area.is_null() {
            return false;
        }
        // SAFETY: the area of the calling thread, which the kernel writes while the thread does not run.
        // Negative where glibc's registration has failed.
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
