//! fork(2): the handlers that the C library calls before and after it.
//!
//! Only `fork` itself calls these. A child made by `vfork`, `posix_spawn` or a bare `clone` must
//! not use uwork before it executes another program.
//!
//! **No handler calls the allocator.** An allocator that registers fork handlers later than uwork,
//! as a linked jemalloc does at its first use, holds its locks when uwork's handlers run: an
//! allocation there would never return. So the memory that a handler needs comes from [`Pages`],
//! directly from the system, and memory to be freed is freed later.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uwork_engine::{Forking, Pages};

use super::{Linux, started};
use crate::first_use;

/// The number of forks between the first use of the library and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The locks held from `prepare` to the handler that follows it on the same thread. Not a
/// thread-local, as a thread may fork after its thread-local data was destroyed.
struct Slot(UnsafeCell<Option<Held>>);

// SAFETY: accessed by the forking thread only, which holds the lock of `first_use` throughout.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

/// The memory of [`HELD`].
struct Memory(UnsafeCell<Pages<Linux>>);

// SAFETY: as for `Slot`.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new(Pages::new()));

impl Memory {
    /// The pages for the held locks.
    fn pages() -> &'static Pages<Linux> {
        // SAFETY: the forking thread alone has references, and until `give_back` shared ones only.
        unsafe { &*MEMORY.0.get() }
    }

    /// Frees the pages. Only the lock of `first_use` is still held.
    fn give_back() {
        // SAFETY: as above; its borrowers were dropped.
        unsafe { (*MEMORY.0.get()).give_back() };
    }
}

impl Slot {
    fn take(&self) -> Option<Held> {
        // SAFETY: see `Sync`; no reference outlives a call.
        unsafe { (*self.0.get()).take() }
    }
}

/// The locks of the engine, if it exists, of the symbol lookup and of per-CPU data.
struct Held {
    forking: Option<Forking<'static, Linux>>,
    _names: crate::symbols::Held,
    percpu: crate::percpu::forks::Held,
    making: first_use::Making,
}

/// Called when the program starts, or the library is loaded. A handler registered later would miss
/// a fork that has already begun, and the thread that registers it can be in the middle of making
/// an object at that fork.
// SAFETY: functions in this section are called then, by one thread; this one uses nothing of Rust's
// runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = watch_forks;

/// Registers the handlers with the C library.
extern "C" fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the functions live as long as the process and do not unwind. The call fails only for
    // lack of memory; then a child that uses uwork may wait for ever, as it would without handlers.
    let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Ensures that the fork handlers are registered. Called before any object is made that a fork must
/// not find half made.
pub(crate) fn ensure_fork_handlers() {
    // Reads the static, so that a linker that keeps this function keeps the static as well.
    // SAFETY: a static.
    unsafe { std::ptr::read_volatile(&raw const AT_START)() };
}

/// The number of forks between the first use of the library and this process.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn prepare() {
    let making = first_use::hold();
    // Before the engine's locks: a symbol lookup holds none of them.
    let names = crate::symbols::hold();
    let forking = started().map(|engine| engine.before_fork(Memory::pages()));
    // Last: a holder of one of these locks takes no other lock.
    let percpu = crate::percpu::forks::hold(Memory::pages());
    let held = Held { forking, _names: names, percpu, making };
    // SAFETY: see `Sync`; no reference outlives a call.
    unsafe { *HELD.0.get() = Some(held) };
}

extern "C" fn parent() {
    if let Some(Held { forking, _names: names, percpu, making }) = HELD.take() {
        // First, as the engine may free objects of a per-CPU cache.
        drop(percpu);
        if let Some(forking) = forking {
            forking.parent();
        }
        end(making, names);
    }
}

/// Releases the locks that were taken first, and with them the right to the memory. Parameters are
/// dropped from the last to the first: the symbol lookup is unlocked before the deferred reports
/// are delivered, which happens when `_making` is dropped.
fn end(_making: first_use::Making, _names: crate::symbols::Held) {
    Memory::give_back();
}

extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::asleep::close_after_fork();
    super::stack::forget();
    super::task::child();
    super::signals::child();
    if let Some(Held { forking, _names: names, percpu, making }) = HELD.take() {
        percpu.child();
        if let Some(forking) = forking {
            forking.child();
        }
        end(making, names);
    }
}
