//! Items that are queued when a grace period has ended.
//!
//! The engine keeps the items; a *driver* tells it when grace periods begin and end. There is one
//! driver at a time, which repeats:
//!
//! ```text
//! begin_grace      the items that have arrived wait for the period that begins here;
//!                  false if there are none: the driver may sleep, the next arrival calls it
//! (a full grace period)
//! end_grace        they are queued
//! ```
//!
//! So an item waits for the rest of the period in progress when it arrives, if there is one, and
//! for the whole next period. That next period begins after the arrival, which is the guarantee.
//!
//! There are two lists, and an index of the list that takes arrivals. The begin of a period flips
//! the index; the items stay where they are, and each names its list in its location. One lock
//! guards both lists, the index, whether a driver was called, and the threads that wait for an item
//! to leave:
//!
//! | lists | driven | state |
//! |---|---|---|
//! | both empty | no | idle: no thread wakes |
//! | arrivals | yes | the driver was called and will begin a period |
//! | waiting, arrivals or not | yes | a period is in progress |
//! | both empty | yes | all items were cancelled, or the driver is about to find the lists empty |
//! | any item | no | impossible: the thread that adds the first item calls the driver, under the same lock |
//!
//! An item in a list is pending, and only the list owns it: `PENDING` is held as for an armed
//! timer. It references its queue weakly, as a timer does. The lock is taken with no other lock
//! held, and no other is taken under it.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::queue::Destination;
use crate::queue::owner::{Owner, Queue};
use crate::queue::submit::Queued;
use crate::timer::fire::let_go;
use crate::words::host::Host;
use crate::words::item::ForeignFn;
use crate::words::item::word::Acquire;
use crate::words::item::{Location, Work, WorkFn, WorkList};
use crate::words::sync::{Cell, Link, Lock, LockGuard, Rank, const_unless_modelled};
use crate::words::wake::{Waiter, Waiters};
use crate::worker::Caller;

/// A work item that can be queued after a grace period. Embed it as [`Work`].
#[repr(C)]
pub struct Graced<H: Host> {
    /// First, so that the address of the work is the address of the whole.
    work: Work,
    /// The CPU that queued it. Guard: the owner; while it is in a list, the grace lock.
    cpu: Cell<u32>,
    /// The queue, as a weak reference that the item owns while it is in a list. Guard: as `cpu`.
    queue: Cell<Link<Owner<H>>>,
}

impl<H: Host> Graced<H> {
    const_unless_modelled! {
        /// An idle item that will call `func`, with the address of its `work`.
        pub fn new(func: WorkFn) -> Graced<H> {
            Self::of(Work::new(func))
        }
    }

    const_unless_modelled! {
        /// As [`Graced::new`], for a function of another language.
        pub fn foreign(func: ForeignFn) -> Graced<H> {
            Self::of(Work::foreign(func))
        }
    }

    const_unless_modelled! {
        fn of(work: Work) -> Graced<H> {
            Graced { work, cpu: Cell::new(0), queue: Cell::new(Link(std::ptr::null_mut())) }
        }
    }

    /// The work item inside.
    pub fn work(&self) -> &Work {
        &self.work
    }
}

/// See the module.
pub(crate) struct Grace<H: Host>(Lock<Lists<H>>);

struct Lists<H: Host> {
    items: [WorkList; 2],
    /// The list that takes arrivals; the other one waits for the period in progress.
    arrivals: usize,
    /// Whether a driver was called, and has not found the arrivals empty since.
    driven: bool,
    /// Threads that wait for an item to leave its list, by its address.
    waiters: Waiters<H>,
}

impl<H: Host> Lists<H> {
    fn take_waiters(&mut self, work: NonNull<Work>) -> Waiters<H> {
        if self.waiters.is_empty() {
            return Waiters::new();
        }
        self.waiters.take_matching(work.as_ptr().addr())
    }
}

impl<H: Host> Grace<H> {
    pub(crate) fn new() -> Grace<H> {
        Grace(Lock::ranked(
            Rank::Grace,
            Lists {
                items: [WorkList::new(), WorkList::new()],
                arrivals: 0,
                driven: false,
                waiters: Waiters::new(),
            },
        ))
    }
}

/// The lists of grace periods, locked.
pub(crate) struct HeldGrace<'a, H: Host>(LockGuard<'a, Lists<H>>);

impl<H: Host> Grace<H> {
    pub(crate) fn hold(&self) -> HeldGrace<'_, H> {
        HeldGrace(self.0.lock())
    }
}

impl<H: Host> HeldGrace<'_, H> {
    /// In a forked child: returns all items that wait for a period; no period is in progress any
    /// more.
    pub(crate) fn forget(&mut self) -> WorkList {
        let lists = &mut *self.0;
        let mut items = lists.items[0].take();
        items.append(lists.items[1].take());
        lists.driven = false;
        lists.waiters = Waiters::new();
        // The items' weak references are leaked: dropping the last one of a queue would free
        // memory.
        items
    }
}

