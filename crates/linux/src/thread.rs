//! Threads: creation, placement, and the state that the engine keeps for each.

use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use uwork_engine::ThreadState;
use uwork_engine::host::{Report, SpawnError, WorkerSpec};
use uwork_policy::cpuset::CpuSet;

use super::{cancel, hooks, posix_thread, signals, stack_size};
pub use posix_thread::Handle;

thread_local! {
    static STATE: ThreadState = const { ThreadState::new() };
}

/// The calling thread's state. Without a destructor, so it is valid until the thread has ended.
#[inline]
pub(super) fn state() -> *const ThreadState {
    STATE.with(std::ptr::from_ref)
}

pub(super) fn spawn(spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError> {
    let (cpus, nice) = (spec.cpus.clone(), spec.nice);
    let (name, runner) = (spec.name.clone(), spec.runner.clone());
    let body = move || {
        pin(&cpus);
        set_nice(nice);
        wake_on_time();
        let engine = super::engine();
        let pending_reports = engine.host().blocked.pending_report().into_iter();
        // Reported on another thread: a reporter may wait for an item of this pool, which wakes no
        // other worker until this worker arrives.
        pending_reports
            .chain(super::membarrier::pending_report())
            .for_each(|report| engine.report_apart(report));
        match runner {
            Some(runner) => hooks::run(hooks::Thread { name, runner }, main),
            None => main(),
        }
        super::blocked::kept::thread_ends(id());
    };
    let runs_items = spec.runner.is_some();
    let stack = if runs_items { stack_size::of_items() } else { stack_size::of_service() };
    begin(&spec.name, stack, false, body).map(drop).map_err(|error| SpawnError(error.to_string()))
}

/// Starts a thread of the library's that runs no items.
pub(super) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    start_joinable(name, body).map(drop)
}

/// As [`start`], without thread-local data that has a destructor: `body` uses none.
#[cfg(feature = "symbols")]
pub(super) fn start_plain(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    begin(name, stack_size::of_service(), true, body).map(drop)
}

