//! Queues: create, flush, drain, destroy.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uwork::{Builder, Flags, Queue};

use crate::attrs::{cpus_of, limit_of, scope_of};
use crate::error::{done, fail, failed, guard, misuse};
use crate::memory;
use crate::quarantine;

/// A handle of the program: either its own queue, or the token of a system queue, of which only the
/// first word exists.
///
/// The memory of a handle is never returned to the system. It is only reused for another queue,
/// after a time in quarantine (`quarantine`). So a call with the handle of a destroyed queue
/// detects that.
#[repr(C)]
pub struct UwQueue {
    /// See [`State`]. It must be the first field: a token has [`SYSTEM`] and its number at this
    /// place.
    state: AtomicU64,
    /// Guard: `Some` while `state` is live. Written by the thread that creates the queue, or that
    /// has marked it as ending.
    queue: UnsafeCell<Option<Queue>>,
}

// SAFETY: threads share the queue while `state` is live. It is written only while the handle is
// unused, and taken only by the thread that has marked it as ending.
unsafe impl Sync for UwQueue {}

/// The first word of a handle.
///
/// | bits | meaning |
/// |---|---|
/// | 32 to 63 | `LIVE`: the handle has a queue; `DEAD`: it has none. Any other value: not a handle |
/// | 1 to 31 | how many queues the handle has had so far |
/// | 0 | live: a thread is destroying the queue |
///
/// A destroying thread sets bit 0 by a compare-and-exchange of the whole word. So of two such
/// threads only one succeeds. The other fails even if the handle has received another queue since
/// the thread read the word.
#[derive(Clone, Copy, PartialEq)]
struct State(u64);

const LIVE: u64 = 0x7577_4c56;
const DEAD: u64 = 0x7577_4444;
const KIND_SHIFT: u32 = 32;
const ENDING: u64 = 1;
const QUEUE: u64 = 2;
const QUEUES: u64 = 0xffff_fffe;

impl State {
    const NEW: State = State(DEAD << KIND_SHIFT);

    #[inline]
    fn is_live(self) -> bool {
        self.0 >> KIND_SHIFT == LIVE
    }

    fn is_dead(self) -> bool {
        self.0 >> KIND_SHIFT == DEAD
    }

    fn is_ending(self) -> bool {
        self.0 & ENDING != 0
    }

    fn queues(self) -> u64 {
        self.0 & QUEUES
    }

    #[must_use]
    fn ending(self) -> State {
        State(self.0 | ENDING)
    }

    #[must_use]
    fn dead(self) -> State {
        State(DEAD << KIND_SHIFT | self.queues())
    }

    /// The state with the next queue. The count wraps after 2^31 queues of one handle.
    #[must_use]
    fn with_next_queue(self) -> State {
        State(LIVE << KIND_SHIFT | (self.queues() + QUEUE) & QUEUES)
    }
}

/// The first word of a token. The last byte holds the number of the system queue.
pub(crate) const SYSTEM: u64 = 0x7577_6f72_6b53_5900;

/// The attributes of a new queue: `struct uw_queue_attrs`.
#[repr(C)]
pub struct UwQueueAttrs {
    /// The size of the structure as the caller was compiled with it.
    pub size: usize,
    /// `UW_*`; 0 makes the queue unbound.
    pub flags: c_uint,
    /// 0 selects the default.
    pub max_active: c_uint,
    /// `UW_NICE_UNSET` selects the default.
    pub nice: c_int,
    /// `enum uw_scope`.
    pub scope: c_uint,
    /// Whether pods never share their work with other pods.
    pub strict: bool,
    /// Whether the queue has a thread of its own.
    pub dedicated: bool,
    /// The CPUs, one bit each; null selects all.
    pub cpumask: *const c_ulong,
    /// How many bytes `cpumask` has.
    pub cpumask_bytes: usize,
}

const NICE_UNSET: c_int = c_int::MIN;
/// With this bit the flags follow the kernel's rules: without a placement flag the queue is
/// per-CPU.
const KERNEL_RULES: c_uint = 1 << 31;
/// As in uwork.h.
const NUMBERED: c_uint = 1 << 30;

