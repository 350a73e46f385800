//! Work of neighbouring pools: a worker that has none of its own takes it, and brings up others.

use uwork_policy::batch::RunEstimate;
use uwork_policy::concurrency::{STEAL_CHOICE, may_steal_unprompted, spills};

use super::{Worker, YIELDS_BEFORE_PARK};
use crate::pool::progress::Maker;
use crate::pool::{CalledBy, Pool};
use crate::queue::pwq::Pwq;
use crate::words::host::Host;

impl<H: Host> Worker<H> {
    /// A pinned pwq with work, and the pool that it comes from: the worker's own pool, or an
    /// overloaded neighbour.
    pub(super) fn find_pwq(&self, now: u64) -> Option<(&Pwq<H>, &Pool<H>)> {
        let pool = self.pool();
        if pool.looks_ready()
            && let Some(pwq) = pool.pop_ready(&mut pool.lock())
        {
            return Some((pwq, pool));
        }
        // One that was woken for a neighbour's items looks there first.
        if let CalledBy::Pool(id) = self.called_by.get()
            && let Some(found) = self.steal(std::iter::once(id), now)
        {
            return Some(found);
        }
        // A claimed wake for a neighbour's items is used for them, even if the pool is displaced since.
        if self.called_by.get() == CalledBy::Own && pool.is_displaced() {
            return None;
        }
        // Before its yield a worker looks at the nearest only: after it, and before it parks, it looks
        // at all. One that was woken for any neighbour's items looks at all at once.
        let spec = pool.spec();
        if self.called_by.get() == CalledBy::Any {
            let mut some = spec.neighbours.chunks(STEAL_CHOICE);
            return some.find_map(|some| self.steal(some.iter().copied(), now));
        }
        let found = self.steal(spec.near(), now);
        if found.is_some() || self.yields.get() != YIELDS_BEFORE_PARK {
            return found;
        }
        let (mut some, mut others) = ([0; STEAL_CHOICE], spec.beyond_near().peekable());
        while others.peek().is_some() {
            let count = some.iter_mut().zip(&mut others).map(|(id, other)| *id = other).count();
            if let Some(found) = self.steal(some[..count].iter().copied(), now) {
                return Some(found);
            }
        }
        None
    }

    /// A pinned pwq of one of these pools that is overloaded: of the one whose workers took no batch
    /// for the longest time, because its items wait longest.
    ///
    /// Unless this worker was woken for a neighbour's items, a pool whose workers keep taking batches
    /// of short items is left alone. That delays nothing for good: if a neighbour is overloaded when a
    /// worker parks, the worker wakes one of its pool, usually itself, for the neighbour's items.
    fn steal(
        &self,
        pools: impl Iterator<Item = u32> + Clone,
        now: u64,
    ) -> Option<(&Pwq<H>, &Pool<H>)> {
        let may_take_from = |pool: &Pool<H>| {
            let since = now.saturating_sub(pool.last_batch_at());
            self.called_by.get() != CalledBy::Own || may_steal_unprompted(since, pool.estimate())
        };
        let overloaded = || {
            let pools = pools.clone().map(|id| self.engine.pool(id));
            pools.filter(|pool| pool.is_overloaded() && may_take_from(pool))
        };
        let oldest = overloaded().min_by_key(|pool| pool.last_batch_at())?;
        // Another worker may be faster: then any of the others will do.
        std::iter::once(oldest).chain(overloaded()).find_map(|other| {
            let pwq = other.pop_ready(&mut other.lock())?;
            Some((pwq, other))
        })
    }

    /// This worker took a batch from `from`, a neighbour. If it blocks in it, a standby must see that.
    pub(super) fn note_steal(&self, from: &Pool<H>, now: u64) {
        let (pool, engine) = (self.pool(), &*self.engine);
        pool.note_steal(now);
        let expects = pool.blocking.expects_any() || from.blocking.expects_any();
        if expects && from.looks_ready() {
            engine.standbys.call_own(engine, pool);
        }
    }

    /// Queues what is due in the nearest pools of its pod: a worker of theirs may not come up for long,
    /// and none does for deferrable timers. Of each at most a slice, as of saving pools. Returns whether
    /// something was due.
    pub(super) fn fire_timers_beside(&self, now: u64) -> bool {
        let mut any = false;
        let beside = self.pool().spec().near_beside().map(|id| self.engine.pool(id));
        for pool in beside {
            if pool.has_unfired_timers(now) && !pool.state.is_retired() {
                // Whether more is due is of no interest: the worker comes again.
                pool.fire_timers(&self.engine, now);
                pool.settle(&self.engine);
                any = true;
            }
        }
        any
    }

    /// Shares the rest of the work in `from`, of which this worker has just taken a part. With
    /// `settle_source`, `from` is another pool than its own.
    pub(super) fn share(
        &self,
        from: &Pool<H>,
        settle_source: bool,
        left: u64,
        estimate: RunEstimate,
    ) {
        if settle_source {
            // The rest was enqueued while this worker was on its way up. Submitters relied on its
            // arrival, so it settles `from` for them.
            from.settle(&self.engine);
            // More work is left to steal, and the other workers of this pool have none.
            self.pool().bring_helper(&self.engine, CalledBy::Pool(from.id));
        }
        if spills(from.state.counts(), from.target(), left, estimate) {
            from.wake_neighbour_worker(&self.engine, Maker::Caller);
        }
    }
}
