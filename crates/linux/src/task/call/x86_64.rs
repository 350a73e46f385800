//! The stub, on x86-64: a check and a system call, and between them no instruction that a handler
//! cannot undo.

use std::arch::global_asm;

// Takes the call's number and arguments, the word, the bits in it that forbid the call, and the
// address of the flag that marks the thread as inside. From `uwork_task_call_first` to
// `uwork_task_call_begun` every instruction can be abandoned by a jump to `uwork_task_call_ended`:
// the stack stays unchanged, and only one register that the caller preserves is in use, which both
// exits restore. The system call preserves it too.
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
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "mov rbx, rcx",
    "mov dword ptr [rbx], 1",
    "uwork_task_call_first:",
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
    "mov dword ptr [rbx], 0",
    "pop rbx",
    ".cfi_remember_state",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    "uwork_task_call_ended:",
    ".cfi_restore_state",
    "mov rax, {interrupted}",
    "jmp uwork_task_call_begun",
    "uwork_task_call_end:",
    ".cfi_endproc",
    ".size uwork_task_call, . - uwork_task_call",
    ".popsection",
    interrupted = const -libc::EINTR,
);

/// The address at which the thread continues.
pub(super) fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Makes the thread continue at another address.
pub(super) fn set_program_counter(context: &mut libc::ucontext_t, address: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64;
}
