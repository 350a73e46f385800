//! Work conservation: no item waits in one place while workers elsewhere are idle, and no item that
//! was taken into a batch too early is delayed by it.

use uwork_policy::batch::BATCH_OVERDUE_NS;
use uwork_policy::concurrency::{need_more_workers, wake_neighbour};

use crate::engine::Engine;
use crate::pool::progress::Maker;
use crate::pool::room::{Claim, Found, Pools};
use crate::pool::{CalledBy, Pool, WideSet};
use crate::queue::pwq::Pwq;
use crate::slot::{AtRunEnd, RemoteSlot, Slot};
use crate::words::host::Host;
use crate::words::sync::Ordering;

/// Searches for a neighbour with room. After the last one the watcher helps.
const SEARCHES: u32 = 2;
/// How many workers' slots are copied under the pool's lock at once.
const WORKERS_AT_ONCE: usize = 16;

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
            let actual = remote.pwq();
            if actual.is_some() && actual != guess {
                guess = actual;
                continue;
            }
            let answer = f(&mut remote)?;
            let ready = match (pwq, &mut inner) {
                (Some(pwq), Some(inner)) if actual.is_some() => {
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

/// The pools of a set.
struct Distant<'e, H: Host> {
    engine: &'e Engine<H>,
    set: &'e WideSet,
}

impl<'e, H: Host> Distant<'e, H> {
    fn at(&self, at: usize) -> &'e Pool<H> {
        self.engine.pool(self.set.pools[at])
    }
}

