//! Items that a shutdown has removed, before their destructors have run.
//!
//! A shutdown first removes every pending, armed and graced item, and calls no user code
//! meanwhile. The items then wait in lists of their own ([`Location::Disposal`]). Each is still
//! pending and in a list that a lock guards: a cancel removes an item from there as from any other
//! list, and a thread that flushes or joins an item releases that item itself.
//!
//! ```text
//! shutdown:      takes all items off ----> lists of the disposal
//! disposer:      takes ONE item, without a lock: makes it idle, calls its destructor; repeats
//! shutdown:      waits until the lists are empty and no destructor runs, at most until its limit
//! ```
//!
//! **Threads.** A destructor that never returns cannot be stopped, so it must not run on the thread
//! that called the shutdown. It must not run on a worker either: all workers may be inside items
//! that never return, and the holders of taken-off items must still be notified. So the first item
//! that has a destructor starts a *disposer*, a thread that ends when the lists are empty. If no
//! item was released for [`PATIENCE_NS`] while some wait, the disposer is stuck inside a
//! destructor, and another disposer starts beside it, up to [`DISPOSERS_MAX`]. A shutdown without
//! items to release starts no thread; nor do items of another language, which have no destructor.
//!
//! If no thread can be created, the caller of the shutdown does the work of the first disposer
//! itself.

use std::ptr::NonNull;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::queue::Wq;
use crate::queue::owner::Owner;
use crate::timer::fire::let_go;
use crate::words::dump::{Function, Releasing};
use crate::words::host::{Host, Report};
use crate::words::inbox::Node;
use crate::words::item::ItemFn;
use crate::words::item::{Location, Work, WorkList};
use crate::words::sync::{Lock, LockGuard, Rank};
use crate::words::wake::{Waiter, Waiters};

/// If no item is released for this long, another disposer starts.
pub(crate) const PATIENCE_NS: u64 = 10_000_000;
/// The most disposers.
pub(crate) const DISPOSERS_MAX: usize = 16;

/// See the module.
pub(crate) struct Disposal<H: Host>(Lock<State<H>>);

/// Guard: the disposal's lock. Rank: after the locks of pwqs and slots.
pub(crate) struct State<H: Host> {
    lists: Vec<ReleaseList<H>>,
    destructors: Vec<RunningDestructor>,
    /// The number of the next destructor.
    next: u64,
    /// Items released so far, over the engine's life.
    released: u64,
    /// Threads that release items.
    disposers: usize,
    /// Threads that wait until the disposal is idle.
    waiters: Waiters<H>,
}

/// The items of one queue.
struct ReleaseList<H: Host> {
    id: u32,
    /// Keeps the queue while its items are here; `None` if it no longer existed.
    owner: Option<Arc<Owner<H>>>,
    items: WorkList,
    /// Threads that are about to add items or to call their destructors.
    users: u32,
}

/// A destructor that runs.
struct RunningDestructor {
    number: u64,
    list: u32,
    func: ItemFn,
    thread: u64,
    since: u64,
}

/// An item that was taken out of the disposal, for the calling thread to release.
#[must_use = "the item must be released"]
struct Taken<H: Host> {
    item: NonNull<Work>,
    func: ItemFn,
    list: u32,
    number: u64,
    /// Live until the list's user count is decremented.
    wq: *const Wq<H>,
}

/// Steps that must follow once the disposal's lock is released.
#[must_use = "it is done without the lock"]
struct Afterwards<H: Host> {
    owner: Option<Arc<Owner<H>>>,
    waiters: Waiters<H>,
}

/// The owner of a queue whose last item has left the disposal. Released when this is dropped, which
/// may wait for threads of the queue; the dropping thread must hold no detached item.
pub(crate) struct Kept<H: Host>(Option<Arc<Owner<H>>>);

impl<H: Host> Kept<H> {
    pub(crate) fn nothing() -> Kept<H> {
        Kept(None)
    }
}

impl<H: Host> Drop for Kept<H> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Owner::let_go);
    }
}

impl<H: Host> Afterwards<H> {
    fn finish(self, engine: &Engine<H>) {
        self.waiters.complete(engine.host());
        self.owner.into_iter().for_each(Owner::let_go);
    }
}

