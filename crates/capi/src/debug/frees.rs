//! Every `free` of the process is looked at first.
//!
//! An allocator's `free` cannot be told to report, and a `free` of our own beside it would be there for every
//! program, in the debug mode or not. So in this mode the places are changed through which the program and its
//! libraries call `free`: an entry in the global offset table of each of them. Libraries that are loaded
//! later call it directly.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type Free = unsafe extern "C" fn(*mut c_void);

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether the thread is in here, or holds the registry: what it frees then is the library's own.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread for as long as it lives.
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

/// What is called instead of `free`.
unsafe extern "C" fn checked_free(memory: *mut c_void) {
    let within = Within::new();
    if within.is_first() && !memory.is_null() {
        // SAFETY: it is being freed, so it is the allocator's.
        let size = unsafe { libc::malloc_usable_size(memory) };
        super::check_freed(memory.addr(), size);
    }
    drop(within);
    let real = REAL.load(Ordering::Relaxed);
    // SAFETY: what `watch` has found under this name.
    let real = unsafe { std::mem::transmute::<*mut c_void, Free>(real) };
    // SAFETY: by the caller.
    unsafe { real(memory) };
}

/// From here on frees are looked at. Once.
pub(super) fn watch() {
    // SAFETY: a name; it is looked up as the program's own calls are.
    let real = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"free".as_ptr()) };
    if real.is_null() {
        return;
    }
    REAL.store(real, Ordering::Relaxed);
    // SAFETY: the function takes what it is given.
    unsafe { libc::dl_iterate_phdr(Some(change_object), std::ptr::null_mut()) };
}

/// The types of a relocation that is a function's address.
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

unsafe extern "C" fn change_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker's, for the time of the call.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr;
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        // SAFETY: a loaded object's dynamic section.
        unsafe { change_dynamic(base, at((base + dynamic.p_vaddr) as usize)) };
    }
    0
}

fn at<T>(address: usize) -> *const T {
    std::ptr::with_exposed_provenance(address)
}

/// # Safety
/// `dynamic` is the dynamic section of the object that was loaded at `base`.
unsafe fn change_dynamic(base: u64, mut dynamic: *const Dyn) {
    let (mut strings, mut symbols) = (0, 0);
    let (mut tables, mut sizes) = ([0; 2], [0; 2]);
    // SAFETY: the section ends with DT_NULL.
    while let Dyn { tag, value } = unsafe { &*dynamic }
        && *tag != DT_NULL
    {
        // Not every object's addresses were relocated by whoever loaded it.
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
                // SAFETY: the place of a function's address.
                unsafe { change((base + relocation.offset) as usize) };
            }
        }
    }
}

/// # Safety
/// At `address` is where `free` is called through.
unsafe fn change(address: usize) {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(address & !(page - 1));
    // The linker has made it read only.
    // SAFETY: the page of that place, which stays readable.
    if unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } == 0 {
        let place = std::ptr::with_exposed_provenance_mut::<usize>(address);
        // SAFETY: a word that the program reads when it calls; it is written at once.
        unsafe { std::ptr::write_volatile(place, checked_free as *const () as usize) };
    }
}
