//! The registers that unwinding starts from, on AArch64.

use framehop::UnwindRegsNative;
use framehop::aarch64::PtrAuthMask;

/// The bits above hold signatures of return addresses. On systems with addresses longer than these
/// 48 bits, only programs that ask for such addresses get them, and the dynamic loader does not.
const ADDRESS_MASK: PtrAuthMask = PtrAuthMask((1 << 48) - 1);

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pc: u64,
    lr: u64,
    sp: u64,
    fp: u64,
}

impl Registers {
    pub(super) const fn new() -> Registers {
        Registers { pc: 0, lr: 0, sp: 0, fp: 0 }
    }

    /// The registers of a thread that a signal has interrupted.
    pub(super) fn of(context: &libc::ucontext_t) -> Registers {
        let context = &context.uc_mcontext;
        Registers { pc: context.pc, lr: context.regs[30], sp: context.sp, fp: context.regs[29] }
    }

    pub(super) fn stack_pointer(&self) -> usize {
        self.sp as usize
    }

    /// The thread's program counter, and the other registers that unwinding needs.
    pub(super) fn unwind_from(&self) -> (u64, UnwindRegsNative) {
        let registers =
            UnwindRegsNative::new_with_ptr_auth_mask(ADDRESS_MASK, self.lr, self.sp, self.fp);
        (self.pc, registers)
    }
}

/// The calling thread's control block.
pub(super) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(nomem, nostack, preserves_flags)
        );
    }
    pointer
}
