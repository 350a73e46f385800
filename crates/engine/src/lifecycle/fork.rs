//! Forks: the parent continues as before, the child starts with an idle engine.
//!
//! The child has one thread, the one that forked. The other threads do not exist there, and
//! whatever they had half done stays as it was at that instant. So before the fork, the forking
//! thread takes every lock of the engine, in the order of the ranks; then no operation is half
//! done. After it, the parent releases the locks. The child first makes everything idle:
//!
//! - Items that were queued, armed or waiting for a grace period become idle. They do not run, and
//!   their holders are not notified: a destructor would undo in the child what belongs to the
//!   parent. References that the queue held for an item (a reference count, a box) are leaked.
//!   Queues with `FORK_INHERITED` are the exception: their queued items are queued in the child, too
//!   ([`Inherited`]).
//! - There are no workers, no watcher, no rescuers. The first item that is queued, or the first wait,
//!   creates them ([`ForkState::finish`]).
//! - No thread waits for anything.
//!
//! Queues, attributes, pools, freezes and pauses keep their state. A drain ends, and a shutdown that
//! has begun is complete.
//!
//! **A fork inside of an item.** The child's thread is in the item and is no longer a worker. When
//! the item returns, the thread ends, and with it the process, as in POSIX when a thread that has
//! forked returns. A helper continues after the helped item.
//!
//! **What the locks do not cover.** An item that another thread was just moving (between taking
//! PENDING and pushing it, or between two lists) is in no list. In the child it stays pending for
//! ever; a cancel of it there would not return. This window is some tens of nanoseconds of each
//! item's life. An item whose timer expires has none: it is in its wheel or its inbox.
//!
//! **No call of the allocator**, neither before the fork nor after it: the forking thread may hold
//! the allocator's locks at that time. Memory that is needed meanwhile comes from [`Pages`]. Queues
//! whose last reference is the fork's are released later, by a thread that creates or drops a queue
//! (`release_unreleased_queues`).

use std::sync::Arc;

use uwork_policy::flags::Flags;

use crate::account::HeldFunctions;
use crate::engine::Engine;
use crate::lifecycle::cpus::{Changing, HeldPlaces};
use crate::lifecycle::disposal::State as Disposed;
use crate::lifecycle::freeze::FreezeState;
use crate::pool::PoolInner;
use crate::pool::PoolSet;
use crate::queue::flush::FlushState;
use crate::queue::owner::Owner;
use crate::queue::pwq::{Inner, Pwq, Row};
use crate::queue::registry::HeldRegistry;
use crate::queue::{Pwqs, Taken, Tunable, Wq};
use crate::slot::{HeldDescription, RemoteSlot};
use crate::timer::Timers;
use crate::timer::grace::HeldGrace;
use crate::watch::Shared;
use crate::words::host::{Host, PageList, Pages, Report};
use crate::words::inbox::Node;
use crate::words::item::{Location, Ticket, Work, WorkList};
use crate::words::slab::HeldIds;
use crate::words::sync::{
    AtomicBool, LockGuard, Ordering, assert_nothing_held, set_lock_waits, take_all,
};
use crate::words::trace::Tracer;

/// Every lock of an engine, held from before a fork until after it. Stays on its thread.
pub struct Forking<'a, H: Host> {
    engine: &'a Engine<H>,
    pages: &'a Pages<H>,
    /// Present until the locks are released.
    held: Option<Held<'a, H>>,
    /// The queues that the locks belong to: released after them.
    owners: PageList<'a, H, Arc<Owner<H>>>,
}

