//! Items that are queued later.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::pool::Pool;
use crate::queue::Destination;
use crate::queue::QueueError;
use crate::queue::owner::{Owner, Queue};
use crate::queue::submit::Queued;
use crate::timer::fire::{Firer, expired, let_go};
use crate::timer::window::window_in;
use crate::timer::{TimerBase, Timers};
use crate::words::host::Host;
use crate::words::item::word::{Acquire, Owned};
use crate::words::item::{ForeignFn, Location, Work, WorkFn};
use crate::words::sync::{Cell, Link, const_unless_modelled, prefetch};

/// The size of a cache line, in bytes.
const LINE: usize = 64;

/// A work item with a timer. Embed it as [`Work`]; arming allocates only the wheel of a pool's
/// first timer.
#[repr(C)]
pub struct Delayed<H: Host> {
    /// First, so that the address of the work is the address of the whole.
    work: Work,
    pub(crate) node: Node<H>,
    /// How much later than its deadline it may expire. Constant after creation.
    pub(super) slack_ns: u64,
    /// Whether it waits for a worker that is awake for another reason. Constant after creation.
    deferrable: bool,
    /// The time at which a thread must be awake for its timer: the expiry, or later in a pool that
    /// saves wakes. Guard: as that of the node.
    pub(crate) latest: Cell<u64>,
}

/// Guard: the owner of the item; while it is armed, the timers' lock.
pub(crate) struct Node<H: Host> {
    /// The time from which it may expire: the deadline, or later by at most the slack.
    pub(crate) expiry: Cell<u64>,
    /// Its rank among those with the same expiry.
    pub(crate) sequence: Cell<u64>,
    pub(crate) next: Cell<Link<Delayed<H>>>,
    pub(crate) prev: Cell<Link<Delayed<H>>>,
    /// Level and bucket in the wheel.
    pub(crate) position: Cell<(u8, u8)>,
    /// The CPU to queue on; `None`: the CPU on which the timer expires.
    cpu: Cell<Option<u32>>,
    /// The queue, as a weak reference that the node owns while it is armed.
    queue: Cell<Link<Owner<H>>>,
}

/// The outcome of arming a timer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an item that was not armed stays with the caller"]
pub enum Rearmed {
    /// It was idle; now it is armed or queued.
    Armed,
    /// It was pending; its expiry has changed.
    Moved,
    /// It is disabled.
    Disabled,
    /// The queue drains or is destroyed.
    Refused,
}

impl<H: Host> Node<H> {
    /// The queue, as a weak reference that the node continues to own.
    ///
    /// # Safety
    /// The item is armed, and the caller holds the timers' lock.
    pub(crate) unsafe fn queue(&self) -> Link<Owner<H>> {
        // SAFETY: by this function's contract.
        unsafe { self.queue.get() }
    }

    /// The CPU that the item is to be queued on.
    ///
    /// # Safety
    /// As [`Node::queue`].
    pub(crate) unsafe fn cpu(&self) -> Option<u32> {
        // SAFETY: by this function's contract.
        unsafe { self.cpu.get() }
    }
}

impl<H: Host> Delayed<H> {
    const_unless_modelled! {
        /// An idle item that will call `func`, with the address of its `work`.
        pub fn new(func: WorkFn) -> Delayed<H> {
            Self::with_deferrable(Work::new(func), false)
        }
    }

    const_unless_modelled! {
        /// As [`Delayed::new`] or [`Delayed::deferrable`], for a function of another language.
        pub fn foreign(func: ForeignFn, deferrable: bool) -> Delayed<H> {
            Self::with_deferrable(Work::foreign(func), deferrable)
        }
    }

    /// The offset of the deferrable mark, in bytes. In an idle item, all bytes behind the work are
    /// zero, except this byte, which may be 1.
    #[doc(hidden)]
    pub const DEFERRABLE_OFFSET: usize = std::mem::offset_of!(Delayed<H>, deferrable);

    const_unless_modelled! {
        /// As [`Delayed::new`], but its timer never wakes a thread: when it is due it waits until a
        /// worker of its pool, or of a near one of the pod, is awake for another reason (the kernel's
        /// `INIT_DEFERRABLE_WORK`).
        pub fn deferrable(func: WorkFn) -> Delayed<H> {
            Self::with_deferrable(Work::new(func), true)
        }
    }

