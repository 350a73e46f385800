//! A pwq: one queue's items on one pool.
//!
//! Submitters push to `inbox`; workers take batches out of `worklist` under the lock. A pwq that
//! has items and a free permit is on its pool's ready list. README.md has the protocol.

mod backlog;
mod block_scores;
mod node;
mod permit;
mod rescue_call;
mod take;

pub(crate) use backlog::Backlog;
use block_scores::BlockScores;
pub(crate) use node::{Node as PwqNode, Row};
pub(crate) use take::{Share, Taken};

use uwork_policy::arrivals::Arrivals;
use uwork_policy::batch::RunTimes;

use crate::account::{COUNTED, Events, QueueAccount};
use crate::pool::Pool;
use crate::queue::{Name, Wq};
use crate::words::host::Host;
use crate::words::inbox::{Inbox, Node};
use crate::words::item::{Location, WorkList};
use crate::words::sync::{
    AtomicBool, AtomicPtr, AtomicU32, Cell, Hint, Line, Link, Lock, LockGuard, Ordering, Rank,
};
use crate::words::wake::Waiters;

/// On a pool's ready list, or about to be put there.
const READY: u32 = 1;
/// As many workers hold it as its limit permits. The next release of a permit, of the pwq or of its
/// node, makes the pwq ready again if items wait.
const SATURATED: u32 = 2;
/// Its queue is destroyed. The last `unpin` gives the pwq back to the slab, or `kill` itself.
const DEAD: u32 = 4;
/// A worker took it off a ready list and has not unpinned it yet.
const PIN: u32 = 8;

/// The key of threads that wait for a pause, in the chain of waiters. No item has this address.
pub(crate) const PAUSER: usize = 1;

/// Flush colours (the kernel's `WORK_NR_COLORS`).
pub(crate) const COLOURS: usize = 16;
/// A flush waits until no item of this colour is in flight.
const AWAITED: u32 = 1 << 31;

/// A pwq (see the module). The order of the fields keeps what submitters write off the cache lines
/// that workers write under the lock.
#[repr(C, align(128))]
pub(crate) struct Pwq<H: Host> {
    pub(crate) inbox: Inbox<crate::words::item::Work>,
    /// `READY`, `SATURATED`, `DEAD`, pins.
    state: AtomicU32,
    /// Constant.
    pub(crate) id: u32,
    /// 1 while threads that wait for its items run them themselves, else 0: then its items carry no
    /// times. Written under the pwq lock. A hint.
    is_helped: Hint,
    /// Constant while attached.
    wq: AtomicPtr<Wq<H>>,
    /// Whether workers that run its items leave the running count. Constant while attached.
    cpu_intensive: AtomicBool,
    /// Whether items run in the order in which they were enqueued. Constant while attached.
    ordered: AtomicBool,
    /// The slot of its queue's rescuer, plus one; 0 if there is none. Constant while attached.
    rescuer: AtomicU32,
    /// The pool that calls its queue's rescuer for it, plus one; 0 if no pool does.
    mayday: AtomicU32,
    /// The pool that it becomes ready in, unless the caller knows a better one.
    home: AtomicPtr<Pool<H>>,
    /// Guard: the ready list that holds the pwq.
    next_ready: Cell<Link<Pwq<H>>>,
    /// The node with which it shares the limit, or null. Written under the pwq lock; constant once set,
    /// until the queue ends.
    shared_with: AtomicPtr<PwqNode<H>>,
    pub(crate) events: Events,
    /// 1 if `account` is not empty, else 0.
    has_account: Hint,
    pub(crate) block_scores: BlockScores,
    /// Items that were spliced and have not finished, by colour; `AWAITED` if a flush waits.
    in_flight: Line<[AtomicU32; COLOURS]>,
    inner: Line<Locked<H>>,
}

/// The pwq lock and what is used beside it, in one cache line.
#[repr(C)]
struct Locked<H: Host> {
    /// 1 if the pwq keeps a permit of its node for its next batch, else 0.
    kept: AtomicU32,
    lock: Lock<Inner<H>>,
}

