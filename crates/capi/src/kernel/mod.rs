//! The functions that only the kernel-compatible headers and their C sources need. The folder
//! `kernel` of the project has both. Of these functions only `uw_kernel_context` and
//! `uw_kernel_without_pwlocks` are exported.

mod held;
mod locks;
mod slab;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use uwork::foreign;

pub use locks::*;

use crate::error::{caught, guard};

/// The context of the calling thread. Bit 0: it may run items of queues, as workers and rescuers do;
/// bit 1: it runs an item of a BH queue; bit 2: it is in a thread hook.
#[unsafe(no_mangle)]
pub extern "C" fn uw_kernel_context() -> c_uint {
    let at = caught(foreign::context).unwrap_or_default();
    let runs_items = foreign::may_run_items();
    c_uint::from(runs_items) | c_uint::from(at.bh) << 1 | c_uint::from(at.hook) << 2
}

/// Called before `main` by programs that are built with `CONFIG_PWLOCKS=n`.
#[unsafe(no_mangle)]
pub extern "C" fn uw_kernel_without_pwlocks() {
    foreign::fix_local();
}

/// For the kernel's formats: writes the name of the function at an address. Returns its length, or
/// 0 if it has no name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_kernel_symbol_name(
    address: *const c_void,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| match foreign::function_name(address.addr()) {
        // SAFETY: by the only caller, in kernel/src/format.c.
        Some(name) => unsafe { crate::attrs::write_text(&name, buffer, size) },
        None => 0,
    })
}

/// Reads a file of the system, and ends what was read with a zero byte. Returns whether it could be
/// read. The file is open only meanwhile, and a number that is the program's by then is not closed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_kernel_read_file(
    path: *const c_char,
    text: *mut c_char,
    size: usize,
) -> bool {
    // SAFETY: by the callers, in kernel/src: a path, and a buffer of this size, which is not zero.
    let (path, text) =
        unsafe { (CStr::from_ptr(path), std::slice::from_raw_parts_mut(text.cast::<u8>(), size)) };
    let last = size - 1;
    let read = caught(|| foreign::read_file(path, &mut text[..last])).ok().flatten();
    text[read.unwrap_or(0)] = 0;
    read.is_some()
}

/// The size of the stack of a thread that runs no items, with its static data.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn uw_service_stack_size() -> usize {
    foreign::service_stack_size()
}

/// For the headers' own waits: calls `func`, declared to the pool. A negative result says that it has
/// failed, perhaps before it called `func`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_declared_wait(
    func: unsafe extern "C-unwind" fn(*mut c_void),
    arg: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: by the only caller, in kernel/src/wait.c.
        foreign::blocking(|| foreign::must_return(|| unsafe { func(arg) }));
        0
    })
}

/// For the headers' own waits: ends the process with a message, because the system refuses futex(2)
/// with this errno.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn uw_futex_refused(errno: c_int) -> ! {
    foreign::futex_refused(errno)
}
