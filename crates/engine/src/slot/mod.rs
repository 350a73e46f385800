//! A run slot: the item that its owner runs, and the items scheduled behind it.
//!
//! Every worker has a slot, and every helper borrows one. README.md beside this file has the
//! protocol, its states, and the proof that nothing is lost.

mod batch;
mod fork;
mod idle;
mod not_running;
mod now;
mod parking;
mod spare;
mod wait;

use std::cell::UnsafeCell;

pub(crate) use idle::IdleStack;
pub(crate) use not_running::{NotRunning, WasRunning};
pub(crate) use now::HeldDescription;
pub use now::{DESCRIPTION_MAX, Running};
pub(crate) use parking::MOVING;
use parking::{NO_BATCH, UNRESTRICTED};
pub(crate) use spare::SpareSlots;
pub(crate) use wait::WaitsFor;

use crate::account::Functions;
use crate::words::host::{Host, ItemProbe};
use crate::words::inbox::Node;
use crate::words::item::word::RUN_MASK;
use crate::words::item::{ItemFn, Location, Ticket, Work, WorkList};
use crate::words::slab::Slab;
use crate::words::sync::{
    AtomicBool, AtomicU32, AtomicU64, Lock, LockGuard, Ordering, Rank, fence,
};
use crate::words::wake::Waiters;
use batch::BatchHint;

/// The owner is neither in an item nor at its lists.
const OUT: u64 = 0;
/// The owner is in an item.
const RUNNING: u64 = 1;
/// The owner is at its lists.
const SECTION: u64 = 2;
const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;

/// A remote thread has the lists, or is about to have them.
const LOCKED: u32 = 1;
/// An item or waiter is deferred to the end of the current run.
const DEFERRED: u32 = 2;
/// The run began in another process: nothing is left to do at its end.
const FORKED: u32 = 4;
/// The owner passes a full fence before it looks for other marks: remote threads need no heavy fence.
const FENCED: u32 = 8;

/// An owner that was found blocked ends so many runs with a full fence.
const FENCED_RUNS: u32 = 1_000;

/// A slot. It lives in a slab: never freed while its engine lives, and reused by later workers. Its
/// run numbers continue across owners. The fields that the owner uses for each item come first and
/// share a cache line.
#[repr(C, align(128))]
pub(crate) struct Slot<H: Host> {
    /// Run number << 2 | phase. Written by the owner only.
    run: AtomicU64,
    /// The item and function of that run. Written by the owner only.
    now: now::Now,
    /// `LOCKED`, `DEFERRED`, `FORKED`, `FENCED`. Written by the holder of `mutex`, and in a forked child.
    attention: AtomicU32,
    /// Guard: the biased lock (the owner in `SECTION`, or `mutex` after the heavy fence).
    lists: UnsafeCell<Lists<H>>,
    /// Taken by remote threads, and by an owner that found `LOCKED`.
    mutex: Lock<()>,

    /// When the current batch began (the host's clock), if it has several items and its tail was
    /// not taken back; else `NO_BATCH`. While it is set, the worker counts in its pool's
    /// `scheduled_batches`.
    batch_began: AtomicU64,
    /// What the owner took last, for readers on other threads.
    pub(crate) batch: BatchHint,
    /// The event that the worker parks on.
    pub(crate) event: H::Event,
    /// The worker's thread, as the host names it; 0 if none. Guard: `placing` of the engine's CPUs.
    thread: AtomicU64,
    /// Whether the worker is in a declared wait. A hint.
    waits: AtomicBool,
    /// Whether the worker waits for a lock of the engine. A hint.
    waits_for_lock: AtomicBool,
    /// Whether a waker took this worker off the idle stack (it is picked).
    picked: AtomicBool,
    /// The first of the pool's CPUs to which the thread that wakes this worker has restricted it;
    /// `UNRESTRICTED` if it has not.
    restricted_to: AtomicU32,
    /// Whether an item has left the pool's CPUs for those of the pod. Written by the owner, under `placing`.
    unpinned: AtomicBool,
    /// The worker's pool; `MOVING` between two pools. It does not change during a run.
    home: AtomicU32,
    /// The worker's place on the idle stack.
    idle: idle::IdleLink,
    /// The run's description of itself. It has a lock of its own, the last in rank.
    description: now::Description,
    /// What the run waits for.
    wait: wait::WaitNote,
    /// The counters of the functions that ran here.
    pub(crate) functions: Functions,
}

