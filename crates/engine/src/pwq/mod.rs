//! A pwq: one queue's items on one pool.
//!
//! Submitters push to `inbox`; workers take batches out of `worklist` under the lock. A pwq with
//! something to do and leave to do it is on its pool's ready list. README.md has the protocol.

mod backlog;
mod node;
mod place;
mod take;

pub(crate) use backlog::Backlog;
pub(crate) use node::Node as PwqNode;
pub(crate) use take::{ALONE, Taken};

use uwork_policy::blocking::{PRESUME_AFTER, sleepy_after};

use crate::host::Host;
use crate::inbox::{Inbox, Node};
use crate::pool::Pool;
use crate::queue::{Name, Wq};
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU32, Cell, Line, Link, Lock, LockGuard, Ordering, Rank,
};
use crate::wake::Waiters;
use crate::work::{Place, WorkList};

/// On a pool's ready list, or about to be put there.
const READY: u32 = 1;
/// As many workers hold it as may; the next one to let go, of it or of the node, looks after what
/// waits.
const SATURATED: u32 = 2;
/// Its queue is gone; whoever lets go of it last gives it back.
const DEAD: u32 = 4;
/// One worker took it off a ready list and has not let go yet.
const PIN: u32 = 8;

/// Flush colours (the kernel's `WORK_NR_COLORS`).
pub(crate) const COLOURS: usize = 16;
/// A flush waits for this colour to run out.
const AWAITED: u32 = 1 << 31;

/// See the module. In the order of the fields, so that what submitters write does not share a cache
/// line with what workers write under the lock.
#[repr(C, align(128))]
pub(crate) struct Pwq<H: Host> {
    pub(crate) inbox: Inbox<crate::work::Work>,
    /// `READY`, `SATURATED`, `DEAD`, pins.
    state: AtomicU32,
    /// Constant.
    pub(crate) id: u32,
    /// Constant while attached.
    wq: AtomicPtr<Wq<H>>,
    /// Whether workers on these items do not count as running. Constant while attached.
    cpu_intensive: AtomicBool,
    /// Whether items run in the order in which they were queued. Constant while attached.
    ordered: AtomicBool,
    /// The slot of its queue's rescuer, plus one; 0 without. Constant while attached.
    rescuer: AtomicU32,
    /// The pool that asks its queue's rescuer to look at it, plus one; 0 if none does.
    pub(crate) mayday: AtomicU32,
    /// How many of its runs were found asleep lately. A hint.
    sleepy: AtomicU32,
    /// The pool that new readiness goes to when nothing better is known.
    home: AtomicPtr<Pool<H>>,
    /// Guard: the ready list that holds the pwq.
    next_ready: Cell<Link<Pwq<H>>>,
    /// Items that were spliced and have not finished, by colour; `AWAITED` where a flush waits.
    in_flight: Line<[AtomicU32; COLOURS]>,
    inner: Line<Lock<Inner<H>>>,
}

/// What a queue says of the running of its items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_active: u32,
    pub(crate) cpu_intensive: bool,
    /// Whether items run in the order in which they were queued.
    pub(crate) ordered: bool,
    /// The slot of the queue's rescuer.
    pub(crate) rescuer: Option<u32>,
    pub(crate) name: Name,
}

/// Guard: the pwq lock.
pub(crate) struct Inner<H: Host> {
    pub(crate) worklist: WorkList,
    /// Items in the worklist.
    pub(crate) queued: usize,
    /// Items that ever were.
    pub(crate) spliced: u64,
    /// Workers that hold items of this pwq.
    pub(crate) nr_active: u32,
    /// The queue's name, for those who do not keep the queue.
    pub(crate) name: Name,
    /// The most workers that may; 0 while the queue is frozen. Where the limit is shared, the node's
    /// counts.
    pub(crate) max_active: u32,
    /// The node with which the limit is shared, or null.
    node: *const PwqNode<H>,
    /// Places of the node that were handed to the pwq and that nobody has taken up.
    granted: u32,
    /// The colour of items that are spliced now.
    pub(crate) colour: usize,
    /// Threads that wait for the coming run of an item; the key is the item's address.
    pub(crate) waiters: Waiters<H>,
    /// What an item took lately.
    pub(crate) item_ns: u64,
    /// Items that were started, for the statistics.
    pub(crate) started: u64,
    /// The same of queues that it served before, and one for each: with it nobody takes one queue for another.
    pub(crate) started_before: u64,
}

// SAFETY: `next_ready` is only touched under the guard named at the field, all else is atomic or
// locked.
unsafe impl<H: Host> Sync for Pwq<H> {}
// SAFETY: nothing in a pwq is tied to a thread.
unsafe impl<H: Host> Send for Pwq<H> {}

