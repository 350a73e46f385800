//! On AArch64 the test places a breakpoint: programs cannot single-step themselves.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::handles;

pub(crate) const MARK: usize = 0x5eed;
/// `svc #0` and `brk #0`.
const SUPERVISOR_CALL: u32 = 0xd400_0001;
const BREAKPOINT: u32 = 0xd420_0000;

unsafe extern "C" {
    /// The address behind the stub's system call.
    static uwork_task_call_begun: u8;
    fn __clear_cache(begin: *mut libc::c_char, end: *mut libc::c_char);
}

/// The system call instruction.
fn place() -> *mut u32 {
    (&raw const uwork_task_call_begun).cast::<u32>().wrapping_sub(1).cast_mut()
}

pub(crate) fn prepare() {
    handles(libc::SIGTRAP, reached as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART);
    // SAFETY: no arguments that are pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let begin = place().addr() & !(page - 1);
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the page that the instruction is in; it stays executable.
    let outcome = unsafe { libc::mprotect(place().with_addr(begin).cast(), page, all) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

/// Replaces the instruction `old`.
fn patch(old: u32, new: u32) {
    let end = place().wrapping_add(1).cast();
    // SAFETY: `prepare` has made the page writable; an aligned word, which other threads do not
    // execute now; the flushed range is that word.
    unsafe {
        assert_eq!(AtomicU32::from_ptr(place()).swap(new, SeqCst), old);
        __clear_cache(place().cast(), end);
    }
}

extern "C" fn reached(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &context.uc_mcontext;
    let is_call = registers.pc == place().addr() as u64
        && registers.regs[8] == libc::SYS_ppoll as u64
        && registers.regs[4] == MARK as u64;
    if !is_call {
        std::process::abort();
    }
    patch(BREAKPOINT, SUPERVISOR_CALL);
    super::wait_for_signal(0);
}

/// The next call through the stub stops at its system call instruction.
pub(crate) fn stop_there() {
    patch(SUPERVISOR_CALL, BREAKPOINT);
}
