//! Asymmetric fences by `membarrier(2)`.

use std::sync::atomic::{Ordering, compiler_fence, fence};

const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

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

fn membarrier(command: i32) -> bool {
    // SAFETY: the command takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0_u32, 0_i32) == 0 }
}
