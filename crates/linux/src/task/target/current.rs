//! The calling thread as a target: made at its first request, ended by the thread or with it.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};
use std::sync::{Arc, OnceLock};

use uwork_engine::task::TaskList;

use super::{Delivery, Target, Wait};
use crate::forks;
use crate::task::descriptor::Descriptor;
use crate::task::signal;
use crate::task::turn::Turn;

thread_local! {
    /// The calling thread's target, from its first request until its destructors have run.
    static ADDRESS: Cell<*const Target> = const { Cell::new(std::ptr::null()) };
    static OWNED: Owned = const { Owned(RefCell::new(None)) };
    /// Whether the thread's task work has ended with the thread. Without a destructor.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// The key whose destructor ends the target of a thread that has registered in a destructor of the
/// program, where Rust's own destructors have run already.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

fn end_late_target() -> libc::pthread_key_t {
    extern "C" fn ends(_: *mut libc::c_void) {
        // Fails if the owner was destroyed: then that has ended the target.
        let owned = OWNED.try_with(|owned| owned.0.borrow_mut().take());
        if let Ok(Some(target)) = owned {
            // SAFETY: the target is this thread's own.
            unsafe { target.exit() };
        }
        ADDRESS.set(std::ptr::null());
        ENDS.set(true);
    }
    *crate::first_use::once(&KEY, || {
        let mut key = 0;
        // SAFETY: the function lives as long as the process. It fails if the process has 1024 keys;
        // the first key is then another's, and its value is not set below.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } == 0;
        if made { key } else { libc::pthread_key_t::MAX }
    })
}

/// The owner of the target, which ends its list when the thread ends.
struct Owned(RefCell<Option<Arc<Target>>>);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(target) = self.0.get_mut() {
            // SAFETY: the target is this thread's own.
            unsafe { target.exit() };
            ADDRESS.set(std::ptr::null());
        }
        ENDS.set(true);
    }
}

/// The calling thread's target. If it has none, one is made, with this `delivery`. `None` if the
/// thread's destructors have run.
pub fn current(delivery: Delivery) -> Option<Arc<Target>> {
    let address = ADDRESS.get();
    if !address.is_null() {
        // SAFETY: from an `Arc` that the thread owns. This is the pointer as obtained from there,
        // not one derived from a reference to the target: its provenance covers the reference
        // counts as well, which precede the target.
        return Some(unsafe {
            Arc::increment_strong_count(address);
            Arc::from_raw(address)
        });
    }
    if ENDS.get() {
        return None;
    }
    OWNED.try_with(|owned| owned.0.borrow_mut().insert(register(delivery)).clone()).ok()
}

/// Whether the calling thread's destructors have run, so that it can have no target.
pub fn has_ended() -> bool {
    ENDS.get()
}

/// The calling thread's target, if it has one.
///
/// The reference is valid until the thread's destructors run: do not keep it.
#[inline]
pub fn current_or_none<'a>() -> Option<&'a Target> {
    // SAFETY: null, or a target that this thread owns until its destructors run.
    unsafe { ADDRESS.get().as_ref() }
}

/// The error text if the thread can have no target.
pub const ENDED: &str = "the thread ends: its task work is over";

/// The error of a call for a thread that can have no target.
#[cold]
pub fn ended() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// The calling thread's target, registered first if necessary.
///
/// The reference is valid until the thread's destructors run: do not keep it.
///
/// # Errors
/// The thread's destructors have run.
pub fn own<'a>() -> io::Result<&'a Target> {
    if current_or_none().is_none() {
        current(Delivery::Auto).ok_or_else(ended)?;
    }
    current_or_none().ok_or_else(ended)
}

/// Runs the items of the calling thread that are due, if any. Returns the number of items run.
#[inline]
pub fn run_due() -> usize {
    match current_or_none() {
        // SAFETY: the target is the calling thread's own.
        Some(target) if target.is_notified() => unsafe { target.run_once() },
        _ => 0,
    }
}

fn register(delivery: Delivery) -> Arc<Target> {
    crate::fork::ensure_fork_handlers();
    // If every signal has another handler, only declared waits can be ended.
    let accepts = delivery != Delivery::Light && signal::accept().is_ok();
    let delivery = if accepts { delivery } else { Delivery::Light };
    let target = Arc::new(Target {
        list: TaskList::new(),
        thread: crate::thread::tid(),
        forks: forks(),
        delivery: AtomicU8::new(delivery as u8),
        accepts: AtomicBool::new(accepts),
        wait: AtomicU8::new(Wait::Futex as u8),
        waits_for_descriptor: AtomicBool::new(false),
        ring: AtomicPtr::new(std::ptr::null_mut()),
        has_ring: AtomicBool::new(false),
        descriptor: Descriptor::new(),
        turn: Turn::new(),
    });
    // SAFETY: the value is not null, so the destructor is called. A key that does not exist is refused.
    unsafe { libc::pthread_setspecific(end_late_target(), (&raw const KEY).cast()) };
    ADDRESS.set(Arc::as_ptr(&target));
    target
}

/// In a forked child: resets the calling thread to one without a target and without items.
pub(crate) fn child() {
    if let Some(target) = current_or_none() {
        // An item may have forked, so the thread may be in the middle of its list.
        // SAFETY: this is the copy of the target's thread, and the only thread.
        unsafe { target.list.forget() };
    }
    ADDRESS.set(std::ptr::null());
    // The parent's items are not touched: they run in the parent.
    let _ = OWNED.try_with(|owned| std::mem::forget(owned.0.take()));
}

/// Ends the calling thread's list, as the end of the thread would.
pub fn thread_ends() {
    if let Some(target) = current(Delivery::Light) {
        // SAFETY: the target is this thread's own.
        unsafe { target.exit() };
    }
}

impl Target {
    /// Whether the target is the calling thread.
    pub fn is_current(&self) -> bool {
        std::ptr::eq(ADDRESS.get(), self)
    }
}
