//! The stack of another thread of this process, by its number.
//!
//! The thread copies it in a signal handler; this module unwinds the copy afterwards and finds the
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

use uwork_engine::futex::Futex;
use uwork_engine::host::{Frame, NoStack};

use crate::symbols;

pub(super) use exchange::forget;
#[cfg(feature = "control")]
pub(super) use signal::{
    OF_CLIENTS, give_up_signal_of_clients, has_signal_of_clients, interrupt, keep_handler,
};
pub(super) use signal::{number as signal, taken};

/// The frames of a thread of this process, innermost first. Inlined functions are frames of their
/// own, with the address of the function that contains them.
///
/// An error if the thread has ended, or does not answer within 100 ms, or within a second if it waits
/// for a CPU. To answer, it handles a signal, which makes some system calls return early (see the
/// README): ask only when necessary.
/// Reads the program's debug information at first use, which takes milliseconds; takes the locks of
/// the dynamic loader and the allocator.
pub(crate) fn of_thread(thread: u64) -> Result<Vec<Frame>, NoStack> {
    of_thread_by(thread, &patience::Patience::new(thread))
}

/// As [`of_thread`], without names: reads no file, and takes microseconds.
pub(crate) fn addresses_of_thread(thread: u64) -> Result<Vec<Frame>, NoStack> {
    let places = places_of_thread(thread, &patience::Patience::new(thread))?;
    Ok(places.into_iter().map(symbols::Place::unnamed).collect())
}

/// As [`of_thread`], until `futex` times out.
fn of_thread_by(thread: u64, futex: &impl Futex) -> Result<Vec<Frame>, NoStack> {
    Ok(symbols::frames(places_of_thread(thread, futex)?))
}

fn places_of_thread(thread: u64, futex: &impl Futex) -> Result<Vec<symbols::Place>, NoStack> {
    let signal = signal::installed().filter(|&signal| signal::reaches(signal, thread));
    let signal = signal.ok_or(NoStack::Unavailable)?;
    let thread = libc::pid_t::try_from(thread).map_err(|_| NoStack::Unavailable)?;
    let send = |value| signal::send(signal, thread, value);
    exchange::ask(thread, send, futex, unwind::places)
}
