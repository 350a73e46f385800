//! Thread hooks, and the state that they keep for a thread.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use uwork::threads::{Hooks, Thread, ThreadKind, add_hooks, add_lazy_hooks};

use crate::error::{c_string, failed, guard, guarded, misuse, must_return};
use crate::memory::can_create;
use crate::queue::{UwQueue, change_queue, set_errno};

/// `struct uw_thread`.
#[repr(C)]
pub struct UwThread {
    /// The thread's name.
    pub name: *const c_char,
    /// Its queue, or null.
    pub queue: *const c_char,
    /// `enum uw_thread_kind`.
    pub kind: c_uint,
}

/// A start hook: returns the thread's state.
pub type UwThreadStart =
    Option<unsafe extern "C-unwind" fn(thread: *const UwThread, arg: *mut c_void) -> *mut c_void>;
/// A stop hook: gets that state.
pub type UwThreadStop = Option<
    unsafe extern "C-unwind" fn(thread: *const UwThread, state: *mut c_void, arg: *mut c_void),
>;

/// `struct uw_thread_hooks`. Never freed.
pub struct UwThreadHooks {
    hooks: Hooks<*mut c_void>,
    /// The handle that was made before. The list lets leak detectors find the handles that the program
    /// has forgotten; the library does not read it.
    earlier: AtomicPtr<UwThreadHooks>,
}

/// The handle that was made last.
static LAST: AtomicPtr<UwThreadHooks> = AtomicPtr::new(ptr::null_mut());

impl UwThreadHooks {
    fn handle(hooks: Hooks<*mut c_void>) -> *mut UwThreadHooks {
        let handle = Box::new(UwThreadHooks { hooks, earlier: AtomicPtr::new(ptr::null_mut()) });
        let handle: &'static UwThreadHooks = Box::leak(handle);
        let address = ptr::from_ref(handle).cast_mut();
        // Relaxed: no thread follows the list.
        handle.earlier.store(LAST.swap(address, Ordering::Relaxed), Ordering::Relaxed);
        address
    }
}

/// The program's argument.
#[derive(Clone, Copy)]
struct Argument(*mut c_void);

// SAFETY: only passed on. uwork.h says that hooks run on any thread.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

impl Argument {
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// Calls `f` with the thread as C sees it, which is valid during the call.
fn with_thread<R>(thread: Thread<'_>, f: impl FnOnce(*const UwThread) -> R) -> R {
    let (name, queue): (CString, Option<CString>) =
        (c_string(thread.name()), thread.queue().map(c_string));
    let kind = match thread.kind() {
        ThreadKind::Bh => 1,
        ThreadKind::Dedicated => 2,
        ThreadKind::Rescuer => 3,
        ThreadKind::Helper => 4,
        _ => 0,
    };
    let queue = queue.as_ref().map_or(ptr::null(), |queue| queue.as_ptr());
    f(&UwThread { name: name.as_ptr(), queue, kind })
}

/// Adds hooks for all threads that run items. NULL with errno EINVAL: both are NULL.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thread_hooks_add(
    start: UwThreadStart,
    stop: UwThreadStop,
    arg: *mut c_void,
) -> *mut UwThreadHooks {
    add(false, (start, stop), Argument(arg))
}

/// The same, for threads on which an item asks for the state.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thread_hooks_add_lazy(
    start: UwThreadStart,
    stop: UwThreadStop,
    arg: *mut c_void,
) -> *mut UwThreadHooks {
    add(true, (start, stop), Argument(arg))
}

fn add(
    lazy: bool,
    (start, stop): (UwThreadStart, UwThreadStop),
    arg: Argument,
) -> *mut UwThreadHooks {
    if start.is_none() && stop.is_none() {
        set_errno(-misuse(libc::EINVAL, "both hooks are NULL"));
        return ptr::null_mut();
    }
    let begin = move |thread: Thread<'_>| {
        start.map_or(ptr::null_mut(), |start| {
            // SAFETY: by uwork.h.
            with_thread(thread, |thread| must_return(|| unsafe { start(thread, arg.get()) }))
        })
    };
    let end = move |thread: Thread<'_>, state| {
        if let Some(stop) = stop {
            // SAFETY: by uwork.h.
            with_thread(thread, |thread| must_return(|| unsafe { stop(thread, state, arg.get()) }));
        }
    };
    let add = || if lazy { add_lazy_hooks(begin, end) } else { add_hooks(begin, end) };
    match can_create().and_then(|()| guarded(|| UwThreadHooks::handle(add()))) {
        Ok(hooks) => hooks,
        Err(code) => {
            set_errno(-code);
            ptr::null_mut()
        }
    }
}

fn hooks<'a>(hooks: *const UwThreadHooks) -> Result<&'a UwThreadHooks, c_int> {
    // SAFETY: null, or from `uw_thread_hooks_add` (uwork.h), which never frees.
    let found = NonNull::new(hooks.cast_mut()).map(|hooks| unsafe { hooks.as_ref() });
    found.ok_or_else(|| misuse(libc::EINVAL, "the hooks are NULL"))
}

/// Calls `f` with the hooks.
fn with_hooks(handle: *const UwThreadHooks, f: impl FnOnce(Hooks<*mut c_void>) -> c_int) -> c_int {
    hooks(handle).map_or_else(|code| code, |found| guard(|| f(found.hooks)))
}

/// Removes hooks.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thread_hooks_remove(handle: *mut UwThreadHooks) -> c_int {
    with_hooks(handle, |hooks| {
        hooks.remove();
        0
    })
}

/// Removes hooks, and waits until the library's threads have called the stop hook. Returns how many
/// other threads have not.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thread_hooks_remove_sync(handle: *mut UwThreadHooks) -> c_int {
    with_hooks(handle, |hooks| match hooks.remove_sync() {
        Ok(left) => c_int::try_from(left).unwrap_or(c_int::MAX),
        Err(error) => failed(&error),
    })
}

/// Each thread calls the start hook before its first item of the queue.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_add_thread_hooks(
    handle: *mut UwQueue,
    thread_hooks: *mut UwThreadHooks,
) -> c_int {
    with_hooks(thread_hooks, |hooks| {
        change_queue(handle, |queue| {
            queue.add_hooks(hooks);
            0
        })
    })
}

/// Always 0: no thread is too early.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thread_hooks_missed(handle: *const UwThreadHooks) -> c_int {
    with_hooks(handle, |_| 0)
}

/// The calling thread's state of these hooks, or null.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thread_state(handle: *const UwThreadHooks) -> *mut c_void {
    let state = hooks(handle).ok().and_then(|hooks| hooks.hooks.with(|state| *state));
    state.unwrap_or(ptr::null_mut())
}
