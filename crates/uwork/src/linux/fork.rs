//! fork(2): what the engine does before and after, called by the C library.
//!
//! Only `fork` itself calls these. A child made by `vfork`, `posix_spawn` or a bare `clone` must not use
//! uwork before it executes another program.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uwork_engine::Forking;

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
    _making: first_use::Making,
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
    let forking = started().map(|engine| engine.before_fork());
    // Last: who has one of these asks for nothing else.
    let percpu = crate::percpu::forks::hold();
    let held = Held { forking, _names: names, percpu, _making: making };
    // SAFETY: see `Sync`; nobody keeps a reference.
    unsafe { *HELD.0.get() = Some(held) };
}

extern "C" fn parent() {
    if let Some(held) = HELD.take() {
        // First, as the engine may free what it has in a cache.
        drop(held.percpu);
        if let Some(forking) = held.forking {
            forking.parent();
        }
    }
}

extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::asleep::close_after_fork();
    super::stack::forget();
    super::task::child();
    if let Some(held) = HELD.take() {
        held.percpu.child();
        if let Some(forking) = held.forking {
            forking.child();
        }
    }
}
