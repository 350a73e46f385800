//! Queues: making them, waiting for them, ending them.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uwork::{Builder, Flags, Queue};

use crate::attrs::{cpus_of, scope_of};
use crate::error::{done, fail, failed, guard, misuse};
use crate::rested;

/// A handle: a queue of the user's, or the token of a system queue, which has nothing but its first word.
///
/// Its memory is never given back to the system, only used for another queue: so that a
/// call with the handle of a queue that was destroyed finds that out.
#[repr(C)]
pub struct UwQueue {
    /// [`LIVE`] or [`DEAD`]. First: a token has [`SYSTEM`] and its number there.
    state: AtomicU64,
    /// Guard: there while `state` is `LIVE`; changed by who makes or destroys the queue.
    queue: UnsafeCell<Option<Queue>>,
}

// SAFETY: the queue is shared while it is there; it comes and goes while nobody else uses the handle.
unsafe impl Sync for UwQueue {}

const LIVE: u64 = 0x7577_6f72_6b51_4c56;
const DEAD: u64 = 0x7577_6f72_6b51_4444;
/// With the number of a system queue in the last byte.
pub(crate) const SYSTEM: u64 = 0x7577_6f72_6b53_5900;

/// Says what a queue should be: `struct uw_queue_attrs`.
#[repr(C)]
pub struct UwQueueAttrs {
    /// The size of the structure that the caller knows.
    pub size: usize,
    /// `UW_*`; 0 is unbound.
    pub flags: c_uint,
    /// 0: the default.
    pub max_active: c_uint,
    /// `UW_NICE_UNSET`: the default.
    pub nice: c_int,
    /// `enum uw_scope`.
    pub scope: c_uint,
    /// Whether pods keep to themselves.
    pub strict: bool,
    /// Whether the queue has a thread to itself.
    pub dedicated: bool,
    /// The CPUs, a bit each; null: all.
    pub cpumask: *const c_ulong,
    /// How many bytes `cpumask` has.
    pub cpumask_bytes: usize,
}

const NICE_UNSET: c_int = c_int::MIN;
/// With this bit the flags are taken by the kernel's rules: with no place given, per-CPU.
const KERNEL_RULES: c_uint = 1 << 31;

impl UwQueue {
    pub(crate) fn adopt(queue: Queue) -> *const UwQueue {
        let handle: &'static UwQueue = rested::oldest().unwrap_or_else(|| {
            Box::leak(Box::new(UwQueue {
                state: AtomicU64::new(DEAD),
                queue: UnsafeCell::new(None),
            }))
        });
        // SAFETY: a handle at rest is ours alone.
        unsafe { *handle.queue.get() = Some(queue) };
        handle.state.store(LIVE, Ordering::Release);
        handle
    }
}

/// What the first word of a handle says.
///
/// # Safety
/// `handle` is a handle or a token (uwork.h), not null.
#[inline]
unsafe fn state<'a>(handle: *const UwQueue) -> &'a AtomicU64 {
    // SAFETY: by this function's contract; the first word is the state, of a token as well.
    unsafe { AtomicU64::from_ptr(handle.cast::<u64>().cast_mut()) }
}

/// The queue of a handle, or what is wrong with it.
#[inline]
pub(crate) fn queue<'a>(handle: *const UwQueue) -> Result<&'a Queue, c_int> {
    if !handle.is_null()
        // SAFETY: a handle or a token (uwork.h).
        && unsafe { state(handle) }.load(Ordering::Acquire) == LIVE
        // SAFETY: live, so it is a handle; nobody destroys the queue while others use it (uwork.h).
        && let Some(queue) = unsafe { &*(*handle).queue.get() }
    {
        return Ok(queue);
    }
    unusual_queue(handle)
}

#[cold]
fn unusual_queue<'a>(handle: *const UwQueue) -> Result<&'a Queue, c_int> {
    if handle.is_null() {
        return Err(misuse(libc::EINVAL, "the queue is NULL"));
    }
    // SAFETY: a handle or a token (uwork.h).
    match unsafe { state(handle) }.load(Ordering::Acquire) {
        token if token & !0xff == SYSTEM => crate::system::queue_of((token & 0xff) as usize),
        DEAD => {
            let what = "was destroyed, and takes and does nothing any more";
            Err(misuse(libc::ESHUTDOWN, format!("the queue at {handle:p} {what}")))
        }
        _ => Err(misuse(libc::EINVAL, format!("{handle:p} is no queue"))),
    }
}

/// What `body` makes of the queue, or what is wrong with the handle.
pub(crate) fn with_queue(handle: *const UwQueue, body: impl FnOnce(&Queue) -> c_int) -> c_int {
    match queue(handle) {
        Ok(queue) => guard(|| body(queue)),
        Err(code) => code,
    }
}

/// # Safety
/// `name` is null or a text that ends with a zero byte.
pub(crate) unsafe fn text<'a>(name: *const c_char, what: &str) -> Result<&'a str, c_int> {
    if name.is_null() {
        return Err(misuse(libc::EINVAL, format!("{what} is NULL")));
    }
    // SAFETY: by this function's contract.
    let text = unsafe { CStr::from_ptr(name) };
    text.to_str().map_err(|_| fail(libc::EINVAL, format!("{what} is not UTF-8")))
}