// SAFETY: both methods touch nothing but the link.
unsafe impl<H: Host> Node for Pwq<H> {
    unsafe fn set_next(this: *mut Self, next: *mut Self) {
        // SAFETY: the caller alone may touch the link.
        unsafe { (*this).next_ready.set(Link(next)) }
    }
    unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: the caller alone may touch the link.
        unsafe { (*this).next_ready.get().0 }
    }
}

impl<H: Host> Pwq<H> {
    pub(crate) fn new(id: u32) -> Pwq<H> {
        Pwq {
            inbox: Inbox::new(),
            state: AtomicU32::new(DEAD),
            id,
            wq: AtomicPtr::new(std::ptr::null_mut()),
            cpu_intensive: AtomicBool::new(false),
            ordered: AtomicBool::new(false),
            rescuer: AtomicU32::new(0),
            mayday: AtomicU32::new(0),
            home: AtomicPtr::new(std::ptr::null_mut()),
            next_ready: Cell::new(Link(std::ptr::null_mut())),
            sleepy: AtomicU32::new(0),
            in_flight: Line(std::array::from_fn(|_| AtomicU32::new(0))),
            inner: Line(Lock::ranked(
                Rank::Pwq,
                Inner {
                    worklist: WorkList::new(),
                    queued: 0,
                    spliced: 0,
                    nr_active: 0,
                    name: Name::EMPTY,
                    max_active: 1,
                    node: std::ptr::null(),
                    granted: 0,
                    colour: 0,
                    waiters: Waiters::new(),
                    item_ns: uwork_policy::batch::UNKNOWN_RUN_NS,
                    started: 0,
                    started_before: 0,
                },
            )),
        }
    }

