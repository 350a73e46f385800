//! The requests of this process and the buffers for their answers. The states and their races are in the
//! README, the transitions in `uwork_engine::exchange`.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use uwork_engine::exchange::{Exchange, Exchanges, Unanswered};
use uwork_engine::futex::Futex;
use uwork_engine::host::NoStack;

use super::snapshot::Snapshot;
use crate::linux::futex::{self, Forever};

/// Requests that can be under way at once, including those whose caller gave up during the copy.
const EXCHANGES: usize = 4;

struct Buffer(UnsafeCell<Snapshot>);

// SAFETY: a buffer belongs to one thread at a time, by the phase of its exchange.
unsafe impl Sync for Buffer {}

static STATES: [Exchange; EXCHANGES] = [const { Exchange::new() }; EXCHANGES];
static FREED: AtomicU32 = AtomicU32::new(0);
static BUFFERS: [Buffer; EXCHANGES] =
    [const { Buffer(UnsafeCell::new(Snapshot::new())) }; EXCHANGES];

fn all() -> Exchanges<'static> {
    Exchanges { all: &STATES, freed: &FREED }
}

/// Sleeps until a deadline at most.
struct Until(Instant);

impl Futex for Until {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        let left = self.0.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return false;
        }
        futex::wait(word, expected, Some(left));
        true
    }

    fn wake(&self, word: *const AtomicU32) {
        futex::wake(word);
    }
}

/// Asks a thread by `send`, which gets what the handler is to get, and reads the answer by `read`. An error
/// if `send` fails, or no answer has come by the deadline.
pub(super) fn ask<R>(
    thread: libc::pid_t,
    send: impl FnOnce(usize) -> bool,
    deadline: Instant,
    read: impl FnOnce(&Snapshot) -> R,
) -> Result<R, NoStack> {
    // SAFETY: the buffer is ours while `read` runs.
    let read = |index: usize| read(unsafe { &*BUFFERS[index].0.get() });
    all().ask(thread.cast_unsigned(), &Until(deadline), send, read).map_err(|none| match none {
        Unanswered::Unsent => NoStack::Unavailable,
        Unanswered::Late => NoStack::NoAnswer,
    })
}

/// What the signal handler does: answers request `number` with what `copy` writes, if the caller still
/// waits for it and `thread`, the calling one, is meant. Async-signal-safe if `copy` is.
pub(super) fn answer(number: usize, thread: libc::pid_t, copy: impl FnOnce(&mut Snapshot)) {
    // SAFETY: the buffer is ours while `copy` runs.
    let copy = |index: usize| copy(unsafe { &mut *BUFFERS[index].0.get() });
    all().answer(number, thread.cast_unsigned(), &Forever, copy);
}

/// In the child of a fork, where all requests and handlers are gone.
pub(in crate::linux) fn forget() {
    all().forget();
}