    /// Lets the timer expire up to `slack_ns` nanoseconds later than its delay says, so that
    /// several timers can expire together. A longer slack of its queue counts instead
    /// ([`Wq::set_timer_slack`](crate::queue::Wq::set_timer_slack)).
    #[must_use]
    pub const fn with_slack(mut self, slack_ns: u64) -> Delayed<H> {
        self.slack_ns = slack_ns;
        self
    }

    const_unless_modelled! {
        fn with_deferrable(work: Work, deferrable: bool) -> Delayed<H> {
            Delayed {
                slack_ns: 0,
                deferrable,
                latest: Cell::new(0),
                work,
                node: Node {
                    expiry: Cell::new(0),
                    sequence: Cell::new(0),
                    next: Cell::new(Link(std::ptr::null_mut())),
                    prev: Cell::new(Link(std::ptr::null_mut())),
                    position: Cell::new((0, 0)),
                    cpu: Cell::new(None),
                    queue: Cell::new(Link(std::ptr::null_mut())),
                },
            }
        }
    }

    /// The work item inside.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The wheel of a pool that it is armed in.
    fn base<'a>(&self, pool: &'a Pool<H>) -> &'a TimerBase<H> {
        if self.deferrable { &pool.deferrable } else { &pool.timers }
    }
}

/// Prefetches every line of an item at once, if there is one. Locked instructions separate the first
/// accesses to the lines. Without the prefetch, an item that is in no cache would cost one miss after
/// the other.
#[inline(always)]
pub(super) fn prefetch_all<H: Host>(item: *const Delayed<H>) {
    let lines = (0..size_of::<Delayed<H>>()).step_by(LINE);
    let end = size_of::<Delayed<H>>() - 1;
    lines.chain([end]).for_each(|at| prefetch(item.wrapping_byte_add(at)));
}

pub(super) fn work_of<H: Host>(item: NonNull<Delayed<H>>) -> NonNull<Work> {
    item.cast()
}

impl<H: Host> Queue<H> {
    /// Queues `item` after `delay_ns` nanoseconds; at once if that is 0. Without a CPU, it is
    /// queued on the CPU on which the timer expires. The item is pending from now on.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it; the item is as it was.
    ///
    /// # Safety
    /// `item` is live and stays so, in place, until its function was called or a cancel
    /// has returned it.
    pub unsafe fn queue_delayed(
        &self,
        cpu: Option<u32>,
        item: NonNull<Delayed<H>>,
        delay_ns: u64,
    ) -> Result<Queued, QueueError> {
        prefetch_all(item.as_ptr());
        cpu.map_or(Ok(()), |cpu| self.check_cpu(cpu))?;
        // SAFETY: by this function's contract.
        let slack_ns = self.slack_of(unsafe { item.as_ref() }, delay_ns);
        // SAFETY: by this function's contract.
        let owned = match unsafe { item.as_ref() }.work.word.acquire() {
            Acquire::Owned(owned) => owned,
            Acquire::Pending => return Ok(Queued::AlreadyPending),
        };
        // SAFETY: by this function's contract, and the item is ours.
        Ok(unsafe { self.arm_owned(cpu, item, owned, (delay_ns, slack_ns)) })
    }

    /// Queues `item` after `delay_ns` nanoseconds from now, whether it was idle, armed or queued.
    ///
    /// # Errors
    /// As [`Queue::queue_delayed`].
    ///
    /// # Safety
    /// As [`Queue::queue_delayed`].
    pub unsafe fn mod_delayed(
        &self,
        cpu: Option<u32>,
        item: NonNull<Delayed<H>>,
        delay_ns: u64,
    ) -> Result<Rearmed, QueueError> {
        prefetch_all(item.as_ptr());
        cpu.map_or(Ok(()), |cpu| self.check_cpu(cpu))?;
        // SAFETY: by this function's contract.
        let times = (delay_ns, self.slack_of(unsafe { item.as_ref() }, delay_ns));
        // SAFETY: by this function's contract.
        if unsafe { self.move_armed(cpu, item, times) } {
            return Ok(Rearmed::Moved);
        }
        // SAFETY: by this function's contract.
        let func = unsafe { item.as_ref() }.work.func();
        // SAFETY: by this function's contract.
        let grabbed = unsafe { self.engine().grab(work_of(item)) };
        // SAFETY: by this function's contract, and the item is ours.
        Ok(match unsafe { self.arm_owned(cpu, item, grabbed.owned, times) } {
            Queued::Yes if grabbed.was_pending => Rearmed::Moved,
            Queued::Yes => Rearmed::Armed,
            Queued::Disabled => Rearmed::Disabled,
            Queued::Refused | Queued::AlreadyPending => {
                if grabbed.was_pending {
                    // SAFETY: the item came off its list and is not queued again.
                    unsafe { let_go(self.engine(), work_of(item), func) };
                }
                Rearmed::Refused
            }
        })
    }

