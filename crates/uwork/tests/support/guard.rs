//! Detection of hangs: when a test gives up a wait.
//!
//! The clock alone cannot decide: on a loaded machine a test may take many times as long as alone.
//! A wait is a hang if, for the whole of its limit, the process neither made progress nor was
//! active; or if it is not over after [`CAP`] limits. If the threads were without a CPU, summed up, for
//! half of that time, the wait may last until the process has used as much CPU time, but not longer
//! than [`ENDLESS_MAX`]. The active time is the CPU time of all threads, and the time for which they
//! waited for a CPU: a process with a low priority gets none for long. The active time of threads
//! that only wait for the end of a wait does not count. That of [`KnownChild`] processes and their
//! descendants does.
//!
//! Tests of other crates include this file by its path, so it uses the standard library and libc
//! only.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A wait that lasts this many limits is a hang, whatever the process does: threads that spin are
/// active for ever.
pub(crate) const CAP: u32 = 10;
/// The longest wait of a process whose threads get no CPU. Below the time after which the runner of
/// the tests (`SILENCE_MAX`) ends a silent process, without naming the wait.
pub(crate) const ENDLESS_MAX: Duration = Duration::from_secs(25 * 60);
/// Active time below this part of a limit counts as none: idle threads wake up now and then.
const IDLE_PART: u32 = 100;
/// How often a wait reads the meter in one limit. The number is small because each reading wakes a
/// thread that should sleep, and reads files of each known child.
const LOOKS: u32 = 4;
/// How often the activity of this process is measured, however many threads wait: a measurement
/// reads a file of each thread.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How often a wait that polls counts its own activity.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Events that show progress of the whole process.
static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// The activity of threads that wait for the end of a wait, in nanoseconds.
static POLLED_RAN_NS: AtomicU64 = AtomicU64::new(0);
static POLLED_DELAYED_NS: AtomicU64 = AtomicU64::new(0);

/// Notes an event that a test waits for: the limits of all waits start anew.
pub(crate) fn progress() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

/// Why a wait was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// Neither progress nor activity for this long.
    Stuck(Duration),
    /// Not over after this long, although the process was active.
    Endless(Duration),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hang::Stuck(limit) => write!(f, "hangs: no progress and no activity in {limit:?}"),
            Hang::Endless(cap) => write!(f, "hangs: not over after {cap:?}"),
        }
    }
}

/// The last measurement of this process: when it began, when it had ended, and the activity, in
/// nanoseconds. `ENDED_NS` is written last, so that it never belongs to older values. No lock guards
/// them, because a forked child could wait for ever for its release.
static BEGUN_NS: AtomicU64 = AtomicU64::new(0);
static ENDED_NS: AtomicU64 = AtomicU64::new(0);
static RAN_NS: AtomicU64 = AtomicU64::new(0);
static DELAYED_NS: AtomicU64 = AtomicU64::new(0);

/// What the threads of a process have done so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Activity {
    /// The CPU time.
    pub(crate) ran: Duration,
    /// How long they were ready to run and had no CPU.
    pub(crate) delayed: Duration,
}

impl Activity {
    fn all(self) -> Duration {
        self.ran + self.delayed
    }

    /// What came since `before`. The time of a process that has ended is lost for a moment, until
    /// its parent has it, and the time for which a thread was delayed is lost when it ends.
    fn since(self, before: Activity) -> Activity {
        let ran = self.ran.saturating_sub(before.ran);
        Activity { ran, delayed: self.delayed.saturating_sub(before.delayed) }
    }
}

impl std::ops::Add for Activity {
    type Output = Activity;

    fn add(self, other: Activity) -> Activity {
        Activity { ran: self.ran + other.ran, delayed: self.delayed + other.delayed }
    }
}

impl std::iter::Sum for Activity {
    fn sum<I: Iterator<Item = Activity>>(all: I) -> Activity {
        all.fold(Activity::default(), |sum, next| sum + next)
    }
}

/// The activity of a process up to some time. All durations have an arbitrary origin.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) activity: Activity,
    /// The part of threads that only waited for the end of a wait.
    pub(crate) polled: Activity,
    pub(crate) progress: u64,
}

/// The decision, from samples only.
pub(crate) struct Judge {
    limit: Duration,
    began: Duration,
    last: Sample,
    /// The time of the last sample that showed activity, and the activity after it.
    moved_at: Duration,
    active: Duration,
    /// Since the wait began.
    total: Activity,
}

impl Judge {
    pub(crate) fn new(limit: Duration, now: Sample) -> Judge {
        let (active, total) = (Duration::ZERO, Activity::default());
        Judge { limit, began: now.at, last: now, moved_at: now.at, active, total }
    }

