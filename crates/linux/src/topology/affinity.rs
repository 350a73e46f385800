//! The affinity mask of the process: that of its main thread, whichever thread asks.

use std::io;

use uwork_policy::cpuset::{CpuSet, MAX_CPUS};

/// As many words as the largest CPU set has, so that the call cannot fail because the kernel's
/// mask is longer than the buffer.
const WORDS: usize = (MAX_CPUS / libc::c_ulong::BITS) as usize;

pub(super) fn of_the_process() -> io::Result<CpuSet> {
    let mut words = [0 as libc::c_ulong; WORDS];
    // SAFETY: the pointer and the size describe `words`, which outlives the call; the kernel
    // writes at most that many bytes. `cpu_set_t` is an array of `c_ulong`, so the cast keeps the
    // alignment.
    let result = unsafe {
        libc::sched_getaffinity(
            libc::getpid(),
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
    use super::of_the_process;

    #[test]
    fn a_pinned_thread_does_not_narrow_the_mask() {
        let whole = of_the_process().unwrap();
        let first = whole.first().unwrap();
        let seen = std::thread::spawn(move || {
            // SAFETY: all-zero bytes are an empty set.
            let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is live, and `first` within it on the machines that run tests.
            unsafe {
                libc::CPU_SET(first as usize, &mut one);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            }
            of_the_process().unwrap()
        });
        assert_eq!(seen.join().unwrap(), whole);
    }
}