impl<H: Host> State<H> {
    fn list(&mut self, id: u32) -> Option<&mut ReleaseList<H>> {
        self.lists.iter_mut().find(|list| list.id == id)
    }

    fn is_idle(&self) -> bool {
        self.destructors.is_empty() && !self.has_items()
    }

    fn has_items(&self) -> bool {
        self.lists.iter().any(|list| !list.items.is_empty())
    }

    /// Removes a list without items and users.
    fn settle(&mut self, id: u32) -> Afterwards<H> {
        let done =
            |list: &ReleaseList<H>| list.id == id && list.users == 0 && list.items.is_empty();
        let at = self.lists.iter().position(done);
        let owner = at.and_then(|at| self.lists.swap_remove(at).owner);
        let waiters = if self.is_idle() { self.waiters.take() } else { Waiters::new() };
        Afterwards { owner, waiters }
    }

    /// Gives an item that has left its list to the calling thread.
    fn take_detached(&mut self, id: u32, item: NonNull<Work>, thread: u64, since: u64) -> Taken<H> {
        // SAFETY: an item of a list is live, and the caller owns it from here on.
        let work = unsafe { item.as_ref() };
        work.set_location(Location::Detached);
        let (func, number) = (work.func(), self.next);
        self.next += 1;
        self.destructors.push(RunningDestructor { number, list: id, func, thread, since });
        let mut wq = std::ptr::null();
        if let Some(list) = self.list(id) {
            list.users += 1;
            wq = list.owner.as_ref().map_or(wq, |owner| std::ptr::from_ref(owner.wq()));
        }
        Taken { item, func, list: id, number, wq }
    }

    /// In a forked child: returns all items, for the caller to make idle, and passes the owners
    /// of the queues to `keep`, for the caller to release without locks.
    pub(crate) fn forget(&mut self, keep: impl FnMut(Arc<Owner<H>>)) -> WorkList {
        let mut items = WorkList::new();
        let owners = self.lists.drain(..).filter_map(|list| {
            items.append(list.items);
            list.owner
        });
        owners.for_each(keep);
        self.destructors.clear();
        self.disposers = 0;
        self.waiters = Waiters::new();
        items
    }
}

impl<H: Host> Disposal<H> {
    pub(crate) fn new() -> Disposal<H> {
        Disposal(Lock::ranked(
            Rank::Disposal,
            State {
                lists: Vec::new(),
                destructors: Vec::new(),
                next: 0,
                released: 0,
                disposers: 0,
                waiters: Waiters::new(),
            },
        ))
    }

    /// Locks the contents.
    pub(crate) fn hold(&self) -> LockGuard<'_, State<H>> {
        self.0.lock()
    }

    /// Opens the list for items of a queue. [`Disposal::close`] must follow.
    pub(crate) fn open(&self, owner: Option<&Arc<Owner<H>>>) -> u32 {
        let is_same = |known: &Option<Arc<Owner<H>>>| match (known, owner) {
            (Some(known), Some(owner)) => Arc::ptr_eq(known, owner),
            (None, None) => true,
            _ => false,
        };
        let mut state = self.0.lock();
        if let Some(list) = state.lists.iter_mut().find(|list| is_same(&list.owner)) {
            list.users += 1;
            return list.id;
        }
        let taken = |id: &u32| state.lists.iter().any(|list| list.id == *id);
        let id = (0..).find(|id| !taken(id)).expect("there are fewer queues than numbers");
        let owner = owner.cloned();
        state.lists.push(ReleaseList { id, owner, items: WorkList::new(), users: 1 });
        id
    }

    /// Adds items, which the caller owns and which are in no list yet, to an open one. Their tickets
    /// stay.
    pub(crate) fn add(&self, id: u32, items: WorkList) {
        let mut state = self.0.lock();
        let mut item = items.front();
        while !item.is_null() {
            // SAFETY: the items of a list that the caller hands over.
            unsafe {
                (*item).set_location(Location::Disposal(id));
                item = <Work as Node>::next(item);
            }
        }
        let list = state.list(id).expect("an open list stays");
        list.items.append(items);
    }
}

