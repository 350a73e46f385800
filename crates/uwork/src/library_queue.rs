//! Queues that the library keeps for itself: no user can drain or fill them up.

use std::sync::OnceLock;

use uwork_linux::first_use;

use crate::builder::Builder;
use crate::error::{Error, ErrorKind};
use crate::queue::Queue;

/// The queue in `cell`, made at first use, with a name that begins with `stem`.
///
/// # Panics
/// It cannot be made: no thread can be created.
pub(crate) fn library_queue(
    cell: &'static OnceLock<Queue>,
    stem: &str,
    describe: fn(Builder) -> Builder,
) -> &'static Queue {
    let make = || match make(stem, describe) {
        Ok(queue) => queue,
        Err(error) => panic!("a queue of the library cannot be made: {error}"),
    };
    first_use::once(cell, make)
}

/// As [`library_queue`], but None if it cannot be made; the next call tries again.
pub(crate) fn try_library_queue(
    cell: &'static OnceLock<Queue>,
    stem: &str,
    describe: fn(Builder) -> Builder,
) -> Option<&'static Queue> {
    if cell.get().is_none() {
        let _making = first_use::making();
        if cell.get().is_none() {
            // The lock is held, so the cell is still empty.
            let _ = cell.set(make(stem, describe).ok()?);
        }
    }
    cell.get()
}

fn make(stem: &str, describe: fn(Builder) -> Builder) -> Result<Queue, Error> {
    let mut name = stem.to_owned();
    loop {
        match describe(Queue::builder(name.as_str())).build() {
            // A queue of the user has that name.
            Err(error) if error.kind() == ErrorKind::NameTaken => name.push('\''),
            made => return made,
        }
    }
}