/// Starts a thread of the library's that runs no items, and that another thread waits for.
pub fn start_joinable(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Handle> {
    begin(name, stack_size::of_service(), false, body)
}

/// Starts a thread of the library's, which takes none of the program's signals. Every thread of the
/// library's begins here. `is_plain`: see [`posix_thread::spawn`].
fn begin(
    name: &str,
    stack: usize,
    is_plain: bool,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<Handle> {
    let _held_off = cancel::hold_off();
    let of_program = signals::of_program();
    let blocked = signals::block_in_creator();
    let begin = move || {
        cancel::never();
        signals::begin(of_program);
        take_policy();
        body();
    };
    let outcome = posix_thread::spawn(short(name), stack, is_plain, begin);
    // Restores the creator's mask, also if no thread was created.
    drop(blocked);
    outcome
}

/// A thread's name, cut to 15 characters. The system keeps 15 bytes of it.
fn short(name: &str) -> String {
    name.chars().filter(|c| *c != '\0').take(15).collect()
}

/// Renames the calling thread.
pub(super) fn rename(name: &str) {
    if let Ok(name) = std::ffi::CString::new(short(name)) {
        // SAFETY: the string is live and short enough; the name is that of the calling thread.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// The name of the calling thread, as the system has it.
pub(super) fn name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: the system writes 16 bytes at most, the last of which is 0.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The CPU time of a thread of this process, in nanoseconds. `None` if it has ended.
pub(super) fn cpu_time(thread: u64) -> Option<u64> {
    // The kernel's encoding of a thread's CPU clock (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED);
    // glibc offers it only for a thread given by its pthread_t.
    let clock = (!(thread as libc::clockid_t) << 3) | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; an ended thread gives EINVAL.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (outcome == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How often the calling thread has given up its CPU in order to wait.
pub(super) fn waits() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is live, and zeroes are a valid value of it if the call fails.
    let (outcome, usage) =
        unsafe { (libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), usage.assume_init()) };
    u64::try_from(usage.ru_nvcsw).ok().filter(|_| outcome == 0)
}

/// Sets the calling thread's timer slack to 1 ns, so that its timed waits end when due instead of
/// up to 50 us later: the timers have a slack of their own.
fn wake_on_time() {
    // SAFETY: no pointers; the slack is that of the calling thread, in nanoseconds.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Pins the calling thread to these CPUs. Does nothing if that is impossible: a worker on another
/// CPU is slower but correct, and a CPU that went offline cannot be used anyway.
pub(super) fn pin(cpus: &CpuSet) {
    place(0, cpus);
}

/// Gives the calling thread the shortest time slice, unless its policy is not the normal one: on a
/// busy machine it gets a CPU sooner after it has woken, and its share stays the same. Needs no
/// privilege; before Linux 6.12, and where it is refused, it changes nothing.
#[cfg(feature = "control")]
pub(super) fn respond_soon() {
    // SAFETY: no pointers; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER {
        let _ = set_slice(0, libc::SCHED_OTHER, nice_of(0));
    }
}

/// How much the niceness of a standby exceeds that of other threads: about a tenth of their weight.
const STANDBY_NICE: i32 = 10;
/// The greatest niceness of a standby in a process whose own is lower. With a greater one each
/// microsecond on the CPU costs many of waiting: a standby that has run would delay the end of the
/// process.
const STANDBY_NICE_MAX: i32 = 14;
/// The time slice of a standby and of a thread that answers, in nanoseconds: the shortest that Linux
/// grants (since 6.12; older versions ignore it).
const SHORT_SLICE_NS: u64 = 100_000;

/// Makes the calling thread one that the system runs in place of a thread that blocks: it preempts
/// no thread when it wakes (`SCHED_BATCH`), gets a small share beside threads that compute (a higher
/// niceness), and waits for its turn no longer than they do (a short slice). The last point matters
/// to the whole process: the system ends, stops and renames a process only after each of its threads
/// has run. Needs no privilege; cannot be undone without one.
///
/// # Errors
/// The system's; and for a real-time thread, beside whose kind a standby would get no CPU.
pub(super) fn become_standby() -> std::io::Result<()> {
    if is_real_time() {
        return Err(Error::other(REAL_TIME));
    }
    // SAFETY: no pointers; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } == libc::SCHED_IDLE {
        // All threads of the process are lowered, and this policy cannot be left without a privilege.
        return Ok(());
    }
    let nice = nice_of(0);
    set_slice(0, libc::SCHED_BATCH, (nice + STANDBY_NICE).min(STANDBY_NICE_MAX).max(nice))
}

/// Why there are no standbys in a process whose threads are real-time.
const REAL_TIME: &str = "the threads are real-time";

/// Why standbys are impossible, if they are: the system's error, or [`REAL_TIME`]. Changes no thread:
/// it probes with a thread id that does not exist, which the system checks after its filters.
pub(super) fn standby_refusal() -> Option<std::io::Error> {
    if is_policy_real_time(POLICY.load(Ordering::Relaxed)) {
        return Some(Error::other(REAL_TIME));
    }
    let absent = set_slice(libc::pid_t::MAX, libc::SCHED_BATCH, STANDBY_NICE);
    absent.err().filter(|error| error.raw_os_error() != Some(libc::ESRCH))
}

fn set_slice(thread: libc::pid_t, policy: libc::c_int, nice: i32) -> std::io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SHORT_SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure is live and of the size that it states.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether the calling thread has a real-time policy. False if the system does not say.
pub(super) fn is_real_time() -> bool {
    // SAFETY: no pointers; 0 is the calling thread.
    is_policy_real_time(unsafe { libc::sched_getscheduler(0) })
}

/// Of a policy, or a negative number if it is unknown.
fn is_policy_real_time(policy: libc::c_int) -> bool {
    let real_time = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
    policy >= 0 && real_time.contains(&(policy & !libc::SCHED_RESET_ON_FORK))
}

/// The scheduling policy of the library's threads, and its real-time priority. A thread inherits those of
/// its creator.
static POLICY: AtomicI32 = AtomicI32::new(UNKNOWN);
static PRIORITY: AtomicI32 = AtomicI32::new(0);
const UNKNOWN: i32 = -1;

/// Notes the policy of the process, which is that of its main thread, for threads created from now on.
pub(super) fn note_policy_of_the_process() {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is live. The number of a process is that of its main thread.
    let (policy, outcome) = unsafe {
        let main = libc::getpid();
        (libc::sched_getscheduler(main), libc::sched_getparam(main, &raw mut parameters))
    };
    if policy < 0 || outcome != 0 {
        return;
    }
    // New threads of one with that flag, or with deadlines, have the usual policy.
    let is_kept = policy & libc::SCHED_RESET_ON_FORK == 0 && policy != libc::SCHED_DEADLINE;
    let (policy, priority) =
        if is_kept { (policy, parameters.sched_priority) } else { (libc::SCHED_OTHER, 0) };
    PRIORITY.store(priority, Ordering::Relaxed);
    POLICY.store(policy, Ordering::Relaxed);
}

/// Gives the calling thread that policy, unless the system refuses it, which is reported once.
fn take_policy() {
    let policy = POLICY.load(Ordering::Relaxed);
    let priority = PRIORITY.load(Ordering::Relaxed);
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: no pointers; 0 is the calling thread.
    let own = unsafe { libc::sched_getscheduler(0) };
    if policy == UNKNOWN || own == policy && !is_real_time() {
        return;
    }
    // SAFETY: the structure is live.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return;
    }
    let reason = Error::last_os_error().to_string();
    static SAID: AtomicBool = AtomicBool::new(false);
    // A thread that comes before the engine is made leaves the report to a later one.
    if let Some(engine) = super::started()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        let (wanted, got) = (policy_name(policy, priority), policy_name(own, 0));
        // Not on this thread, as in `spawn`.
        engine.report_apart(Report::PolicyRefused { wanted, got, reason });
    }
}

/// The name of a scheduling policy, and a real-time priority if it has one.
fn policy_name(policy: libc::c_int, priority: i32) -> String {
    let name = match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => "SCHED_OTHER",
        libc::SCHED_FIFO => "SCHED_FIFO",
        libc::SCHED_RR => "SCHED_RR",
        libc::SCHED_BATCH => "SCHED_BATCH",
        libc::SCHED_IDLE => "SCHED_IDLE",
        libc::SCHED_DEADLINE => "SCHED_DEADLINE",
        other => return format!("policy {other}"),
    };
    if priority == 0 { name.to_owned() } else { format!("{name} {priority}") }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
#[inline]
pub(super) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The calling thread's number in the system. By the system call: Rust's own library refers to
/// `gettid` weakly, and in a static program with link-time optimization that symbol may be missing.
pub(super) fn tid() -> libc::pid_t {
    // SAFETY: no arguments; cannot fail. Numbers of threads fit.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// As [`tid`], in the engine's type.
pub(super) fn id() -> u64 {
    u64::try_from(tid()).unwrap_or(0)
}

/// CPUs that a thread can be placed on: as many as Linux can have.
const CPUS_MAX: usize = 8_192;

/// Pins a thread to these CPUs, 0 for the calling one; as `pin`.
pub(super) fn place(thread: u64, cpus: &CpuSet) {
    // On the stack: a child after a fork must not call the allocator.
    let mut mask = [0_u64; CPUS_MAX / 64];
    let Some(last) = cpus.last().filter(|&last| (last as usize) < CPUS_MAX) else { return };
    for cpu in cpus.iter() {
        mask[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    let mask = &mask[..=last as usize / 64];
    // SAFETY: the mask is live and of the given length.
    unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(mask), mask.as_ptr());
    }
}

/// The lowest niceness, the highest, and the number of values.
const NICE_MIN: i32 = -20;
const NICE_MAX: i32 = 19;
const NICES: usize = 40;
/// A value of `ACTUAL_NICE`: every thread got this niceness.
const AS_REQUESTED: i32 = i32::MAX;

/// The niceness that threads got, indexed by the one that was requested for them.
static ACTUAL_NICE: [AtomicI32; NICES] = [const { AtomicI32::new(AS_REQUESTED) }; NICES];

fn granted(wanted: i32) -> Option<&'static AtomicI32> {
    ACTUAL_NICE.get(usize::try_from(wanted.checked_sub(NICE_MIN)?).ok()?)
}

/// The niceness that threads got instead of `wanted`; None if they got it.
pub fn actual_nice(wanted: i32) -> Option<i32> {
    granted(wanted)
        .map(|granted| granted.load(Ordering::Relaxed))
        .filter(|&nice| nice != AS_REQUESTED)
}

/// The niceness of the process: that of its main thread. The niceness that nice(1) gives a program is
/// for all of its threads.
pub(super) fn nice_of_the_process() -> i32 {
    // SAFETY: no pointers. The number of a process is that of its main thread.
    nice_of(unsafe { libc::getpid() })
}

/// The niceness of a thread, of the calling one for 0. If a sandbox refuses the question, it is 0.
fn nice_of(thread: libc::pid_t) -> i32 {
    // The C library's function returns -1 both as an error and as a niceness; the system returns 20
    // minus the niceness.
    // SAFETY: no pointers.
    let left = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, thread) };
    if left < 0 { 0 } else { 20 - left as i32 }
}