    /// Moves an item within the wheel that it is in, if it stays in that wheel and belongs to this
    /// queue.
    ///
    /// All of it happens under the lock of the wheel: no thread finds the item in between, and the
    /// item keeps its reference to the queue. False if nothing was done.
    unsafe fn move_armed(
        &self,
        cpu: Option<u32>,
        item: NonNull<Delayed<H>>,
        (delay_ns, slack_ns): (u64, u64),
    ) -> bool {
        // SAFETY: the caller's promise that the item is live.
        let delayed = unsafe { item.as_ref() };
        let Location::Timer(id) = delayed.work.location() else { return false };
        let engine = self.engine();
        let pool = self.pool_of(cpu.unwrap_or_else(|| engine.host().current_cpu()));
        if pool.id != id || delay_ns == 0 || self.gate.is_closed() {
            return false;
        }
        let now = engine.host().now();
        let base = delayed.base(pool);
        let mut timers = base.lock();
        // SAFETY: if its location says so under the wheel's lock, the item is in this wheel, and
        // the node is ours. It is armed, hence not disabled.
        let is_earliest = unsafe {
            let is_ours = || delayed.node.queue.get().0.cast_const() == Arc::as_ptr(self.owner());
            if delayed.work.location() != Location::Timer(id) || !is_ours() {
                return false;
            }
            delayed.node.cpu.set(cpu);
            timers.move_to(item.as_ptr(), window_in(pool, now, delay_ns, slack_ns), now);
            base.publish(&timers)
        };
        // Read it now: once the lock is released the item may be freed.
        let deferrable = delayed.deferrable;
        drop(timers);
        self.note_armed(pool, is_earliest, deferrable);
        true
    }

    /// Settles the pool after a timer was armed that may expire before all others.
    fn note_armed(&self, pool: &Pool<H>, is_earliest: bool, deferrable: bool) {
        if is_earliest && (!deferrable || pool.has_no_routes()) {
            pool.armed_earlier_timer().settle_for_arming_thread(self.engine());
        }
    }

    unsafe fn arm_owned(
        &self,
        cpu: Option<u32>,
        item: NonNull<Delayed<H>>,
        owned: Owned,
        (delay_ns, slack_ns): (u64, u64),
    ) -> Queued {
        // SAFETY: the caller owns the item.
        let delayed = unsafe { item.as_ref() };
        if delay_ns == 0 {
            // SAFETY: the caller's promise, handed on.
            return unsafe {
                self.queue_owned(
                    work_of(item),
                    owned,
                    cpu.map_or(Destination::Here, Destination::On),
                )
            };
        }
        if owned.disable_depth() > 0 {
            delayed.work.word.release(owned);
            return Queued::Disabled;
        }
        if self.gate.is_closed() {
            delayed.work.word.release(owned);
            return Queued::Refused;
        }
        let engine = self.engine();
        let now = engine.host().now();
        let pool = self.pool_of(cpu.unwrap_or_else(|| engine.host().current_cpu()));
        // SAFETY: the node is ours until it is in the wheel.
        unsafe {
            delayed.set_window(window_in(pool, now, delay_ns, slack_ns));
            delayed.node.cpu.set(cpu);
            let queue = Weak::into_raw(Arc::downgrade(self.owner()));
            delayed.node.queue.set(Link(queue.cast_mut()));
        }
        // Read them now: once armed, the item may be freed at any time.
        let (base, deferrable) = (delayed.base(pool), delayed.deferrable);
        let mut timers = base.lock_to_arm();
        // A shutdown closes the gate and then removes the armed items, under this lock. Either it
        // takes the lock after us and finds the item, or it took the lock before us and we see the
        // closed gate here.
        if self.gate.is_closed() {
            drop(timers);
            // SAFETY: the reference that was stored above; no other thread has seen the node since.
            drop(unsafe { Weak::from_raw(delayed.node.queue.get().0) });
            delayed.work.word.release(owned);
            return Queued::Refused;
        }
        delayed.work.set_location(Location::Timer(pool.id));
        // SAFETY: as above.
        unsafe { timers.insert(item.as_ptr(), now) };
        let is_earliest = base.publish(&timers);
        drop(timers);
        self.note_armed(pool, is_earliest, deferrable);
        Queued::Yes
    }
}