struct Lists<H: Host> {
    scheduled: WorkList,
    /// Items that were taken while they ran here: deferred to the end of that run.
    deferred: WorkList,
    /// Threads that wait for the end of the current run.
    waiters: Waiters<H>,
    /// How often the owner has entered its lists since it is `FENCED`.
    fenced_runs: u32,
    /// Why the owner is off its pool's running count. Guard: `mutex` alone.
    not_running: NotRunning,
    /// Whether the owner is a worker of a pool. Helpers and rescuers count in no pool. Guard:
    /// `mutex` alone.
    is_worker: bool,
}

// SAFETY: `lists` is only accessed under the biased lock, the cells under the pool lock.
unsafe impl<H: Host> Sync for Slot<H> {}
// SAFETY: nothing in a slot is tied to a thread.
unsafe impl<H: Host> Send for Slot<H> {}

/// What the owner finds when it asks for its next item.
pub(crate) enum Next<H: Host> {
    /// This item, begun as this run.
    Run(*mut Work, u64, Ticket),
    /// This item, not begun: threads wait for its next run. Collect them, then `begin`.
    WaitedFor(*mut Work),
    /// Handle the deferred items and waiters first, then ask again.
    AtRunEnd(AtRunEnd<H>),
    /// Nothing is scheduled.
    Empty,
}

/// What was deferred to the end of a run.
pub(crate) struct AtRunEnd<H: Host> {
    /// Items to be put back in front of their queues; detached now.
    pub(crate) items: WorkList,
    /// Waiters to be woken.
    pub(crate) waiters: Waiters<H>,
    /// Why another thread took the worker off the running count during the run, if it did. The
    /// worker counts again from here on.
    pub(crate) was: NotRunning,
}

impl<H: Host> Slot<H> {
    pub(crate) fn new() -> Slot<H> {
        Slot {
            run: AtomicU64::new(OUT),
            now: now::Now::new(),
            attention: AtomicU32::new(0),
            lists: UnsafeCell::new(Lists {
                scheduled: WorkList::new(),
                deferred: WorkList::new(),
                waiters: Waiters::new(),
                fenced_runs: 0,
                not_running: NotRunning::No,
                is_worker: false,
            }),
            mutex: Lock::ranked(Rank::Slot, ()),
            batch_began: AtomicU64::new(NO_BATCH),
            batch: BatchHint::new(),
            event: H::Event::default(),
            thread: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            waits_for_lock: AtomicBool::new(false),
            picked: AtomicBool::new(false),
            restricted_to: AtomicU32::new(UNRESTRICTED),
            unpinned: AtomicBool::new(false),
            home: AtomicU32::new(0),
            idle: idle::IdleLink::new(),
            description: now::Description::new(),
            wait: wait::WaitNote::new(),
            functions: Functions::new(),
        }
    }

    /// Takes a free slot.
    pub(crate) fn allocate(slots: &Slab<Slot<H>>) -> Option<u32> {
        slots.allocate(|_| Slot::new()).map(|(id, _)| id)
    }

    /// Whether this run is still in progress.
    ///
    /// Acquire: if this returns false, everything that the run did is visible to the caller.
    #[inline]
    #[track_caller]
    pub(crate) fn is_running(&self, run: u64) -> bool {
        self.run.load(Ordering::Acquire) == (run & RUN_MASK) << PHASE_BITS | RUNNING
    }

    /// Whether this run is still in progress and is a run of `item`, whose word names it. A run
    /// number alone repeats after 2^36 runs: then an item that has not run since would take another
    /// item's run for its own.
    ///
    /// Exact for the owner and under the slot's lock. For other threads the run may have ended when
    /// this returns.
    pub(crate) fn is_running_item(&self, run: u64, item: *const Work) -> bool {
        self.is_running(run) && self.now.is_about(item)
    }

    /// Whether the owner is in a batch. A hint.
    pub(crate) fn is_at_work(&self) -> bool {
        self.run.load(Ordering::Relaxed) & PHASE_MASK != OUT
    }

    /// The item that runs here and its function, as identities. From any thread (see `now`).
    pub(crate) fn running(&self) -> Option<Running> {
        let before = self.run.load(Ordering::Acquire);
        if before & PHASE_MASK != RUNNING {
            return None;
        }
        let running = self.now.get();
        (self.run.load(Ordering::Acquire) == before).then_some(running)
    }

    /// Owner: the item of the current or last run, and its function.
    pub(crate) fn last_run(&self) -> ItemProbe {
        let Running { item, func } = self.now.get();
        // SAFETY: the identity of the function of an item that ran here.
        ItemProbe::new(item, unsafe { ItemFn::from_identity(func) })
    }