    pub(crate) fn judge(&mut self, now: Sample) -> Result<(), Hang> {
        let new = now.activity.since(self.last.activity);
        self.total = self.total + new;
        self.active += new.all().saturating_sub(now.polled.since(self.last.polled).all());
        let progress = now.progress != self.last.progress;
        self.last = now;
        let waited = now.at.saturating_sub(self.began);
        if self.is_endless(waited) {
            return Err(Hang::Endless(waited));
        }
        if progress || self.active >= self.limit / IDLE_PART {
            self.active = Duration::ZERO;
            // A thread that has begun to measure and not ended leaves the last time, which may be
            // older than the wait.
            self.moved_at = now.at.max(self.moved_at);
        }
        if now.at.saturating_sub(self.moved_at) >= self.limit {
            return Err(Hang::Stuck(self.limit));
        }
        Ok(())
    }

    fn is_endless(&self, waited: Duration) -> bool {
        let cap = self.limit * CAP;
        let had_cpus = self.total.delayed < waited / 2 || self.total.ran >= cap;
        waited >= cap && (had_cpus || waited >= ENDLESS_MAX)
    }
}

/// The processes whose active time counts.
#[derive(Clone, Copy)]
enum Of {
    /// This process, its known children and their descendants.
    ThisProcess,
    /// A child and its descendants.
    Child(libc::pid_t),
}

impl Of {
    fn sample(self) -> Sample {
        let (at, activity) = match self {
            Of::ThisProcess => last_of_this_process(),
            Of::Child(pid) => (used(libc::CLOCK_MONOTONIC), of_tree(pid)),
        };
        let polled = time_of([&POLLED_RAN_NS, &POLLED_DELAYED_NS]);
        Sample { at, activity, polled, progress: PROGRESS.load(Ordering::Relaxed) }
    }
}

/// The last measurement of this process. One of the threads that wait measures, if it is due.
fn last_of_this_process() -> (Duration, Activity) {
    let now = used(libc::CLOCK_MONOTONIC).as_nanos() as u64;
    let last = BEGUN_NS.load(Ordering::Relaxed);
    let is_due = now.saturating_sub(last) >= MEASURE_EVERY.as_nanos() as u64;
    let claim = || BEGUN_NS.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if is_due && claim().is_ok() {
        let activity = of_this_process();
        RAN_NS.store(activity.ran.as_nanos() as u64, Ordering::Relaxed);
        DELAYED_NS.store(activity.delayed.as_nanos() as u64, Ordering::Relaxed);
        // Release and Acquire: a reader of this time reads this activity, or a later one.
        ENDED_NS.store(now, Ordering::Release);
    }
    let at = ENDED_NS.load(Ordering::Acquire);
    (Duration::from_nanos(at), time_of([&RAN_NS, &DELAYED_NS]))
}

fn time_of(counters: [&AtomicU64; 2]) -> Activity {
    let [ran, delayed] =
        counters.map(|counter| Duration::from_nanos(counter.load(Ordering::Relaxed)));
    Activity { ran, delayed }
}

/// The activity of this process, its known children and their descendants.
fn of_this_process() -> Activity {
    let ran = used(libc::CLOCK_PROCESS_CPUTIME_ID) + of_ended_children();
    Activity { ran, delayed: delays_of("self") } + known_children().map(of_tree).sum()
}

/// The children whose active time counts; 0 is a free place. No lock guards them, because a forked
/// child could wait for ever for its release.
static CHILDREN: [AtomicI32; 128] = [const { AtomicI32::new(0) }; 128];

