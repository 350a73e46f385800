//! Unwinds a copied stack to the addresses of its calls.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    Unwinder, UnwinderNative,
};

use super::snapshot::Snapshot;
use crate::symbols::Place;

/// The maximum number of calls listed, so that endless recursion does not fill a report.
const PLACES_MAX: usize = 128;
/// The encoding of a PC-relative, signed, four-byte address in `.eh_frame_hdr` (DW_EH_PE_pcrel |
/// DW_EH_PE_sdata4). Linkers write no other there.
const PCREL_SDATA4: u8 = 0x1b;

/// A slice of a module's unwind information. The real lifetime is the time of the unwinding.
type Sections = &'static [u8];

/// The thread's program counter, and the return address of each call, innermost first. Takes the
/// dynamic loader's lock.
pub(super) fn places(snapshot: &Snapshot) -> Vec<Place> {
    let mut job = Job { snapshot, places: Vec::new(), panic: None };
    // SAFETY: the callback receives the job, which outlives the call, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(on_first_module), (&raw mut job).cast()) };
    if let Some(panic) = job.panic {
        std::panic::resume_unwind(panic);
    }
    job.places
}

struct Job<'a> {
    snapshot: &'a Snapshot,
    places: Vec<Place>,
    panic: Option<Box<dyn Any + Send>>,
}

/// Does all the work in the first callback of an iteration: until it returns, the loader's lock is
/// held, and no module is unloaded. The lock is recursive.
unsafe extern "C" fn on_first_module(
    _: *mut libc::dl_phdr_info,
    _: usize,
    job: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: `places` passes the job to this function alone.
    let job = unsafe { &mut *job.cast::<Job<'_>>() };
    job.panic = catch_unwind(AssertUnwindSafe(|| unwind(job.snapshot, &mut job.places))).err();
    // No further callbacks.
    1
}

fn unwind(snapshot: &Snapshot, places: &mut Vec<Place>) {
    let mut unwinder = UnwinderNative::<Sections, MayAllocateDuringUnwind>::new();
    // SAFETY: the callback receives the unwinder, which outlives the call, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(on_module), (&raw mut unwinder).cast()) };
    let mut cache = CacheNative::<MayAllocateDuringUnwind>::new();
    let mut read = |address| snapshot.word(address).ok_or(());
    let (pc, registers) = snapshot.registers.unwind_from();
    let mut frames = unwinder.iter_frames(pc, registers, &mut cache, &mut read);
    // An error ends the list: the remaining frames cannot be found.
    while let Ok(Some(frame)) = frames.next() {
        if places.len() == PLACES_MAX {
            break;
        }
        places.push(match frame {
            FrameAddress::InstructionPointer(address) => Place::At(address as usize),
            FrameAddress::ReturnAddress(address) => Place::ReturnTo(address.get() as usize),
        });
    }
}

unsafe extern "C" fn on_module(
    info: *mut libc::dl_phdr_info,
    _: usize,
    unwinder: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a loaded module; `unwind` passes the unwinder to this function
    // alone.
    let (info, unwinder) = unsafe {
        (&*info, &mut *unwinder.cast::<UnwinderNative<Sections, MayAllocateDuringUnwind>>())
    };
    let added = catch_unwind(AssertUnwindSafe(|| {
        if let Some(module) = module(info) {
            unwinder.add_module(module);
        }
    }));
    // Without this module the list ends at its first frame.
    if let Err(payload) = added {
        std::mem::forget(payload);
    }
    0
}

/// The unwinder's description of a module; None if the module has no unwind information.
fn module(info: &libc::dl_phdr_info) -> Option<Module<Sections>> {
    // SAFETY: the loader's own table of the module's program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let bias = info.dlpi_addr;
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loaded().map(|header| header.p_vaddr).min()?;
    let end = loaded().map(|header| header.p_vaddr + header.p_memsz).max()?;
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    let eh_frame_hdr_svma = header.p_vaddr..header.p_vaddr + header.p_memsz;
    let eh_frame_hdr = section(bias, &eh_frame_hdr_svma);
    // Version, three encodings, and the address of `.eh_frame`.
    let &[1, PCREL_SDATA4, _, _, a, b, c, d, ..] = eh_frame_hdr else { return None };
    let offset = i64::from(i32::from_le_bytes([a, b, c, d]));
    let eh_frame_start = header.p_vaddr.wrapping_add(4).wrapping_add_signed(offset);
    // Its length is not recorded; it ends at the latest with its segment.
    let within = |header: &&libc::Elf64_Phdr| {
        (header.p_vaddr..header.p_vaddr + header.p_filesz).contains(&eh_frame_start)
    };
    let segment = loaded().find(within)?;
    let eh_frame_svma = eh_frame_start..segment.p_vaddr + segment.p_filesz;
    Some(Module::new(
        String::new(),
        bias.wrapping_add(start)..bias.wrapping_add(end),
        bias,
        ExplicitModuleSectionInfo {
            // Addresses in an ELF file start at 0, which is loaded at `bias`.
            base_svma: 0,
            eh_frame: Some(section(bias, &eh_frame_svma)),
            eh_frame_svma: Some(eh_frame_svma),
            eh_frame_hdr: Some(eh_frame_hdr),
            eh_frame_hdr_svma: Some(eh_frame_hdr_svma),
            ..Default::default()
        },
    ))
}

/// Part of a module. Valid only under the loader's lock, despite its lifetime.
fn section(bias: u64, svma: &std::ops::Range<u64>) -> Sections {
    let start = std::ptr::with_exposed_provenance(bias.wrapping_add(svma.start) as usize);
    // SAFETY: within a loaded, readable segment, as the unwinder of exceptions reads it too. It is
    // not written to, and stays mapped until the loader's lock is released.
    unsafe { std::slice::from_raw_parts(start, (svma.end - svma.start) as usize) }
}
