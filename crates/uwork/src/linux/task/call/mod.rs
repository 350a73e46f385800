//! A system call that a signal ends with `EINTR` also where it comes before the call has begun. See the README.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod stub;

unsafe extern "C" {
    /// The stub. Gives what the system gives: negative numbers are errors.
    fn uwork_task_call(arguments: *const usize, word: *const u32, bits: u32) -> isize;
    /// Behind the system call.
    static uwork_task_call_begun: u8;
    /// What gives `EINTR`.
    static uwork_task_call_ended: u8;
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
    // SAFETY: by this function's contract; the stub reads seven words and the one at `word`, and keeps to the
    // platform's calling convention.
    let result = unsafe { uwork_task_call(arguments.as_ptr(), word, bits) };
    usize::try_from(result).map_err(|_| -result as i32)
}

/// In the signal's handler: a thread that is on its way from the stub's check to its system call, or that the
/// system sends back to begin the call anew, does not make it.
pub(super) fn end_if_not_begun(context: &mut libc::ucontext_t) {
    let first = (uwork_task_call as *const ()).addr();
    let begun = (&raw const uwork_task_call_begun).addr();
    if (first..begun).contains(&stub::program_counter(context)) {
        stub::set_program_counter(context, (&raw const uwork_task_call_ended).addr());
    }
}
