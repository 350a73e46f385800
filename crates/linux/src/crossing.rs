//! Full barriers on other CPUs without `membarrier(2)`: the calling thread moves to each of them.
//!
//! **Why that is a barrier.** A thread that runs on a CPU for the whole duration of a call, and is
//! never switched out, keeps the caller from running on that CPU. So if the caller has run on every
//! CPU on which a thread of the process may run, each thread of the process was switched out or in
//! since the call began, or did not run at all. A switch is a full barrier on every architecture.
//! The thread's accesses before it are visible to the caller; its accesses after it see the
//! caller's stores before the call. The same switch restarts a restartable sequence that the thread
//! was in.
//!
//! **Which CPUs.** Those in the affinity mask of any thread of the process when the call begins, as
//! listed by `/proc/self/task`. A thread that is created later, or moves later, is switched in
//! later. If the caller's control group bars it from one of these CPUs, the call fails and says so.
//!
//! It takes tens of microseconds for each CPU, more where the CPU is busy: the caller waits there
//! until it is scheduled. A thread of a real-time class that never sleeps, without a limit on such
//! threads (`kernel.sched_rt_runtime_us` is -1), keeps a caller of a lower class waiting. Used only
//! if `membarrier(2)` was permitted at first and is refused now. It allocates nothing, as its
//! callers hold locks.

use std::os::fd::RawFd;

use super::descriptor::{Expected, briefly};
use super::fatal::{self, Errno};
use super::small_files::{entries, for_each_name};

/// CPUs that a mask has bits for.
const CPUS: usize = 8_192;
/// How often the crossing is repeated if CPUs go on- or offline meanwhile.
const ROUNDS: u32 = 64;

/// The reason for which the caller cannot move to a CPU.
pub(super) enum Stays {
    /// The system refuses to list the threads.
    NoThreads(Errno),
    /// It refuses a change of the affinity mask.
    NoMove(Errno),
    /// The caller may not run on a CPU on which a thread of the process may run.
    KeptOff(u32),
}

impl std::fmt::Display for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stays::NoThreads(error) => write!(f, "/proc/self/task cannot be read ({error})"),
            Stays::NoMove(error) => write!(f, "sched_setaffinity(2) is refused ({error})"),
            Stays::KeptOff(cpu) => write!(f, "this thread is kept off CPU {cpu}"),
        }
    }
}

/// Makes every other thread of the process pass a full barrier. Returns the CPUs that the caller
/// visited.
pub(super) fn everywhere() -> Result<Mask, Stays> {
    cross(|_| true)
}

/// Makes every other thread on `cpu` pass a full barrier, and restart its restartable sequence.
pub(super) fn on(cpu: u32) -> Result<Mask, Stays> {
    cross(|one| one == cpu)
}

fn cross(wanted: impl Fn(u32) -> bool) -> Result<Mask, Stays> {
    // Callers hold locks, and the folder is opened and closed.
    let _held_off = crate::cancel::hold_off();
    let before = Mask::of(0).ok_or_else(|| Stays::NoMove(Errno(fatal::errno())))?;
    let mut outcome = cross_once(&wanted);
    for _ in 1..ROUNDS {
        // A CPU that went offline is in no mask at the next attempt.
        if !matches!(outcome, Err(Stays::KeptOff(_))) {
            break;
        }
        outcome = cross_once(&wanted);
    }
    // Also after a failure: the caller must not stay pinned to the last CPU that it visited.
    before.set();
    outcome
}

fn cross_once(wanted: &impl Fn(u32) -> bool) -> Result<Mask, Stays> {
    let (threads, mut visited) = (masks_of_all_threads()?, Mask::empty());
    for cpu in threads.cpus().filter(|&cpu| wanted(cpu)) {
        visit(cpu)?;
        visited.add(&Mask::only(cpu));
    }
    Ok(visited)
}

/// Runs on `cpu` for a moment.
fn visit(cpu: u32) -> Result<(), Stays> {
    for _ in 0..ROUNDS {
        match Mask::only(cpu).set_outcome() {
            0 => {}
            libc::EINVAL => return Err(Stays::KeptOff(cpu)),
            error => return Err(Stays::NoMove(Errno(error))),
        }
        // SAFETY: no arguments. The check is needed as another thread may have changed the mask
        // meanwhile.
        if u32::try_from(unsafe { libc::sched_getcpu() }) == Ok(cpu) {
            return Ok(());
        }
    }
    Err(Stays::KeptOff(cpu))
}

/// An affinity mask.
pub(super) struct Mask([u64; CPUS / 64]);