/// The locks. Released in this order, which does not matter.
struct Held<'a, H: Host> {
    ids: [HeldIds<'a>; 3],
    grace: HeldGrace<'a, H>,
    timers: PageList<'a, H, LockGuard<'a, Timers<H>>>,
    pools: PageList<'a, H, LockGuard<'a, PoolInner<H>>>,
    rows: PageList<'a, H, LockGuard<'a, Row<H>>>,
    disposal: LockGuard<'a, Disposed<H>>,
    slots: PageList<'a, H, RemoteSlot<'a, H>>,
    pwqs: PageList<'a, H, LockGuard<'a, Inner<H>>>,
    flushes: PageList<'a, H, LockGuard<'a, FlushState<H>>>,
    watch: LockGuard<'a, Shared>,
    _descriptions: PageList<'a, H, HeldDescription<'a>>,
    _functions: (HeldFunctions<'a>, PageList<'a, H, HeldFunctions<'a>>),
    _registry: HeldRegistry<'a, H>,
    _hogs: LockGuard<'a, Vec<(usize, u64)>>,
    _names: LockGuard<'a, Taken>,
    reports: LockGuard<'a, Vec<Report>>,
    _places: HeldPlaces<'a>,
    _lists: PageList<'a, H, Pwqs<'a, H>>,
    _sets: LockGuard<'a, Vec<Arc<PoolSet>>>,
    _tunables: PageList<'a, H, LockGuard<'a, Tunable>>,
    _changing: LockGuard<'a, Changing>,
    _freeze: LockGuard<'a, FreezeState<H>>,
}

impl<H: Host> Engine<H> {
    /// Prepares a fork by the calling thread: waits until no other thread has anything half done,
    /// and keeps it so. Then fork, and call [`Forking::parent`] or [`Forking::child`].
    ///
    /// Takes some microseconds, and some more for each queue. Calls no allocator: its memory comes
    /// from `pages`. The caller holds no lock of the engine. User code never runs under one, so
    /// user code may call this.
    pub fn before_fork<'a>(&'a self, pages: &'a Pages<H>) -> Forking<'a, H> {
        loop {
            if let Some(forking) = lock_everything(self, pages) {
                return forking;
            }
        }
    }
}

/// `None` if a queue was created meanwhile, whose locks are not held.
fn lock_everything<'a, H: Host>(
    engine: &'a Engine<H>,
    pages: &'a Pages<H>,
) -> Option<Forking<'a, H>> {
    take_all(true);
    let changing = engine.versions.hold();
    let freeze = engine.freeze.state.lock();
    let known = engine.registry.hold().1;
    let mut owners = PageList::new(pages);
    engine.registry.owners_into(&mut owners);
    let mut queues = PageList::new(pages);
    // SAFETY: the owners are released after everything that borrows from them.
    queues.extend(owners.iter().map(|owner| unsafe { &*std::ptr::from_ref(owner.wq()) }));
    let queues: PageList<'_, H, &'a Wq<H>> = queues;
    let mut tunables = PageList::new(pages);
    tunables.extend(queues.iter().map(|wq| wq.hold_tunable()));
    let sets = engine.sets.lock();
    let mut flushes = PageList::new(pages);
    flushes.extend(queues.iter().map(|wq| wq.flush.lock()));
    let mut lists = PageList::new(pages);
    lists.extend(queues.iter().map(|wq| wq.pwqs()));
    let mut pwqs = PageList::new(pages);
    engine.pwqs.for_each(|(id, _)| pwqs.extend(engine.pwqs.get(id).map(Pwq::lock)));
    let mut slots = PageList::new(pages);
    engine.slots.for_each(|(id, _)| {
        slots.extend(engine.slots.get(id).map(|slot| slot.lock_remote(engine.host())));
    });
    let disposal = engine.disposal.hold();
    let mut rows = PageList::new(pages);
    rows.extend(queues.iter().flat_map(|wq| wq.nodes()).map(|node| node.hold()));
    let places = engine.versions.hold_places();
    let (mut pools, mut timers) = (PageList::new(pages), PageList::new(pages));
    let table = &engine.pools;
    table.for_each(|(id, _)| pools.extend(table.get(id).map(|pool| pool.lock())));
    table.for_each(|(id, _)| {
        let bases = table.get(id).map(|pool| pool.timer_bases());
        timers.extend(bases.into_iter().flatten().map(|base| base.lock()));
    });
    let grace = engine.grace.hold();
    let (hogs, names) = (engine.hogs.hold(), engine.names.lock());
    let reports = engine.reports.hold();
    let (registry, made) = engine.registry.hold();
    let watch = engine.watch.hold();
    let mut descriptions = PageList::new(pages);
    engine.slots.for_each(|(id, _)| {
        descriptions.extend(engine.slots.get(id).map(|slot| slot.hold_description()));
    });
    let mut functions = PageList::new(pages);
    engine.slots.for_each(|(id, _)| {
        functions.extend(engine.slots.get(id).map(|slot| slot.functions.hold()));
    });
    let ids = [engine.slots.hold(), engine.pwqs.hold(), table.hold()];
    let held = Held {
        ids,
        grace,
        timers,
        pools,
        rows,
        disposal,
        slots,
        pwqs,
        flushes,
        watch,
        _descriptions: descriptions,
        _functions: (engine.functions.hold(), functions),
        _registry: registry,
        _hogs: hogs,
        _names: names,
        reports,
        _places: places,
        _lists: lists,
        _sets: sets,
        _tunables: tunables,
        _changing: changing,
        _freeze: freeze,
    };
    let forking = Forking { engine, pages, held: Some(held), owners };
    (made == known).then_some(forking)
}

