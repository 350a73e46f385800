//! fork(2): what the engine does before and after, called by the C library.
//!
//! Only `fork` itself calls these. A child made by `vfork`, `posix_spawn` or a bare `clone` must not use
//! uwork before it executes another program.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::Forking;

use super::{Linux, engine};

/// Forks that this process came out of, counted from the one that made the engine.
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The locks of the engine, the names, per-CPU data and what is made at first use, from `prepare` to what
    /// follows it on the same thread.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

struct Held {
    forking: Forking<'static, Linux>,
    _names: crate::symbols::Held,
    percpu: crate::percpu::forks::Held,
    _first_use: crate::first_use::Held,
}

/// Lets the C library call us. Once, by whoever makes the engine.
pub(super) fn register() {
    // SAFETY: the functions live as long as the process and do not unwind. It fails without memory
    // only; then a child that uses uwork may wait for ever, as without us.
    let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// How many forks lie between the making of the engine and this process.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn prepare() {
    let first_use = crate::first_use::hold();
    // Names are looked for with none of the engine's locks held.
    let names = crate::symbols::hold();
    let forking = engine().before_fork();
    // Last: who has one of these asks for nothing else.
    let percpu = crate::percpu::forks::hold();
    let held = Held { forking, _names: names, percpu, _first_use: first_use };
    HELD.with(|slot| *slot.borrow_mut() = Some(held));
}

extern "C" fn parent() {
    if let Some(held) = HELD.with(RefCell::take) {
        // First, as the engine may free what it has in a cache.
        drop(held.percpu);
        held.forking.parent();
    }
}

extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::asleep::close_after_fork();
    super::stack::forget();
    if let Some(held) = HELD.with(RefCell::take) {
        held.percpu.child();
        held.forking.child();
    }
}
