//! Work conservation: no item waits in one place while workers elsewhere are idle, and no item that
//! was taken into a batch too early is delayed by it.

use crate::engine::Engine;
use crate::host::Host;
use crate::pool::Pool;
use crate::pool::progress::Maker;
use crate::queue::pwq::Pwq;
use crate::slot::{AtRunEnd, RemoteSlot, Slot};
use crate::sync::Ordering;
use crate::watch::STUCK_NS;

impl<H: Host> Slot<H> {
    /// Moves the items scheduled behind the present item of the owner back in front of
    /// their pwq. `f` is called with the slot's lists first; if it returns `None`, nothing is
    /// moved. Not for the owner itself.
    ///
    /// The move is atomic for threads that take from the pwq, since it happens under the pwq's
    /// lock. Suppose that the items were in no list for a moment. Then the owner could end its
    /// item, release the pwq and take the items that follow: an ordered queue would run those
    /// first.
    pub(crate) fn take_back<R>(
        &self,
        engine: &Engine<H>,
        mut f: impl FnMut(&mut RemoteSlot<'_, H>) -> Option<R>,
    ) -> Option<R> {
        // The pwq's lock must be taken before the slot's, but only the slot's lock shows which pwq
        // it is. So guess, lock both, check, and retry with the right pwq.
        let mut guess = self.batch.get().0;
        loop {
            let pwq = guess.and_then(|pwq| engine.pwqs.get(pwq));
            let mut inner = pwq.map(Pwq::lock);
            let mut remote = self.lock_remote(engine.host());
            let scheduled_batches = remote.pwq();
            if scheduled_batches.is_some() && scheduled_batches != guess {
                guess = scheduled_batches;
                continue;
            }
            let answer = f(&mut remote)?;
            let ready = match (pwq, &mut inner) {
                (Some(pwq), Some(inner)) if scheduled_batches.is_some() => {
                    pwq.give_back_under(inner, remote.take_scheduled()).then_some(pwq)
                }
                _ => None,
            };
            drop(remote);
            drop(inner);
            if let Some(pwq) = ready {
                pwq.make_ready(engine);
            }
            return Some(answer);
        }
    }

    /// Ends the watcher's interest in the batch behind a worker's item: its tail was taken, or the
    /// caller is about to take it.
    pub(crate) fn end_batch_hint(&self, engine: &Engine<H>) {
        if let Some(home) = self.end_batch() {
            engine.pool(home).remove_scheduled_batch();
        }
    }
}

impl<H: Host> Pwq<H> {
    /// Releases a pin. The last one to go gives a dead pwq back to the slab.
    pub(crate) fn release_pin(&self, engine: &Engine<H>) {
        if self.unpin() {
            engine.pwqs.release(self.id);
        }
    }
}

impl<H: Host> Pool<H> {
    /// Wakes a worker of the nearest pod whose pool runs fewer workers than its target.
    #[cold]
    pub(crate) fn wake_neighbour_worker(&self, engine: &Engine<H>, maker: Maker) {
        for &id in &self.spec().neighbours {
            let other = engine.pool(id);
            let counts = other.state.counts();
            if counts.running < other.target() && other.state.begin_wake(other.target()) {
                other.bring_worker(engine, maker);
                return;
            }
        }
    }

    /// Wakes an idle worker of the nearest pod that has one and runs fewer workers than its target.
    pub(crate) fn wake_idle_neighbour(&self, engine: &Engine<H>) {
        for &id in &self.spec().neighbours {
            let other = engine.pool(id);
            let idle = other.state.counts().idle > 0;
            if idle && other.state.begin_wake(other.target()) {
                if other.wake_idle(engine) {
                    return;
                }
                other.give_up_wake().settle_for_neighbour(engine);
            }
        }
    }

    /// Wakes a worker of this pool, in which no item waits, if a neighbour is overloaded.
    #[cold]
    pub(crate) fn kick_for_neighbours(&self, engine: &Engine<H>) {
        if self.spec().neighbours.iter().any(|&id| engine.pool(id).is_overloaded()) {
            self.bring_helper(engine);
        }
    }

    /// Takes back the batches behind items of this pool that have been running for long.
    pub(crate) fn take_back_stuck(&self, engine: &Engine<H>, now: u64) {
        if self.scheduled_batches.load(Ordering::Relaxed) == 0 {
            return;
        }
        let workers = self.list_workers();
        for id in workers {
            let slot = engine.slot(id);
            if slot.batch_began().saturating_add(STUCK_NS) > now {
                continue;
            }
            slot.end_batch_hint(engine);
            let _ = slot.take_back(engine, |_| Some(()));
        }
    }
}

/// Handles what was deferred to the end of a run: wakes its waiters and puts its items back.
#[cold]
pub(crate) fn put_back<H: Host>(engine: &Engine<H>, mut aside: AtRunEnd<H>) {
    aside.waiters.complete(engine.host());
    loop {
        let item = aside.items.pop_back();
        if item.is_null() {
            return;
        }
        let mut one = crate::item::WorkList::new();
        // SAFETY: an item that came off a list that we hold. It is pending, so its pwq exists.
        let pwq = unsafe {
            one.push_back(item);
            engine.pwqs.get((*item).ticket().pwq()).expect("a pending item has a pwq")
        };
        if pwq.give_back(one, pwq.is_ordered()) {
            pwq.make_ready(engine);
        }
    }
}

/// Puts detached items, all of one pwq, back in front of it.
pub(crate) fn give_back<H: Host>(engine: &Engine<H>, items: crate::item::WorkList) {
    // SAFETY: the first item, if any, is in a list that we hold.
    let Some(first) = (unsafe { items.front().as_ref() }) else { return };
    let pwq = engine.pwqs.get(first.ticket().pwq()).expect("a pending item has a pwq");
    if pwq.give_back(items, false) {
        pwq.make_ready(engine);
    }
}
