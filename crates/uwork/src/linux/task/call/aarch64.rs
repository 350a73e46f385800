//! The stub, on AArch64: a check and a system call, with nothing between that a handler could not take back.

use std::arch::global_asm;

// Takes the call's number and arguments, the word, the bits in it that mean "do not", and where to say that the
// thread is in here. From `uwork_task_call_first` to `uwork_task_call_begun` nothing happens that going on at
// `uwork_task_call_ended` would not undo: no stack is used, and only registers that the caller does not keep are
// written. The system call keeps all of them but the first.
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

/// Where the thread goes on.
pub(super) fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// Makes it go on elsewhere.
pub(super) fn set_program_counter(context: &mut libc::ucontext_t, address: usize) {
    context.uc_mcontext.pc = address as u64;
}