impl<H: Host> Queue<H> {
    /// Queues `item` at the end of a grace period that begins after this call did. The item is
    /// pending from now on. `drive` is called, without locks held, if no driver runs the periods:
    /// it must make a driver run them.
    ///
    /// # Safety
    /// `item` is live and stays so, in place, until its function was called or a cancel
    /// has returned it.
    pub unsafe fn queue_after_grace(
        &self,
        item: NonNull<Graced<H>>,
        drive: impl FnOnce(),
    ) -> Queued {
        // SAFETY: by this function's contract.
        let graced = unsafe { item.as_ref() };
        let word = &graced.work.word;
        let owned = match word.acquire() {
            Acquire::Owned(owned) => owned,
            Acquire::Pending => return Queued::AlreadyPending,
        };
        if owned.disable_depth() > 0 {
            word.release(owned);
            return Queued::Disabled;
        }
        if self.gate.is_closed() {
            word.release(owned);
            return Queued::Refused;
        }
        let engine = self.engine();
        let queue = Weak::into_raw(Arc::downgrade(self.owner())).cast_mut();
        // SAFETY: the item is ours until it is in a list.
        unsafe {
            graced.cpu.set(engine.host().current_cpu());
            graced.queue.set(Link(queue));
        }
        let mut lists = engine.grace.0.lock();
        // A shutdown closes the gate and then takes the items off, under this lock. Either it takes
        // the lock after us and finds the item, or it took the lock before us and we see the closed
        // gate here.
        if self.gate.is_closed() {
            drop(lists);
            // SAFETY: the reference from above; no other thread has seen the item since.
            drop(unsafe { Weak::from_raw(queue) });
            word.release(owned);
            return Queued::Refused;
        }
        let arrivals = lists.arrivals;
        graced.work.set_location(Location::Grace(arrivals as u32));
        // SAFETY: live, ours, in no list.
        unsafe { lists.items[arrivals].push_back(item.cast().as_ptr()) };
        let was_driven = std::mem::replace(&mut lists.driven, true);
        drop(lists);
        if !was_driven {
            drive();
        }
        Queued::Yes
    }
}

impl<H: Host> Engine<H> {
    /// Driver: begins a grace period. False if no item has arrived; the driver may then sleep until
    /// it is called. The last period has ended.
    pub fn begin_grace(&self) -> bool {
        let mut lists = self.grace.0.lock();
        let arrivals = lists.arrivals;
        debug_assert!(lists.items[1 - arrivals].is_empty(), "the last grace period has not ended");
        lists.driven = !lists.items[arrivals].is_empty();
        if lists.driven {
            lists.arrivals = 1 - arrivals;
        }
        lists.driven
    }

    /// Driver: ends its work, because the engine was shut down.
    pub fn abandon_grace(&self) {
        self.grace.0.lock().driven = false;
    }

    /// Driver: ends the grace period that began last. Queues the items that waited for it.
    ///
    /// Takes one at a time: releasing an item whose queue no longer exists runs its holder's
    /// destructor, which may cancel another item.
    pub fn end_grace(&self) {
        loop {
            let mut lists = self.grace.0.lock();
            let waiting = 1 - lists.arrivals;
            let Some(work) = NonNull::new(lists.items[waiting].pop_front()) else { return };
            // SAFETY: an item of the list is live, and ours from here on.
            unsafe { work.as_ref() }.set_location(Location::Detached);
            let waiters = lists.take_waiters(work);
            drop(lists);
            // SAFETY: as above; its location said that it is part of a `Graced`.
            unsafe { self.grace.queue_after_period(self, work.cast()) };
            waiters.complete(self.host());
        }
    }

    /// Waits until an item that waits for a grace period has been queued, then as
    /// [`Engine::flush_work`]. With `may_wait` false it does not wait for the grace period, which
    /// would not end before the caller continues: for such an item it returns false. It also
    /// returns false if the caller runs items of the ordered queue that the item was queued on.
    ///
    /// # Safety
    /// As [`Engine::cancel`].
    pub unsafe fn flush_after_grace(&self, item: NonNull<Graced<H>>, may_wait: bool) -> bool {
        let work: NonNull<Work> = item.cast();
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        let (mut waited, mut round) = (false, 0);
        loop {
            let (pending, run) = item.word.snapshot();
            let location = item.location();
            let inside = run.is_some_and(|run| self.caller().runs(run, item));
            match location {
                // The pending run starts after the caller's run has ended.
                Location::Grace(_) if pending && (inside || !may_wait) => return false,
                Location::Grace(_) if pending => {
                    waited = self.grace.wait_for(self, work);
                    if waited {
                        break;
                    }
                }
                // Another thread is adding it to a list or removing it.
                Location::Detached if pending => {
                    self.host().relax(round);
                    round += 1;
                }
                _ => break,
            }
        }
        // SAFETY: by this function's contract. It may have run by now.
        unsafe { self.flush_work(work) || (waited && !self.caller().is_ahead_of(item)) }
    }
}

