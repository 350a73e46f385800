//! The isolated thread.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::switches::Recorder;

/// Gaps between two clock readings that are longer than this are counted.
const GAP: Duration = Duration::from_micros(50);
/// The lowest real-time priority, above all threads that are not real-time.
const PRIORITY: i32 = 1;

/// The observations of the thread.
#[derive(Default)]
pub(super) struct Noticed {
    /// The thread's id.
    pub(super) thread: u32,
    pub(super) readings: u64,
    pub(super) gap_max: Duration,
    pub(super) gaps: u64,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    pub(super) wall: Duration,
    pub(super) is_real_time: bool,
}

/// Raises the calling thread to real-time priority. If that is refused, lowers its nice value as far as
/// the system permits, and reports the refusal. Returns whether the thread is real-time.
pub(super) fn become_real_time() -> bool {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the structure is live; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } == 0 {
        return true;
    }
    let refusal = io::Error::last_os_error();
    // SAFETY: no pointers; on Linux, id 0 is the calling thread.
    let set = |nice| unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0;
    let nice = (-20..=0).find(|&nice| set(nice)).unwrap_or(0);
    eprintln!(
        "SCHED_FIFO is refused ({refusal}): the thread runs at nice {nice}, so other programs can interrupt \
         it, and mode 0 can reach it"
    );
    false
}

/// Reads the clock until `over` is set, and calls `between` after each reading.
pub(super) fn read_the_clock(
    between: impl Fn(),
    recorder: Option<&Recorder>,
    over: &AtomicBool,
) -> Noticed {
    // SAFETY: the call takes no arguments.
    let thread = unsafe { libc::gettid() } as u32;
    let mut noticed = Noticed { thread, ..Noticed::default() };
    let (voluntary, involuntary) = switches();
    recorder.inspect(|recorder| recorder.start());
    let start = Instant::now();
    let mut last = start;
    // At least one reading, also where the thread gets no CPU for the whole time.
    loop {
        between();
        let now = Instant::now();
        let gap = now - last;
        noticed.gap_max = noticed.gap_max.max(gap);
        noticed.gaps += u64::from(gap > GAP);
        noticed.readings += 1;
        last = now;
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    noticed.wall = start.elapsed();
    recorder.inspect(|recorder| recorder.stop());
    let after = switches();
    (noticed.voluntary, noticed.involuntary) = (after.0 - voluntary, after.1 - involuntary);
    noticed
}

/// The calling thread's voluntary and involuntary context switches so far.
fn switches() -> (u64, u64) {
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
}
