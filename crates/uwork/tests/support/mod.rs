//! What the tests share: bounded waits, gates, logs of events, and items with a closure in them.
//!
//! Nothing here sleeps. Every wait ends with a panic or an abort, so that a hang is a failure.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod blocks;
pub(crate) mod child;
pub(crate) mod counting;
pub(crate) mod filter;
pub(crate) mod forked;
pub(crate) mod gate;
pub(crate) mod items;
pub(crate) mod machine;
pub(crate) mod moved;
pub(crate) mod offline;
pub(crate) mod percpu;
pub(crate) mod random;
pub(crate) mod slow;
pub(crate) mod tiers;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use uwork::{Builder, Queue};

/// How long a whole test may take.
const TEST_MAX: Duration = Duration::from_secs(60 * slow::SLOW);
/// How long one wait may take.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20 * slow::SLOW);

/// Aborts the process, with the name of the test, if the test is not over in time.
pub(crate) struct Watchdog(Option<Sender<()>>);

pub(crate) fn watchdog() -> Watchdog {
    let (alive, over) = channel::<()>();
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let watch = move || {
        if over.recv_timeout(TEST_MAX) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{test} hangs: not over after {TEST_MAX:?}");
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

/// Runs `f` on a thread of its own and panics if it does not come back. The thread is left behind
/// then, and with it whatever `f` holds: give it clones.
pub(crate) fn within<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = channel();
    let thread = thread::spawn(move || drop(done.send(f())));
    match result.recv_timeout(WAIT_MAX) {
        Ok(value) => {
            thread.join().expect("the thread has sent its result");
            value
        }
        Err(RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("a thread that returns has sent its result"),
        },
    }
}

/// Yields until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::yield_now();
    }
}

/// A builder for a queue with a name of its own.
pub(crate) fn queue(stem: &str) -> Builder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Queue::builder(format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Keeps a queue for good: dropping a queue with an item that is stuck would hang, and hide which
/// assertion failed.
pub(crate) fn keep(queue: &Queue) {
    std::mem::forget(queue.clone());
}
