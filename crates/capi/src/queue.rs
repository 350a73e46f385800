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
    /// See [`State`]. First: a token has [`SYSTEM`] and its number there.
    state: AtomicU64,
    /// Guard: there while `state` is live; changed by who makes the queue, or has marked it as ending.
    queue: UnsafeCell<Option<Queue>>,
}

// SAFETY: the queue is shared while it is there; it comes while the handle is at rest, and goes on the only thread
// that has marked it as ending.
unsafe impl Sync for UwQueue {}

/// The first word of a handle.
///
/// | bits | meaning |
/// |---|---|
/// | 32 to 63 | `LIVE`: it has a queue; `DEAD`: it has none, and rests. Any other value: no handle |
/// | 1 to 31 | how many queues it has had so far |
/// | 0 | live: a thread destroys the queue |
///
/// A thread that destroys sets bit 0 by an exchange that compares the whole word. So of two only one goes on, and
/// the other fails even if the handle has had another queue since it looked.
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

    /// With the next queue. The count wraps after 2^31 queues of one handle.
    #[must_use]
    fn with_next_queue(self) -> State {
        State(LIVE << KIND_SHIFT | (self.queues() + QUEUE) & QUEUES)
    }
}

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
                state: AtomicU64::new(State::NEW.0),
                queue: UnsafeCell::new(None),
            }))
        });
        // SAFETY: a handle at rest is ours alone.
        unsafe { *handle.queue.get() = Some(queue) };
        let before = State(handle.state.load(Ordering::Relaxed));
        debug_assert!(before.is_dead(), "a handle at rest has no queue");
        handle.state.store(before.with_next_queue().0, Ordering::Release);
        handle
    }
}

/// A queue that the calling thread, and no other, destroys.
struct ShutdownState {
    handle: &'static UwQueue,
    state: State,
}

impl ShutdownState {
    /// # Errors
    /// Another thread destroys it, or has done so; the code for the caller.
    fn begin(handle: *mut UwQueue) -> Result<ShutdownState, c_int> {
        if handle.is_null() {
            return Err(misuse(libc::EINVAL, "the queue is NULL"));
        }
        // SAFETY: a handle or a token (uwork.h).
        let word = unsafe { state(handle) };
        let seen = State(word.load(Ordering::Acquire));
        if !seen.is_live() {
            unusual_queue(handle)?;
            return Err(misuse(libc::EPERM, "a system queue is for everybody and stays"));
        }
        let next = seen.ending();
        // Acquire: its partner is the release of who has made the queue. Fails if the handle has another queue by now.
        let claims =
            || word.compare_exchange(seen.0, next.0, Ordering::Acquire, Ordering::Acquire).is_ok();
        if seen.is_ending() || !claims() {
            let text = format!("the queue at {handle:p} is being destroyed by another call");
            return Err(misuse(libc::EALREADY, text));
        }
        // SAFETY: live, so it is a handle, whose memory is never given back.
        Ok(ShutdownState { handle: unsafe { &*handle }, state: next })
    }

    /// # Errors
    /// As [`Queue::destroy`]; the queue stays.
    fn finish(self) -> Result<(), uwork::Error> {
        // SAFETY: live, and ours to end: nobody else takes the queue away.
        let queue = unsafe { (*self.handle.queue.get()).as_ref() };
        queue.map_or(Ok(()), Queue::destroy)?;
        self.handle.state.store(self.state.dead().0, Ordering::Release);
        // SAFETY: as above. Nobody else uses it any more (uwork.h).
        let gone = unsafe { (*self.handle.queue.get()).take() };
        drop(gone);
        rested::keep(self.handle);
        Ok(())
    }
}

impl Drop for ShutdownState {
    /// Where the queue stays, another call may destroy it.
    fn drop(&mut self) {
        let stays = State(self.state.0 & !ENDING);
        // Not where it is dead, or has another queue already.
        let _ = self.handle.state.compare_exchange(
            self.state.0,
            stays.0,
            Ordering::Release,
            Ordering::Relaxed,
        );
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
        && State(unsafe { state(handle) }.load(Ordering::Acquire)).is_live()
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
        word if State(word).is_dead() => {
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
    match ShutdownState::begin(handle) {
        Ok(ending) => guard(|| done(ending.finish())),
        Err(code) => code,
    }
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

    /// A call of `uw_queue_destroy` that is under way on a thread of its own.
    struct Destroys {
        thread: libc::pid_t,
        outcome: std::thread::JoinHandle<c_int>,
    }

    impl Destroys {
        fn begin(handle: usize) -> Destroys {
            let (tell, told) = std::sync::mpsc::channel();
            let outcome = std::thread::spawn(move || {
                // SAFETY: asks for a number.
                tell.send(unsafe { libc::gettid() }).unwrap();
                // SAFETY: a handle.
                unsafe { uw_queue_destroy(std::ptr::with_exposed_provenance_mut(handle)) }
            });
            Destroys { thread: told.recv().unwrap(), outcome }
        }

        /// Waits until it waits, or has returned.
        fn settle(&self) {
            while !self.outcome.is_finished() && !sleeps(self.thread) {
                std::thread::yield_now();
            }
        }
    }

    // Catches: two successes for one queue, after which its handle rests twice and serves two queues.
    #[test]
    fn of_two_calls_that_destroy_a_queue_one_fails() {
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
        assert_eq!(rested::count_of(handle), 1, "the handle rests once");
        // SAFETY: a handle.
        let again = unsafe { uw_queue_destroy(handle.cast_mut()) };
        assert_eq!(again, -libc::ESHUTDOWN);
    }

    // Catches: a call that has looked at a handle, and then destroys the queue that the handle has had since.
    #[test]
    fn a_state_names_the_queue_that_the_handle_has() {
        let first = State::NEW.with_next_queue();
        assert!(first.is_live() && !first.is_ending() && first.ending().is_live());
        let second = first.ending().dead().with_next_queue();
        assert!(first.ending().dead().is_dead() && second.is_live());
        assert!(first != second);
        let last = State(LIVE << KIND_SHIFT | QUEUES);
        assert!(last.with_next_queue().is_live() && !last.with_next_queue().is_ending());
    }

    // Catches: a queue that can be destroyed no more, as a call that has failed is taken for one that goes on.
    #[test]
    fn a_call_that_fails_leaves_the_queue_to_the_next() {
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
