//! The section on aarch64.

use std::arch::asm;

use uwork_engine::percpu::{CpuLock, Place};

use super::field;

pub(super) const HAS_SECTIONS: bool = true;
/// The word that must precede the abort handler of a section: the kernel jumps to no other address.
/// A `brk`.
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
/// The section extends from label 22 to 23; an early exit has stored nothing. The load of the lock
/// is an acquire (`ldar`), so that later accesses stay behind it.
///
/// # Safety
/// The calling thread's area is `offset` bytes after its thread pointer; `place` refers to live
/// locks; `token` is not 0.
#[inline(always)]
pub(super) unsafe fn claim(offset: isize, place: &Place, token: u64) -> *mut CpuLock {
    let area = thread_pointer().wrapping_offset(offset);
    let lock: *mut CpuLock;
    // SAFETY: stores to `rseq_cs` of the area, and `token` to a lock of the row: aligned, so that
    // other threads read them whole.
    unsafe {
        asm!(
            // struct rseq_cs: version, flags, start, length, abort handler.
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