    /// Makes a fresh or recycled pwq serve `wq` on `pool`.
    pub(crate) fn attach(&self, wq: *const Wq<H>, pool: &Pool<H>, limits: Limits, colour: usize) {
        self.wq.store(wq.cast_mut(), Ordering::Relaxed);
        self.ordered.store(limits.ordered, Ordering::Relaxed);
        self.cpu_intensive.store(limits.cpu_intensive, Ordering::Relaxed);
        self.rescuer.store(limits.rescuer.map_or(0, |slot| slot + 1), Ordering::Relaxed);
        self.mayday.store(0, Ordering::Relaxed);
        self.set_home(pool);
        let mut inner = self.lock();
        debug_assert!(inner.worklist.is_empty() && inner.nr_active == 0 && inner.node.is_null());
        inner.colour = colour;
        inner.max_active = limits.max_active;
        inner.name = limits.name;
        inner.item_ns = uwork_policy::batch::UNKNOWN_RUN_NS;
        inner.started_before += inner.started + 1;
        inner.started = 0;
        inner.spliced = 0;
        drop(inner);
        self.sleepy.store(0, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }

    /// A run that was watched for it was a sleep, or was none.
    pub(crate) fn note_sleep(&self, slept: bool) {
        // A race with others costs one count.
        let sleepy = self.sleepy.load(Ordering::Relaxed);
        self.sleepy.store(sleepy_after(sleepy, slept), Ordering::Relaxed);
    }

    /// Whether the next run is presumed to sleep.
    #[inline]
    pub(crate) fn presumes_sleep(&self) -> bool {
        self.sleepy.load(Ordering::Relaxed) >= PRESUME_AFTER
    }

    /// In a child after a fork: everything that was queued, and nobody who holds or awaits anything.
    pub(crate) fn forget(&self, inner: &mut Inner<H>) -> WorkList {
        self.splice(inner);
        inner.queued = 0;
        inner.nr_active = 0;
        inner.granted = 0;
        inner.colour = 0;
        inner.waiters = Waiters::new();
        self.in_flight.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.mayday.store(0, Ordering::Relaxed);
        self.state.fetch_and(DEAD, Ordering::SeqCst);
        inner.worklist.take()
    }

    /// The queue, as an identity and, while the pwq is attached, as a pointer.
    #[inline]
    pub(crate) fn wq(&self) -> *const Wq<H> {
        self.wq.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn cpu_intensive(&self) -> bool {
        self.cpu_intensive.load(Ordering::Relaxed)
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::Relaxed)
    }

    /// The slot of its queue's rescuer.
    pub(crate) fn rescuer(&self) -> Option<u32> {
        self.rescuer.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes out the threads that wait for the coming run of `item`, which is in nobody's list.
    pub(crate) fn take_waiters(&self, item: *mut crate::work::Work) -> Waiters<H> {
        // SAFETY: the caller owns the item.
        let work = unsafe { &*item };
        let waiters = self.lock().waiters.take_matching(item.addr());
        work.set_ticket(work.ticket().with_waited_for(false));
        waiters
    }

    pub(crate) fn set_home(&self, pool: &Pool<H>) {
        self.home.store(std::ptr::from_ref(pool).cast_mut(), Ordering::Release);
    }

    /// The pool for readiness that no worker and no submitter has a better place for.
    pub(crate) fn home(&self) -> &Pool<H> {
        // SAFETY: pools live as long as their engine, which outlives its pwqs.
        unsafe { &*self.home.load(Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, Inner<H>> {
        self.inner.0.lock()
    }

    /// Moves the inbox to the end of the worklist.
    #[inline]
    pub(crate) fn splice(&self, inner: &mut Inner<H>) {
        let stack = self.inbox.take_all();
        if stack.is_null() {
            return;
        }
        let colour = inner.colour;
        // SAFETY: what the inbox gave up is ours alone.
        let count = unsafe {
            inner.worklist.append_stack(stack, |work| {
                work.set_spot(Place::Worklist, work.ticket().with_colour(colour));
            })
        };
        inner.queued += count;
        inner.spliced += count as u64;
        // The pwq lock orders this before any flush that looks at the colour.
        self.in_flight.0[colour].fetch_add(count as u32, Ordering::AcqRel);
    }

    /// Claims the right, and the duty, to put the pwq on a ready list.
    #[inline]
    pub(crate) fn claim_ready(&self) -> bool {
        // SeqCst: this look comes after the push that made the inbox non-empty. Its partner is
        // `unsaturate`, which clears SATURATED and then looks into the inbox.
        let state = self.state.load(Ordering::SeqCst);
        state & (READY | SATURATED) == 0
            && self.state.fetch_or(READY, Ordering::SeqCst) & READY == 0
    }

    /// A worker took the pwq off a ready list: it is not ready any more, but must not go away.
    pub(crate) fn pin(&self) {
        self.state.fetch_add(PIN - READY, Ordering::SeqCst);
    }

    /// Lets go of a pin. True if the pwq is dead and must be given back by the caller.
    #[must_use]
    pub(crate) fn unpin(&self) -> bool {
        let state = self.state.fetch_sub(PIN, Ordering::SeqCst) - PIN;
        state & DEAD != 0 && state & READY == 0 && state / PIN == 0
    }

    /// The queue lets go of a pwq that has no items. True if the caller must give it back.
    #[must_use]
    pub(crate) fn kill(&self) -> bool {
        // Another queue may get the address; it must not take this for one of its own.
        self.wq.store(std::ptr::null_mut(), Ordering::Relaxed);
        let state = self.state.fetch_or(DEAD, Ordering::SeqCst);
        state & READY == 0 && state / PIN == 0
    }

    /// `count` items of this colour are done. True if a flush waited for the last of them.
    #[inline]
    #[must_use]
    pub(crate) fn finish(&self, colour: usize, count: u32) -> bool {
        // Release: what the items did; acquire: for the flusher that this thread may wake.
        self.in_flight.0[colour].fetch_sub(count, Ordering::AcqRel) == AWAITED | count
    }

    /// A flush starts to wait for a colour. False if nothing of it is in flight.
    pub(crate) fn await_colour(&self, colour: usize) -> bool {
        let mut count = self.in_flight.0[colour].load(Ordering::Acquire);
        while count != 0 {
            debug_assert!(count & AWAITED == 0, "one flush waits for one colour");
            match self.in_flight.0[colour].compare_exchange(
                count,
                count | AWAITED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// The awaited colour has run out.
    pub(crate) fn colour_is_over(&self, colour: usize) {
        self.in_flight.0[colour].fetch_and(!AWAITED, Ordering::AcqRel);
    }

    /// Whether it is ready, and whether it is saturated. A hint.
    pub(crate) fn marks(&self) -> (bool, bool) {
        let state = self.state.load(Ordering::Relaxed);
        (state & READY != 0, state & SATURATED != 0)
    }

    /// Items that were spliced and are not known to be done, by colour, and where a flush waits.
    pub(crate) fn in_flight(&self) -> [(u32, bool); COLOURS] {
        let load = |colour: usize| self.in_flight.0[colour].load(Ordering::Relaxed);
        std::array::from_fn(|colour| (load(colour) & !AWAITED, load(colour) & AWAITED != 0))
    }

    /// Whether nothing that was spliced is unfinished.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.0.iter().all(|count| count.load(Ordering::Acquire) & !AWAITED == 0)
    }

    /// Whether nothing is queued and nothing runs, and how many items there ever were.
    pub(crate) fn survey(&self) -> (bool, u64) {
        let mut inner = self.lock();
        self.splice(&mut inner);
        (self.is_quiet(), inner.spliced)
    }
}
