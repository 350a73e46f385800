//! Shared parts of the tests: bounded waits, gates, logs of events, and items with a closure.
//!
//! Nothing here sleeps. Every wait ends with a panic or an abort, so that a hang is a failure.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod blocks;
pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod counting;
pub(crate) mod descriptors;
pub(crate) mod executor;
pub(crate) mod filter;
pub(crate) mod flag;
pub(crate) mod forked;
pub(crate) mod gate;
pub(crate) mod guard;
pub(crate) mod items;
pub(crate) mod left_out;
pub(crate) mod machine;
pub(crate) mod moved;
pub(crate) mod offline;
pub(crate) mod percpu;
pub(crate) mod random;
pub(crate) mod signals;
pub(crate) mod slow;
pub(crate) mod stderr;
pub(crate) mod tiers;
pub(crate) mod users;

use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use guard::{Guard, Hang, in_turns};
use uwork::{Builder, Queue};

/// How long a whole test may make no progress.
pub(crate) const TEST_MAX: Duration = Duration::from_secs(60 * slow::SLOW);
/// How long the process may make no progress in one wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20 * slow::SLOW);
/// The limit of a wait whose end only the system sees, such as a timeout of a system call. The
/// watchdog of its test ends a hang.
pub(crate) const WAIT_CAP: Duration = Duration::from_secs(3_600);

/// Aborts the process, with the name and the place of the test, if the test hangs.
pub(crate) struct Watchdog(Option<Sender<()>>);

#[track_caller]
pub(crate) fn watchdog() -> Watchdog {
    stderr::report_panics_of_children();
    let (alive, over) = channel::<()>();
    // The harness names the thread of a test after the test.
    let (thread, place) = (thread::current(), Location::caller());
    let test = format!("test {} ({place})", thread.name().unwrap_or("of an unnamed thread"));
    let watch = move || {
        let is_over = |turn| match over.recv_timeout(turn) {
            Err(RecvTimeoutError::Timeout) => None,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Some(()),
        };
        if let Err(hang) = in_turns(TEST_MAX, is_over) {
            stderr::line(&format!("{test} {hang}"));
            std::process::abort();
        }
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(watch).expect("a watchdog thread");
    Watchdog(Some(alive))
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// Runs `f` on a thread of its own and panics if it does not return. The thread then remains, with
/// everything that `f` holds: give it clones.
pub(crate) fn within<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = channel();
    let thread = thread::spawn(move || drop(done.send(f())));
    match received(&result) {
        Ok(value) => {
            thread.join().expect("the thread has sent its result");
            value
        }
        Err(Missing::Hangs(hang)) => panic!("{what}: {hang}"),
        Err(Missing::SenderGone) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("a thread that returns has sent its result"),
        },
    }
}

/// Why no message was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    SenderGone,
    Hangs(Hang),
}

/// The next message.
pub(crate) fn received<T>(from: &Receiver<T>) -> Result<T, Missing> {
    let next = |turn| match from.recv_timeout(turn) {
        Err(RecvTimeoutError::Timeout) => None,
        other => Some(other.map_err(|_| Missing::SenderGone)),
    };
    in_turns(WAIT_MAX, next).unwrap_or_else(|hang| Err(Missing::Hangs(hang)))
}

/// Yields until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut guard = Guard::new(WAIT_MAX);
    while !condition() {
        guard.poll().unwrap_or_else(|hang| panic!("waited in vain until {what}: {hang}"));
        thread::yield_now();
    }
}

/// A builder for a queue with a unique name.
pub(crate) fn queue(stem: &str) -> Builder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Queue::builder(format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Keeps a queue for good: dropping a queue with a stuck item would hang, and hide which assertion
/// failed.
pub(crate) fn keep(queue: &Queue) {
    std::mem::forget(queue.clone());
}
