//! Firing: due items leave the wheel for their queues. README.md has the protocol.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::pool::Pool;
use crate::pool::progress::TIMER_SLACK_NS;
use crate::queue::Destination;
use crate::queue::owner::Owner;
use crate::queue::pwq::Pwq;
use crate::queue::submit::Queued;
use crate::timer::delayed::{Delayed, prefetch_all, work_of};
use crate::timer::{Advance, TimerBase, Timers};
use crate::words::host::Host;
use crate::words::inbox::Node;
use crate::words::item::{ItemFn, Location, Work};
use crate::words::sync::{Link, MODELLED, Ordering, assert_nothing_held};

/// The most timers that are moved, within a wheel or out of it, under one hold of its lock.
const STEPS: usize = if MODELLED { 2 } else { 64 };
/// The most timers that a thread moves before it does anything else.
const SLICE: usize = if MODELLED { 4 } else { 1_024 };

/// The thread that makes items expire.
pub(super) enum Firer<'a, H: Host> {
    /// A worker, which fires the timers of this pool.
    Worker(&'a Pool<H>),
    /// The watcher, for a pool that can get no worker: it runs no user code.
    Watcher(&'a Pool<H>),
    /// Another thread, which makes a single item expire.
    OtherThread,
}

impl<H: Host> Clone for Firer<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Firer<'_, H> {}

impl<H: Host> Firer<'_, H> {
    /// Where an item expires that names no CPU, if not on the calling thread's.
    fn cpu(self) -> Option<u32> {
        match self {
            Firer::Watcher(pool) => pool.cpu(),
            Firer::Worker(_) | Firer::OtherThread => None,
        }
    }

    /// Releases an owner that was held for an expiry. The last one ends its queue, which may wait,
    /// create a thread, or report.
    fn release(self, owner: Arc<Owner<H>>) {
        Arc::into_inner(owner).into_iter().for_each(|last| self.release_last(last));
    }

    fn release_last(self, last: Owner<H>) {
        match self {
            // Not dropped here: the drop waits for the queue's items.
            Firer::Watcher(_) => last.go(),
            Firer::Worker(_) | Firer::OtherThread => drop(last),
        }
    }
}

impl<H: Host> Pool<H> {
    /// Queues what is due, at most a slice of it. Returns whether more is due, for which the caller
    /// must call this again soon. If another thread fires a wheel, that wheel is left to it.
    #[cold]
    pub(crate) fn fire_timers(&self, engine: &Engine<H>, now: u64) -> bool {
        self.fire_as(engine, now, Firer::Worker(self))
    }

    /// As [`Pool::fire_timers`], for the watcher if the pool can get no worker: on a CPU of the
    /// pool, and without user code on the watcher's thread.
    pub(crate) fn fire_timers_as_watcher(&self, engine: &Engine<H>, now: u64) -> bool {
        self.fire_as(engine, now, Firer::Watcher(self))
    }

    fn fire_as(&self, engine: &Engine<H>, now: u64, firer: Firer<'_, H>) -> bool {
        let mut more = false;
        for base in self.timer_bases() {
            if base.open() <= now {
                more |= fire_slice(engine, base, now, firer);
            }
        }
        more
    }

    /// Whether a timer may expire in a wheel that no thread fires. No other thread need be awake for
    /// what is due in a wheel that a thread fires, until that thread has ended.
    pub(crate) fn has_unfired_timers(&self, now: u64) -> bool {
        self.timer_bases().into_iter().any(|base| base.is_due(now) && !base.is_firing())
    }

    /// As [`Pool::has_unfired_timers`], of the timers for which a thread must be awake.
    pub(crate) fn has_unfired_wakes(&self, now: u64) -> bool {
        self.waking_bases().any(|base| base.next(Ordering::SeqCst) <= now && !base.is_firing())
    }
}

/// What the thread that fires does next.
enum Next<H: Host> {
    /// Another batch.
    Batch,
    /// Give the right to fire back, do this, and go on.
    Aside(Aside<H>),
    /// Stop: the slice is used up, and more may be due.
    Later,
    /// Stop: nothing is due.
    Nothing,
}

/// What is done without the right to fire, because it may wait, wake or create a thread, or call user
/// code.
enum Aside<H: Host> {
    /// Make the pwq ready, whose readiness is claimed, and release its queue.
    Ready(Target<H>),
    /// Queue this item, which has left the wheel with its weak reference, and release its queue.
    Single(NonNull<Delayed<H>>, Option<Arc<Owner<H>>>),
    /// Release the last owner of a queue.
    Release(Owner<H>),
}

impl<H: Host> Aside<H> {
    fn run(self, engine: &Engine<H>, firer: Firer<'_, H>) {
        match self {
            Aside::Ready(target) => target.make_ready(firer),
            Aside::Single(item, owner) => {
                owner.into_iter().for_each(|owner| firer.release(owner));
                // SAFETY: an item that came off the wheel is live and ours, with its weak reference.
                unsafe {
                    let queue = Weak::from_raw(item.as_ref().node.queue().0);
                    expired(engine, item, queue, firer);
                }
            }
            Aside::Release(last) => firer.release_last(last),
        }
    }
}

