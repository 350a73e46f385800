//! What the process has one of and makes at first use, so that no fork finds it half made.
//!
//! A thread that makes something holds a lock; a fork takes that lock first of all. Otherwise the child, which does
//! not have the thread, would wait for ever for what the thread was about to make. What is made may need something
//! else of the kind, and a report of its making may have the program use a queue: then the thread has the lock already.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Taken before any other lock of the library's, and held while something is made.
static MAKING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether the thread holds that lock.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// The lock, held; nothing where the thread had it already.
pub(crate) struct Making(Option<MutexGuard<'static, ()>>);

impl Making {
    fn begin() -> Making {
        let first = !MAKES.replace(true);
        Making(first.then(|| MAKING.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.0.is_some() {
            MAKES.set(false);
        }
    }
}

/// What is in `cell`, made if it is not there.
#[inline]
pub(crate) fn once<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    cell.get().unwrap_or_else(|| first(cell, make))
}

#[cold]
fn first<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    let _making = making();
    cell.get_or_init(make)
}

/// Nobody else makes anything while this is there. With no lock of the library's held.
pub(crate) fn making() -> Making {
    crate::linux::are_watched();
    Making::begin()
}

/// Before a fork, on the thread that forks: waits until nothing is half made, and keeps it so.
pub(crate) fn hold() -> Making {
    Making::begin()
}
