//! The requests of this process and the buffers for their answers. The states and their races are
//! in the README, the transitions in `uwork_engine::exchange`.

use std::cell::UnsafeCell;

use uwork_engine::exchange::{Exchange, Exchanges, Freed, Unanswered};
use uwork_engine::futex::Futex;
use uwork_engine::host::NoStack;

use super::snapshot::Snapshot;
use crate::futex::Forever;

/// The maximum number of threads that are asked at once, including those whose caller gave up during the
/// copy. A report asks as many.
pub(super) const EXCHANGES: usize = 8;

struct Buffer(UnsafeCell<Snapshot>);

// SAFETY: one thread at a time owns a buffer, by the phase of its exchange.
unsafe impl Sync for Buffer {}

static STATES: [Exchange; EXCHANGES] = [const { Exchange::new() }; EXCHANGES];
static FREED: Freed = Freed::new();
static BUFFERS: [Buffer; EXCHANGES] =
    [const { Buffer(UnsafeCell::new(Snapshot::new())) }; EXCHANGES];

fn all() -> Exchanges<'static> {
    Exchanges { all: &STATES, freed: &FREED }
}

/// Sends a thread a request by `send`, which receives the value for the handler, and reads the
/// answer by `read`. An error if `send` fails, or no answer arrives before `futex` times out.
pub(super) fn ask<R>(
    thread: libc::pid_t,
    send: impl FnOnce(usize) -> bool,
    futex: &impl Futex,
    read: impl FnOnce(&Snapshot) -> R,
) -> Result<R, NoStack> {
    // SAFETY: this thread owns the buffer while `read` runs.
    let read = |index: usize| read(unsafe { &*BUFFERS[index].0.get() });
    all().ask(thread.cast_unsigned(), futex, send, read).map_err(|none| match none {
        Unanswered::Unsent => NoStack::Unavailable,
        Unanswered::Late => NoStack::NoAnswer,
    })
}

/// Called by the signal handler: answers request `number` with the data that `copy` writes, if the
/// caller still waits for it and the request is for `thread`, the calling one. Async-signal-safe if
/// `copy` is.
pub(super) fn answer(number: usize, thread: libc::pid_t, copy: impl FnOnce(&mut Snapshot)) {
    // SAFETY: this thread owns the buffer while `copy` runs.
    let copy = |index: usize| copy(unsafe { &mut *BUFFERS[index].0.get() });
    all().answer(number, thread.cast_unsigned(), &Forever, copy);
}

/// In the child of a fork, where no request and no handler of the parent exists: resets all
/// exchanges.
pub(crate) fn forget() {
    all().forget();
}
