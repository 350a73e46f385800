//! Checks every `free` of the process before it happens.
//!
//! An allocator's `free` has no hook. A `free` of this library would replace the allocator's in
//! every program, with or without the debug mode. So the debug mode instead patches the entries of
//! the global offset tables through which the program and its libraries call `free`. Libraries that
//! are loaded later call the allocator's `free` directly.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type Free = unsafe extern "C" fn(*mut c_void);

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether the thread is inside `checked_free`, or holds the registry. Memory that it frees
    /// then is the library's own.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread while the value lives.
pub(super) struct Within(bool);

impl Within {
    pub(super) fn new() -> Within {
        Within(WITHIN.try_with(|within| within.replace(true)).unwrap_or(true))
    }

    fn is_first(&self) -> bool {
        !self.0
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        let _ = WITHIN.try_with(|within| within.set(self.0));
    }
}

/// Replaces `free`.
unsafe extern "C" fn checked_free(memory: *mut c_void) {
    let within = Within::new();
    if within.is_first() && !memory.is_null() {
        // SAFETY: the memory is being freed, so it belongs to the allocator.
        let size = unsafe { libc::malloc_usable_size(memory) };
        super::check_freed(memory.addr(), size);
    }
    drop(within);
    let real = REAL.load(Ordering::Relaxed);
    // SAFETY: `watch` has found a function with this name and type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Free>(real) };
    // SAFETY: by the caller.
    unsafe { real(memory) };
}

/// Checks all frees from here on. Called once.
pub(super) fn watch() {
    // SAFETY: the name is a text. It is resolved as the program's own calls are.
    let real = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"free".as_ptr()) };
    if real.is_null() {
        return;
    }
    REAL.store(real, Ordering::Relaxed);
    // SAFETY: `patch_object` accepts the argument that it gets.
    unsafe { libc::dl_iterate_phdr(Some(patch_object), std::ptr::null_mut()) };
}

/// The types of relocations that hold a function's address.
#[cfg(target_arch = "x86_64")]
const FUNCTION_ADDRESSES: [u64; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const FUNCTION_ADDRESSES: [u64; 2] = [1025, 1026];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FUNCTION_ADDRESSES: [u64; 0] = [];

/// `Elf64_Dyn`.
#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

unsafe extern "C" fn patch_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker's structure is valid for the duration of the call.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr;
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        // SAFETY: a loaded object's dynamic section.
        unsafe { patch_dynamic(base, at((base + dynamic.p_vaddr) as usize)) };
    }
    0
}

fn at<T>(address: usize) -> *const T {
    std::ptr::with_exposed_provenance(address)
}

/// # Safety
/// `dynamic` is the dynamic section of the object that was loaded at `base`.
unsafe fn patch_dynamic(base: u64, mut dynamic: *const Dyn) {
    let (mut strings, mut symbols) = (0, 0);
    let (mut tables, mut sizes) = ([0; 2], [0; 2]);
    // SAFETY: the section ends with DT_NULL.
    while let Dyn { tag, value } = unsafe { &*dynamic }
        && *tag != DT_NULL
    {
        // Not every object's addresses are relocated by its loader.
        let address = if *value < base { base + value } else { *value };
        match *tag {
            DT_STRTAB => strings = address,
            DT_SYMTAB => symbols = address,
            DT_JMPREL => tables[0] = address,
            DT_RELA => tables[1] = address,
            DT_PLTRELSZ => sizes[0] = *value as usize,
            DT_RELASZ => sizes[1] = *value as usize,
            _ => {}
        }
        dynamic = dynamic.wrapping_add(1);
    }
    if strings == 0 || symbols == 0 {
        return;
    }
    for (table, size) in tables.into_iter().zip(sizes).filter(|(table, _)| *table != 0) {
        // SAFETY: a table of relocations of that many bytes.
        let relocations: &[Rela] =
            unsafe { std::slice::from_raw_parts(at(table as usize), size / size_of::<Rela>()) };
        for relocation in relocations {
            let (symbol, kind) = (relocation.info >> 32, relocation.info & 0xffff_ffff);
            if !FUNCTION_ADDRESSES.contains(&kind) {
                continue;
            }
            // SAFETY: the symbol and its name are in the object's tables.
            let name = unsafe {
                let symbol: *const libc::Elf64_Sym =
                    at::<libc::Elf64_Sym>(symbols as usize).add(symbol as usize);
                CStr::from_ptr(at::<c_char>(strings as usize).add((*symbol).st_name as usize))
            };
            if name == c"free" {
                // SAFETY: the location of a function's address.
                unsafe { patch((base + relocation.offset) as usize) };
            }
        }
    }
}

/// # Safety
/// At `address` is a function pointer through which `free` is called.
unsafe fn patch(address: usize) {
    // SAFETY: the call only returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(address & !(page - 1));
    // The linker has made the page read-only (RELRO).
    // SAFETY: the page of that location, which stays readable.
    if unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } == 0 {
        let place = std::ptr::with_exposed_provenance_mut::<usize>(address);
        // SAFETY: a word that the program reads at each call. The write is a single store.
        unsafe { std::ptr::write_volatile(place, checked_free as *const () as usize) };
    }
}