    /// Owner: the function of the current or last run, as an identity.
    pub(crate) fn last_function(&self) -> usize {
        self.now.get().func
    }

    /// Owner, inside run `run`: sets the run's description of itself.
    pub(crate) fn describe(&self, run: u64, text: &str) {
        self.description.set(run, text);
    }

    /// The description that `run` gave of itself, if it is in progress and gave one. From any
    /// thread.
    pub(crate) fn description(&self, run: u64) -> Option<String> {
        let text = self.description.get(run)?;
        self.is_running(run).then_some(text)
    }

    /// Owner: the number of the current or last run.
    #[inline]
    #[track_caller]
    pub(crate) fn number(&self) -> u64 {
        self.run.load(Ordering::Relaxed) >> PHASE_BITS
    }

    /// Owner: enters its lists. Returns true if it has them, false if a remote thread wants them.
    #[inline(always)]
    fn enter(&self, host: &H, number: u64, ignore: u32) -> bool {
        // Release: a thread that sees the end of the run sees everything that the run did.
        self.run.store(number << PHASE_BITS | SECTION, Ordering::Release);
        // Partner: the heavy fence in `lock_remote`. Either this load sees LOCKED, or the remote
        // thread sees SECTION and waits. The fence keeps the store above before the load below.
        host.light_fence();
        let attention = self.attention.load(Ordering::Acquire);
        attention & !ignore == 0 || attention & FENCED != 0 && self.enter_fenced(ignore)
    }

    /// Owner, in SECTION and FENCED: as [`Slot::enter`].
    #[cold]
    fn enter_fenced(&self, ignore: u32) -> bool {
        // Partner: the fence in `lock_remote`, as for `enter`.
        fence(Ordering::SeqCst);
        if self.attention.load(Ordering::Acquire) & !(FENCED | ignore) != 0 {
            return false;
        }
        // SAFETY: in SECTION with no attention wanted, the lists are the owner's.
        let runs = unsafe { &mut (*self.lists.get()).fenced_runs };
        *runs += 1;
        *runs < FENCED_RUNS
    }

    /// Owner: leaves its lists, with no item to run.
    #[inline(always)]
    pub(crate) fn leave(&self, number: u64) {
        self.run.store(number << PHASE_BITS | OUT, Ordering::Release);
    }

    /// Owner: ends run `number`, if it is in progress, and begins the next scheduled item.
    #[inline(always)]
    pub(crate) fn next(&self, host: &H, number: u64) -> Next<H> {
        if !self.enter(host, number, 0) {
            return self.collect_deferred(number);
        }
        // SAFETY: in SECTION with no attention wanted, the lists are the owner's.
        let item = unsafe { (*self.lists.get()).scheduled.pop_front() };
        if item.is_null() {
            self.leave(number);
            return Next::Empty;
        }
        // SAFETY: an item that came off our list is live and ours.
        let work = unsafe { &*item };
        let ticket = work.ticket();
        work.set_placement(Location::Detached, ticket);
        if ticket.waited_for() {
            self.leave(number);
            return Next::WaitedFor(item);
        }
        Next::Run(item, self.begin_after(number, work), ticket)
    }

    /// Owner: begins the next run, of `item`, whose word must not name that run before this.
    pub(crate) fn begin(&self, item: &Work) -> u64 {
        self.begin_after(self.number(), item)
    }

    /// Owner, not in an item: begins the next run; `waiters` are woken at its end.
    pub(crate) fn begin_waited_for(&self, waiters: Waiters<H>, item: &Work) -> u64 {
        let guard = self.mutex.lock();
        // SAFETY: OUT and under the mutex, the lists are ours.
        unsafe { (*self.lists.get()).waiters.append(waiters) };
        self.attention.fetch_or(DEFERRED, Ordering::Relaxed);
        drop(guard);
        self.begin(item)
    }

    #[inline(always)]
    fn begin_after(&self, number: u64, item: &Work) -> u64 {
        let run = (number + 1) & RUN_MASK;
        self.now.set(item, item.func().identity());
        // Release: leaves the lists. The next holder sees the owner's changes to them.
        self.run.store(run << PHASE_BITS | RUNNING, Ordering::Release);
        run
    }

