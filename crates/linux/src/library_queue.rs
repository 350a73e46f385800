//! Queues that the library keeps for itself: no user can drain or fill them up.

use std::sync::OnceLock;

use crate::error::{Error, ErrorKind};
use crate::first_use;

/// The queue in `cell`, made at first use by `make`, with a name that begins with `stem`.
///
/// # Panics
/// It cannot be made: no thread can be created.
pub fn library_queue<Q>(
    cell: &'static OnceLock<Q>,
    stem: &str,
    make: fn(String) -> Result<Q, Error>,
) -> &'static Q {
    let make = || match named(stem, make) {
        Ok(queue) => queue,
        Err(error) => panic!("a queue of the library cannot be made: {error}"),
    };
    first_use::once(cell, make)
}

/// As [`library_queue`], but None if it cannot be made; the next call tries again.
pub fn try_library_queue<Q>(
    cell: &'static OnceLock<Q>,
    stem: &str,
    make: fn(String) -> Result<Q, Error>,
) -> Option<&'static Q> {
    if cell.get().is_none() {
        let _making = first_use::making();
        if cell.get().is_none() {
            // The lock is held, so the cell is still empty.
            let _ = cell.set(named(stem, make).ok()?);
        }
    }
    cell.get()
}

fn named<Q>(stem: &str, make: fn(String) -> Result<Q, Error>) -> Result<Q, Error> {
    let mut name = stem.to_owned();
    loop {
        match make(name.clone()) {
            // A queue of the user has that name.
            Err(error) if error.kind() == ErrorKind::NameTaken => name.push('\''),
            made => return made,
        }
    }
}
