//! The stub, on x86-64: a check and a system call, with nothing between that a handler could not take back.

use std::arch::global_asm;

// Takes the call's number and arguments, the word, and the bits in it that mean "do not". From the first
// instruction to `uwork_task_call_begun` nothing has happened that returning from here would not undo: no stack is
// used, and only registers that the caller does not keep are written.
global_asm!(
    ".pushsection .text.uwork_task_call,\"ax\",@progbits",
    ".globl uwork_task_call, uwork_task_call_begun, uwork_task_call_ended",
    ".hidden uwork_task_call, uwork_task_call_begun, uwork_task_call_ended",
    ".type uwork_task_call, @function",
    ".p2align 4",
    "uwork_task_call:",
    ".cfi_startproc",
    "test dword ptr [rsi], edx",
    "jne uwork_task_call_ended",
    "mov rax, [rdi]",
    "mov rsi, [rdi + 16]",
    "mov rdx, [rdi + 24]",
    "mov r10, [rdi + 32]",
    "mov r8, [rdi + 40]",
    "mov r9, [rdi + 48]",
    "mov rdi, [rdi + 8]",
    "syscall",
    "uwork_task_call_begun:",
    "ret",
    "uwork_task_call_ended:",
    "mov rax, {interrupted}",
    "ret",
    ".cfi_endproc",
    ".size uwork_task_call, . - uwork_task_call",
    ".popsection",
    interrupted = const -libc::EINTR,
);

/// Where the thread goes on.
pub(super) fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Makes it go on elsewhere.
pub(super) fn set_program_counter(context: &mut libc::ucontext_t, address: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64;
}
