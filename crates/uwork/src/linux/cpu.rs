//! The current CPU, from the thread's rseq area where glibc has registered one: one load, no system
//! call.

use std::cell::Cell;

thread_local! {
    /// Where the kernel keeps this thread's CPU id; null until looked up.
    static CPU_ID: Cell<*const u32> = const { Cell::new(std::ptr::null()) };
}

/// For threads without rseq: never a CPU, so that the system is asked.
static NO_RSEQ: u32 = u32::MAX;

/// The CPU that the caller runs on.
#[inline]
pub(super) fn current() -> u32 {
    let place = CPU_ID.with(Cell::get);
    if !place.is_null() {
        // SAFETY: null, or this thread's rseq area, or a static. The kernel writes the area of a
        // thread only while that thread does not run.
        let cpu = unsafe { place.read_volatile() };
        // Uninitialised areas hold negative numbers.
        if cpu as i32 >= 0 {
            return cpu;
        }
    }
    ask()
}

#[cold]
fn ask() -> u32 {
    CPU_ID.with(|place| {
        if place.get().is_null() {
            place.set(rseq_cpu_id().unwrap_or(&raw const NO_RSEQ));
        }
    });
    // SAFETY: no arguments; fails only on kernels without the call.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(0)
}

/// The address of `cpu_id` in the calling thread's rseq area, if glibc registered one.
fn rseq_cpu_id() -> Option<*const u32> {
    /// The offset of `cpu_id` in `struct rseq` (linux/rseq.h); `cpu_id_start` comes before it.
    const CPU_ID: usize = 4;
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
    if size == 0 {
        return None;
    }
    Some(thread_pointer()?.wrapping_offset(offset).wrapping_add(CPU_ID).cast())
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> Option<*const u8> {
    let pointer: *const u8;
    // SAFETY: on x86-64 Linux the word at fs:0 is the thread pointer itself.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    Some(pointer)
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> Option<*const u8> {
    let pointer: *const u8;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    Some(pointer)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn thread_pointer() -> Option<*const u8> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_pinned() {
        let allowed = crate::topology::Machine::read().expect("a machine").allowed;
        for cpu in allowed.iter() {
            let seen = std::thread::spawn(move || {
                super::super::thread::pin(&uwork_policy::cpuset::CpuSet::single(cpu));
                (current(), current())
            });
            assert_eq!(seen.join().expect("no panic"), (cpu, cpu));
        }
    }
}
