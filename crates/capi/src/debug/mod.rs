//! `UWORK_DEBUG=objects`: misuse of items and handles ends the process with a message.
//!
//! An item that is freed while it is queued corrupts the lists that it is in. So in this mode the
//! engine never uses the program's memory. It queues a *shadow* that the library owns, and the
//! program's item gets a pattern that depends on its address. The pattern is checked before each
//! run and at every other use of the item. Every `free` is checked (`frees`), and the allocator
//! overwrites the freed memory (`M_PERTURB`), so that the pattern is lost with it.
//!
//! The mode finds:
//!
//! - items that are freed while they are queued;
//! - items that were overwritten, or whose memory was lost in some other way, at their run, at
//!   their next use, or at the end of the process;
//! - items that were initialised again while queued, never initialised, or copied;
//! - every call whose argument is an error anyway.
//!
//! The cost is a lock and a system call for each use of an item, and some 300 bytes for each item
//! that ever existed. That memory is reused for a later item at the same address.

mod frees;
mod memory;
mod registry;
mod shadow;

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use uwork::foreign;

use crate::error::misuse;
use crate::item::{Item, Kind, UwWork};
pub use registry::uw_debug_fork;
pub(crate) use registry::{function_of, user_of};
pub(crate) use shadow::{GracedShadow, TimedShadow};

/// The byte that fills freed memory.
const FREED: c_int = 0x5a;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether the mode is on. The first call reads the environment.
#[inline]
pub(crate) fn is_on() -> bool {
    match MODE.load(Ordering::Relaxed) {
        UNKNOWN => read_environment(),
        mode => mode == ON,
    }
}

/// Whether the mode is known to be off.
#[inline]
pub(crate) fn is_off() -> bool {
    MODE.load(Ordering::Relaxed) == OFF
}

#[cold]
fn read_environment() -> bool {
    let value = foreign::variable("UWORK_DEBUG").unwrap_or_default();
    let value = value.to_string_lossy();
    let words = || value.split(',').filter(|word| !word.is_empty());
    let wanted = words().any(|word| word == "objects");
    let mode = if wanted { ON } else { OFF };
    let first = MODE.compare_exchange(UNKNOWN, mode, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first && let Some(other) = words().find(|&word| word != "objects") {
        let text = "is ignored; the only allowed value is objects";
        foreign::print(&format!("uwork: UWORK_DEBUG: {other:?} {text}\n"));
    }
    if wanted && first {
        // SAFETY: each of these may be called at any time.
        unsafe {
            // The registry is held over forks. The reference to this function makes the linker
            // include `kernel/src/fork.c`, which then installs its handlers at the start of the
            // program.
            uw_watch_forks();
            libc::mallopt(libc::M_PERTURB, FREED);
            libc::atexit(at_exit);
        }
        frees::watch();
        // Dumps then show the program's items instead of the shadows.
        foreign::set_representative(registry::item_and_function);
    }
    wanted
}

unsafe extern "C" {
    /// `kernel/src/fork.c`.
    fn uw_watch_forks();
}

extern "C" fn at_exit() {
    if let Some(text) = registry::first_damaged(0..usize::MAX, false) {
        abort(&text);
    }
}

/// Ends the process with a message.
#[cold]
pub(crate) fn abort(text: &str) -> ! {
    foreign::print(&format!("uwork: UWORK_DEBUG=objects: {text}\n"));
    std::process::abort();
}

/// A function's name for a message.
pub(crate) fn named_function(func: usize) -> String {
    match foreign::function_name(func) {
        Some(name) => format!("function {name}"),
        None => format!("function at {func:#x}"),
    }
}

/// An item's name for a message.
fn named(item: usize, func: usize) -> String {
    format!("the item at {item:#x} ({})", named_function(func))
}

/// Creates a shadow for an item that was just initialised.
pub(crate) fn attach(item: NonNull<UwWork>, kind: Kind, slack_ns: u64) {
    registry::attach(item, kind, slack_ns);
}

/// Ends the process if the item, which is about to be initialised, is queued.
pub(crate) fn check_before_init(item: NonNull<UwWork>) {
    if let Some(func) = registry::pending_at(item.as_ptr().addr()) {
        let item = named(item.as_ptr().addr(), func);
        abort(&format!("{item} is initialised again while it is queued"));
    }
}

/// The shadow of an item. A statically initialised item gets its shadow at its first use, of the
/// kind that this use expects.
pub(crate) fn shadow_of(item: NonNull<UwWork>, kind: Kind) -> Result<Item, c_int> {
    registry::shadow_at(item, kind).ok_or_else(|| no_shadow(item))
}

#[cold]
fn no_shadow(item: NonNull<UwWork>) -> c_int {
    let address = item.as_ptr().addr();
    match memory::look(item) {
        memory::Look::Copy(from)
            if registry::pending_at(address).is_none() && registry::is_known(from) =>
        {
            let text = "is a copy of another one";
            let why = "an item must stay in place";
            misuse(libc::EINVAL, format!("the item at {address:#x} {text}, at {from:#x}: {why}"))
        }
        _ => unknown_item(item),
    }
}

/// Reports an invalid item.
#[cold]
pub(crate) fn unknown_item(item: NonNull<UwWork>) -> c_int {
    let address = item.as_ptr().addr();
    if is_on()
        && let Some(func) = registry::pending_at(address)
    {
        let item = named(address, func);
        abort(&format!("{item} was freed or overwritten while it was queued"));
    }
    let how = "was never initialised, has no function, or was overwritten";
    misuse(libc::EINVAL, format!("the item at {address:#x} {how}"))
}

/// For allocators: announces that this memory is being freed. With `UWORK_DEBUG=objects` the
/// process ends if an item in it is queued.
#[unsafe(no_mangle)]
pub extern "C" fn uw_debug_check_freed(memory: *const c_void, size: usize) {
    if is_on() {
        check_freed(memory.addr(), size);
    }
}

fn check_freed(address: usize, size: usize) {
    if let Some(text) = registry::first_damaged(address..address.saturating_add(size), true) {
        abort(&text);
    }
}