/// What a forked child still has to do.
pub(crate) struct ForkState {
    /// Set in the child until the work that comes with its first worker is done. Until then no
    /// inherited item makes its pwq ready, because a handler of a fork creates no thread.
    unfinished: AtomicBool,
}

/// In the child: the items that its queues inherit, in the order in which the parent would have
/// started them.
struct Inherited {
    items: WorkList,
}

impl Inherited {
    /// Takes the items of queues that inherit out of a list, and makes the others idle.
    fn keep<H: Host>(&mut self, engine: &Engine<H>, mut items: WorkList) {
        loop {
            let item = items.pop_front();
            if item.is_null() {
                return;
            }
            // SAFETY: the item was in a list of the engine's, which the caller owns. A pwq that has
            // items belongs to a queue, which lives.
            unsafe {
                let pwq = engine.pwqs.get((*item).ticket().pwq());
                let inherits = |pwq: &Pwq<H>| {
                    pwq.wq().as_ref().is_some_and(|wq| wq.flags().contains(Flags::FORK_INHERITED))
                };
                match pwq.is_some_and(inherits) {
                    true => self.items.push_back(item),
                    false => (*item).forget(),
                }
            }
        }
    }

    /// Queues the items again, where they were. The engine is idle, and no lock is held.
    fn queue_again<H: Host>(mut self, engine: &Engine<H>) {
        while let Some(item) = std::ptr::NonNull::new(self.items.pop_front()) {
            // SAFETY: an item of a queue that inherits: it is live, and in no other list.
            unsafe {
                let pwq = engine.pwqs.get(item.as_ref().ticket().pwq());
                let pwq = pwq.expect("it was found before");
                item.as_ref().set_placement(Location::Inbox, Ticket::new(pwq.id, false));
                pwq.inbox.push_chain((item.as_ptr(), item.as_ptr()), |_| ());
            }
        }
    }
}

impl ForkState {
    pub(crate) fn new() -> ForkState {
        ForkState { unfinished: AtomicBool::new(false) }
    }

    /// In a forked child: creates the threads that belong to queues, and starts the inherited items.
    /// Called by a new worker before its first item, and by a thread that is about to wait. Neither
    /// holds a lock. A thread that creates a worker may hold one (a change of a queue's attributes
    /// does), and the queues' locks are taken here: so the worker finishes the fork, not its creator.
    #[inline]
    pub(crate) fn finish<H: Host>(&self, engine: &Engine<H>) {
        if self.unfinished.load(Ordering::Relaxed) {
            self.make_threads(engine);
        }
    }

    #[cold]
    fn make_threads<H: Host>(&self, engine: &Engine<H>) {
        assert_nothing_held("the end of a fork");
        // One thread does it. The others need not wait: they rely on no rescuer, and an inherited
        // item starts soon.
        if !self.unfinished.swap(false, Ordering::SeqCst) {
            return;
        }
        engine.for_each_queue(|wq| {
            if let Some(rescuer) = wq.rescuer()
                && !rescuer.is_started()
                && let Err(error) = wq.start_rescuer(rescuer)
            {
                let reason = error.to_string();
                engine.caller().report(Report::SpawnFailed { reason });
            }
            if wq.flags().contains(Flags::FORK_INHERITED) {
                wq.start_inherited();
            }
        });
    }
}