fn fire_slice<H: Host>(
    engine: &Engine<H>,
    base: &TimerBase<H>,
    now: u64,
    firer: Firer<'_, H>,
) -> bool {
    let mut left = SLICE;
    loop {
        let Some(firing) = base.begin_firing() else { return false };
        let next = loop {
            match fire_batch(engine, base, now, firer, &mut left) {
                Next::Batch => {}
                next => break next,
            }
        };
        drop(firing);
        match next {
            Next::Batch | Next::Later => return true,
            Next::Nothing => return false,
            Next::Aside(aside) => aside.run(engine, firer),
        }
    }
}

/// Moves a batch of due timers from the wheel to the inbox of their pwq, under one hold of the
/// wheel's lock.
fn fire_batch<H: Host>(
    engine: &Engine<H>,
    base: &TimerBase<H>,
    now: u64,
    firer: Firer<'_, H>,
    left: &mut usize,
) -> Next<H> {
    if *left == 0 {
        publish_served(engine, base, &mut base.lock());
        return Next::Later;
    }
    let budget = STEPS.min(*left);
    let mut steps = budget;
    let here = firer.cpu().unwrap_or_else(|| engine.host().current_cpu());
    let mut timers = base.lock();
    let first = match timers.advance(now, &mut steps) {
        Advance::Due(first) => first,
        Advance::Later => {
            *left -= budget;
            return Next::Batch;
        }
        Advance::Nothing => {
            base.publish_served(&mut timers, 0, 0);
            return Next::Nothing;
        }
    };
    // SAFETY: the first item of the wheel, under its lock.
    match unsafe { Target::of(first, here) } {
        Ok(target) => {
            // SAFETY: as above; its target is this.
            unsafe { target.take(&mut timers, first, now, &mut steps) };
            *left -= budget - steps;
            let claimed = target.pwq().claim_ready();
            if claimed {
                publish_served(engine, base, &mut timers);
            }
            drop(timers);
            match claimed {
                true => Next::Aside(Aside::Ready(target)),
                false => target.release(),
            }
        }
        Err(owner) => {
            *left -= budget - steps.saturating_sub(1);
            // SAFETY: as above. The item is ours from here on.
            unsafe {
                timers.remove(first);
                base.publish_served(&mut timers, 0, 0);
                (*first).work().set_location(Location::Detached);
            }
            drop(timers);
            // SAFETY: an item of the wheel.
            Next::Aside(Aside::Single(unsafe { NonNull::new_unchecked(first) }, owner))
        }
    }
}

/// The calling thread gives the right to fire back for now, and running workers go on: no other
/// thread need be awake for what is due before `TIMER_SLACK_NS` have passed.
fn publish_served<H: Host>(engine: &Engine<H>, base: &TimerBase<H>, timers: &mut Timers<H>) {
    let at = engine.host().now();
    base.publish_served(timers, at, at.saturating_add(TIMER_SLACK_NS));
}

/// Where the items of a batch go.
struct Target<H: Host> {
    /// Keeps the queue, and so the pwq.
    owner: Arc<Owner<H>>,
    /// The CPU that the items name.
    named: Option<u32>,
    /// The CPU that they are queued on.
    cpu: u32,
    pwq: NonNull<Pwq<H>>,
}

impl<H: Host> Target<H> {
    /// The target of an item that can be queued without a call of user code: its queue exists and
    /// looks open, and no run of the item is in progress. An item that names no CPU is queued on
    /// `here`. An error is the queue's owner, which the caller releases without the wheel's lock.
    ///
    /// # Safety
    /// `item` is in a wheel, whose lock the caller holds.
    unsafe fn of(item: *mut Delayed<H>, here: u32) -> Result<Target<H>, Option<Arc<Owner<H>>>> {
        // SAFETY: by this function's contract. The node continues to own the weak reference.
        let (item, queue) = unsafe { (&*item, Weak::from_raw((*item).node.queue().0)) };
        let Some(owner) = ManuallyDrop::new(queue).upgrade() else { return Err(None) };
        let wq = owner.wq();
        if !wq.looks_open() || wq.still_runs(item.work()) {
            return Err(Some(owner));
        }
        // SAFETY: by this function's contract.
        let named = unsafe { item.node.cpu() };
        let cpu = named.unwrap_or(here);
        let pwq = NonNull::from(wq.route(cpu));
        Ok(Target { owner, named, cpu, pwq })
    }

    fn pwq(&self) -> &Pwq<H> {
        // SAFETY: the owner keeps the queue, which keeps its pwqs.
        unsafe { self.pwq.as_ref() }
    }

