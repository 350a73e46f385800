//! Taking a batch out of a pwq, and giving it back.

use uwork_policy::batch::{RunEstimate, batch_size};

use super::{Inner, Pwq, SATURATED};
use crate::account::{COUNTED, EndedBatch, QueueAccount};
use crate::slot::Slot;
use crate::words::host::{Host, ItemPoint, ItemProbe};
use crate::words::inbox::Node;
use crate::words::item::{Location, Work, WorkList, prefetch_beyond};
use crate::words::slab::Slab;
use crate::words::sync::Ordering;
use crate::words::wake::Waiters;

/// The result of an attempt to take a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// `count` items are scheduled in the slot; `left` more wait, which other workers may take at
    /// once.
    Some {
        /// Items taken.
        count: u32,
        /// Items left.
        left: usize,
        /// Whether another worker may take some of those now.
        more: bool,
        /// How long its items take.
        estimate: RunEstimate,
        /// How long the first item has waited, if that is known.
        waited_ns: Option<u64>,
    },
    /// Nothing is queued, or as many workers hold the pwq as its limit permits.
    Nothing,
}

/// Which part of the waiting items a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// A single item: no item is scheduled behind another.
    One,
    /// As many as the policy allows.
    Fair {
        /// Workers of the caller's pool that may take from the same items.
        sharers: u32,
        /// Whether any other worker, also of another pool, may take what the caller leaves.
        others_may_help: bool,
    },
}

impl<H: Host> Inner<H> {
    /// How long the first item of the worklist has waited at `now`, if that is known. The inbox was
    /// moved to the list.
    #[inline]
    fn waited_ns(&mut self, now: u64) -> Option<u64> {
        if !COUNTED {
            return None;
        }
        self.arrivals.looked(self.spliced, now);
        let first = self.spliced.saturating_sub(self.queued as u64);
        Some(now.saturating_sub(self.arrivals.queued_at(first)?))
    }
}

impl<H: Host> Pwq<H> {
    /// Takes a batch at `now` into `slot`, which the caller owns. The pwq is pinned.
    ///
    /// `brings_from`: the CPU of a worker of another pool, which brings the permit that its own pwq
    /// keeps. `ready` is called, without locks held, for each pwq that must be put on a ready list
    /// because a permit was given back.
    pub(crate) fn take(
        &self,
        (host, now): (&H, u64),
        (slots, slot): (&Slab<Slot<H>>, (u32, &Slot<H>)),
        share: Share,
        brings_from: Option<u32>,
        ready: &mut impl FnMut(&Pwq<H>),
    ) -> Taken {
        let mut inner = self.lock();
        self.splice(&mut inner);
        if inner.worklist.is_empty() {
            self.return_granted(host, inner, ready);
            return Taken::Nothing;
        }
        let lender = self.lender(&inner, brings_from);
        if !self.take_permit(&mut inner, lender) {
            return Taken::Nothing;
        }
        self.note_helped(false);
        let estimate = inner.run_times.estimate();
        let wanted = match share {
            Share::One => 1,
            Share::Fair { sharers, others_may_help } => {
                let permitted = inner.sharers();
                let others = others_may_help && permitted > 1;
                batch_size(inner.queued, sharers.min(permitted), others, estimate)
            }
        };
        let waited_ns = inner.waited_ns(now);
        let (batch, count) = self.cut_batch(host, slots, &mut inner, slot.0, wanted);
        if count == 0 {
            if self.is_ordered() {
                // The first item was deferred, and those behind it must stay there. The deferred
                // item keeps the queue's only permit until it is put back: the pwq is plugged.
                self.state.fetch_or(SATURATED, Ordering::SeqCst);
            } else {
                debug_assert!(inner.worklist.is_empty(), "all items were deferred");
                if self.let_go(host, inner, lender, ready) {
                    ready(self);
                } else {
                    // The deferred items may be cancelled, and then never return to use the grants.
                    self.return_granted(host, self.lock(), ready);
                }
            }
            return Taken::Nothing;
        }
        inner.started += u64::from(count);
        slot.1.with_scheduled(host, |scheduled| scheduled.append(batch));
        let left = inner.queued;
        let more = self.look_ahead(&mut inner);
        if left == 0 {
            self.return_granted(host, inner, ready);
        }
        Taken::Some { count, left, more, estimate, waited_ns }
    }

