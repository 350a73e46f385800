//! Errors: an errno value, and a text kept per thread.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use uwork::Error;
use uwork::foreign::{hold_off, payload_text};
pub use uwork::foreign::{must_return, print};

/// Room for one line. Longer texts are cut.
const TEXT_SIZE: usize = 512;

thread_local! {
    /// The text of this thread's last failed call, terminated by a zero byte. It is stored in
    /// place, so that a pointer to it stays valid for as long as the thread lives.
    static TEXT: Cell<[u8; TEXT_SIZE]> = const { Cell::new([0; TEXT_SIZE]) };
}

/// A text for C. It ends at the first zero byte.
pub(crate) fn c_string(text: impl Into<Vec<u8>>) -> CString {
    let mut bytes = text.into();
    bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
    CString::new(bytes).unwrap_or_default()
}

/// Keeps the text for the calling thread and returns `-errno`. A thread that is ending keeps no
/// text.
#[cold]
pub fn fail(errno: c_int, text: impl AsRef<str>) -> c_int {
    let text = text.as_ref().as_bytes();
    let count = text.len().min(TEXT_SIZE - 1);
    let mut kept = [0; TEXT_SIZE];
    kept[..count].copy_from_slice(&text[..count]);
    let _ = TEXT.try_with(|place| place.set(kept));
    -errno
}

/// An `unsigned` as the caller wrote it. C turns a negative `int` into a number beyond `INT_MAX`
/// without a warning, so such a number is shown as the negative one.
pub struct Written(pub c_uint);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.cast_signed().fmt(f)
    }
}

/// Like [`fail`], for an error that is always a bug of the program. With `UWORK_DEBUG=objects` it
/// ends the process.
#[cold]
pub fn misuse(errno: c_int, text: impl Into<String>) -> c_int {
    let text = text.into();
    if crate::debug::is_on() {
        crate::debug::abort(&text);
    }
    fail(errno, text)
}

/// Converts an error of the library to a negative errno value, and keeps its text.
#[cold]
pub(crate) fn failed(error: &Error) -> c_int {
    fail(error.kind().errno(), error.to_string())
}

/// 0, or the error as a negative errno value.
pub(crate) fn done(outcome: Result<(), Error>) -> c_int {
    outcome.map_or_else(|error| failed(&error), |()| 0)
}

/// Runs `body`, and meanwhile holds cancellation of the thread off. A panic in it becomes
/// `ENOTRECOVERABLE`, with the panic's message as the text.
///
/// For calls that wait, create or inspect, and for those that run functions of the program.
pub fn guarded<R>(body: impl FnOnce() -> R) -> Result<R, c_int> {
    let _held_off = hold_off();
    caught(body)
}

/// The same for frequent calls, which have no cancellation point: the library holds cancellation off
/// in their rare parts itself.
pub fn caught<R>(body: impl FnOnce() -> R) -> Result<R, c_int> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        let code = fail(libc::ENOTRECOVERABLE, payload_text(&*payload).unwrap_or("panicked"));
        // A payload may panic when it is dropped, and so may that panic's payload.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        dropped.unwrap_or_else(std::mem::forget);
        code
    })
}

/// Like [`guarded`], for a `body` that returns a code itself.
pub fn guard(body: impl FnOnce() -> c_int) -> c_int {
    guarded(body).unwrap_or_else(|code| code)
}

/// As [`caught`], for a `body` that returns a code itself.
pub fn quick(body: impl FnOnce() -> c_int) -> c_int {
    caught(body).unwrap_or_else(|code| code)
}

/// The text of this thread's last call that failed, in one line; "" if none failed. Valid until the
/// thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn uw_error_text() -> *const c_char {
    TEXT.try_with(|place| place.as_ptr().cast_const().cast()).unwrap_or(c"".as_ptr())
}

/// The library's version, as in `UW_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn uw_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Passes a text to C. The caller frees it with [`uw_string_free`].
pub(crate) fn give(text: String) -> *mut c_char {
    c_string(text).into_raw()
}

/// Frees a text that the library created. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the text comes from `give`, and is freed once (uwork.h).
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Converts the error of a join to a negative errno value, and keeps its text.
#[cold]
pub(crate) fn failed_join(error: &uwork::JoinError) -> c_int {
    fail(crate::job::errno_of(error), error.to_string())
}
