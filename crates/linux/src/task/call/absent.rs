//! No stub for this processor: calls that a notification could end are refused.

use super::Place;

/// Whether this processor has a stub.
pub(super) const HAS_STUB: bool = false;

/// `ENOSYS`.
///
/// # Safety
/// None needed.
pub(super) unsafe fn checked(
    _: libc::c_long,
    _: &[usize; 6],
    _: *const u32,
    _: u32,
) -> Result<usize, i32> {
    Err(libc::ENOSYS)
}

/// No thread is ever in a stub.
pub(super) fn end_if_not_begun(_: &mut libc::ucontext_t) -> Place {
    Place::Own
}
