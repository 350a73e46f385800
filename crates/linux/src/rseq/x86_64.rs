//! The section on x86-64.

use std::arch::asm;
use std::mem::offset_of;

use uwork_engine::percpu::{CpuLock, Place};

use super::field;

pub(super) const HAS_SECTIONS: bool = true;
/// The word that must precede the abort handler of a section: the kernel jumps to no other address.
pub(super) const SIGNATURE: u32 = 0x5305_3053;

#[inline(always)]
pub(super) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: on x86-64 Linux the word at fs:0 is the thread pointer itself.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, pure, readonly));
    }
    pointer
}

/// Takes the lock of this CPU, if it is free and in the row. Null otherwise.
///
/// The section extends from label 22 to 23; an early exit has stored nothing. On this architecture
/// every load is an acquire.
///
/// # Safety
/// The calling thread's area is `offset` bytes after its thread pointer; `place` refers to live
/// locks; `token` is not 0.
#[inline(always)]
pub(super) unsafe fn claim(offset: isize, place: &Place, token: u64) -> *mut CpuLock {
    let lock: *mut CpuLock;
    // SAFETY: stores to `rseq_cs` of the area, and `token` to a lock of the row. Both are plain
    // stores that other threads read by atomic loads; on this architecture the instructions are the
    // same.
    unsafe {
        asm!(
            // struct rseq_cs: version, flags, start, length, abort handler.
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "20:",
            ".long 0, 0",
            ".quad 22f, 23f - 22f, 24f",
            ".popsection",
            ".pushsection __rseq_failure, \"ax\", @progbits",
            // The signature, as the operand of an instruction that is never executed (ud1).
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            "24:",
            "jmp 21f",
            "25:",
            "xor {lock:e}, {lock:e}",
            "jmp 23f",
            ".popsection",
            "21:",
            "lea {scratch}, [rip + 20b]",
            "mov qword ptr fs:[{offset} + {RSEQ_CS}], {scratch}",
            "22:",
            "mov {lock:e}, dword ptr fs:[{offset} + {CPU_ID}]",
            "cmp {lock:e}, dword ptr [{place} + {LEN}]",
            "jae 25b",
            "imul {lock}, qword ptr [{place} + {STRIDE}]",
            "add {lock}, qword ptr [{place} + {FIRST}]",
            "cmp qword ptr [{lock}], 0",
            "jne 25b",
            "mov qword ptr [{lock}], {token}",
            "23:",
            signature = const SIGNATURE,
            RSEQ_CS = const field::RSEQ_CS,
            CPU_ID = const field::CPU_ID,
            FIRST = const offset_of!(Place, first),
            STRIDE = const offset_of!(Place, stride),
            LEN = const offset_of!(Place, len),
            offset = in(reg) offset,
            place = in(reg) place,
            token = in(reg) token,
            lock = out(reg) lock,
            scratch = out(reg) _,
            options(nostack),
        );
    }
    lock
}
