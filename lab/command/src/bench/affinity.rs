//! The affinity mask of the calling thread.

use std::io;

/// Restricts the calling thread to `cpus`. Threads and processes that it starts later inherit the
/// mask.
pub(super) fn restrict_to(cpus: &[u32]) -> io::Result<()> {
    const BITS: usize = u64::BITS as usize;
    let words = cpus.iter().map(|&cpu| cpu as usize / BITS + 1).max().unwrap_or(0);
    let mut mask = vec![0_u64; words];
    for &cpu in cpus {
        mask[cpu as usize / BITS] |= 1 << (cpu as usize % BITS);
    }
    // SAFETY: the mask is live and has the given length; 0 is the calling thread.
    let outcome =
        unsafe { libc::sched_setaffinity(0, size_of_val(&mask[..]), mask.as_ptr().cast()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
