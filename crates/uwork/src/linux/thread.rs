//! Threads: creation, placement, and what the engine keeps for each.

use uwork_engine::ThreadState;
use uwork_engine::host::{SpawnError, WorkerSpec};
use uwork_policy::cpuset::CpuSet;

thread_local! {
    static STATE: ThreadState = const { ThreadState::new() };
}

/// The calling thread's state. Without a destructor, so it is valid until the thread is gone.
#[inline]
pub(super) fn state() -> *const ThreadState {
    STATE.with(std::ptr::from_ref)
}

pub(super) fn spawn(spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError> {
    let (cpus, nice) = (spec.cpus.clone(), spec.nice);
    // A thread's name has 15 bytes.
    let name = spec.name.chars().filter(|c| *c != '\0').take(15).collect();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            pin(&cpus);
            set_nice(nice);
            wake_on_time();
            main();
        })
        .map(drop)
        .map_err(|error| SpawnError(error.to_string()))
}

/// The CPU time of a thread of this process, in nanoseconds. `None` if it is gone.
pub(super) fn cpu_time(thread: u64) -> Option<u64> {
    // The kernel's encoding of a thread's CPU clock (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED); glibc
    // offers it for threads that one has a pthread_t of.
    let clock = (!(thread as libc::clockid_t) << 3) | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; a thread that is gone gives EINVAL.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (outcome == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Lets the calling thread's timed waits end when they are due, not up to 50 us later: slack is the
/// timers' own.
fn wake_on_time() {
    // SAFETY: no pointers; the slack is that of the calling thread, in nanoseconds.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Keeps the calling thread on these CPUs. Does nothing if that is not possible: a worker that runs
/// elsewhere is slower, not wrong, unless the CPU has gone away.
pub(super) fn pin(cpus: &CpuSet) {
    place(0, cpus);
}

/// The calling thread's number in the system.
pub(super) fn id() -> u64 {
    // SAFETY: no arguments; cannot fail.
    u64::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

/// Keeps a thread on these CPUs, 0 for the calling one; as `pin`.
pub(super) fn place(thread: u64, cpus: &CpuSet) {
    let Some(last) = cpus.last() else { return };
    let mut mask = vec![0_u64; last as usize / 64 + 1];
    for cpu in cpus.iter() {
        mask[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask is live and as long as said.
    unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(&mask[..]), mask.as_ptr());
    }
}

/// Sets the calling thread's niceness, or the nearest that the process may set.
fn set_nice(nice: i32) {
    // A thread begins with the niceness of the one that made it, which may be anything.
    // SAFETY: no pointers. On Linux, process 0 with PRIO_PROCESS is the calling thread.
    let set = |nice| unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0;
    // Lowering the number needs a privilege or an allowance (RLIMIT_NICE), raising it does not.
    let _ = (nice..=19).any(set);
}