    #[cold]
    fn collect_deferred(&self, number: u64) -> Next<H> {
        self.leave(number);
        if self.attention.load(Ordering::Relaxed) & FORKED != 0 {
            return Next::Empty;
        }
        let guard = self.mutex.lock();
        // SAFETY: OUT and under the mutex, the lists are ours.
        let lists = unsafe { &mut *self.lists.get() };
        let items = detach_all(lists.deferred.take());
        let waiters = lists.waiters.take();
        let was = match lists.not_running {
            NotRunning::Declared | NotRunning::Presumed => NotRunning::No,
            _ => std::mem::replace(&mut lists.not_running, NotRunning::No),
        };
        self.attention.fetch_and(!DEFERRED, Ordering::Relaxed);
        if matches!(was, NotRunning::FoundBlocked(_)) {
            // It may block again soon, and is found more cheaply then.
            lists.fenced_runs = 0;
            self.attention.fetch_or(FENCED, Ordering::Relaxed);
        } else if lists.fenced_runs >= FENCED_RUNS {
            lists.fenced_runs = 0;
            self.attention.fetch_and(!FENCED, Ordering::Relaxed);
        }
        drop(guard);
        Next::AtRunEnd(AtRunEnd { items, waiters, was })
    }

    /// Owner, not in an item: changes its scheduled list.
    pub(crate) fn with_scheduled<R>(&self, host: &H, f: impl FnOnce(&mut WorkList) -> R) -> R {
        let number = self.number();
        if self.enter(host, number, DEFERRED) {
            // SAFETY: in SECTION and not LOCKED, the lists are the owner's.
            let result = f(unsafe { &mut (*self.lists.get()).scheduled });
            self.leave(number);
            result
        } else {
            self.leave(number);
            let guard = self.mutex.lock();
            // SAFETY: OUT and under the mutex, the lists are ours.
            let result = f(unsafe { &mut (*self.lists.get()).scheduled });
            drop(guard);
            result
        }
    }

    /// Locks the run's description.
    pub(crate) fn hold_description(&self) -> now::HeldDescription<'_> {
        self.description.hold()
    }

    /// The number of the owner's present run, if it is in an item. A hint.
    pub(crate) fn present_run(&self) -> Option<u64> {
        let word = self.run.load(Ordering::Acquire);
        (word & PHASE_MASK == RUNNING).then_some(word >> PHASE_BITS)
    }

    /// Any other thread: takes the lists from the owner, which may continue its current item.
    ///
    /// Costs a heavy fence, unless the owner is FENCED. Rank: after the lock of the pwq concerned.
    pub(crate) fn lock_remote(&self, host: &H) -> RemoteSlot<'_, H> {
        let mutex = self.mutex.lock();
        let attention = self.attention.fetch_or(LOCKED, Ordering::Relaxed);
        // Partner: the fence in `enter` or `enter_fenced`. The fence keeps the store of LOCKED before
        // the load of `run` below. Either the owner sees LOCKED and takes the mutex, or this thread
        // sees SECTION.
        match attention & FENCED {
            0 => host.heavy_fence(),
            _ => fence(Ordering::SeqCst),
        }
        // The wait is short: a section is a few instructions, and the next `enter` sees LOCKED.
        let mut round = 0;
        while self.run.load(Ordering::Acquire) & PHASE_MASK == SECTION {
            host.relax(round);
            round += 1;
        }
        RemoteSlot { slot: self, _mutex: mutex }
    }
}

#[cfg(all(test, loom))]
impl<H: Host> Slot<H> {
    /// For models: the owner, not in its lists, was found blocked before.
    pub(crate) fn fence_owner(&self) {
        let guard = self.mutex.lock();
        self.attention.fetch_or(FENCED, Ordering::Relaxed);
        drop(guard);
    }
}

/// Marks the items of a list, taken as a whole, as detached. Under the slot's lock, so that no
/// other thread takes an item for still being in the list.
fn detach_all(items: WorkList) -> WorkList {
    let mut item = items.front();
    while !item.is_null() {
        // SAFETY: the items of a list that the caller holds.
        unsafe {
            (*item).set_location(Location::Detached);
            item = <Work as Node>::next(item);
        }
    }
    items
}

/// A remote thread's hold on a slot's lists.
pub(crate) struct RemoteSlot<'a, H: Host> {
    slot: &'a Slot<H>,
    _mutex: LockGuard<'a, ()>,
}