impl<H: Host> Engine<H> {
    /// Queues an armed item at once and waits for it, as [`Engine::flush_work`]. It also returns
    /// false, without waiting, if the caller runs items of the ordered queue that the item was
    /// queued on.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn flush_delayed(&self, item: NonNull<Delayed<H>>) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            let was_armed = match item.as_ref().work.location() {
                Location::Timer(pool) => expire_now(self, item, pool),
                _ => false,
            };
            // It may have run by now.
            self.flush_work(work_of(item))
                || (was_armed && !self.caller().is_ahead_of(&item.as_ref().work))
        }
    }
}

/// In a forked child: makes all armed items idle, without notifying their holders.
pub(super) fn forget_armed<H: Host>(timers: &mut Timers<H>) {
    while let Some(item) = NonNull::new(timers.pop_any()) {
        // The weak reference is leaked: dropping the last one of a queue would free memory.
        // SAFETY: an item that came off the wheel is live and ours.
        unsafe { item.as_ref() }.work.forget();
    }
}

impl<H: Host> Pool<H> {
    /// Takes off all armed items of a pool, to be released. Returns their number.
    pub(crate) fn release_armed(&self, engine: &Engine<H>) -> u64 {
        self.timer_bases().into_iter().map(|base| release_armed_in(engine, base)).sum()
    }
}

/// Removes an item from a pool's timers. False if it is not in them.
pub(crate) unsafe fn disarm<H: Host>(engine: &Engine<H>, work: NonNull<Work>, pool: u32) -> bool {
    let item = work.cast::<Delayed<H>>();
    // SAFETY: the caller's promise that the item is live; its location `Timer` says that it is the
    // work of a `Delayed`.
    match unsafe { unlink(engine, item, pool) } {
        Some(queue) => {
            drop(queue);
            true
        }
        None => false,
    }
}

unsafe fn unlink<H: Host>(
    engine: &Engine<H>,
    item: NonNull<Delayed<H>>,
    pool: u32,
) -> Option<Weak<Owner<H>>> {
    let pool = engine.pool(pool);
    // SAFETY: the caller's promise that the item is live.
    let delayed = unsafe { item.as_ref() };
    let base = delayed.base(pool);
    let mut timers = base.lock();
    if delayed.work.location() != Location::Timer(pool.id) {
        return None;
    }
    delayed.work.set_location(Location::Detached);
    // SAFETY: the location, read under the lock, says that the item is in this wheel.
    unsafe {
        timers.remove(item.as_ptr());
        base.publish(&timers);
        Some(Weak::from_raw(delayed.node.queue.get().0))
    }
}

fn release_armed_in<H: Host>(engine: &Engine<H>, base: &TimerBase<H>) -> u64 {
    let mut released = 0;
    loop {
        let mut timers = base.lock();
        let item = timers.pop_any();
        base.publish(&timers);
        let Some(item) = NonNull::new(item) else { return released };
        // SAFETY: an item that came off the wheel is live and ours, with its weak reference.
        let owner = unsafe {
            item.as_ref().work.set_location(Location::Detached);
            drop(timers);
            Weak::from_raw(item.as_ref().node.queue.get().0).upgrade()
        };
        // SAFETY: as above, and it is in no list.
        unsafe { engine.disposal.dispose_later(engine, owner, work_of(item)) };
        released += 1;
    }
}

/// Queues an armed item ahead of time. False if it is not armed any more.
unsafe fn expire_now<H: Host>(engine: &Engine<H>, item: NonNull<Delayed<H>>, pool: u32) -> bool {
    // SAFETY: the caller's promise that the item is live.
    let Some(queue) = (unsafe { unlink(engine, item, pool) }) else { return false };
    // SAFETY: the item is ours, as it came off the wheel.
    unsafe { expired(engine, item, queue, Firer::OtherThread) };
    true
}