impl<H: Host> Disposal<H> {
    /// Ends [`Disposal::open`].
    pub(crate) fn close(&self, engine: &Engine<H>, id: u32) {
        let mut state = self.0.lock();
        if let Some(list) = state.list(id) {
            list.users -= 1;
        }
        let afterwards = state.settle(id);
        drop(state);
        afterwards.finish(engine);
    }

    /// Adds one item, which the caller owns and which is in no list.
    ///
    /// # Safety
    /// The item is live, pending and the caller's, with its location `Detached`.
    pub(crate) unsafe fn dispose_later(
        &self,
        engine: &Engine<H>,
        owner: Option<Arc<Owner<H>>>,
        work: NonNull<Work>,
    ) {
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        if item.func().is_foreign() {
            // Another language counts no holders: once it is idle, its holder owns it again.
            item.word.release(item.word.owned());
        } else {
            let id = self.open(owner.as_ref());
            let mut items = WorkList::new();
            // SAFETY: by this function's contract.
            unsafe { items.push_back(work.as_ptr()) };
            self.add(id, items);
            self.close(engine, id);
        }
        owner.into_iter().for_each(Owner::let_go);
    }

    /// Removes an item from the disposal, for a canceller. False if the item has left the
    /// disposal. The owner in `kept` is dropped when the item is idle or in a list again.
    ///
    /// # Safety
    /// `work` is live.
    pub(crate) unsafe fn leave(
        &self,
        engine: &Engine<H>,
        work: NonNull<Work>,
        kept: &mut Kept<H>,
    ) -> bool {
        let mut state = self.0.lock();
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        let Location::Disposal(id) = item.location() else { return false };
        if let Some(list) = state.list(id) {
            // SAFETY: its location, read under the lock, names the list.
            unsafe { list.items.remove(work.as_ptr()) };
        }
        item.set_location(Location::Detached);
        let Afterwards { owner, waiters } = state.settle(id);
        drop(state);
        kept.0 = owner;
        waiters.complete(engine.host());
        true
    }

    /// Releases this item on the calling thread, which waits for it. False if it has left
    /// the disposal.
    ///
    /// # Safety
    /// `work` is live.
    pub(crate) unsafe fn dispose_of(&self, engine: &Engine<H>, work: NonNull<Work>) -> bool {
        let (thread, now) = (engine.host().thread_id(), engine.host().now());
        let mut state = self.0.lock();
        // SAFETY: by this function's contract.
        let Location::Disposal(id) = (unsafe { work.as_ref() }).location() else { return false };
        if let Some(list) = state.list(id) {
            // SAFETY: its location, read under the lock, names the list.
            unsafe { list.items.remove(work.as_ptr()) };
        }
        let taken = state.take_detached(id, work, thread, now);
        drop(state);
        self.finish(engine, taken);
        true
    }

    /// Releases the item that has waited longest in the first list. False if none waits; a
    /// disposer must end then, and is not counted any more.
    fn dispose_next(&self, engine: &Engine<H>, is_disposer: bool) -> bool {
        let (thread, now) = (engine.host().thread_id(), engine.host().now());
        let mut state = self.0.lock();
        let next = state
            .lists
            .iter_mut()
            .find_map(|list| NonNull::new(list.items.pop_front()).map(|item| (list.id, item)));
        let Some((id, item)) = next else {
            state.disposers -= usize::from(is_disposer);
            return false;
        };
        let taken = state.take_detached(id, item, thread, now);
        drop(state);
        self.finish(engine, taken);
        true
    }

    /// Calls the destructor of one item, without locks.
    fn finish(&self, engine: &Engine<H>, taken: Taken<H>) {
        let Taken { item, func, list, number, wq } = taken;
        // SAFETY: null, or the queue of a list that has a user: its owner keeps it.
        let wq = unsafe { wq.as_ref() };
        // SAFETY: it came off its list: it is live and ours, until it is released.
        let word = unsafe { &item.as_ref().word };
        // From here on its holder owns the item, and may be waiting for exactly this.
        word.release(word.owned());
        // SAFETY: as above, and its holder is notified once.
        engine.caller().run_as_in_an_item(wq, || unsafe { let_go(engine, item, func) });
        let mut state = self.0.lock();
        let Some(at) = state.destructors.iter().position(|known| known.number == number) else {
            // In a child that the destructor has forked: there the disposal was emptied.
            return;
        };
        state.destructors.swap_remove(at);
        state.released += 1;
        if let Some(list) = state.list(list) {
            list.users -= 1;
        }
        let afterwards = state.settle(list);
        drop(state);
        afterwards.finish(engine);
    }