impl<H: Host> Grace<H> {
    /// Takes off all items that wait for a grace period, to be released. Returns their number.
    pub(crate) fn release_all(&self, engine: &Engine<H>) -> u64 {
        let mut released = 0;
        loop {
            let mut lists = self.0.lock();
            let first = lists.items[0].pop_front();
            let item = if first.is_null() { lists.items[1].pop_front() } else { first };
            let Some(work) = NonNull::new(item) else { return released };
            // SAFETY: an item of the lists is live, and ours from here on, with its weak reference.
            let owner = unsafe {
                work.as_ref().set_location(Location::Detached);
                Weak::from_raw(work.cast::<Graced<H>>().as_ref().queue.get().0).upgrade()
            };
            let waiters = lists.take_waiters(work);
            drop(lists);
            // SAFETY: as above, and it is in no list.
            unsafe { engine.disposal.dispose_later(engine, owner, work) };
            // The waiters check again, and release the item themselves.
            waiters.complete(engine.host());
            released += 1;
        }
    }

    /// # Safety
    /// The item has just left its list and is the caller's.
    unsafe fn queue_after_period(&self, engine: &Engine<H>, item: NonNull<Graced<H>>) {
        let work: NonNull<Work> = item.cast();
        // SAFETY: by this function's contract.
        let (word, func, cpu, queue) = unsafe {
            let graced = item.as_ref();
            let queue = Weak::from_raw(graced.queue.get().0);
            (&graced.work.word, graced.work.func(), graced.cpu.get(), queue)
        };
        let owned = word.owned();
        let outcome = match queue.upgrade() {
            Some(owner) => {
                // SAFETY: the item is ours, and live until its function was called.
                let outcome = unsafe { owner.wq().queue_owned(work, owned, Destination::On(cpu)) };
                // Without a wait: an item of the queue may wait for the next grace period, which this
                // thread drives.
                Owner::let_go(owner);
                outcome
            }
            None => {
                word.release(owned);
                Queued::Refused
            }
        };
        if outcome == Queued::Yes {
            return;
        }
        // The queue no longer exists, or drains: release the item.
        // SAFETY: it is in no list, and its holder is notified once.
        engine.caller().run_as_in_an_item(None, || unsafe { let_go(engine, work, func) });
    }

    /// Removes an item from the lists. False if it has left them.
    ///
    /// # Safety
    /// `work` is live.
    pub(crate) unsafe fn leave(&self, engine: &Engine<H>, work: NonNull<Work>) -> bool {
        let mut lists = self.0.lock();
        // SAFETY: by this function's contract.
        let Location::Grace(list) = (unsafe { work.as_ref() }).location() else { return false };
        // SAFETY: its location, read under the lock, names the list, and says that it is part of a
        // `Graced`.
        let queue = unsafe {
            lists.items[list as usize].remove(work.as_ptr());
            work.as_ref().set_location(Location::Detached);
            Weak::from_raw(work.cast::<Graced<H>>().as_ref().queue.get().0)
        };
        let waiters = lists.take_waiters(work);
        drop(lists);
        drop(queue);
        waiters.complete(engine.host());
        true
    }

    /// Waits until an item has left the lists. False, and at once, if it is in none.
    fn wait_for(&self, engine: &Engine<H>, work: NonNull<Work>) -> bool {
        engine.caller().before_wait();
        let waiter = Waiter::new(work.as_ptr().addr());
        let mut lists = self.0.lock();
        // SAFETY: the caller's promise that the item is live.
        if !matches!(unsafe { work.as_ref() }.location(), Location::Grace(_)) {
            return false;
        }
        // SAFETY: the waiter is in no chain, and waited for below.
        unsafe { lists.waiters.push(&waiter) };
        drop(lists);
        let _blocked = engine.caller().block();
        waiter.wait(engine.host());
        true
    }
}

impl<'a, H: Host> Caller<'a, H> {
    /// Whether the item is queued behind an item that the calling thread runs: waiting for it would
    /// deadlock.
    pub(crate) fn is_ahead_of(self, item: &Work) -> bool {
        let pwq = self.engine.pwqs.get(item.ticket().pwq());
        item.is_pending() && pwq.is_some_and(|pwq| self.engine.runs_queue(pwq.wq().cast()))
    }
}
