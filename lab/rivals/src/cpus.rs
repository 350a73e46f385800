//! The CPUs that this process may use, and the CPU of the calling thread.

use std::mem;
use std::sync::atomic::{AtomicIsize, Ordering};

/// CPU ids in this process's affinity mask, in ascending order. Never empty.
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: all-zero bytes are a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: pid 0 is the caller, and the size is that of the set the pointer leads to.
    let failed = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) } != 0;
    // SAFETY: every id is below CPU_SETSIZE.
    let cpus = (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    if failed { vec![0] } else { cpus.collect() }
}

/// Pins the calling thread to `cpu`. Best effort: without it the figures are noisier, but valid.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: all-zero bytes are a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: ids come from `allowed`, so they are below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: pid 0 is the caller, and the size is that of the set the pointer leads to.
    unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
}

/// One slot per allowed CPU, or a single one for all.
pub(crate) struct Slots {
    /// The CPU of each slot; `None` in a single slot for all.
    pub(crate) cpus: Vec<Option<usize>>,
    /// Slot by CPU id. Empty when there is only one slot.
    by_cpu: Vec<usize>,
}

impl Slots {
    pub(crate) fn one() -> Self {
        Self { cpus: vec![None], by_cpu: Vec::new() }
    }

    pub(crate) fn per_cpu() -> Self {
        let cpus = allowed();
        let mut by_cpu = vec![0; cpus.last().map_or(0, |last| last + 1)];
        for (slot, cpu) in cpus.iter().enumerate() {
            by_cpu[*cpu] = slot;
        }
        Self { cpus: cpus.into_iter().map(Some).collect(), by_cpu }
    }

    /// The slot of the CPU the caller runs on. With several slots the C library reads the id from
    /// the rseq area: no system call.
    #[inline]
    pub(crate) fn here(&self) -> usize {
        if self.by_cpu.is_empty() {
            return 0;
        }
        // SAFETY: the call has no preconditions.
        let cpu = unsafe { libc::sched_getcpu() };
        usize::try_from(cpu).ok().and_then(|cpu| self.by_cpu.get(cpu)).copied().unwrap_or(0)
    }
}

/// The CPU that the caller runs on, read from the thread's rseq area, which the kernel updates.
/// Falls back to the C library.
#[inline(always)]
pub(crate) fn current() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let offset = RSEQ_OFFSET.load(Ordering::Relaxed);
        if offset != 0 {
            let cpu: u32;
            // SAFETY: at this offset every thread has an area that the C library has registered;
            // the CPU is its second field.
            unsafe {
                std::arch::asm!(
                    "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
                    offset = in(reg) offset,
                    cpu = out(reg) cpu,
                    options(nostack, preserves_flags, readonly)
                );
            }
            return cpu as usize;
        }
    }
    ask()
}

/// The offset from the thread pointer to the C library's rseq area; 0 if there is none, or before
/// the first call.
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);

#[cold]
fn ask() -> usize {
    // SAFETY: looks symbols up by name; glibc has both or neither.
    let (offset, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()),
        )
    };
    // SAFETY: constants of glibc: an unsigned int and a ptrdiff_t.
    if !offset.is_null() && !size.is_null() && unsafe { *size.cast::<u32>() } != 0 {
        // SAFETY: as above.
        RSEQ_OFFSET.store(unsafe { *offset.cast::<isize>() }, Ordering::Relaxed);
    }
    // SAFETY: the call has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}
