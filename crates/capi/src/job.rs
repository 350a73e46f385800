//! Jobs: functions that are queued without an item of the program. The library allocates the item.

use std::ffi::{c_int, c_void};

use uwork::foreign::{must_return, try_spawn};
use uwork::{JoinError, JoinHandle};

use crate::error::{caught, fail, failed_join, guarded};
use crate::memory::{Room, has_reserve};
use crate::queue::{UwQueue, queue, set_errno};

/// The function of a job.
pub type UwJobFn = Option<unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void>;

/// A queued function.
pub struct UwJob(JoinHandle<Pointer>);

/// The function's argument or its result.
pub(crate) struct Pointer(*mut c_void);

// SAFETY: by uwork.h the function runs on another thread, with that argument.
unsafe impl Send for Pointer {}

impl Pointer {
    pub(crate) fn new(pointer: *mut c_void) -> Pointer {
        Pointer(pointer)
    }

    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

/// The handle that C gets.
pub(crate) fn leaked(room: Room<UwJob>, handle: JoinHandle<Pointer>) -> *mut UwJob {
    Box::into_raw(room.fill(UwJob(handle)))
}

/// Queues a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_spawn(
    handle: *mut UwQueue,
    func: UwJobFn,
    arg: *mut c_void,
) -> *mut UwJob {
    let arg = Pointer(arg);
    let made = queue(handle).and_then(|queue| {
        let func = crate::cpu::given(func)?;
        has_reserve()?;
        let room = Room::new()?;
        let job = caught(|| {
            // SAFETY: by uwork.h.
            try_spawn(queue, move || Pointer(must_return(|| unsafe { func(arg.get()) })))
        })?;
        let job = job.ok_or_else(|| fail(libc::ENOMEM, "no memory for a job"))?;
        Ok((room, job))
    });
    match made {
        Ok((room, job)) => leaked(room, job),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// Waits for a job, and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_job_join(job: *mut UwJob, result: *mut *mut c_void) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { join_by(JoinHandle::join, job, result) }
}

/// The same, but the caller never runs the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_job_join_waiting(job: *mut UwJob, result: *mut *mut c_void) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { join_by(JoinHandle::join_waiting, job, result) }
}

/// # Safety
/// `job` is null, or from `uw_queue_spawn` and not freed yet; `result` is null, or a valid place.
unsafe fn join_by(
    join: fn(JoinHandle<Pointer>) -> Result<Pointer, JoinError>,
    job: *mut UwJob,
    result: *mut *mut c_void,
) -> c_int {
    if job.is_null() {
        return crate::error::misuse(libc::EINVAL, "the job is NULL");
    }
    // SAFETY: by this function's contract; freed once.
    let job = unsafe { Box::from_raw(job) };
    match guarded(|| join(job.0)) {
        Ok(Ok(value)) => {
            // SAFETY: by this function's contract.
            if let Some(result) = unsafe { result.as_mut() } {
                *result = value.get();
            }
            0
        }
        Ok(Err(error)) => failed_join(&error),
        Err(code) => code,
    }
}

/// Cancels a job that has not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_job_cancel(job: *const UwJob) -> c_int {
    // SAFETY: null, or from `uw_queue_spawn` and not freed yet (uwork.h).
    match unsafe { job.as_ref() } {
        Some(job) => caught(|| job.0.cancel()).map_or_else(|code| code, c_int::from),
        None => fail(libc::EINVAL, "the job is NULL"),
    }
}

/// Whether a job has finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_job_is_finished(job: *const UwJob) -> c_int {
    // SAFETY: as in `uw_job_cancel`.
    match unsafe { job.as_ref() } {
        Some(job) => c_int::from(job.0.is_finished()),
        None => fail(libc::EINVAL, "the job is NULL"),
    }
}

/// Frees the handle. The job runs as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_job_detach(job: *mut UwJob) {
    if !job.is_null() {
        // SAFETY: as in `uw_job_join`.
        let job = unsafe { Box::from_raw(job) };
        let _ = caught(|| drop(job));
    }
}

/// The errno value for the error of a join.
pub(crate) fn errno_of(error: &JoinError) -> c_int {
    match error {
        JoinError::Cancelled | JoinError::Forked => libc::ECANCELED,
        JoinError::Refused => libc::ESHUTDOWN,
        JoinError::WouldDeadlock => libc::EDEADLK,
        _ => libc::ENOTRECOVERABLE,
    }
}
