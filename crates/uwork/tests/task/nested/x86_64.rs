//! On x86-64 single-stepping finds the place.

use super::handles;

/// The mark that identifies the call: its fifth argument, which the system ignores.
pub(crate) const MARK: usize = 0x5eed;
const TRAP_FLAG: i64 = 0x100;
const SYSCALL: u16 = 0x050f;

pub(crate) fn prepare() {
    handles(libc::SIGTRAP, step as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART);
}

extern "C" fn step(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    // SAFETY: the next instruction has at least two bytes, except a return, which code or padding
    // follows.
    let code = unsafe { (registers[libc::REG_RIP as usize] as *const u16).read_unaligned() };
    let is_call = code == SYSCALL
        && registers[libc::REG_RAX as usize] == libc::SYS_ppoll
        && registers[libc::REG_R8 as usize] == MARK as i64;
    if is_call {
        registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
        super::wait_for_signal(0);
    }
}

/// The calling thread's next call through the stub stops at its system call instruction.
#[inline(always)]
pub(crate) fn stop_there() {
    // SAFETY: sets the trap flag and leaves the stack unchanged; each step has a handler.
    unsafe {
        std::arch::asm!("pushfq", "or qword ptr [rsp], {}", "popfq", const TRAP_FLAG);
    }
}
