//! Asymmetric fences by `membarrier(2)`.

use std::sync::atomic::{Ordering, compiler_fence, fence};

const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
/// The command is for one CPU.
const FLAG_CPU: u32 = 1;

/// Both halves: with `membarrier` the light one is free, without it both are full fences.
pub(super) struct Fences {
    asymmetric: bool,
}

impl Fences {
    pub(super) fn new() -> Fences {
        Fences { asymmetric: membarrier(REGISTER_PRIVATE_EXPEDITED) }
    }

    #[inline(always)]
    pub(super) fn light(&self) {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn heavy(&self) {
        fence(Ordering::SeqCst);
        if self.asymmetric {
            // Registered, so it cannot fail; were it to, the light side would have no partner.
            assert!(membarrier(PRIVATE_EXPEDITED), "membarrier failed after its registration");
        }
    }
}

/// Makes ready for [`restart`]. False where the kernel has no such command.
pub(super) fn register_restart() -> bool {
    membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Restarts the restartable sequence that a thread of this process is in on `cpu`, if there is one, with
/// full barriers there and here. Only after [`register_restart`].
pub(super) fn restart(cpu: u32) {
    let done = call(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, cpu);
    // Registered, so it cannot fail; were it to, two threads could have one lock.
    assert!(done, "membarrier failed after its registration");
}

fn membarrier(command: i32) -> bool {
    call(command, 0, 0)
}

fn call(command: i32, flags: u32, cpu: u32) -> bool {
    // SAFETY: the command takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) == 0 }
}
