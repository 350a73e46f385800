//! `struct uw_bridge_job`: a job in the hands of its handler, and the reply that it prepares.

use std::cell::OnceCell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use uwork_bridge::{Failure, Job, Reply};
use uwork_capi::error::{guard, misuse, must_return};

use crate::given::{array, bytes, text};

/// A job during a call of its handler.
pub struct UwBridgeJob {
    job: *const Job,
    texts: [OnceCell<CString>; 5],
    result: Option<Vec<u8>>,
    effect: Option<Vec<Vec<u8>>>,
    error: Option<String>,
}

/// The handler's function.
pub type UwBridgeFn = Option<unsafe extern "C-unwind" fn(*mut UwBridgeJob, *mut c_void) -> c_int>;

/// A word of a command of the server.
#[repr(C)]
pub struct UwBridgeWord {
    /// Its bytes.
    pub bytes: *const c_void,
    /// Their number.
    pub length: usize,
}

/// `enum uw_bridge_outcome`.
const DONE: c_int = 0;
const AGAIN: c_int = 1;
const DEAD: c_int = 2;
const NOT_NOW: c_int = 3;

/// Runs a job with a handler in C.
pub(crate) fn run(
    job: &Job,
    function: unsafe extern "C-unwind" fn(*mut UwBridgeJob, *mut c_void) -> c_int,
    arg: *mut c_void,
) -> Result<Reply, Failure> {
    let mut given =
        UwBridgeJob { job, texts: Default::default(), result: None, effect: None, error: None };
    // SAFETY: by uwork-bridge.h the function may run on any thread until the consumer has ended.
    let outcome = must_return(|| unsafe { function(&raw mut given, arg) });
    let text = given.error.take();
    let text = || text.unwrap_or_else(|| "the handler failed and set no error".to_owned());
    match outcome {
        DONE => {
            let reply = given.result.map_or_else(Reply::done, Reply::result);
            Ok(given.effect.into_iter().fold(reply, Reply::effect))
        }
        AGAIN => Err(Failure::again(text())),
        DEAD => Err(Failure::dead(text())),
        NOT_NOW => Err(Failure::not_now(text())),
        other => Err(Failure::again(format!(
            "the handler returned {other}; allowed are {DONE} to {NOT_NOW} (enum uw_bridge_outcome)"
        ))),
    }
}

/// The job of a handler that runs.
///
/// # Safety
/// `job` is NULL, or what the handler of the calling thread was called with.
unsafe fn job<'a>(job: *const UwBridgeJob) -> Option<(&'a UwBridgeJob, &'a Job)> {
    // SAFETY: by the caller; the inner pointer lives as long as the call of the handler.
    unsafe { job.as_ref().and_then(|given| Some((given, given.job.as_ref()?))) }
}

/// A text of the job, which lives as long as the call of its handler; NULL if it has none.
///
/// # Safety
/// As for [`job`].
unsafe fn lend(
    pointer: *const UwBridgeJob,
    nth: usize,
    text: impl Fn(&Job) -> Option<String>,
) -> *const c_char {
    // SAFETY: by the caller.
    let Some((given, job)) = (unsafe { job(pointer) }) else { return std::ptr::null() };
    let Some(mut text) = text(job) else { return std::ptr::null() };
    // A text for C ends at its first zero byte.
    text.truncate(text.find('\0').unwrap_or(text.len()));
    given.texts[nth].get_or_init(|| CString::new(text).unwrap_or_default()).as_ptr()
}

/// The payload and its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_payload(
    pointer: *const UwBridgeJob,
    length: *mut usize,
) -> *const c_void {
    // SAFETY: by uwork-bridge.h.
    let payload = unsafe { job(pointer) }.map_or(&[][..], |(_, job)| job.payload());
    // SAFETY: NULL or a valid place, by uwork-bridge.h.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = payload.len();
    }
    payload.as_ptr().cast()
}

