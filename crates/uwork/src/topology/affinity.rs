//! The affinity mask of the calling thread.

use std::io;

use uwork_policy::cpuset::{CpuSet, MAX_CPUS};

/// As many words as the largest CPU set has, so that the call cannot fail because the kernel's
/// mask is longer than the buffer.
const WORDS: usize = (MAX_CPUS / libc::c_ulong::BITS) as usize;

pub(super) fn of_this_thread() -> io::Result<CpuSet> {
    let mut words = [0 as libc::c_ulong; WORDS];
    // SAFETY: the pointer and the size describe `words`, which outlives the call; the kernel
    // writes at most that many bytes. `cpu_set_t` is an array of `c_ulong`, so the cast keeps the
    // alignment.
    let result = unsafe {
        libc::sched_getaffinity(
            0,
            size_of_val(&words),
            words.as_mut_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bits = libc::c_ulong::BITS;
    let cpus = (0..).zip(words).flat_map(|(index, word)| {
        (0..bits).filter(move |bit| word & (1 << bit) != 0).map(move |bit| index * bits + bit)
    });
    Ok(cpus.collect())
}

#[cfg(test)]
mod tests {
    use super::of_this_thread;

    #[test]
    fn the_mask_holds_the_cpu_that_this_thread_runs_on() {
        // SAFETY: takes no argument and touches no memory of ours.
        let here = unsafe { libc::sched_getcpu() };
        assert!(of_this_thread().unwrap().contains(here as u32));
    }
}
