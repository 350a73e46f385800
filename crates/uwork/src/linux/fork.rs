//! fork(2): what the engine does before and after, called by the C library.
//!
//! Only `fork` itself calls these. A child made by `vfork`, `posix_spawn` or a bare `clone` must not use
//! uwork before it executes another program.
//!
//! **No handler calls the allocator.** One that registers handlers of its own later than uwork, as a linked jemalloc
//! does at its first use, holds its locks when uwork's handlers run: an allocation there would never return. So what
//! a handler needs lies in [`Pages`] of the system's, and what is to be freed is freed later.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uwork_engine::{Forking, Pages};

use super::{Linux, started};
use crate::first_use;

/// Forks that this process came out of, counted from the first use of the library.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// What is held from `prepare` to what follows it on the same thread. Not the thread's own, as one may fork when
/// what is its own is gone.
struct Slot(UnsafeCell<Option<Held>>);

// SAFETY: reached by the thread that forks only, which holds the lock of what is made at first use all the while.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

/// The memory of [`HELD`].
struct Memory(UnsafeCell<Pages<Linux>>);

// SAFETY: as for `Slot`.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new(Pages::new()));

impl Memory {
    /// For what is held.
    fn pages() -> &'static Pages<Linux> {
        // SAFETY: the forking thread alone has references, and until `give_back` shared ones only.
        unsafe { &*MEMORY.0.get() }
    }

    /// With nothing held any more, but that lock.
    fn give_back() {
        // SAFETY: as above; what has borrowed it is gone.
        unsafe { (*MEMORY.0.get()).give_back() };
    }
}

impl Slot {
    fn take(&self) -> Option<Held> {
        // SAFETY: see `Sync`; nobody keeps a reference.
        unsafe { (*self.0.get()).take() }
    }
}

/// The locks of the engine, if there is one, of the names and of per-CPU data.
struct Held {
    forking: Option<Forking<'static, Linux>>,
    _names: crate::symbols::Held,
    percpu: crate::percpu::forks::Held,
    making: first_use::Making,
}

/// Called when the program starts, or the library is loaded. A handler that is registered later is not called by a fork
/// that has begun, and whoever registers it can be in the midst of making something when that fork happens.
// SAFETY: functions in this section are called then, by one thread; this one asks nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = watch_forks;

/// Lets the C library call us.
extern "C" fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the functions live as long as the process and do not unwind. It fails without memory
    // only; then a child that uses uwork may wait for ever, as without us.
    let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Sees to it that forks are watched. Before anything is made that a fork must not find half made.
pub(crate) fn are_watched() {
    // Named, so that a linker that has taken this has taken that as well.
    // SAFETY: a static.
    unsafe { std::ptr::read_volatile(&raw const AT_START)() };
}

/// How many forks lie between the first use of the library and this process.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn prepare() {
    let making = first_use::hold();
    // Names are looked for with none of the engine's locks held.
    let names = crate::symbols::hold();
    let forking = started().map(|engine| engine.before_fork(Memory::pages()));
    // Last: who has one of these asks for nothing else.
    let percpu = crate::percpu::forks::hold(Memory::pages());
    let held = Held { forking, _names: names, percpu, making };
    // SAFETY: see `Sync`; nobody keeps a reference.
    unsafe { *HELD.0.get() = Some(held) };
}

extern "C" fn parent() {
    if let Some(Held { forking, _names: names, percpu, making }) = HELD.take() {
        // First, as the engine may free what it has in a cache.
        drop(percpu);
        if let Some(forking) = forking {
            forking.parent();
        }
        end(making, names);
    }
}

/// Gives up what was taken first, and with it the right to the memory. Parameters are dropped from the last to the
/// first: names are free when the reports are told that the first one holds back.
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
