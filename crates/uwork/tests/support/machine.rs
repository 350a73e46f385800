//! The CPUs and threads of this machine.

use std::panic::Location;
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

use uwork::CpuSet;
use uwork::topology::Machine;

use super::gate::Log;
use super::left_out::left_out;
use super::{until, within};

/// How many samples in a row must find a thread asleep, with a yield between them.
const LOOKS: u32 = 20;

/// The CPUs that the process may use. Starts the engine first, from a thread that is not pinned.
pub(crate) fn cpus() -> Vec<u32> {
    static CPUS: OnceLock<Vec<u32>> = OnceLock::new();
    let read = || {
        uwork::system::dfl();
        Machine::read().expect("a machine").allowed.iter().collect()
    };
    CPUS.get_or_init(read).clone()
}

/// Two different CPUs. `None` on a machine that has only one, where the caller is left out.
#[track_caller]
pub(crate) fn two_cpus() -> Option<(u32, u32)> {
    let cpus = cpus();
    if cpus.len() < 2 {
        left_out(&Location::caller().to_string(), "this machine has one CPU");
        return None;
    }
    Some((cpus[0], cpus[1]))
}

pub(crate) fn mask(cpus: &[u32]) -> CpuSet {
    let mut mask = CpuSet::new();
    for &cpu in cpus {
        mask.insert(cpu);
    }
    mask
}

/// Runs `f` on a thread that stays on `cpu`.
pub(crate) fn on_cpu<R: Send>(cpu: u32, f: impl FnOnce() -> R + Send) -> R {
    cpus();
    thread::scope(|scope| {
        let pinned = scope.spawn(move || {
            pin(cpu);
            f()
        });
        pinned.join().expect("the pinned thread does not panic")
    })
}

/// Pins the calling thread to `cpu`.
#[track_caller]
pub(crate) fn pin(cpu: u32) {
    assert!(try_pin(cpu), "cannot pin to CPU {cpu}");
}

/// Pins the calling thread to `cpu` if that CPU exists. Returns whether it does.
pub(crate) fn try_pin(cpu: u32) -> bool {
    set_mask(0, cpu)
}

/// Pins the first thread to `cpu`: the process's mask is that of its first thread.
#[track_caller]
pub(crate) fn pin_first_thread(cpu: u32) {
    assert!(set_mask(std::process::id() as libc::pid_t, cpu), "cannot pin to CPU {cpu}");
}

/// Pins a thread; 0 is the calling one.
pub(crate) fn set_mask(thread: libc::pid_t, cpu: u32) -> bool {
    let mut mask = vec![0_u64; cpu as usize / 64 + 1];
    mask[cpu as usize / 64] |= 1 << (cpu % 64);
    // SAFETY: the mask is live and has the given length.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&mask[..]), mask.as_ptr().cast()) == 0 }
}

/// The CPU on which the caller runs.
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).expect("a CPU")
}

/// The calling thread's id in /proc.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { libc::gettid() }
}

/// Waits until a thread of this process sleeps, and not only for an instant.
pub(crate) fn until_asleep(thread: i32) {
    let mut sleep = Sleep::of(thread);
    until(&format!("thread {thread} sleeps"), || sleep.lasts());
}

/// Samples a thread until it finds a sleep that lasts.
struct Sleep {
    thread: i32,
    /// How often the thread had gone to sleep at the last sample, and how many samples in a row
    /// found it in that same sleep. A thread that sleeps repeatedly, as between two tries, is in no
    /// wait.
    last: Option<u64>,
    looks: u32,
}

impl Sleep {
    fn of(thread: i32) -> Sleep {
        Sleep { thread, last: None, looks: 0 }
    }

    fn lasts(&mut self) -> bool {
        let now = sleeps_of(self.thread);
        self.looks = if now.is_some() && now == self.last { self.looks + 1 } else { 0 };
        self.last = now;
        self.looks >= LOOKS
    }
}

/// A thread that waits.
pub(crate) struct Waiting<R> {
    id: i32,
    thread: JoinHandle<R>,
}

/// Calls `wait` on a thread of its own and returns once that thread sleeps in it.
pub(crate) fn in_the_wait<R: Send + 'static>(
    wait: impl FnOnce() -> R + Send + 'static,
) -> Waiting<R> {
    let log = Log::new();
    let ids = log.clone();
    let thread = thread::spawn(move || {
        ids.push(thread_id());
        wait()
    });
    log.wait_for_count(1);
    let waiting = Waiting { id: log.events()[0], thread };
    waiting.assert_waits();
    waiting
}

impl<R: Send + 'static> Waiting<R> {
    /// Asserts that the thread is still in its wait, once it is asleep.
    #[track_caller]
    pub(crate) fn assert_waits(&self) {
        let mut sleep = Sleep::of(self.id);
        until("a thread sleeps", || {
            assert!(!self.thread.is_finished(), "it does not wait, or no longer");
            sleep.lasts()
        });
    }

    /// Whether the wait has returned.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// The result of the wait, which must return within a bounded time.
    pub(crate) fn result(self) -> R {
        within("a wait whose end has come", move || self.thread.join())
            .unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

/// How often a thread has gone to sleep, if it sleeps now.
fn sleeps_of(thread: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
    let is_asleep = field("State:")?.trim_start().starts_with('S');
    let sleeps = field("voluntary_ctxt_switches:")?.trim().parse().expect("a number");
    is_asleep.then_some(sleeps)
}
