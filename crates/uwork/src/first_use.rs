//! What the library makes at first use, and forks must not find half made: a child would wait for ever for a
//! thread that it does not have.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Held by who makes something. Taken before any other lock of the library's, and by a fork as well.
static MAKING: Mutex<()> = Mutex::new(());

thread_local! {
    /// The calling thread holds it: a reporter of the user's may come here again.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// No other thread makes anything while this is there. Stays on its thread.
pub(crate) struct Held {
    /// Nothing where the thread has it already.
    lock: Option<MutexGuard<'static, ()>>,
    not_send: PhantomData<*mut ()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.lock.is_some() {
            HOLDS.set(false);
        }
    }
}

/// Waits for who makes something: some milliseconds at most. With no lock held.
pub(crate) fn hold() -> Held {
    let lock = (!HOLDS.get()).then(|| MAKING.lock().unwrap_or_else(PoisonError::into_inner));
    HOLDS.set(true);
    Held { lock, not_send: PhantomData }
}

/// What is in `cell`, made by `make` if it is not there.
///
/// # Panics
/// If `make` does.
pub(crate) fn made<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    match cell.get() {
        Some(value) => value,
        None => {
            let _held = hold();
            cell.get_or_init(make)
        }
    }
}
