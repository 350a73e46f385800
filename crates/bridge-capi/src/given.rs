//! What C gives: texts, arrays and bytes.

use std::ffi::{CStr, c_char, c_int, c_void};

use uwork_capi::error::{fail, misuse};

/// A text, or None for NULL.
///
/// # Safety
/// `text` is NULL or ends with a zero byte.
pub(crate) unsafe fn text(what: &str, text: *const c_char) -> Result<Option<String>, c_int> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(|text| Some(text.to_owned()))
        .map_err(|_| fail(libc::EINVAL, format!("{what} is not valid UTF-8")))
}

/// An array. NULL is allowed for an empty one.
///
/// # Safety
/// `first` is NULL or points to `count` values, which live as long as the result is used.
pub(crate) unsafe fn array<'a, T>(
    what: &str,
    first: *const T,
    count: usize,
) -> Result<&'a [T], c_int> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(misuse(libc::EINVAL, format!("{what} is NULL and not empty"))),
        // SAFETY: by the caller.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Bytes.
///
/// # Safety
/// As [`array`].
pub(crate) unsafe fn bytes(
    what: &str,
    first: *const c_void,
    length: usize,
) -> Result<Vec<u8>, c_int> {
    // SAFETY: by the caller.
    let given = unsafe { array(what, first.cast::<u8>(), length) }?;
    let mut copy = Vec::new();
    let room = copy.try_reserve_exact(given.len());
    room.map_err(|_| fail(libc::ENOMEM, format!("no memory for the {length} bytes of {what}")))?;
    copy.extend_from_slice(given);
    Ok(copy)
}