/// Sets the calling thread's niceness, or the nearest that the process may set. Reports the first
/// thread that gets another one than `wanted`.
fn set_nice(wanted: i32) {
    // A thread inherits the niceness of its creator, which can be any value.
    // SAFETY: no pointers. On Linux, process 0 with PRIO_PROCESS is the calling thread.
    let set = |nice| unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0;
    // A lower number needs a privilege or RLIMIT_NICE, a higher one does not.
    let got = (wanted..=NICE_MAX).find(|&nice| set(nice));
    if let (Some(got), Some(granted)) = (got, granted(wanted)) {
        // Once another one was set, the record stays, even if later threads get the requested one.
        if got != wanted && granted.swap(got, Ordering::Relaxed) == AS_REQUESTED {
            // Not on this thread, as in `spawn`.
            super::engine().report_apart(Report::NiceRefused { wanted, got });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_the_calling_thread_is_told() {
        let of_policy = |policy, priority| {
            let asks = move || {
                let parameters = libc::sched_param { sched_priority: priority };
                // SAFETY: the structure is live; 0 is the calling thread.
                let set =
                    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0;
                set.then(is_real_time)
            };
            std::thread::spawn(asks).join().unwrap()
        };
        assert_eq!(of_policy(libc::SCHED_OTHER, 0), Some(false));
        for policy in [libc::SCHED_FIFO, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK] {
            // Without the privilege the system refuses it.
            assert_ne!(of_policy(policy, 1), Some(false));
        }
    }
}
