//! The stacks of other threads of this process, by their numbers.
//!
//! A thread copies it in a signal handler; this module unwinds the copy afterwards and finds the
//! names. The README describes the protocol, the signal, and the effects on the thread.

mod exchange;
mod patience;
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod registers;
mod signal;
mod snapshot;
#[cfg(test)]
mod tests;
mod unwind;

use std::time::{Duration, Instant};

use uwork_engine::futex::Futex;
use uwork_engine::host::{Frame, NoStack};

use crate::symbols;

pub(super) use exchange::forget;
#[cfg(feature = "control")]
pub(super) use signal::{
    OF_CLIENTS, give_up_signal_of_clients, has_signal_of_clients, interrupt, keep_handler,
};
pub(super) use signal::{number as signal, taken};

/// How long the threads of a request may take to answer, all together. One that gets no CPU has all of
/// it, other threads have less ([`patience`]). The clients of the control socket wait for 1.5 s.
const ANSWERS_MAX: Duration = Duration::from_millis(600);

/// The frames of threads of this process, innermost first. Inlined functions are frames of their
/// own, with the address of the function that contains them. Without `named` frames have addresses
/// alone: that reads no file, and takes microseconds.
///
/// An error if a thread has ended, or does not answer within 100 ms, or within 0.6 s if it waits for a
/// CPU. To answer, it handles a signal, which makes some system calls return early (see the README):
/// ask only when necessary.
/// Names read the program's debug information at first use, which takes milliseconds, and take the
/// locks of the dynamic loader and the allocator.
pub(crate) fn of_threads(threads: &[u64], named: bool) -> Vec<Result<Vec<Frame>, NoStack>> {
    let frames = |places: Vec<symbols::Place>| match named {
        true => symbols::frames(places),
        false => places.into_iter().map(symbols::Place::unnamed).collect(),
    };
    let places = places_of_threads(threads, Instant::now() + ANSWERS_MAX);
    places.into_iter().map(|places| places.map(frames)).collect()
}

/// The calls of each thread. A thread is waited for when all behind it have been asked and waited for:
/// threads without a CPU wait for it at the same time.
fn places_of_threads(threads: &[u64], last: Instant) -> Vec<Result<Vec<symbols::Place>, NoStack>> {
    let Some((&thread, behind)) = threads.split_first() else { return Vec::new() };
    let mut others = None;
    let ask_others = || others = Some(places_of_threads(behind, last));
    let places = places_of_thread(thread, &patience::Patience::new(thread, last), ask_others);
    let others = others.unwrap_or_else(|| places_of_threads(behind, last));
    std::iter::once(places).chain(others).collect()
}

/// The calls of a thread, which answers until `futex` times out. `meanwhile` is called when it has been
/// asked.
fn places_of_thread(
    thread: u64,
    futex: &impl Futex,
    meanwhile: impl FnOnce(),
) -> Result<Vec<symbols::Place>, NoStack> {
    let signal = signal::installed().filter(|&signal| signal::reaches(signal, thread));
    let signal = signal.ok_or(NoStack::Unavailable)?;
    let thread = libc::pid_t::try_from(thread).map_err(|_| NoStack::Unavailable)?;
    let send = |value| {
        let is_sent = signal::send(signal, thread, value);
        meanwhile();
        is_sent
    };
    exchange::ask(thread, send, futex, unwind::places)
}