/// Makes the items of a list idle.
fn forget_all(items: &WorkList) {
    let mut item = items.front();
    while !item.is_null() {
        // SAFETY: the caller owns the whole list, and each item is visited once.
        unsafe {
            let next = <Work as Node>::next(item);
            (*item).forget();
            item = next;
        }
    }
}

impl<H: Host> Forking<'_, H> {
    /// In the parent: releases the locks.
    pub fn parent(self) {}

    /// In the child: makes the engine idle. The calling thread is the only thread of the process.
    pub fn child(mut self) {
        let engine = self.engine;
        let thread = engine.caller().thread;
        let mut in_use = PageList::new(self.pages);
        in_use.extend(thread.frames().map(|frame| frame.slot));
        if (thread.is_rescuer() || !thread.worker().is_null()) && engine.host().thread_id() != 0 {
            // The thread was confined to the CPUs of a pool. It is the whole process now.
            engine.host().set_cpus(engine.host().thread_id(), &engine.cpus().allowed);
        }
        // A slot of the parent's worker, which is not this thread's any more.
        // SAFETY: no place is set.
        unsafe { set_lock_waits(std::ptr::null()) };
        thread.forked();
        engine.host().tracer().into_iter().for_each(Tracer::forked);
        let mut held = self.held.take().expect("the locks are released once");
        let mut inherited = Inherited { items: WorkList::new() };
        // What workers have taken comes before what waits.
        for slot in held.slots.iter_mut() {
            inherited.keep(engine, slot.forget());
        }
        let mut at = held.pwqs.iter_mut();
        engine.pwqs.for_each(|(_, pwq)| {
            if let Some(inner) = at.next() {
                inherited.keep(engine, pwq.forget(inner));
            }
        });
        let mut at = held.pools.iter_mut();
        engine.pools.for_each(|(_, pool)| {
            if let Some(inner) = at.next() {
                pool.forget(inner);
            }
        });
        let mut at = held.timers.iter_mut();
        engine.pools.for_each(|(_, pool)| {
            for base in pool.timer_bases() {
                if let Some(timers) = at.next() {
                    base.forget(timers);
                }
            }
        });
        forget_all(&held.grace.forget());
        let mut disposed = PageList::new(self.pages);
        let items = held.disposal.forget(|owner| disposed.extend(Some(owner)));
        forget_all(&items);
        held.flushes.iter_mut().for_each(|flush| **flush = FlushState::new());
        let mut at = held.rows.iter_mut();
        for node in self.owners.iter().flat_map(|owner| owner.wq().nodes()) {
            if let Some(row) = at.next() {
                node.forget(row);
            }
        }
        engine.watch.forget(&mut held.watch);
        engine.standbys.forget();
        // The parent delivers them. Forget instead of drop, which calls the allocator.
        std::mem::forget(std::mem::take(&mut *held.reports));
        let rescuers = self.owners.iter().filter_map(|owner| owner.wq().rescuer());
        let mut kept = PageList::new(self.pages);
        kept.extend(in_use.iter().copied().chain(rescuers.map(|rescuer| rescuer.slot())));
        held.ids[0].free_all_but(&kept);
        engine.spare_slots.forget();
        drop(held);
        take_all(false);
        engine.slots.for_each(|(id, slot)| slot.forget(in_use.contains(&id)));
        self.owners.iter().for_each(|owner| owner.wq().forget());
        engine.shutdown_state.end_in_child(&self.owners);
        while let Some(owner) = disposed.pop() {
            self.owners.extend(Some(owner));
        }
        inherited.queue_again(engine);
        engine.fork.unfinished.store(true, Ordering::SeqCst);
    }
}

impl<H: Host> Drop for Forking<'_, H> {
    fn drop(&mut self) {
        self.held = None;
        take_all(false);
        while let Some(owner) = self.owners.pop() {
            Owner::release_later(owner);
        }
    }
}
