//! A system call that a signal ends with `EINTR` also where it comes before the call has begun. See the README.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod stub;

use std::cell::Cell;

use super::Place;

unsafe extern "C" {
    /// The stub. Gives what the system gives: negative numbers are errors. `inside` is 1 in the parts that matter.
    fn uwork_task_call(
        arguments: *const usize,
        word: *const u32,
        bits: u32,
        inside: *mut u32,
    ) -> isize;
    /// The look. From before it on `inside` is 1.
    static uwork_task_call_first: u8;
    /// Behind the system call.
    static uwork_task_call_begun: u8;
    /// What gives `EINTR`.
    static uwork_task_call_ended: u8;
    /// Behind the stub.
    static uwork_task_call_end: u8;
}

thread_local! {
    /// 1 while the thread is in the stub, also where a handler has interrupted it there. The stub's alone to write:
    /// outside of the stub's addresses it is 1 in handlers only.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Makes the call, unless one of `bits` is set at `word`, or the signal comes first: then `EINTR`.
///
/// # Safety
/// As the call itself; `word` is live.
pub(super) unsafe fn checked(
    number: libc::c_long,
    arguments: &[usize; 6],
    word: *const u32,
    bits: u32,
) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = *arguments;
    let arguments = [number as usize, a, b, c, d, e, f];
    let inside = INSIDE.with(Cell::as_ptr);
    // SAFETY: by this function's contract; the stub reads seven words and the one at `word`, writes the thread's own
    // `inside`, and keeps to the platform's calling convention.
    let result = unsafe { uwork_task_call(arguments.as_ptr(), word, bits, inside) };
    usize::try_from(result).map_err(|_| -result as i32)
}

/// In the signal's handler: a thread that is on its way from the stub's check to its system call, or that the
/// system sends back to begin the call anew, does not make it. Where it was.
pub(super) fn end_if_not_begun(context: &mut libc::ucontext_t) -> Place {
    let at = stub::program_counter(context);
    let begun = (&raw const uwork_task_call_begun).addr();
    if ((&raw const uwork_task_call_first).addr()..begun).contains(&at) {
        stub::set_program_counter(context, (&raw const uwork_task_call_ended).addr());
    }
    let (first, end) =
        ((uwork_task_call as *const ()).addr(), (&raw const uwork_task_call_end).addr());
    if INSIDE.get() == 0 || (first..end).contains(&at) { Place::Own } else { Place::Handler }
}
