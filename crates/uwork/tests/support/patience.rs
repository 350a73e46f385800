//! Waits of tests that start processes. The time that a descendant of this process runs, and the
//! time that a thread waits for a CPU, count as progress: a wait is a hang only if no thread runs or
//! is ready to run.
//!
//! Only the standard library and libc are used: several crates include this file by its path,
//! beside `guard.rs`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::guard::{Guard, Hang, progress};

/// How long a wait may last in which nothing happens.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Less time than this belongs to threads that only wake up now and then, such as those of an idle
/// redis-server, and those that answer a test that polls.
const WORKED_MIN: Duration = Duration::from_millis(1_200);
/// How often a wait looks at the other processes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The pauses of a wait that polls double up to this one.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The guard of one wait, for loops that poll or wait in turns.
pub(crate) struct Patience {
    guard: Guard,
    /// None before the first look: a wait that is over at once costs nothing.
    worked: Option<Duration>,
    next_look: Instant,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        let next_look = Instant::now() + LOOK_EVERY;
        Patience { guard: Guard::new(IDLE_MAX), worked: None, next_look }
    }

    /// How long to wait until the next [`Patience::look`].
    pub(crate) fn turn(&self) -> Duration {
        LOOK_EVERY
    }

    /// Call it in each round of a loop.
    pub(crate) fn look(&mut self) -> Result<(), Hang> {
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            let worked = worked();
            let before = *self.worked.get_or_insert(worked);
            // A process that has ended takes its time along.
            if worked.abs_diff(before) >= WORKED_MIN {
                self.worked = Some(worked);
                progress();
            }
        }
        self.guard.poll()
    }
}

/// Waits until a condition holds. It is tested again and again, with pauses.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut patience = Patience::new();
    let mut pause = Duration::from_micros(100);
    while !holds() {
        patience.look().unwrap_or_else(|hang| panic!("waited in vain until {what}: {hang}"));
        thread::park_timeout(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Waits for the next message.
#[track_caller]
pub(crate) fn received<T>(what: &str, from: &Receiver<T>) -> T {
    let mut patience = Patience::new();
    loop {
        match from.recv_timeout(patience.turn()) {
            Ok(message) => return message,
            Err(RecvTimeoutError::Disconnected) => panic!("{what}: its thread has ended"),
            Err(RecvTimeoutError::Timeout) => {
                patience.look().unwrap_or_else(|hang| panic!("{what}: {hang}"));
            }
        }
    }
}

/// Runs `f` on a thread of its own and waits for its result. If `f` hangs, the thread remains.
#[track_caller]
pub(crate) fn within<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = std::sync::mpsc::channel();
    thread::spawn(move || drop(done.send(f())));
    received(what, &result)
}

/// The time that the descendants of this process, and its other threads, have run and have waited
/// for a CPU so far.
fn worked() -> Duration {
    let this = std::process::id();
    // SAFETY: the call has no preconditions.
    let thread = unsafe { libc::gettid() }.cast_unsigned();
    let time = |&process: &u32| {
        let threads = numbers(&format!("/proc/{process}/task"));
        let others = threads.into_iter().filter(move |&other| other != thread);
        others.map(move |thread| of_thread(process, thread)).sum::<u64>()
    };
    Duration::from_nanos(family(this).iter().map(time).sum())
}

/// The nanoseconds that a thread has run and has waited for a CPU. Zero if it has ended.
fn of_thread(process: u32, thread: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"));
    let text = text.unwrap_or_default();
    text.split_whitespace().take(2).filter_map(|number| number.parse::<u64>().ok()).sum()
}

/// A process and its descendants.
fn family(first: u32) -> HashSet<u32> {
    let parents: HashMap<u32, u32> = numbers("/proc").into_iter().filter_map(with_parent).collect();
    let is_of_family = |&process: &u32| {
        let ancestors =
            std::iter::successors(Some(process), |process| parents.get(process).copied());
        // More ancestors than processes: a number was used again while this was read.
        ancestors.take(parents.len() + 1).any(|ancestor| ancestor == first)
    };
    parents.keys().copied().filter(is_of_family).collect()
}

/// A process and its parent.
fn with_parent(process: u32) -> Option<(u32, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may have spaces.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    Some((process, parent))
}

/// The entries of a folder whose names are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