/// A queue's settings for the running of its items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_active: u32,
    pub(crate) cpu_intensive: bool,
    /// Whether items run in the order in which they were enqueued.
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
    /// Items spliced since the pwq was attached.
    pub(crate) spliced: u64,
    /// Workers and helpers that hold a permit of this pwq.
    pub(crate) nr_active: u32,
    /// The queue's name, for readers that do not keep the queue alive.
    pub(crate) name: Name,
    /// The limit of `nr_active`; 0 while the queue is frozen or paused. If the limit is shared, the node's
    /// limit applies instead.
    pub(crate) max_active: u32,
    /// The node with which the limit is shared, or null.
    node: *const PwqNode<H>,
    /// Permits that the node has granted to the pwq and that are not yet used.
    granted: u32,
    /// The epoch of the node's limit in which it last took a permit.
    epoch: u32,
    /// The colour of items that are spliced now.
    pub(crate) colour: usize,
    /// Waiters for the next run of an item, with the item's address as the key; and waiters for a
    /// pause, with `PAUSER`.
    pub(crate) waiters: Waiters<H>,
    /// How long its items took lately.
    pub(crate) run_times: RunTimes,
    /// Items that were started, for the statistics.
    pub(crate) started: u64,
    /// When the items of the worklist were queued.
    pub(crate) arrivals: Arrivals,
    /// What its items did; a worker adds it at the end of its batch. Empty before the first one.
    pub(crate) account: Vec<QueueAccount>,
    /// The sum of `started` over the queues that it served before, plus one for each. It only
    /// grows, so a reader cannot mistake one queue's count for another's.
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
            shared_with: AtomicPtr::new(std::ptr::null_mut()),
            home: AtomicPtr::new(std::ptr::null_mut()),
            next_ready: Cell::new(Link(std::ptr::null_mut())),
            events: Events::new(),
            is_helped: Hint::new(0),
            has_account: Hint::new(0),
            block_scores: BlockScores::new(),
            in_flight: Line(std::array::from_fn(|_| AtomicU32::new(0))),
            inner: Line(Locked {
                kept: AtomicU32::new(0),
                lock: Lock::ranked(
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
                        epoch: node::NO_EPOCH,
                        colour: 0,
                        waiters: Waiters::new(),
                        run_times: RunTimes::UNKNOWN,
                        started: 0,
                        arrivals: Arrivals::default(),
                        account: Vec::new(),
                        started_before: 0,
                    },
                ),
            }),
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
        inner.run_times = RunTimes::UNKNOWN;
        inner.started_before += inner.started + 1;
        inner.started = 0;
        inner.account.iter_mut().for_each(|account| *account = QueueAccount::default());
        inner.arrivals = Arrivals::default();
        self.is_helped.set(0);
        inner.spliced = 0;
        // SeqCst: a pwq that collects must not see an older value (`Node::collect`).
        self.inner.0.kept.store(0, Ordering::SeqCst);
        drop(inner);
        self.events.clear();
        self.block_scores.clear();
        self.state.store(0, Ordering::Release);
    }

    /// In a child after a fork: returns all queued items; no holder and no waiter is left.
    pub(crate) fn forget(&self, inner: &mut Inner<H>) -> WorkList {
        self.splice(inner);
        // All fields by name: whoever adds one decides here what the child finds in it. What stays
        // belongs to the queue, or is what was learned and counted of its items.
        let Pwq {
            inbox: _,
            state,
            id: _,
            is_helped,
            wq: _,
            cpu_intensive: _,
            ordered: _,
            rescuer: _,
            mayday,
            shared_with: _,
            home: _,
            next_ready: _,
            events: _,
            has_account: _,
            block_scores: _,
            in_flight,
            inner: locked,
        } = self;
        let Inner {
            worklist,
            queued,
            spliced: _,
            nr_active,
            name: _,
            max_active: _,
            node: _,
            granted,
            epoch: _,
            colour,
            waiters,
            run_times: _,
            started: _,
            arrivals,
            account: _,
            started_before: _,
        } = inner;
        *queued = 0;
        *nr_active = 0;
        *granted = 0;
        *colour = 0;
        *waiters = Waiters::new();
        *arrivals = Arrivals::default();
        locked.0.kept.store(0, Ordering::Relaxed);
        in_flight.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        is_helped.set(0);
        mayday.store(0, Ordering::Relaxed);
        state.fetch_and(DEAD, Ordering::SeqCst);
        worklist.take()
    }

    /// The queue, as an identity and, while the pwq is attached, as a pointer.
    #[inline]
    #[track_caller]
    pub(crate) fn wq(&self) -> *const Wq<H> {
        self.wq.load(Ordering::Relaxed)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn cpu_intensive(&self) -> bool {
        self.cpu_intensive.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::Relaxed)
    }

    /// The slot of its queue's rescuer.
    #[track_caller]
    pub(crate) fn rescuer(&self) -> Option<u32> {
        self.rescuer.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes out the waiters for the next run of `item`, which is in no list.
    pub(crate) fn take_waiters(&self, item: *mut crate::words::item::Work) -> Waiters<H> {
        // SAFETY: the caller owns the item.
        let work = unsafe { &*item };
        let waiters = self.lock().waiters.take_matching(item.addr());
        work.set_ticket(work.ticket().with_waited_for(false));
        waiters
    }

    pub(crate) fn set_home(&self, pool: &Pool<H>) {
        self.home.store(std::ptr::from_ref(pool).cast_mut(), Ordering::Release);
    }

    /// The pool that the pwq becomes ready in, unless a worker or submitter knows a better one.
    #[track_caller]
    pub(crate) fn home(&self) -> &Pool<H> {
        // SAFETY: pools live as long as their engine, which outlives its pwqs.
        unsafe { &*self.home.load(Ordering::Acquire) }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self) -> LockGuard<'_, Inner<H>> {
        self.inner.0.lock.lock()
    }

    /// Whether the first item of an inbox carries the time of its submission. An item that a waiting
    /// thread runs itself waits for no worker, and a clock costs as much as a fifth of such a join.
    #[inline(always)]
    pub(crate) fn times_items(&self) -> bool {
        COUNTED && self.is_helped.get() == 0
    }

    /// One of its items was taken: by a thread that waits for it, or by a worker. The caller holds
    /// the pwq lock.
    #[inline]
    pub(crate) fn note_helped(&self, helped: bool) {
        if self.is_helped.get() != usize::from(helped) {
            self.is_helped.set(helped.into());
        }
    }

    /// Moves the inbox to the end of the worklist.
    #[inline]
    pub(crate) fn splice(&self, inner: &mut Inner<H>) {
        let stack = self.inbox.take_all();
        if stack.is_null() {
            return;
        }
        let colour = inner.colour;
        // SAFETY: the items taken from the inbox are ours alone.
        let (count, queued_at) = unsafe {
            inner.worklist.append_stack(stack, |work| {
                work.set_placement(Location::Worklist, work.ticket().with_colour(colour));
            })
        };
        if COUNTED {
            inner.arrivals.moved(inner.spliced, queued_at);
        }
        inner.queued += count;
        inner.spliced += count as u64;
        // The pwq lock orders this before any flush that reads the count of this colour.
        self.in_flight.0[colour].fetch_add(count as u32, Ordering::AcqRel);
    }

    /// Whether an item that is pushed now makes it ready. A hint.
    #[inline]
    pub(crate) fn needs_worker(&self) -> bool {
        self.state.load(Ordering::Relaxed) & (READY | SATURATED) == 0
    }

    /// Claims READY: the right, and the duty, to put the pwq on a ready list.
    #[inline]
    #[track_caller]
    pub(crate) fn claim_ready(&self) -> bool {
        // SeqCst: this read comes after the push that made the inbox non-empty. Its partner is
        // `unsaturate`, which clears SATURATED first and reads the inbox second. At least one of
        // the two sees the other.
        let state = self.state.load(Ordering::SeqCst);
        state & (READY | SATURATED) == 0
            && self.state.fetch_or(READY, Ordering::SeqCst) & READY == 0
    }

    /// Trades READY for a pin: a worker took the pwq off a ready list, and keeps it alive.
    pub(crate) fn pin(&self) {
        // SeqCst: the worker splices the inbox after this. A submitter that still reads READY
        // pushed before that, so the splice finds its item.
        self.state.fetch_add(PIN - READY, Ordering::SeqCst);
    }

    /// Releases a pin. Returns true if the pwq is dead and the caller must give it back.
    #[must_use]
    pub(crate) fn unpin(&self) -> bool {
        // Partner: `kill`. Each is a single read-modify-write of this word, so exactly one of all
        // these calls finds that it is the last.
        let state = self.state.fetch_sub(PIN, Ordering::SeqCst) - PIN;
        state & DEAD != 0 && state & READY == 0 && state / PIN == 0
    }

    /// The queue gives up a pwq that has no items. Returns true if the caller must give it back.
    #[must_use]
    pub(crate) fn kill(&self) -> bool {
        // A new queue may get the same address; it must not take this pwq for its own.
        self.wq.store(std::ptr::null_mut(), Ordering::Relaxed);
        let state = self.state.fetch_or(DEAD, Ordering::SeqCst);
        state & READY == 0 && state / PIN == 0
    }

    /// Counts `count` items of this colour as finished. Returns true if a flush waited for the
    /// last.
    #[inline]
    #[must_use]
    pub(crate) fn finish(&self, colour: usize, count: u32) -> bool {
        // Release: publishes what the items did. Acquire: for the flusher that this thread may
        // wake.
        // Both sides change the same word: either this sees AWAITED, or `await_colour` sees 0.
        self.in_flight.0[colour].fetch_sub(count, Ordering::AcqRel) == AWAITED | count
    }

    /// A flush starts to wait for a colour. Returns false if no item of it is in flight.
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

    /// Clears AWAITED: the colour has no more items in flight.
    pub(crate) fn clear_awaited(&self, colour: usize) {
        self.in_flight.0[colour].fetch_and(!AWAITED, Ordering::AcqRel);
    }

    /// Whether it is on a ready list, or about to be put there. A hint.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.load(Ordering::Relaxed) & READY != 0
    }

    /// Whether it has the mark SATURATED: without it, an item that waits calls the watcher. A hint;
    /// [`Inner::is_saturated`] is exact.
    pub(crate) fn is_marked_saturated(&self) -> bool {
        self.state.load(Ordering::Relaxed) & SATURATED != 0
    }

    /// Items that were spliced and are not known to be finished, by colour, and whether a flush
    /// waits.
    pub(crate) fn in_flight(&self) -> [(u32, bool); COLOURS] {
        let load = |colour: usize| self.in_flight.0[colour].load(Ordering::Relaxed);
        std::array::from_fn(|colour| (load(colour) & !AWAITED, load(colour) & AWAITED != 0))
    }

    /// Whether all spliced items have finished.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.0.iter().all(|count| count.load(Ordering::Acquire) & !AWAITED == 0)
    }

    /// Whether no item is queued or running, and how many items were spliced in total.
    pub(crate) fn survey(&self) -> (bool, u64) {
        let mut inner = self.lock();
        self.splice(&mut inner);
        (self.is_quiet(), inner.spliced)
    }
}