impl Mask {
    fn empty() -> Mask {
        Mask([0; CPUS / 64])
    }

    fn only(cpu: u32) -> Mask {
        let mut mask = Mask::empty();
        if let Some(word) = mask.0.get_mut(cpu as usize / 64) {
            *word = 1 << (cpu % 64);
        }
        mask
    }

    /// The mask of a thread, 0 for the calling one. `None` if the thread has ended, or the call
    /// fails.
    fn of(thread: libc::pid_t) -> Option<Mask> {
        let mut mask = Mask::empty();
        // SAFETY: the mask is live and of the given length.
        let read = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                thread,
                size_of::<Mask>(),
                mask.0.as_mut_ptr(),
            )
        };
        (read > 0).then_some(mask)
    }

    /// Sets it as the calling thread's mask.
    fn set(&self) {
        let _ = self.set_outcome();
    }

    /// As [`Mask::set`]; returns 0 or the system's error.
    fn set_outcome(&self) -> i32 {
        // SAFETY: the mask is live and of the given length.
        let outcome = unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Mask>(), self.0.as_ptr())
        };
        if outcome == 0 { 0 } else { fatal::errno() }
    }

    fn add(&mut self, other: &Mask) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    fn cpus(&self) -> impl Iterator<Item = u32> {
        (0..CPUS as u32).filter(|&cpu| self.0[cpu as usize / 64] >> (cpu % 64) & 1 != 0)
    }
}

/// The CPUs on which any thread of the process may run.
fn masks_of_all_threads() -> Result<Mask, Stays> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a text that ends with a zero byte.
    let open = || unsafe { libc::open(c"/proc/self/task".as_ptr(), flags) };
    let mut all = Mask::empty();
    let mut add = |thread| {
        if let Some(mask) = Mask::of(thread) {
            all.add(&mask);
        }
    };
    let outcome = briefly(Expected::Process, open, |folder| for_each_thread(folder, &mut add))
        .and_then(|all| all);
    outcome.map_err(|error| Stays::NoThreads(Errno(error)))?;
    Ok(all)
}

/// Calls `f` with each entry of a folder whose name is a number.
fn for_each_thread(folder: RawFd, mut f: impl FnMut(libc::pid_t)) -> Result<(), i32> {
    let mut buffer = [0; 4096];
    loop {
        let length = entries(folder, &mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        for_each_name(&buffer[..length], |name| {
            if let Some(number) = number(name) {
                f(number);
            }
        });
    }
}

/// Parses a name as a number.
fn number(name: &[u8]) -> Option<libc::pid_t> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn allowed() -> Vec<u32> {
        Mask::of(0).expect("the calling thread's").cpus().collect()
    }

    // Catches: a CPU that is left out, as it is missing in the caller's own mask; a caller that
    // does not return to its CPUs.
    #[test]
    fn a_crossing_reaches_the_cpus_of_every_thread() {
        let cpus = allowed();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        let (stop, stopped) = channel::<()>();
        let (ready, is_ready) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                Mask::only(last).set();
                ready.send(()).expect("it waits");
                let _ = stopped.recv();
            });
            is_ready.recv().expect("the thread has started");
            scope.spawn(move || {
                Mask::only(first).set();
                let visited = everywhere().ok().expect("no CPU is refused");
                for cpu in [first, last] {
                    assert!(visited.cpus().any(|one| one == cpu), "CPU {cpu} of {cpus:?}");
                    let visited: Vec<u32> = on(cpu).ok().expect("as before").cpus().collect();
                    assert_eq!(visited, [cpu]);
                }
                // No thread can be on a CPU that does not exist.
                assert_eq!(on(CPUS as u32 - 1).ok().expect("nothing to do").cpus().count(), 0);
                assert_eq!(allowed(), [first]);
                drop(stop);
            });
        });
    }

    #[test]
    fn a_folder_of_threads_is_read_in_parts() {
        // More than fit into the buffer.
        let end = std::sync::Barrier::new(301);
        std::thread::scope(|scope| {
            (0..300).for_each(|_| _ = scope.spawn(|| _ = end.wait()));
            let mut threads = std::collections::BTreeSet::new();
            let folder = std::fs::File::open("/proc/self/task").expect("a folder");
            let read = for_each_thread(std::os::fd::AsRawFd::as_raw_fd(&folder), |thread| {
                threads.insert(thread);
            });
            end.wait();
            assert_eq!(read, Ok(()));
            assert!(threads.len() > 300 && threads.contains(&crate::thread::tid()));
        });
    }
}
