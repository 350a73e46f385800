//! Work conservation: nothing waits in one place while workers elsewhere have nothing to do, and
//! nothing that was taken too early is lost.

use crate::engine::Engine;
use crate::host::Host;
use crate::pool::progress::Maker;
use crate::pool::{NEVER, Pool};
use crate::pwq::Pwq;
use crate::slot::{RemoteSlot, SetAside, Slot};
use crate::sync::Ordering;
use crate::watch::STUCK_NS;

impl<H: Host> Engine<H> {
    /// Gives a dead pwq back when the last hand lets go of it.
    pub(crate) fn unpin(&self, pwq: &Pwq<H>) {
        if pwq.unpin() {
            self.pwqs().release(pwq.id);
        }
    }

    /// Deals with what was set aside during a run that is over.
    #[cold]
    pub(crate) fn put_back(&self, mut aside: SetAside<H>) {
        aside.waiters.complete(self.host());
        loop {
            let item = aside.items.pop_back();
            if item.is_null() {
                return;
            }
            let mut one = crate::work::WorkList::new();
            // SAFETY: an item that came off a list that we hold; pending, so its pwq is there.
            let pwq = unsafe {
                one.push_back(item);
                self.pwqs().get((*item).ticket().pwq()).expect("a pending item has a pwq")
            };
            if pwq.give_back(one, pwq.is_ordered()) {
                self.make_ready(pwq);
            }
        }
    }

    /// Wakes a worker of the nearest pod that has one to spare.
    #[cold]
    pub(crate) fn kick_neighbour(&self, pool: &Pool<H>, maker: Maker) {
        for &id in &pool.spec().neighbours {
            let other = self.pool(id);
            let counts = other.state.counts();
            if counts.running < other.target() && other.state.begin_wake(other.target()) {
                self.bring_worker(other, maker);
                return;
            }
        }
    }

    /// Wakes an idle worker of the nearest pod that has one and may have it running.
    pub(crate) fn wake_idle_neighbour(&self, pool: &Pool<H>) {
        for &id in &pool.spec().neighbours {
            let other = self.pool(id);
            let idle = other.state.counts().idle > 0;
            if idle && other.state.begin_wake(other.target()) {
                if self.wake_idle(other) {
                    return;
                }
                other.give_up_wake().settle(self);
            }
        }
    }

    /// Wakes a worker of `pool`, in which nothing waits, if a neighbour has more to do than it can.
    #[cold]
    pub(crate) fn kick_for_neighbours(&self, pool: &Pool<H>) {
        if pool.spec().neighbours.iter().any(|&id| self.pool(id).is_overloaded()) {
            self.bring_helper(pool);
        }
    }

    /// Takes back what is lined up behind items of `pool` that have been running for long.
    pub(crate) fn take_back_stuck(&self, pool: &Pool<H>, now: u64) {
        if pool.lined_up.load(Ordering::Relaxed) == 0 {
            return;
        }
        let workers = pool.list_workers();
        for id in workers {
            let slot = self.slot(id);
            if slot.batch_began.load(Ordering::Relaxed).saturating_add(STUCK_NS) > now {
                continue;
            }
            self.end_line(slot);
            let _ = self.take_back(slot, |_| Some(()));
        }
    }

    /// Takes what is lined up behind the item that the owner of `slot` is in back in front of its pwq. `f` is
    /// called with the slot's lists first; `None` from it leaves everything as it is. Not for the owner itself.
    ///
    /// One step for whoever takes from the pwq, as it is done under the pwq's lock. Were the items in nobody's
    /// list for a moment, the owner could end its item meanwhile, let go of the pwq and take what comes behind
    /// them: an ordered queue would run it first.
    pub(crate) fn take_back<R>(
        &self,
        slot: &Slot<H>,
        mut f: impl FnMut(&mut RemoteSlot<'_, H>) -> Option<R>,
    ) -> Option<R> {
        // The pwq's lock comes before the slot's, under which it is seen whether it is the right pwq.
        let mut guess = slot.batch.get().0;
        loop {
            let pwq = guess.and_then(|pwq| self.pwqs().get(pwq));
            let mut inner = pwq.map(Pwq::lock);
            let mut remote = slot.lock_remote(self.host());
            let lined_up = remote.pwq();
            if lined_up.is_some() && lined_up != guess {
                guess = lined_up;
                continue;
            }
            let answer = f(&mut remote)?;
            let ready = match (pwq, &mut inner) {
                (Some(pwq), Some(inner)) if lined_up.is_some() => {
                    pwq.give_back_under(inner, remote.take_scheduled()).then_some(pwq)
                }
                _ => None,
            };
            drop(remote);
            drop(inner);
            if let Some(pwq) = ready {
                self.make_ready(pwq);
            }
            return Some(answer);
        }
    }

    /// What was lined up behind the item that a worker is in was taken, or is going to be by the caller:
    /// the watch need not look after it any more.
    pub(crate) fn end_line(&self, slot: &Slot<H>) {
        let began = slot.batch_began.load(Ordering::Acquire);
        if began == NEVER {
            return;
        }
        // Acquire: the exchange comes after. If the batch is still on, the worker has not left its pool since.
        let home = slot.home.load(Ordering::Acquire);
        let ours =
            slot.batch_began.compare_exchange(began, NEVER, Ordering::AcqRel, Ordering::Relaxed);
        if ours.is_ok() {
            self.pool(home).lined_up.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Puts items that are in nobody's list back in front of their pwq, all of them of one.
    pub(crate) fn give_back(&self, items: crate::work::WorkList) {
        // SAFETY: the first item, if any, is in a list that we hold.
        let Some(first) = (unsafe { items.front().as_ref() }) else { return };
        let pwq = self.pwqs().get(first.ticket().pwq()).expect("a pending item has a pwq");
        if pwq.give_back(items, false) {
            self.make_ready(pwq);
        }
    }
}