impl<H: Host> RemoteSlot<'_, H> {
    #[allow(clippy::mut_from_ref, reason = "the biased lock is what makes it exclusive")]
    fn lists(&mut self) -> &mut Lists<H> {
        // SAFETY: after the heavy fence the owner is outside its lists, and it will see LOCKED
        // before it enters them again. Other remote threads need the mutex.
        unsafe { &mut *self.slot.lists.get() }
    }

    /// Takes a scheduled item out.
    ///
    /// # Safety
    /// The item's location, read under this lock, is this slot's scheduled list.
    pub(crate) unsafe fn remove_scheduled(&mut self, item: *mut Work) {
        // SAFETY: the caller checked that the item is in this list.
        unsafe { self.lists().scheduled.remove(item) };
    }

    /// Takes a deferred item out.
    ///
    /// # Safety
    /// The item's location, read under this lock, is this slot's deferred list.
    pub(crate) unsafe fn remove_deferred(&mut self, item: *mut Work) {
        // SAFETY: the caller checked that the item is in this list.
        unsafe { self.lists().deferred.remove(item) };
    }

    /// The pwq of the scheduled items, which all belong to the same pwq.
    pub(crate) fn pwq(&mut self) -> Option<u32> {
        // SAFETY: the items of a list that we hold are live.
        let first = unsafe { self.lists().scheduled.front().as_ref() };
        first.map(|item| item.ticket().pwq())
    }

    /// Takes everything that is scheduled.
    pub(crate) fn take_scheduled(&mut self) -> WorkList {
        detach_all(self.lists().scheduled.take())
    }

    /// Passes the scheduled and the deferred items to `f`.
    pub(crate) fn visit(&mut self, f: impl FnOnce(&WorkList, &WorkList)) {
        let lists = self.lists();
        f(&lists.scheduled, &lists.deferred);
    }

    /// Detaches all items of this pwq, whose lock the caller holds, and appends them to `into`.
    /// Returns true if some of them were deferred.
    pub(crate) fn take_all_of(&mut self, pwq: u32, into: &mut WorkList) -> bool {
        if self.pwq() == Some(pwq) {
            into.append(self.take_scheduled());
        }
        let lists = self.lists();
        let (mut any, mut others) = (false, WorkList::new());
        loop {
            let item = lists.deferred.pop_front();
            // SAFETY: an item that came off a list that we hold; each is put in exactly one list
            // again.
            unsafe {
                match item.as_ref() {
                    None => break,
                    Some(work) if work.ticket().pwq() == pwq => {
                        work.set_location(Location::Detached);
                        into.push_back(item);
                        any = true;
                    }
                    Some(_) => others.push_back(item),
                }
            }
        }
        lists.deferred = others;
        any
    }

    /// Defers `item` to the end of `run`, after `unlink` took it out of its list. Returns false,
    /// and does nothing, if that run is over.
    ///
    /// # Safety
    /// `item` is live, the caller's, and in no list once `unlink` was called.
    pub(crate) unsafe fn defer(
        &mut self,
        run: u64,
        slot: u32,
        item: *mut Work,
        unlink: impl FnOnce(),
    ) -> bool {
        if !self.slot.is_running_item(run, item) {
            return false;
        }
        // The run may end from here on; its owner then waits for our mutex.
        unlink();
        // SAFETY: by this function's contract.
        unsafe {
            (*item).set_location(Location::Deferred(slot));
            self.lists().deferred.push_back(item);
        }
        self.want_attention();
        true
    }

    /// Whether `run` is in progress and is a run of `item`. It may end at any time, but while the
    /// caller holds the slot, the owner begins no other run.
    pub(crate) fn is_running_item(&self, run: u64, item: *const Work) -> bool {
        self.slot.is_running_item(run, item)
    }

    /// Wakes `waiter` at the end of `run`, which `item` names. Returns false if that run is over.
    ///
    /// # Safety
    /// As for [`Waiters::push`].
    pub(crate) unsafe fn wait_for(
        &mut self,
        run: u64,
        item: *const Work,
        waiter: &crate::words::wake::Waiter<H>,
    ) -> bool {
        if !self.slot.is_running_item(run, item) {
            return false;
        }
        // SAFETY: by this function's contract.
        unsafe { self.lists().waiters.push(waiter) };
        self.want_attention();
        true
    }

    /// Tells the owner to take the mutex at the end of its run, where it finds what was deferred.
    fn want_attention(&self) {
        // Relaxed is enough. The run was still in progress after our heavy fence, and LOCKED stays
        // set until after this store. The owner reads `attention` when it ends that run, and sees
        // LOCKED or DEFERRED.
        self.slot.attention.fetch_or(DEFERRED, Ordering::Relaxed);
    }
}

impl<H: Host> Drop for RemoteSlot<'_, H> {
    fn drop(&mut self) {
        // Release: an owner that no longer sees LOCKED sees what we did to its lists.
        self.slot.attention.fetch_and(!LOCKED, Ordering::Release);
    }
}