impl UwQueue {
    pub(crate) fn adopt(queue: Queue) -> *const UwQueue {
        let handle: &'static UwQueue = quarantine::oldest().unwrap_or_else(|| {
            Box::leak(Box::new(UwQueue {
                state: AtomicU64::new(State::NEW.0),
                queue: UnsafeCell::new(None),
            }))
        });
        // SAFETY: an unused handle belongs to this thread alone.
        unsafe { *handle.queue.get() = Some(queue) };
        let before = State(handle.state.load(Ordering::Relaxed));
        debug_assert!(before.is_dead(), "an unused handle has no queue");
        memory::QUEUES.fetch_add(1, Ordering::Relaxed);
        handle.state.store(before.with_next_queue().0, Ordering::Release);
        handle
    }
}

/// A queue that the calling thread, and no other, is destroying.
struct Destruction {
    handle: &'static UwQueue,
    state: State,
}

impl Destruction {
    /// # Errors
    /// The code for the caller, if another thread is destroying the queue or has destroyed it.
    fn begin(handle: *mut UwQueue) -> Result<Destruction, c_int> {
        if handle.is_null() {
            return Err(misuse(libc::EINVAL, "the queue is NULL"));
        }
        // SAFETY: a handle or a token (uwork.h).
        let word = unsafe { state(handle) };
        let seen = State(word.load(Ordering::Acquire));
        if !seen.is_live() {
            unusual_queue(handle)?;
            return Err(misuse(libc::EPERM, "a system queue cannot be destroyed"));
        }
        let next = seen.ending();
        // Acquire pairs with the release store in `adopt`, so that this thread sees the queue. The
        // exchange fails if the handle has another queue by now.
        let claims =
            || word.compare_exchange(seen.0, next.0, Ordering::Acquire, Ordering::Acquire).is_ok();
        if seen.is_ending() || !claims() {
            let text = format!("the queue at {handle:p} is being destroyed by another call");
            return Err(misuse(libc::EALREADY, text));
        }
        // SAFETY: live, so it is a handle, whose memory is never freed.
        Ok(Destruction { handle: unsafe { &*handle }, state: next })
    }

    /// # Errors
    /// As [`Queue::destroy`]; the queue then stays usable.
    fn finish(self) -> Result<(), uwork::Error> {
        // SAFETY: live, and only the marking thread takes the queue away.
        let queue = unsafe { (*self.handle.queue.get()).as_ref() };
        queue.map_or(Ok(()), Queue::destroy)?;
        self.handle.state.store(self.state.dead().0, Ordering::Release);
        // SAFETY: as above. No other thread uses the queue any more (uwork.h).
        let gone = unsafe { (*self.handle.queue.get()).take() };
        drop(gone);
        memory::QUEUES.fetch_sub(1, Ordering::Relaxed);
        quarantine::keep(self.handle);
        Ok(())
    }
}