fn describe(mut builder: Builder, attrs: &UwQueueAttrs) -> Result<Builder, c_int> {
    let places = Flags::PERCPU | Flags::UNBOUND | Flags::ORDERED | Flags::BH;
    let mut flags = Flags::from_bits_retain(attrs.flags & !KERNEL_RULES);
    if attrs.flags & KERNEL_RULES == 0 && !flags.intersects(places | Flags::POWER_EFFICIENT) {
        flags |= Flags::UNBOUND;
    } else if attrs.flags & KERNEL_RULES == 0 && !flags.intersects(places) {
        flags |= Flags::PERCPU;
    }
    builder = builder.flags(flags);
    if attrs.dedicated {
        builder = dedicated(builder, flags, places)?;
    }
    if attrs.max_active != 0 {
        builder = builder.max_active(attrs.max_active);
    }
    if attrs.nice != NICE_UNSET {
        builder = builder.nice(attrs.nice);
    }
    if let Some(scope) = scope_of(attrs.scope)? {
        builder = builder.affinity_scope(scope);
    }
    if attrs.strict {
        builder = builder.affinity_strict(true);
    }
    // SAFETY: null, or so many bytes (uwork.h).
    if let Some(cpus) = unsafe { cpus_of(attrs.cpumask, attrs.cpumask_bytes) }? {
        builder = builder.cpumask(cpus);
    }
    Ok(builder)
}

/// A queue with a thread to itself is ordered, whatever of that was said.
fn dedicated(builder: Builder, flags: Flags, places: Flags) -> Result<Builder, c_int> {
    if flags.intersects(Flags::PERCPU | Flags::BH) {
        let text = "a dedicated queue has one thread: UW_PERCPU and UW_BH do not go with it";
        return Err(fail(libc::EINVAL, text));
    }
    Ok(builder.flags((flags - places) | Flags::ORDERED).dedicated())
}

/// A queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_create(
    name: *const c_char,
    flags: c_uint,
    max_active: c_uint,
) -> *mut UwQueue {
    let attrs = UwQueueAttrs {
        size: size_of::<UwQueueAttrs>(),
        flags,
        max_active,
        nice: NICE_UNSET,
        scope: 0,
        strict: false,
        dedicated: false,
        cpumask: std::ptr::null(),
        cpumask_bytes: 0,
    };
    // SAFETY: by uwork.h.
    unsafe { uw_queue_create_attrs(name, &attrs) }
}

/// A queue with attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_create_attrs(
    name: *const c_char,
    attrs: *const UwQueueAttrs,
) -> *mut UwQueue {
    let mut made = std::ptr::null_mut();
    let code = guard(|| {
        // SAFETY: by uwork.h.
        let outcome = unsafe { text(name, "the queue's name") }.and_then(|name| {
            // SAFETY: null or attributes (uwork.h).
            let Some(attrs) = (unsafe { attrs.as_ref() }) else {
                return Err(misuse(libc::EINVAL, "the attributes are NULL"));
            };
            if attrs.size != size_of::<UwQueueAttrs>() {
                let text = "the size of the attributes is not one that this library knows: use \
                            UW_QUEUE_ATTRS_INIT";
                return Err(misuse(libc::EINVAL, text));
            }
            describe(Queue::builder(name), attrs)
        });
        match outcome.and_then(|builder| builder.build().map_err(|error| failed(&error))) {
            Ok(queue) => {
                made = UwQueue::adopt(queue).cast_mut();
                0
            }
            Err(code) => code,
        }
    });
    if code < 0 {
        set_errno(-code);
    }
    made
}

/// For functions that answer with a pointer.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Drains the queue and ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_destroy(handle: *mut UwQueue) -> c_int {
    with_queue(handle, |queue| {
        // SAFETY: a handle or a token, as `with_queue` has found.
        if unsafe { state(handle) }.load(Ordering::Relaxed) != LIVE {
            return misuse(libc::EPERM, "a system queue is for everybody and stays");
        }
        if let Err(error) = queue.destroy() {
            return failed(&error);
        }
        // SAFETY: a live handle, as `with_queue` has found; nobody else uses it any more (uwork.h).
        let rest = unsafe { &*handle };
        rest.state.store(DEAD, Ordering::Release);
        // SAFETY: as above. Dropped after the borrow of `queue` has ended.
        let gone = unsafe { (*rest.queue.get()).take() };
        drop(gone);
        rested::keep(rest);
        0
    })
}

/// Waits until everything that was queued before has run.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_flush(handle: *mut UwQueue) -> c_int {
    with_queue(handle, |queue| done(queue.flush()))
}

/// The same, for `timeout_ns` at most.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_flush_timeout(handle: *mut UwQueue, timeout_ns: u64) -> c_int {
    with_queue(handle, |queue| match queue.flush_timeout(Duration::from_nanos(timeout_ns)) {
        Ok(true) => 0,
        Ok(false) => fail(libc::ETIMEDOUT, "not everything that was queued before has run by now"),
        Err(error) => failed(&error),
    })
}

/// Waits until the queue is empty.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_drain(handle: *mut UwQueue) -> c_int {
    with_queue(handle, |queue| done(queue.drain()))
}

/// Whether nothing is queued and nothing runs.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_is_idle(handle: *const UwQueue) -> c_int {
    with_queue(handle, |queue| c_int::from(queue.is_idle()))
}