    /// The main function of a disposer.
    fn dispose_all(&self, engine: &Engine<H>) {
        let thread = engine.caller().thread;
        let forks = thread.forks();
        while self.dispose_next(engine, true) {
            if thread.forks() != forks {
                engine.host().end_forked_thread();
            }
        }
    }

    /// Waits until every item that was removed is released, at most until `deadline`. False if it
    /// timed out.
    pub(crate) fn dispose_until(&self, engine: &Engine<H>, deadline: u64) -> bool {
        let mut seen = None;
        loop {
            let mut state = self.0.lock();
            if state.is_idle() {
                return true;
            }
            let is_stuck = state.disposers == 0 || seen == Some(state.released);
            if state.has_items() && is_stuck && state.disposers < DISPOSERS_MAX {
                state.disposers += 1;
                drop(state);
                self.start_disposer(engine);
                state = self.0.lock();
                if state.is_idle() {
                    return true;
                }
            }
            seen = Some(state.released);
            let waiter = Waiter::new(0);
            // SAFETY: the waiter is in no chain, and this thread goes on only after it has left
            // this chain.
            unsafe { state.waiters.push(&waiter) };
            drop(state);
            let now = engine.host().now();
            let woken = waiter.wait_until(engine.host(), deadline.min(now + PATIENCE_NS));
            if !woken {
                let removed = self.0.lock().waiters.remove(&waiter);
                if !removed {
                    // It was taken from the chain: its wake is a few instructions away.
                    waiter.wait(engine.host());
                }
                if engine.host().now() >= deadline {
                    return self.0.lock().is_idle();
                }
            }
        }
    }

    /// Starts a disposer, which the caller has counted already.
    fn start_disposer(&self, engine: &Engine<H>) {
        let spec = engine.service("uw/release", CpuSet::new());
        let outcome = match engine.me() {
            Some(me) => engine
                .host()
                .spawn(&spec, Box::new(move || me.disposal.dispose_all(&me)))
                .map_err(|error| error.0),
            None => Err("the engine is going away".to_owned()),
        };
        let Err(reason) = outcome else { return };
        let mut state = self.0.lock();
        state.disposers -= 1;
        let is_only = state.disposers == 0;
        drop(state);
        engine.caller().report(Report::SpawnFailed { reason });
        if is_only {
            while self.dispose_next(engine, false) {}
        }
    }

    /// The destructors that run, and how many items wait for theirs.
    pub(crate) fn not_disposed(&self, engine: &Engine<H>) -> (Vec<Releasing>, u64) {
        let now = engine.host().now();
        let state = self.0.lock();
        let name = |id: u32| {
            let list = state.lists.iter().find(|list| list.id == id);
            let owner = list.and_then(|list| list.owner.as_ref());
            owner.map(|owner| owner.wq().name().to_owned()).unwrap_or_default()
        };
        let mut waiting = 0;
        for list in &state.lists {
            let mut item = list.items.front();
            while !item.is_null() {
                waiting += 1;
                // SAFETY: the items of a list that we have locked.
                item = unsafe { <Work as Node>::next(item) };
            }
        }
        let show = |known: &RunningDestructor| Releasing {
            queue: name(known.list),
            function: Function::of(known.func),
            thread: known.thread,
            for_ns: now.saturating_sub(known.since),
        };
        let mut releasing: Vec<Releasing> = state.destructors.iter().map(show).collect();
        drop(state);
        for known in &mut releasing {
            // SAFETY: the identity of an item's function.
            known.function = unsafe { Function::at(known.function.address) };
        }
        (releasing, waiting)
    }
}