    /// Whether this is the target of that item too.
    ///
    /// # Safety
    /// As [`Target::of`].
    unsafe fn is_of(&self, item: *mut Delayed<H>) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            let node = &(*item).node;
            node.queue().0.cast_const() == Arc::as_ptr(&self.owner)
                && node.cpu() == self.named
                && !self.owner.wq().still_runs((*item).work())
        }
    }

    /// Moves due items with this target to the inbox, from `first` on, at most as many as there are
    /// steps.
    ///
    /// # Safety
    /// `first` is the wheel's first due item, and its target is this.
    unsafe fn take(
        &self,
        timers: &mut Timers<H>,
        first: *mut Delayed<H>,
        now: u64,
        steps: &mut usize,
    ) {
        let (wq, oldest) = (self.owner.wq(), first.cast::<Work>());
        let (mut item, mut newest) = (first, std::ptr::null_mut::<Work>());
        loop {
            *steps = steps.saturating_sub(1);
            // SAFETY: the item is in the wheel, whose lock is held; from here on it is ours.
            unsafe {
                prefetch_all((*item).node.next.get().0);
                timers.remove(item);
                // Not the last reference: the target holds an owner.
                drop(Weak::from_raw((*item).node.queue().0));
                wq.address((*item).work(), self.pwq(), self.cpu, false);
                Work::set_next(item.cast(), newest);
            }
            newest = item.cast();
            if *steps == 0 {
                break;
            }
            let Advance::Due(next) = timers.advance(now, steps) else { break };
            // SAFETY: the wheel's first item, under its lock.
            if !unsafe { self.is_of(next) } {
                break;
            }
            item = next;
        }
        // SAFETY: addressed and linked above, and ours.
        unsafe { wq.push_unready((newest, oldest), self.pwq()) };
    }

    /// Makes the pwq ready, which the caller has claimed.
    fn make_ready(self, firer: Firer<'_, H>) {
        self.owner.wq().make_claimed_ready(self.pwq(), self.cpu, false);
        firer.release(self.owner);
    }

    /// Another thread makes the pwq ready, or it is ready.
    fn release(self) -> Next<H> {
        // Usually not the last owner.
        Arc::into_inner(self.owner).map_or(Next::Batch, |last| Next::Aside(Aside::Release(last)))
    }
}

/// Queues an expired item, or releases it.
///
/// # Safety
/// The item has left its wheel, with this reference to its queue, and is the caller's.
pub(super) unsafe fn expired<H: Host>(
    engine: &Engine<H>,
    item: NonNull<Delayed<H>>,
    queue: Weak<Owner<H>>,
    firer: Firer<'_, H>,
) {
    // SAFETY: the item is the caller's.
    let work = unsafe { item.as_ref() }.work();
    let owned = work.word.owned();
    // Read it now: a refused item is idle from then on, before its holder is notified.
    let func = work.func();
    let outcome = match queue.upgrade() {
        // SAFETY: the item is ours, and live until its function was called.
        Some(owner) => unsafe {
            let cpu = item.as_ref().node.cpu().or(firer.cpu());
            let outcome = owner.wq().queue_owned(
                work_of(item),
                owned,
                cpu.map_or(Destination::Here, Destination::On),
            );
            firer.release(owner);
            outcome
        },
        None => {
            work.word.release(owned);
            Queued::Refused
        }
    };
    if outcome == Queued::Yes {
        return;
    }
    let item = work_of(item);
    if let Firer::Watcher(_) = firer {
        return release_on_own_thread(engine, item, func);
    }
    if let Firer::Worker(pool) = firer {
        // User code follows, and the caller checks no other timer before it returns. So settle first.
        pool.settle(engine);
    }
    // SAFETY: the item came off the wheel and is not queued again.
    engine.caller().run_as_in_an_item(None, || unsafe { let_go(engine, item, func) });
}

/// Releases an item that is not queued again, on a thread of its own if one can be created.
#[cold]
fn release_on_own_thread<H: Host>(engine: &Engine<H>, work: NonNull<Work>, func: ItemFn) {
    if func.is_foreign() {
        // Another language counts no holders.
        return;
    }
    let Some(me) = engine.me() else { return };
    let link = Link(work.as_ptr());
    let main = Box::new(move || {
        let link = link;
        if let Some(work) = NonNull::new(link.0) {
            // SAFETY: the item came off the wheel and is not queued again.
            me.caller().run_as_in_an_item(None, || unsafe { let_go(&me, work, func) });
        }
    });
    let spec = engine.service("uw/release", CpuSet::new());
    if engine.host().spawn(&spec, main).is_err() {
        // SAFETY: as above, and `main` was not called.
        engine.caller().run_as_in_an_item(None, || unsafe { let_go(engine, work, func) });
    }
}

/// Releases an item that is not queued again: notifies its holder. `func` is the item's
/// function. The item itself is not accessed here, because its holder may own it again already.
///
/// # Safety
/// The holder was not notified yet, and the item is in no list. The caller does not use it
/// afterwards.
pub(crate) unsafe fn let_go<H: Host>(engine: &Engine<H>, work: NonNull<Work>, func: ItemFn) {
    assert_nothing_held("an item's destructor");
    // SAFETY: by this function's contract.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { func.release(work) }));
    if let Err(payload) = outcome {
        engine.report_panic_of("(released)", payload);
    }
}
