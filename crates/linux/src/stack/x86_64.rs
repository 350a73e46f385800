//! The registers that unwinding starts from, on x86-64.

use framehop::UnwindRegsNative;

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    rip: u64,
    rsp: u64,
    rbp: u64,
}

impl Registers {
    pub(super) const fn new() -> Registers {
        Registers { rip: 0, rsp: 0, rbp: 0 }
    }

    /// The registers of a thread that a signal has interrupted.
    pub(super) fn of(context: &libc::ucontext_t) -> Registers {
        let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
        Registers {
            rip: register(libc::REG_RIP),
            rsp: register(libc::REG_RSP),
            rbp: register(libc::REG_RBP),
        }
    }

    pub(super) fn stack_pointer(&self) -> usize {
        self.rsp as usize
    }

    /// The thread's program counter, and the other registers that unwinding needs.
    pub(super) fn unwind_from(&self) -> (u64, UnwindRegsNative) {
        (self.rip, UnwindRegsNative::new(self.rip, self.rsp, self.rbp))
    }
}

/// The calling thread's control block.
pub(super) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a word that the ABI for thread-local storage defines: the block's own address.
    unsafe {
        std::arch::asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}
