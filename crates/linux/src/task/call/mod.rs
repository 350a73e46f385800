//! A system call that a signal ends with `EINTR`, even if the signal arrives before the call has
//! begun. See the README.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod stub;

use std::cell::Cell;

use super::Place;

/// Whether this processor has a stub.
pub(super) const HAS_STUB: bool = true;

unsafe extern "C" {
    /// The stub. Returns the kernel's value: negative numbers are errors. Sets `inside` to 1 from
    /// before the check until after the call.
    fn uwork_task_call(
        arguments: *const usize,
        word: *const u32,
        bits: u32,
        inside: *mut u32,
    ) -> isize;
    /// The check. `inside` is set to 1 before it.
    static uwork_task_call_first: u8;
    /// The address after the system call.
    static uwork_task_call_begun: u8;
    /// The code that returns `EINTR`.
    static uwork_task_call_ended: u8;
    /// The address after the stub.
    static uwork_task_call_end: u8;
}

thread_local! {
    /// 1 while the thread is in the stub, also if a handler has interrupted it there. Only the stub
    /// writes it: so outside the stub's addresses it is 1 in handlers only.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Makes the call, unless one of `bits` is set at `word`, or the signal arrives before the call:
/// then `EINTR`.
///
/// # Safety
/// As the call itself; `word` is live.
pub(crate) unsafe fn checked(
    number: libc::c_long,
    arguments: &[usize; 6],
    word: *const u32,
    bits: u32,
) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = *arguments;
    let arguments = [number as usize, a, b, c, d, e, f];
    let inside = INSIDE.with(Cell::as_ptr);
    // SAFETY: by this function's contract; the stub reads seven words and the one at `word`, writes
    // the thread's own `inside`, and follows the platform's calling convention.
    let result = unsafe { uwork_task_call(arguments.as_ptr(), word, bits, inside) };
    usize::try_from(result).map_err(|_| -result as i32)
}

/// Called by the signal's handler. If the thread is between the stub's check and its system call,
/// or the kernel sends it back to restart the call, makes it skip the call. Returns the kind of
/// code that was interrupted.
pub(crate) fn end_if_not_begun(context: &mut libc::ucontext_t) -> Place {
    let at = stub::program_counter(context);
    let begun = (&raw const uwork_task_call_begun).addr();
    if ((&raw const uwork_task_call_first).addr()..begun).contains(&at) {
        stub::set_program_counter(context, (&raw const uwork_task_call_ended).addr());
    }
    let (first, end) =
        ((uwork_task_call as *const ()).addr(), (&raw const uwork_task_call_end).addr());
    if INSIDE.get() == 0 || (first..end).contains(&at) { Place::Own } else { Place::Handler }
}
