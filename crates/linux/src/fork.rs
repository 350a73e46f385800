//! fork(2): the handlers that the C library calls before and after it.
//!
//! Only `fork` itself calls these. A child made by `vfork`, `posix_spawn` or a bare `clone` must
//! not use uwork before it executes another program.
//!
//! **The allocator's handlers are registered first.** Before a fork the handlers run in reverse order
//! of registration. An allocator that registered later than uwork would lock itself first, and then
//! uwork's handler would wait for locks whose holders allocate. Such an allocator, as a linked
//! jemalloc, registers at its first use. So uwork uses the allocator once before it registers.
//!
//! **No handler calls the allocator.** Another library may still register handlers later that hold the
//! allocator's locks: an allocation there would never return. So the memory that a handler needs comes
//! from [`Pages`], directly from the system, and memory to be freed is freed later.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uwork_engine::host::Host;
use uwork_engine::{Forking, Pages};

use crate::first_use;
use crate::{Linux, stack_size, started};

/// The number of forks between the first use of the library and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The locks held from the handler before a fork to the one after it, on the same thread. Not a
/// thread-local, as a thread may fork after its thread-local data was destroyed.
pub struct Slot<T>(UnsafeCell<Option<T>>);

// SAFETY: accessed by the forking thread only, which holds the lock of `first_use` throughout.
unsafe impl<T> Sync for Slot<T> {}

static HELD: Slot<Held> = Slot::new();

/// A part of the library above this crate whose locks a fork must hold, so that the child finds
/// nothing half changed. No method may call the allocator.
pub trait AcrossForks: Sync {
    /// Before the fork, after all other locks of the library were taken: takes the part's locks.
    /// The memory for them comes from `pages`.
    fn hold(&self, pages: &'static Pages<Linux>);

    /// In the parent: releases the locks.
    fn parent(&self);

    /// In the child: repairs what threads of the parent have left, and releases the locks.
    fn child(&self);
}

/// The part above. There is one: per-CPU data.
static PART: OnceLock<&'static dyn AcrossForks> = OnceLock::new();

/// Includes a part in every fork from now on. No fork is in progress when this returns for the first
/// time, so the part may take its locks from then on. Call it with no lock of the library held.
#[inline]
pub fn include(part: &'static dyn AcrossForks) {
    first_use::once(&PART, || part);
}

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

impl<T> Slot<T> {
    /// Nothing is held.
    pub const fn new() -> Slot<T> {
        Slot(UnsafeCell::new(None))
    }

    /// # Safety
    /// Called by the forking thread, between the first and the last handler of a fork.
    pub unsafe fn put(&self, held: T) {
        // SAFETY: by this function's contract; no reference outlives a call.
        unsafe { *self.0.get() = Some(held) };
    }

    /// # Safety
    /// As for [`Slot::put`].
    pub unsafe fn take(&self) -> Option<T> {
        // SAFETY: by this function's contract; no reference outlives a call.
        unsafe { (*self.0.get()).take() }
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot::new()
    }
}

/// The locks of the engine, if it exists, of the symbol lookup, the thread hooks, the kept files, the
/// clients and the descriptors; and the part that holds locks of its own.
struct Held {
    /// The engine's time before the fork.
    now: u64,
    descriptors: crate::descriptor::Held,
    clients: crate::control::Held,
    forking: Option<Forking<'static, Linux>>,
    _names: crate::symbols::Held,
    hooks: crate::hooks::Held,
    kept: crate::blocked::kept::Held,
    part: Option<&'static dyn AcrossForks>,
    making: first_use::Making,
}

/// Called when the program starts, or the library is loaded. A handler registered later would miss
/// a fork that has already begun, and the thread that registers it can be in the middle of making
/// an object at that fork.
///
/// The priority puts it before the constructors of the program and after that of the kernel's headers:
/// handlers of the program, which may use the library, then run while none of its locks is held.
// SAFETY: functions in this section are called then, by one thread; this one uses nothing of Rust's
// runtime but the allocator, which works before `main`.
#[used]
#[unsafe(link_section = ".init_array.00102")]
static AT_START: extern "C" fn() = watch_forks;

/// Registers the handlers with the C library, and looks up what needs the lock of the dynamic linker.
extern "C" fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    use_the_allocator();
    // The lock of the dynamic linker comes first: `dlopen` holds it while constructors run, which may
    // wait for the first use of the library by another thread, or for items.
    let _ = crate::rseq::cpu_id();
    stack_size::look_up();
    // SAFETY: the functions live as long as the process and do not unwind. The call fails only for
    // lack of memory; then a child that uses uwork may wait for ever, as it would without handlers.
    let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Allocates and frees once, so that the allocator registers its own handlers now.
fn use_the_allocator() {
    let layout = Layout::new::<u64>();
    // SAFETY: the layout is not empty, and what was allocated is freed with the same one.
    unsafe {
        // A pair of calls whose memory is unused would be optimized out.
        let memory = black_box(alloc(layout));
        if !memory.is_null() {
            dealloc(memory, layout);
        }
    }
}

/// Ensures that the fork handlers are registered. Called before any object is made that a fork must
/// not find half made.
pub(crate) fn ensure_fork_handlers() {
    // Reads the static, so that a linker that keeps this function keeps the static as well.
    // SAFETY: a static.
    unsafe { std::ptr::read_volatile(&raw const AT_START)() };
}

/// The number of forks between the first use of the library and this process.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn prepare() {
    let making = first_use::hold();
    // Before the engine's locks: a symbol lookup holds none of them.
    let names = crate::symbols::hold();
    // A thread holds this lock for a few instructions, and takes no other meanwhile.
    let hooks = crate::hooks::hold();
    // The same, but for a few system calls.
    let kept = crate::blocked::kept::hold();
    let now = started().map_or(0, |engine| engine.host().now());
    let forking = started().map(|engine| engine.before_fork(Memory::pages()));
    // Last: a holder of one of that part's locks takes no other lock.
    let part = PART.get().copied();
    if let Some(part) = part {
        part.hold(Memory::pages());
    }
    // A holder takes the next lock only.
    let clients = crate::control::hold();
    // The last of all: a thread that opens or closes a file may hold any other lock.
    let descriptors = crate::descriptor::hold();
    let held =
        Held { now, descriptors, clients, forking, _names: names, hooks, kept, part, making };
    // SAFETY: this is the forking thread, which holds the lock of `first_use`.
    unsafe { HELD.put(held) };
}

extern "C" fn parent() {
    // SAFETY: as for `prepare`.
    if let Some(held) = unsafe { HELD.take() } {
        let Held {
            descriptors, clients, forking, _names: names, hooks, kept, part, making, ..
        } = held;
        drop((descriptors, clients, hooks, kept));
        // First, as the engine may free objects of a per-CPU cache.
        if let Some(part) = part {
            part.parent();
        }
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
    super::blocked::child();
    super::stack::forget();
    super::task::child();
    super::signals::child();
    super::readers::child();
    super::control::child();
    // SAFETY: as for `prepare`.
    if let Some(held) = unsafe { HELD.take() } {
        let Held { now, descriptors, clients, forking, _names: names, hooks, kept, part, making } =
            held;
        if let Some(engine) = started() {
            engine.host().continue_from(now);
        }
        // First, as the others may drop descriptors.
        descriptors.child();
        drop(clients);
        hooks.child();
        kept.child();
        if let Some(part) = part {
            part.child();
        }
        if let Some(forking) = forking {
            forking.child();
        }
        end(making, names);
    }
}
