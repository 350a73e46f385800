//! The current CPU. From the thread's rseq area if glibc or uwork has registered one: one load, no
//! system call.

use std::cell::Cell;

thread_local! {
    /// Where the kernel keeps this thread's CPU id; null until looked up.
    static CPU_ID: Cell<*const u32> = const { Cell::new(std::ptr::null()) };
}

/// For threads without rseq: never a valid CPU, so that the caller makes the system call.
static NO_RSEQ: u32 = u32::MAX;

/// Sets the address at which the calling thread finds its CPU from now on. None: it has no area,
/// and makes the system call.
pub(super) fn settle(place: Option<*const u32>) {
    CPU_ID.set(place.unwrap_or(&raw const NO_RSEQ));
}

/// The CPU that the caller runs on.
#[inline]
pub(super) fn current() -> u32 {
    let place = CPU_ID.with(Cell::get);
    if !place.is_null() {
        // SAFETY: null, or this thread's rseq area, or a static. The kernel writes the area of a
        // thread only while that thread does not run.
        let cpu = unsafe { place.read_volatile() };
        // Unregistered areas hold negative numbers.
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
            place.set(super::rseq::cpu_id().unwrap_or(&raw const NO_RSEQ));
        }
    });
    // SAFETY: no arguments; fails only on kernels without the call.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(0)
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