/// The id: the producer's, or the number of the entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_id(job: *const UwBridgeJob) -> *const c_char {
    // SAFETY: by uwork-bridge.h.
    unsafe { lend(job, 0, |job| Some(job.id())) }
}

/// The name of the handler, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_handler(job: *const UwBridgeJob) -> *const c_char {
    // SAFETY: by uwork-bridge.h.
    unsafe { lend(job, 1, |job| job.handler().map(str::to_owned)) }
}

/// The key that chose the shard, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_key(job: *const UwBridgeJob) -> *const c_char {
    // SAFETY: by uwork-bridge.h.
    unsafe { lend(job, 2, |job| job.key().map(str::to_owned)) }
}

/// The stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_stream(job: *const UwBridgeJob) -> *const c_char {
    // SAFETY: by uwork-bridge.h.
    unsafe { lend(job, 3, |job| Some(job.stream().to_owned())) }
}

/// The error of the attempt before, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_last_error(job: *const UwBridgeJob) -> *const c_char {
    // SAFETY: by uwork-bridge.h.
    unsafe { lend(job, 4, |job| job.last_error().map(str::to_owned)) }
}

/// The number of this attempt, from 1; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_attempt(pointer: *const UwBridgeJob) -> c_uint {
    // SAFETY: by uwork-bridge.h.
    unsafe { job(pointer) }.map_or(0, |(_, job)| job.attempt())
}

/// Whether the run has lost its job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_is_abandoned(pointer: *const UwBridgeJob) -> bool {
    // SAFETY: by uwork-bridge.h.
    unsafe { job(pointer) }.is_some_and(|(_, job)| job.is_abandoned())
}

/// Changes the reply of a job.
///
/// # Safety
/// As for [`job`].
unsafe fn change(
    pointer: *mut UwBridgeJob,
    body: impl FnOnce(&mut UwBridgeJob) -> Result<(), c_int>,
) -> c_int {
    // SAFETY: by the caller.
    match unsafe { pointer.as_mut() } {
        Some(given) => guard(|| body(given).map_or_else(|code| code, |()| 0)),
        None => misuse(libc::EINVAL, "the job is NULL"),
    }
}

/// Sets the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_set_result(
    job: *mut UwBridgeJob,
    result: *const c_void,
    length: usize,
) -> c_int {
    let body = |given: &mut UwBridgeJob| {
        // SAFETY: by uwork-bridge.h.
        given.result = Some(unsafe { bytes("the result", result, length) }?);
        Ok(())
    };
    // SAFETY: by uwork-bridge.h.
    unsafe { change(job, body) }
}

/// Sets the error of a handler that fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_set_error(
    job: *mut UwBridgeJob,
    error: *const c_char,
) -> c_int {
    let body = |given: &mut UwBridgeJob| {
        // SAFETY: by uwork-bridge.h.
        given.error = unsafe { text("the error", error) }?;
        Ok(())
    };
    // SAFETY: by uwork-bridge.h.
    unsafe { change(job, body) }
}

/// Sets the command that the server runs together with the acknowledgement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_job_add_effect(
    job: *mut UwBridgeJob,
    words: *const UwBridgeWord,
    count: usize,
) -> c_int {
    let body = |given: &mut UwBridgeJob| {
        // SAFETY: by uwork-bridge.h.
        let words = unsafe { array("the command", words, count) }?;
        if words.is_empty() {
            return Err(uwork_capi::error::fail(libc::EINVAL, "the command has no word"));
        }
        let word = |word: &UwBridgeWord| {
            // SAFETY: by uwork-bridge.h.
            unsafe { bytes("a word of the command", word.bytes, word.length) }
        };
        if given.effect.is_some() {
            let text = "the job has an effect: allowed is 1, a command or a script (EVAL)";
            return Err(uwork_capi::error::fail(libc::EINVAL, text));
        }
        given.effect = Some(words.iter().map(word).collect::<Result<_, _>>()?);
        Ok(())
    };
    // SAFETY: by uwork-bridge.h.
    unsafe { change(job, body) }
}
