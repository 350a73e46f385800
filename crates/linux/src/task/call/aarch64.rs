//! The stub, on AArch64: a check and a system call, and between them no instruction that a handler
//! cannot undo.

use std::arch::global_asm;

// Takes the call's number and arguments, the word, the bits in it that forbid the call, and the
// address of the flag that marks the thread as inside. From `uwork_task_call_first` to
// `uwork_task_call_begun` every instruction can be abandoned by a jump to `uwork_task_call_ended`:
// no stack is used, and only registers that the caller does not preserve are written. The system
// call preserves all of them but the first.
global_asm!(
    ".pushsection .text.uwork_task_call,\"ax\",@progbits",
    ".globl uwork_task_call, uwork_task_call_first, uwork_task_call_begun",
    ".globl uwork_task_call_ended, uwork_task_call_end",
    ".hidden uwork_task_call, uwork_task_call_first, uwork_task_call_begun",
    ".hidden uwork_task_call_ended, uwork_task_call_end",
    ".type uwork_task_call, @function",
    ".p2align 4",
    "uwork_task_call:",
    ".cfi_startproc",
    "hint #34",
    "mov w10, #1",
    "str w10, [x3]",
    "mov x10, x3",
    "uwork_task_call_first:",
    "ldr w9, [x1]",
    "tst w9, w2",
    "b.ne uwork_task_call_ended",
    "mov x9, x0",
    "ldr x8, [x9]",
    "ldp x0, x1, [x9, #8]",
    "ldp x2, x3, [x9, #24]",
    "ldp x4, x5, [x9, #40]",
    "svc #0",
    "uwork_task_call_begun:",
    "str wzr, [x10]",
    "ret",
    "uwork_task_call_ended:",
    "mov x0, #{interrupted}",
    "b uwork_task_call_begun",
    "uwork_task_call_end:",
    ".cfi_endproc",
    ".size uwork_task_call, . - uwork_task_call",
    ".popsection",
    interrupted = const -libc::EINTR,
);

/// The address at which the thread continues.
pub(super) fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// Makes the thread continue at another address.
pub(super) fn set_program_counter(context: &mut libc::ucontext_t, address: usize) {
    context.uc_mcontext.pc = address as u64;
}