impl<H: Host> Pools for Distant<'_, H> {
    fn claim(&self, at: usize) -> Option<Claim> {
        self.at(at).claim()
    }

    fn has_room(&self, at: usize) -> bool {
        self.at(at).has_room()
    }

    fn call(&self, at: usize, called_by: CalledBy) {
        self.at(at).comes_to_help.mark(called_by);
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
    /// Wakes a worker of the nearest pool that runs fewer workers than its target.
    ///
    /// If a worker is on its way up in each such pool, it may find items of its own pool. Then a call
    /// makes it pass the wake on. The call is made before the counters are read once more
    /// ([`ComingHelp`](super::ComingHelp)).
    #[cold]
    pub(crate) fn wake_neighbour_worker(&self, engine: &Engine<H>, maker: Maker) {
        for _ in 0..SEARCHES {
            if self.call_neighbour(engine, maker) {
                return;
            }
        }
    }

    /// One search. False if the worker that was called had arrived before.
    fn call_neighbour(&self, engine: &Engine<H>, maker: Maker) -> bool {
        let called_by = CalledBy::Pool(self.id);
        let near = self.find_near(engine);
        let found = match near {
            Some((_, Claim::Claimed)) => near,
            _ => {
                let distant = self.find_distant(engine);
                distant.filter(|far| near.is_none() || far.1 == Claim::Claimed).or(near)
            }
        };
        let Some((other, claim)) = found else { return true };
        other.comes_to_help.mark(called_by);
        if claim == Claim::Claimed || other.state.begin_wake(other.target_for_neighbours()) {
            other.bring_worker(engine, maker);
            return true;
        }
        other.state.counts().waking
    }

    /// The first of the nearest pools whose wake can be claimed, or else the first one with a worker
    /// on its way up.
    fn find_near<'e>(&self, engine: &'e Engine<H>) -> Option<(&'e Pool<H>, Claim)> {
        let mut comes = None;
        for other in self.spec().near().map(|id| engine.pool(id)) {
            match other.claim() {
                Some(Claim::Claimed) => return Some((other, Claim::Claimed)),
                claim => comes = comes.or(claim.map(|claim| (other, claim))),
            }
        }
        comes
    }

    /// The same, of the pools whose bit says that they may have room.
    fn find_distant<'e>(&'e self, engine: &'e Engine<H>) -> Option<(&'e Pool<H>, Claim)> {
        let set = self.spec().wide.as_ref()?;
        let pools = Distant { engine, set };
        match set.room.find(set.at, &pools) {
            Found::Claimed(at) => Some((pools.at(at), Claim::Claimed)),
            Found::Comes(at) => Some((pools.at(at), Claim::Comes)),
            Found::None => None,
        }
    }

    /// Claims the wake of this pool for a neighbour's items; `None` if as many workers run as its target
    /// asks for.
    #[track_caller]
    fn claim(&self) -> Option<Claim> {
        let target = self.target_for_neighbours();
        match self.state.begin_wake(target) {
            true => Some(Claim::Claimed),
            false => (self.state.counts().running < target).then_some(Claim::Comes),
        }
    }

    /// Whether fewer workers run than the target asks for, and none is on its way up. A displaced pool
    /// never has room.
    #[track_caller]
    pub(super) fn has_room(&self) -> bool {
        need_more_workers(self.state.counts(), self.target_for_neighbours())
    }

    /// Notes for the pools of the set that this one may have room. Called after each change that can
    /// make room: fewer workers run, a wake ends, or the target changes.
    #[track_caller]
    pub(crate) fn note_room(&self) {
        if let Some(set) = self.spec.get().and_then(|spec| spec.wide.as_ref())
            && self.has_room()
        {
            set.room.set(set.at);
        }
    }

    /// Wakes an idle worker of the nearest pool that has one and runs fewer workers than its target.
    pub(crate) fn wake_idle_neighbour(&self, engine: &Engine<H>) {
        for &id in &self.spec().neighbours {
            if engine.pool(id).wake_any_idle(engine, CalledBy::Pool(self.id)) {
                return;
            }
        }
    }

    /// Wakes a parked worker of this pool, if one is parked and fewer run than the target. Returns
    /// whether one was woken.
    fn wake_any_idle(&self, engine: &Engine<H>, called_by: CalledBy) -> bool {
        let counts = self.state.counts();
        if counts.idle == 0 || self.is_displaced() {
            return false;
        }
        if !self.state.begin_wake(self.target_for_neighbours()) {
            // A worker on its way up may find items of its own pool. See `wake_neighbour_worker`.
            if !counts.waking {
                return false;
            }
            self.comes_to_help.mark(called_by);
            if !self.state.begin_wake(self.target_for_neighbours()) {
                return false;
            }
        }
        self.comes_to_help.mark(called_by);
        let woken = self.wake_idle(engine);
        if !woken {
            self.give_up_wake().settle_for_neighbour(engine);
        }
        woken
    }

    /// Called by a worker that has just joined the idle stack: wakes a parked worker again if a
    /// neighbour is overloaded.
    ///
    /// The caller changed this pool's counters first and reads the neighbours' lists second. A
    /// submitter pushes to a neighbour's list first and reads these counters second. All four
    /// accesses are SeqCst, so at least one side sees the other.
    pub(crate) fn wake_for_neighbours(&self, engine: &Engine<H>) {
        if self.is_displaced() {
            return;
        }
        if let Some(id) = self.overloaded_neighbour(engine) {
            self.wake_any_idle(engine, CalledBy::Pool(id));
        }
    }

    /// The nearest neighbour that has work which workers of this pool may take.
    pub(crate) fn overloaded_neighbour(&self, engine: &Engine<H>) -> Option<u32> {
        let spec = self.spec();
        let mut others = spec.near().chain(spec.beyond_near());
        others.find(|&id| engine.pool(id).is_overloaded())
    }

    /// Called by a worker of this pool that was woken to take work from a neighbour, and has found
    /// work of `from`: wakes a worker for the neighbour that it was woken for, if that is another one,
    /// is overloaded, and has long items.
    ///
    /// ```text
    /// submitter to pool A, busy             submitter to pool B       worker of B
    /// claims B's wake for A's item                                    is on its way up
    ///                                       enqueues an item
    ///                                       B is WAKING: no wake
    ///                                                                 takes B's item
    /// ```
    ///
    /// Without this step A's item would wait although other CPUs idle.
    #[cold]
    pub(crate) fn pass_on_help(&self, engine: &Engine<H>, called_by: CalledBy, from: &Pool<H>) {
        let pass_on = |&id: &u32| {
            let other = engine.pool(id);
            if id != from.id && other.is_overloaded() && wake_neighbour(1, other.estimate()) {
                other.wake_neighbour_worker(engine, Maker::Caller);
            }
        };
        match called_by {
            CalledBy::Own => {}
            CalledBy::Pool(id) => pass_on(&id),
            CalledBy::Any => self.spec().neighbours.iter().for_each(pass_on),
        }
    }

    /// Wakes a worker of this pool, in which no item waits, if a neighbour is overloaded.
    #[cold]
    pub(crate) fn kick_for_neighbours(&self, engine: &Engine<H>) {
        if let Some(id) = self.overloaded_neighbour(engine) {
            self.bring_helper(engine, CalledBy::Pool(id));
        }
    }

    /// Takes back the overdue batches of this pool's workers. Returns whether there were any.
    pub(crate) fn take_back_overdue(&self, engine: &Engine<H>, now: u64) -> bool {
        if self.scheduled_batches.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // Workers call this between items, so nothing is allocated. A worker that one call misses
        // is found by the next.
        let mut any = false;
        let mut buffer = [0; WORKERS_AT_ONCE];
        let mut first = 0;
        loop {
            let workers = self.copy_workers(first, &mut buffer);
            for slot in workers.iter().map(|&id| engine.slot(id)) {
                if slot.batch_began().saturating_add(BATCH_OVERDUE_NS) <= now {
                    slot.end_batch_hint(engine);
                    any |= slot.take_back(engine, |_| Some(())).is_some();
                }
            }
            if workers.len() < WORKERS_AT_ONCE {
                return any;
            }
            first += WORKERS_AT_ONCE;
        }
    }

    /// Called by a worker of this pool that has nothing to do: takes back the overdue batches of this
    /// pool and of its nearest neighbours. Returns whether there were any. The watcher takes back
    /// those of all pools.
    pub(crate) fn take_back_for_caller(&self, engine: &Engine<H>, now: u64) -> bool {
        if !self.others_may_help() {
            return false;
        }
        let near = self.spec().near().map(|id| engine.pool(id));
        std::iter::once(self).chain(near).any(|pool| pool.take_back_overdue(engine, now))
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
        let mut one = crate::words::item::WorkList::new();
        // SAFETY: an item that came off a list that we hold. It is pending, so its pwq exists.
        let pwq = unsafe {
            one.push_back(item);
            engine.pwqs.get((*item).ticket().pwq()).expect("a pending item has a pwq")
        };
        if pwq.give_back(engine.host(), one, pwq.is_ordered()) {
            pwq.make_ready(engine);
        }
    }
}

/// Puts detached items, all of one pwq, back in front of it.
pub(crate) fn give_back<H: Host>(engine: &Engine<H>, items: crate::words::item::WorkList) {
    // SAFETY: the first item, if any, is in a list that we hold.
    let Some(first) = (unsafe { items.front().as_ref() }) else { return };
    let pwq = engine.pwqs.get(first.ticket().pwq()).expect("a pending item has a pwq");
    if pwq.give_back(engine.host(), items, false) {
        pwq.make_ready(engine);
    }
}
