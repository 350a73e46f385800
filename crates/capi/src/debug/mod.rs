//! `UWORK_DEBUG=objects`: what is wrong with items and handles ends the process, by name.
//!
//! An item that is freed while it is queued takes the lists with it in which it is. So in this mode the
//! engine never sees the user's memory: it queues a *shadow*, of the library's own, and the user's item gets a
//! pattern that depends on its address. Before a run the pattern is looked at, and on every other use of
//! the item. Every `free` is looked at ([`frees`]), and told to overwrite what it gets (`M_PERTURB`), so that
//! the pattern goes with it.
//!
//! What it finds: items that are freed while they are queued; those that were overwritten, or whose memory went some
//! other way, at their run, at their next use, or at the end of the process; items that were initialised
//! again while queued, never, or copied; and every call with an argument that is an error otherwise.
//!
//! It costs a lock and a system call for each use of an item, and some 300 bytes for each item that
//! ever was, which are used again for an item at the same address.

mod frees;
mod memory;
mod registry;
mod shadow;

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use uwork::foreign;

use crate::error::misuse;
use crate::item::{Item, Kind, UwWork};
pub use registry::uw_debug_fork;
pub(crate) use registry::{function_of, user_of};
pub(crate) use shadow::{GracedShadow, TimedShadow};

/// What freed memory is filled with.
const FREED: c_int = 0x5a;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether the mode is on. Asked of the environment once.
#[inline]
pub(crate) fn is_on() -> bool {
    match MODE.load(Ordering::Relaxed) {
        UNKNOWN => ask(),
        mode => mode == ON,
    }
}

/// Whether the mode is known to be off.
#[inline]
pub(crate) fn is_off() -> bool {
    MODE.load(Ordering::Relaxed) == OFF
}

#[cold]
fn ask() -> bool {
    let value = std::env::var_os("UWORK_DEBUG").unwrap_or_default();
    let value = value.to_string_lossy();
    let words = || value.split(',').filter(|word| !word.is_empty());
    let wanted = words().any(|word| word == "objects");
    let mode = if wanted { ON } else { OFF };
    let first = MODE.compare_exchange(UNKNOWN, mode, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first && let Some(other) = words().find(|&word| word != "objects") {
        let text = "is ignored; what it may have is objects, or nothing";
        // Nobody can be told if this fails.
        let _ = writeln!(std::io::stderr(), "uwork: UWORK_DEBUG: {other:?} {text}");
    }
    if wanted && first {
        // SAFETY: all may be called at any time.
        unsafe {
            // The registry is held over forks. To name it links what sees to that, at the program's start.
            uw_watch_forks();
            libc::mallopt(libc::M_PERTURB, FREED);
            libc::atexit(at_exit);
        }
        frees::watch();
        // Who looks in is to see the program's items.
        foreign::set_representative(registry::item_and_function);
    }
    wanted
}

unsafe extern "C" {
    /// `kernel/fork.c`.
    fn uw_watch_forks();
}

extern "C" fn at_exit() {
    if let Some(text) = registry::first_damaged(0..usize::MAX, false) {
        abort(&text);
    }
}

/// Ends the process, and says why.
#[cold]
pub(crate) fn abort(text: &str) -> ! {
    // Nobody can be told if this fails.
    let _ = writeln!(std::io::stderr(), "uwork: UWORK_DEBUG=objects: {text}");
    std::process::abort();
}

/// How a function is called in a message.
pub(crate) fn named_function(func: usize) -> String {
    match foreign::function_name(func) {
        Some(name) => format!("function {name}"),
        None => format!("function at {func:#x}"),
    }
}

/// How an item is called in a message.
fn named(item: usize, func: usize) -> String {
    format!("the item at {item:#x} ({})", named_function(func))
}

/// Puts a shadow beside an item that was just initialised.
pub(crate) fn attach(item: NonNull<UwWork>, kind: Kind, slack_ns: u64) {
    registry::attach(item, kind, slack_ns);
}

/// An item that is about to be initialised must not be queued.
pub(crate) fn check_before_init(item: NonNull<UwWork>) {
    if let Some(func) = registry::pending_at(item.as_ptr().addr()) {
        let item = named(item.as_ptr().addr(), func);
        abort(&format!("{item} is initialised again while it is queued"));
    }
}

/// The shadow of an item. One that an initialiser of uwork.h has made gets it at its first use, as of the
/// kind that it is used as.
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
            let why = "an item stays where it was initialised";
            misuse(libc::EINVAL, format!("the item at {address:#x} {text}, at {from:#x}: {why}"))
        }
        _ => unknown_item(item),
    }
}

/// What is wrong with an item that is none.
#[cold]
pub(crate) fn unknown_item(item: NonNull<UwWork>) -> c_int {
    let address = item.as_ptr().addr();
    if is_on()
        && let Some(func) = registry::pending_at(address)
    {
        let item = named(address, func);
        abort(&format!("{item} was freed or overwritten while it was queued"));
    }
    let how = "was never initialised, or without a function, or was overwritten since";
    misuse(libc::EINVAL, format!("the item at {address:#x} {how}"))
}

/// For allocators: this memory is being freed. With `UWORK_DEBUG=objects` the process ends if an item
/// in it is queued.
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