impl Drop for Destruction {
    /// If the queue was not destroyed, clears the mark, so that a later call can destroy it.
    fn drop(&mut self) {
        let stays = State(self.state.0 & !ENDING);
        // Fails on purpose if the handle is dead, or already has another queue.
        let _ = self.handle.state.compare_exchange(
            self.state.0,
            stays.0,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

/// The first word of a handle.
///
/// # Safety
/// `handle` is a handle or a token (uwork.h), and not null.
#[inline]
unsafe fn state<'a>(handle: *const UwQueue) -> &'a AtomicU64 {
    // SAFETY: by this function's contract. The first word is the state, also in a token.
    unsafe { AtomicU64::from_ptr(handle.cast::<u64>().cast_mut()) }
}

/// The queue of a handle, or the error code.
#[inline]
pub(crate) fn queue<'a>(handle: *const UwQueue) -> Result<&'a Queue, c_int> {
    if !handle.is_null()
        // SAFETY: a handle or a token (uwork.h).
        && State(unsafe { state(handle) }.load(Ordering::Acquire)).is_live()
        // SAFETY: live, so it is a handle. No thread destroys a queue while others use it
        // (uwork.h).
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
        word if State(word).is_dead() => {
            let what = "was destroyed and cannot be used any more";
            Err(misuse(libc::ESHUTDOWN, format!("the queue at {handle:p} {what}")))
        }
        _ => Err(misuse(libc::EINVAL, format!("{handle:p} is not a queue"))),
    }
}

/// Calls `body` with the queue and returns its code, or the error code of the handle.
pub(crate) fn with_queue(handle: *const UwQueue, body: impl FnOnce(&Queue) -> c_int) -> c_int {
    match queue(handle) {
        Ok(queue) => guard(|| body(queue)),
        Err(code) => code,
    }
}

/// As [`with_queue`], for a change that may create pools and workers.
pub(crate) fn change_queue(handle: *const UwQueue, body: impl FnOnce(&Queue) -> c_int) -> c_int {
    with_queue(handle, |queue| memory::can_create().map_or_else(|code| code, |()| body(queue)))
}

/// # Safety
/// `name` is null, or a text that ends with a zero byte.
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
    let mut flags = Flags::from_bits_retain(attrs.flags & !(KERNEL_RULES | NUMBERED));
    if attrs.flags & KERNEL_RULES == 0 && !flags.intersects(places | Flags::POWER_EFFICIENT) {
        flags |= Flags::UNBOUND;
    } else if attrs.flags & KERNEL_RULES == 0 && !flags.intersects(places) {
        flags |= Flags::PERCPU;
    }
    builder = builder.flags(flags);
    if attrs.flags & NUMBERED != 0 {
        builder = builder.numbered();
    }
    if attrs.dedicated {
        builder = dedicated(builder, flags, places)?;
    }
    if attrs.max_active != 0 {
        builder = builder.max_active(limit_of(attrs.max_active)?);
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
    // SAFETY: null, or that many bytes (uwork.h).
    if let Some(cpus) = unsafe { cpus_of(attrs.cpumask, attrs.cpumask_bytes) }? {
        builder = builder.cpumask(cpus);
    }
    Ok(builder)
}

/// A queue with a thread of its own is always ordered, whatever the flags say about placement.
fn dedicated(builder: Builder, flags: Flags, places: Flags) -> Result<Builder, c_int> {
    if flags.intersects(Flags::PERCPU | Flags::BH) {
        let text = "a dedicated queue has one thread: UW_PERCPU and UW_BH are not allowed";
        return Err(fail(libc::EINVAL, text));
    }
    Ok(builder.flags((flags - places) | Flags::ORDERED).dedicated())
}

/// Creates a queue.
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

/// Creates a queue with attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_create_attrs(
    name: *const c_char,
    attrs: *const UwQueueAttrs,
) -> *mut UwQueue {
    let mut made = std::ptr::null_mut();
    let code = guard(|| {
        // SAFETY: by uwork.h.
        let outcome = unsafe { text(name, "the queue's name") }.and_then(|name| {
            memory::can_create()?;
            // SAFETY: null, or valid attributes (uwork.h).
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

/// Sets `errno`, for functions that return a pointer.
pub fn set_errno(errno: c_int) {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Drains the queue and destroys it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_destroy(handle: *mut UwQueue) -> c_int {
    match Destruction::begin(handle) {
        Ok(ending) => guard(|| done(ending.finish())),
        Err(code) => code,
    }
}

/// Waits until everything that was queued before the call has run.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_flush(handle: *mut UwQueue) -> c_int {
    with_queue(handle, |queue| done(queue.flush()))
}

/// The same, with a limit of `timeout_ns`.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_flush_timeout(handle: *mut UwQueue, timeout_ns: u64) -> c_int {
    with_queue(handle, |queue| done(queue.flush_timeout(Duration::from_nanos(timeout_ns))))
}

/// Starts no more items of the queue, and waits for those that run.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_pause(handle: *mut UwQueue) -> c_int {
    with_queue(handle, |queue| done(queue.pause()))
}

/// The same, with a limit of `timeout_ns`.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_pause_timeout(handle: *mut UwQueue, timeout_ns: u64) -> c_int {
    with_queue(handle, |queue| done(queue.pause_timeout(Duration::from_nanos(timeout_ns))))
}

/// Ends one pause.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_resume(handle: *mut UwQueue) -> c_int {
    with_queue(handle, |queue| done(queue.resume()))
}

/// Whether the queue is paused.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_is_paused(handle: *const UwQueue) -> c_int {
    with_queue(handle, |queue| c_int::from(queue.is_paused()))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Whether the thread sleeps.
    fn sleeps(thread: libc::pid_t) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        stat.is_ok_and(|stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
    }

    /// A call of `uw_queue_destroy` on a thread of its own.
    struct Destroys {
        thread: libc::pid_t,
        outcome: std::thread::JoinHandle<c_int>,
    }

    impl Destroys {
        fn begin(handle: usize) -> Destroys {
            let (tell, told) = std::sync::mpsc::channel();
            let outcome = std::thread::spawn(move || {
                // SAFETY: the call only returns a number.
                tell.send(unsafe { libc::gettid() }).unwrap();
                // SAFETY: a handle.
                unsafe { uw_queue_destroy(std::ptr::with_exposed_provenance_mut(handle)) }
            });
            Destroys { thread: told.recv().unwrap(), outcome }
        }

        /// Returns when the call sleeps or has returned.
        fn settle(&self) {
            while !self.outcome.is_finished() && !sleeps(self.thread) {
                std::thread::yield_now();
            }
        }
    }

    // Catches: both calls succeed, so that the handle is in quarantine twice and serves two queues.
    #[test]
    fn the_second_of_two_concurrent_destroys_fails() {
        let handle = UwQueue::adopt(Queue::builder("destroyed-twice").build().unwrap());
        let may_end = Arc::new(AtomicBool::new(false));
        let ends = may_end.clone();
        let item = move || {
            while !ends.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        let runs = queue(handle).unwrap().spawn(item);
        let calls = [(); 2].map(|()| {
            let call = Destroys::begin(handle.expose_provenance());
            call.settle();
            call
        });
        may_end.store(true, Ordering::Release);
        let mut codes = calls.map(|call| call.outcome.join().unwrap());
        codes.sort_unstable();
        assert_eq!(codes, [-libc::EALREADY, 0]);
        runs.join().unwrap();
        assert_eq!(quarantine::count_of(handle), 1, "the handle is in quarantine once");
        // SAFETY: a handle.
        let again = unsafe { uw_queue_destroy(handle.cast_mut()) };
        assert_eq!(again, -libc::ESHUTDOWN);
    }

    // Catches: a call that has read the state destroys the queue that the handle has received
    // since.
    #[test]
    fn a_state_distinguishes_the_queues_of_a_handle() {
        let first = State::NEW.with_next_queue();
        assert!(first.is_live() && !first.is_ending() && first.ending().is_live());
        let second = first.ending().dead().with_next_queue();
        assert!(first.ending().dead().is_dead() && second.is_live());
        assert!(first != second);
        let last = State(LIVE << KIND_SHIFT | QUEUES);
        assert!(last.with_next_queue().is_live() && !last.with_next_queue().is_ending());
    }

    // Catches: a failed call leaves the mark set, so that the queue can never be destroyed.
    #[test]
    fn a_failed_destroy_can_be_repeated() {
        let handle = UwQueue::adopt(Queue::builder("destroyed-from-inside").build().unwrap());
        let address = handle.expose_provenance();
        let inside = queue(handle).unwrap().spawn(move || {
            // SAFETY: a handle.
            unsafe { uw_queue_destroy(std::ptr::with_exposed_provenance_mut(address)) }
        });
        assert_eq!(inside.join().unwrap(), -libc::EDEADLK);
        // SAFETY: as above.
        assert_eq!(unsafe { uw_queue_destroy(handle.cast_mut()) }, 0);
    }
}
