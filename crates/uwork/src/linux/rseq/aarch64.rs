//! The section on aarch64.

use std::arch::asm;

use uwork_engine::percpu::{CpuLock, Place};

use super::field;

pub(super) const HAS_SECTIONS: bool = true;
/// What stands before the place where an aborted section goes on: the kernel goes nowhere else. A `brk`.
pub(super) const SIGNATURE: u32 = 0xd428_bc00;

#[inline(always)]
pub(super) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, pure, nomem));
    }
    pointer
}

/// Takes the lock of this CPU, if it is free and in the row. Null otherwise.
///
/// From 22 to 23 is the section; what leads out of it early has stored nothing. The look is an acquire
/// (`ldar`), so that what follows the lock stays behind it.
///
/// # Safety
/// The calling thread's area is `offset` behind its pointer; `place` leads to locks that live; `token` is not
/// 0.
#[inline(always)]
pub(super) unsafe fn claim(offset: isize, place: &Place, token: u64) -> *mut CpuLock {
    let area = thread_pointer().wrapping_offset(offset);
    let lock: *mut CpuLock;
    // SAFETY: stores to `rseq_cs` of the area, and `token` to a lock of the row: aligned, so that others
    // read them whole.
    unsafe {
        asm!(
            // struct rseq_cs: version, flags, where it starts, how long it is, where to go on.
            ".pushsection __rseq_cs, \"aw\", %progbits",
            ".balign 32",
            "20:",
            ".long 0, 0",
            ".quad 22f, 23f - 22f, 24f",
            ".popsection",
            ".pushsection __rseq_failure, \"ax\", %progbits",
            ".inst {signature}",
            "24:",
            "b 21f",
            ".popsection",
            "21:",
            "adrp {scratch}, 20b",
            "add {scratch}, {scratch}, :lo12:20b",
            "str {scratch}, [{area}, #{RSEQ_CS}]",
            "22:",
            "ldr {lock:w}, [{area}, #{CPU_ID}]",
            "cmp {lock:w}, {len:w}",
            "b.hs 25f",
            "madd {lock}, {lock}, {stride}, {first}",
            "ldar {scratch}, [{lock}]",
            "cbnz {scratch}, 25f",
            "str {token}, [{lock}]",
            "23:",
            "b 26f",
            "25:",
            "mov {lock}, xzr",
            "26:",
            signature = const SIGNATURE,
            RSEQ_CS = const field::RSEQ_CS,
            CPU_ID = const field::CPU_ID,
            area = in(reg) area,
            first = in(reg) place.first.as_ptr(),
            stride = in(reg) place.stride,
            len = in(reg) place.len,
            token = in(reg) token,
            lock = out(reg) lock,
            scratch = out(reg) _,
            options(nostack),
        );
    }
    lock
}