    /// Cuts up to `wanted` items off the front of the worklist. Defers items that still run in
    /// another slot: a pending item never runs beside its own running instance, so it waits for the
    /// end of that run in the deferred list of the slot.
    ///
    /// Only items marked as a collision are checked, because the check locks the other slot.
    ///
    /// In an ordered queue a deferred item plugs the pwq: it keeps the queue's only permit, so that
    /// no item behind it starts. A batch needs that permit too, so the batch ends before such an
    /// item. If the item is the first, the batch is empty, and the caller plugs the pwq.
    ///
    /// Other queues skip the deferred item and go on. The result is still a prefix of the worklist:
    /// `defer` unlinks the item at once, so every item before `last` is part of the batch.
    fn cut_batch(
        &self,
        host: &H,
        slots: &Slab<Slot<H>>,
        inner: &mut Inner<H>,
        slot: u32,
        wanted: u32,
    ) -> (WorkList, u32) {
        let (mut count, mut last) = (0, std::ptr::null_mut());
        let mut item = inner.worklist.front();
        while count < wanted && !item.is_null() {
            // SAFETY: the items of our worklist are live and ours while we hold the lock.
            let (work, next) = unsafe { (&*item, <Work as Node>::next(item)) };
            prefetch_beyond(item, next);
            if work.ticket().collision() {
                if self.is_ordered() && count > 0 {
                    break;
                }
                // SAFETY: `item` is in our worklist.
                if unsafe { defer_if_running(host, slots, inner, item) } {
                    if self.is_ordered() {
                        break;
                    }
                    item = next;
                    continue;
                }
            }
            work.set_location(Location::Scheduled(slot));
            host.probe_item(ItemPoint::Activated, || ItemProbe::of(work));
            last = item;
            count += 1;
            item = next;
        }
        if count == 0 {
            return (WorkList::new(), 0);
        }
        // SAFETY: `last` is in the worklist.
        let batch = unsafe { inner.worklist.split_front(last) };
        inner.queued -= count as usize;
        (batch, count)
    }

    /// Releases the worker's permit after its batch; `brings_from` as in [`Pwq::take`]. Returns true if
    /// the pwq has become ready and the caller must put it on a ready list. Other pwqs that became
    /// ready are passed to `ready`, without locks held.
    #[must_use]
    pub(crate) fn release(
        &self,
        host: &H,
        batch: EndedBatch,
        brings_from: Option<u32>,
        ready: &mut impl FnMut(&Pwq<H>),
    ) -> bool {
        // Nothing is allocated or freed under the lock. A second worker that allocates meanwhile
        // frees what it has when this function returns.
        let mut new = Vec::new();
        if COUNTED && self.has_account.get() == 0 && host.grants_memory() {
            new = QueueAccount::allocate();
        }
        let mut inner = self.lock();
        inner.run_times.add(batch.took_ns, batch.ran);
        if inner.account.is_empty() && !new.is_empty() {
            std::mem::swap(&mut inner.account, &mut new);
            self.has_account.set(1);
        }
        inner.account.iter_mut().for_each(|account| account.add(batch));
        let lender = self.lender(&inner, brings_from);
        self.let_go(host, inner, lender, ready)
    }

    /// Puts items that were taken back in front. With `unplug`, also gives up the permit that an
    /// ordered queue's deferred item holds. Returns true if the pwq has become ready and the caller
    /// must put it on a ready list.
    pub(crate) fn give_back(&self, host: &H, items: WorkList, unplug: bool) -> bool {
        let mut inner = self.lock();
        if !unplug {
            return self.give_back_under(&mut inner, items);
        }
        put_in_front(&mut inner, items);
        let mut pausers = Waiters::new();
        let ready = self.unplug(&mut inner, &mut pausers);
        drop(inner);
        pausers.complete(host);
        ready
    }

    /// As [`Pwq::give_back`], with the lock already held.
    pub(crate) fn give_back_under(&self, inner: &mut Inner<H>, items: WorkList) -> bool {
        put_in_front(inner, items);
        !inner.worklist.is_empty() && self.may_have_room(inner) && self.claim_ready()
    }

    /// An ordered queue's item is no longer deferred: gives up its permit. Returns true if the pwq
    /// has become ready and the caller must put it on a ready list. Adds the threads that must be
    /// woken to `woken`.
    pub(crate) fn unplug(&self, inner: &mut Inner<H>, woken: &mut Waiters<H>) -> bool {
        inner.nr_active -= 1;
        woken.append(inner.take_pausers());
        inner.nr_active < inner.max_active && self.unsaturate(inner)
    }
}

/// Puts detached items in front of those that wait.
fn put_in_front<H: Host>(inner: &mut Inner<H>, items: WorkList) {
    let mut item = items.front();
    while !item.is_null() {
        inner.queued += 1;
        // SAFETY: the items of a list that we hold.
        unsafe {
            (*item).set_location(Location::Worklist);
            item = <Work as Node>::next(item);
        }
    }
    inner.worklist.prepend(items);
}

/// Defers an item that is still running to the end of that run. Returns false if it no longer runs.
///
/// # Safety
/// `item` is in the worklist of `inner`.
unsafe fn defer_if_running<H: Host>(
    host: &H,
    slots: &Slab<Slot<H>>,
    inner: &mut Inner<H>,
    item: *mut Work,
) -> bool {
    // SAFETY: live, as it is in the worklist.
    let Some(run) = unsafe { (*item).word.owned() }.last_run() else { return false };
    let Some(slot) = slots.get(run.slot) else { return false };
    if !slot.is_running(run.run) {
        return false;
    }
    // SAFETY: by this function's contract. A thread that searches for the item needs the pwq lock,
    // which we hold while the item changes lists.
    unsafe {
        slot.lock_remote(host).defer(run.run, run.slot, item, || {
            inner.worklist.remove(item);
            inner.queued -= 1;
        })
    }
}
