//! Bounded queues: a bound on the jobs and items that wait in a queue.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use uwork::foreign::must_return;
use uwork::{BoundedQueue, Error, ErrorKind, RejectedError, Reservation};

use crate::error::{done, fail, failed, guarded, misuse, quick};
use crate::job::{Pointer, UwJob, UwJobFn, leaked};
use crate::memory::{Room, can_create, has_reserve};
use crate::queue::{UwQueue, queue, set_errno};

/// A queue with a bound.
pub struct UwBounded(BoundedQueue);

/// How a producer meets a full queue.
enum Patience {
    Waits,
    Tries,
    WaitsFor(Duration),
}

fn with_bounded(bounded: *const UwBounded, body: impl FnOnce(&BoundedQueue) -> c_int) -> c_int {
    // SAFETY: null, or from `uw_bounded_create` and not freed yet (uwork.h).
    match unsafe { bounded.as_ref() } {
        Some(bounded) => quick(|| body(&bounded.0)),
        None => misuse(libc::EINVAL, "the bounded queue is NULL"),
    }
}

/// The errno value of a refused producer: a wait that ended is not `EAGAIN`.
fn refused(error: &Error, patience: &Patience) -> c_int {
    match (error.kind(), patience) {
        (ErrorKind::Full, Patience::WaitsFor(_)) => {
            fail(libc::ETIMEDOUT, format!("no place became free in time: {error}"))
        }
        _ => failed(error),
    }
}

/// Bounds the jobs and items that wait in a queue.
#[unsafe(no_mangle)]
pub extern "C" fn uw_bounded_create(handle: *mut UwQueue, capacity: usize) -> *mut UwBounded {
    let made = queue(handle).and_then(|queue| {
        can_create()?;
        guarded(|| BoundedQueue::new(queue, capacity))?.map_err(|error| failed(&error))
    });
    match made {
        Ok(bounded) => Box::into_raw(Box::new(UwBounded(bounded))),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// Frees the bound. The queue stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bounded_destroy(bounded: *mut UwBounded) {
    if !bounded.is_null() {
        // SAFETY: from `uw_bounded_create`, and freed once (uwork.h).
        let bounded = unsafe { Box::from_raw(bounded) };
        let _ = guarded(|| drop(bounded));
    }
}

fn spawn(
    bounded: *mut UwBounded,
    func: UwJobFn,
    arg: *mut c_void,
    patience: &Patience,
) -> *mut UwJob {
    let arg = Pointer::new(arg);
    let mut job = std::ptr::null_mut();
    let code = with_bounded(bounded, |bounded| {
        let func = match crate::cpu::given(func) {
            Ok(func) => func,
            Err(code) => return code,
        };
        // SAFETY: by uwork.h.
        let closure = move || Pointer::new(must_return(|| unsafe { func(arg.get()) }));
        let room = match has_reserve().and_then(|()| Room::new()) {
            Ok(room) => room,
            Err(code) => return code,
        };
        let outcome = match *patience {
            Patience::Waits => bounded.spawn(closure),
            Patience::Tries => bounded.try_spawn(closure),
            Patience::WaitsFor(limit) => bounded.spawn_timeout(closure, limit),
        };
        match outcome {
            Ok(handle) => {
                job = leaked(room, handle);
                0
            }
            Err(RejectedError { error, .. }) => refused(&error, patience),
        }
    });
    if code < 0 {
        set_errno(-code);
    }
    job
}

/// Queues a function; waits for a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bounded_spawn(
    bounded: *mut UwBounded,
    func: UwJobFn,
    arg: *mut c_void,
) -> *mut UwJob {
    spawn(bounded, func, arg, &Patience::Waits)
}

/// Queues a function if a place is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bounded_try_spawn(
    bounded: *mut UwBounded,
    func: UwJobFn,
    arg: *mut c_void,
) -> *mut UwJob {
    spawn(bounded, func, arg, &Patience::Tries)
}

/// Queues a function; waits for a place for `timeout_ns` at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bounded_spawn_timeout(
    bounded: *mut UwBounded,
    func: UwJobFn,
    arg: *mut c_void,
    timeout_ns: u64,
) -> *mut UwJob {
    spawn(bounded, func, arg, &Patience::WaitsFor(Duration::from_nanos(timeout_ns)))
}

fn reserve(bounded: *mut UwBounded, patience: &Patience) -> c_int {
    with_bounded(bounded, |bounded| {
        let outcome = match *patience {
            Patience::Waits => bounded.reserve(),
            Patience::Tries => bounded.try_reserve(),
            Patience::WaitsFor(limit) => bounded.reserve_timeout(limit),
        };
        outcome.map(Reservation::forget).map_or_else(|error| refused(&error, patience), |()| 0)
    })
}

/// Takes a place; waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn uw_bounded_reserve(bounded: *mut UwBounded) -> c_int {
    reserve(bounded, &Patience::Waits)
}

/// Takes a place if one is free.
#[unsafe(no_mangle)]
pub extern "C" fn uw_bounded_try_reserve(bounded: *mut UwBounded) -> c_int {
    reserve(bounded, &Patience::Tries)
}

/// Takes a place; waits for `timeout_ns` at most.
#[unsafe(no_mangle)]
pub extern "C" fn uw_bounded_reserve_timeout(bounded: *mut UwBounded, timeout_ns: u64) -> c_int {
    reserve(bounded, &Patience::WaitsFor(Duration::from_nanos(timeout_ns)))
}

/// Frees a place.
#[unsafe(no_mangle)]
pub extern "C" fn uw_bounded_release(bounded: *mut UwBounded) -> c_int {
    with_bounded(bounded, |bounded| done(bounded.release()))
}