fn known_children() -> impl Iterator<Item = libc::pid_t> {
    CHILDREN.iter().map(|place| place.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
}

/// A child for whose work this process may wait. Dropped when the child has been waited for.
pub(crate) struct KnownChild(&'static AtomicI32);

impl KnownChild {
    pub(crate) fn new(pid: libc::pid_t) -> KnownChild {
        let take = |place: &&AtomicI32| {
            place.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        KnownChild(CHILDREN.iter().find(take).expect("few children at once"))
    }
}

impl Drop for KnownChild {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Forgets what belongs to the parent, in a forked child: its children, and the active time of its
/// threads that waited.
pub(crate) fn begin_in_forked_child() {
    CHILDREN.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    POLLED_RAN_NS.store(0, Ordering::Relaxed);
    POLLED_DELAYED_NS.store(0, Ordering::Relaxed);
    BEGUN_NS.store(0, Ordering::Relaxed);
}

/// The CPU time of the children, and of their descendants, that have been waited for.
fn of_ended_children() -> Duration {
    // SAFETY: all zeros is a valid value, and the structure is live.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// The activity of a process and of all its descendants.
fn of_tree(pid: libc::pid_t) -> Activity {
    // The kernel's encoding of a process's CPU clock (CPUCLOCK_SCHED).
    let ran = used((!pid << 3) | 2) + of_ended_children_of(pid);
    Activity { ran, delayed: delays_of(&pid.to_string()) } + children_of(pid).map(of_tree).sum()
}

/// As [`of_ended_children`], for another process. Zero if it no longer exists.
fn of_ended_children_of(pid: libc::pid_t) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in parentheses, and may have spaces. Behind it, from 0: fields 13 and 14.
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let ticks = behind.split(' ').skip(13).take(2).filter_map(|field| field.parse::<u64>().ok());
    // SAFETY: a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Duration::from_millis(ticks.sum::<u64>() * 1_000 / per_second)
}

/// None on a kernel that does not list them.
fn children_of(pid: libc::pid_t) -> impl Iterator<Item = libc::pid_t> {
    files_of_threads(&pid.to_string(), "children").flat_map(|list| pids_in(&list))
}

/// The file of this name of each thread of a process. A thread that ends meanwhile has none.
fn files_of_threads(process: &str, name: &'static str) -> impl Iterator<Item = String> + use<> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.filter_map(move |thread| fs::read_to_string(thread.path().join(name)).ok())
}

/// How long the threads of a process have waited for a CPU. Zero on a kernel that does not count.
fn delays_of(process: &str) -> Duration {
    files_of_threads(process, "schedstat").map(|times| delay_in(&times)).sum()
}

/// The second number of a thread's schedstat.
fn delay_in(times: &str) -> Duration {
    let delay = times.split_whitespace().nth(1).and_then(|delay| delay.parse().ok());
    Duration::from_nanos(delay.unwrap_or(0))
}

fn of_this_thread() -> Activity {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Activity { ran: used(libc::CLOCK_THREAD_CPUTIME_ID), delayed: delay_in(&times) }
}

fn pids_in(list: &str) -> Vec<libc::pid_t> {
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The guard of one wait. It reads no file before its first look: most waits are over by then.
pub(crate) struct Guard {
    limit: Duration,
    of: Of,
    /// From the first look on.
    judge: Option<Judge>,
    /// The activity of this thread at the last reading.
    own: Option<Activity>,
    next_count: Instant,
    next_look: Instant,
}

impl Guard {
    /// For a wait for threads of this process.
    pub(crate) fn new(limit: Duration) -> Guard {
        Guard::with(limit, Of::ThisProcess)
    }

    /// For a wait for a child process.
    pub(crate) fn of_child(limit: Duration, child: libc::pid_t) -> Guard {
        Guard::with(limit, Of::Child(child))
    }

    fn with(limit: Duration, of: Of) -> Guard {
        let start = Instant::now();
        let (next_count, next_look) = (start + POLL_EVERY, start + limit / LOOKS);
        Guard { limit, of, judge: None, own: None, next_count, next_look }
    }

    /// How long to wait until the next [`Guard::look`].
    pub(crate) fn turn(&self) -> Duration {
        self.limit / LOOKS
    }

    /// Call it in each round of a loop that waits.
    pub(crate) fn look(&mut self) -> Result<(), Hang> {
        self.count_own();
        let now = self.of.sample();
        let first = Sample { at: used(libc::CLOCK_MONOTONIC), ..now };
        self.judge.get_or_insert_with(|| Judge::new(self.limit, first)).judge(now)
    }

    /// Call it in each round of a loop that polls.
    pub(crate) fn poll(&mut self) -> Result<(), Hang> {
        let now = Instant::now();
        if now < self.next_count {
            return Ok(());
        }
        self.next_count = now + POLL_EVERY;
        self.count_own();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + self.turn();
        self.look()
    }

    fn count_own(&mut self) {
        let own = of_this_thread();
        let polled = self.own.map_or_else(Activity::default, |before| own.since(before));
        self.own = Some(own);
        POLLED_RAN_NS.fetch_add(polled.ran.as_nanos() as u64, Ordering::Relaxed);
        POLLED_DELAYED_NS.fetch_add(polled.delayed.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Waits in rounds until `turn` returns a value. Each round waits for at most the time passed to
/// it.
pub(crate) fn in_turns<R>(
    limit: Duration,
    mut turn: impl FnMut(Duration) -> Option<R>,
) -> Result<R, Hang> {
    let mut guard = Guard::new(limit);
    loop {
        if let Some(result) = turn(guard.turn()) {
            return Ok(result);
        }
        guard.look()?;
    }
}

/// Zero if the clock no longer exists.
fn used(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}
