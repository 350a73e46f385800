//! Bringing a worker up, for a wake that the caller has claimed: an idle one, one that a neighbour can spare, or
//! a new one.

use uwork_policy::progress::is_stranded;

use super::Pool;
use super::progress::Maker;
use crate::engine::Engine;
use crate::host::{Host, Report, WorkerSpec};
use crate::queue::QueueError;
use crate::sync::{Link, Ordering};
use crate::watch::COOL_DOWN_NS;
use crate::word::SLOTS_MAX;
use crate::worker::Worker;

/// Why no worker can be made.
enum NoWorker {
    /// The pool has as many as it may have.
    Full,
    /// One could not be made a moment ago.
    CoolsDown,
    /// The system refuses.
    Refused(String),
}

impl<H: Host> Engine<H> {
    /// Uses up the claim of the caller. False if no worker can come: then the claim is given up, rescuers are
    /// called, and the watch tries again.
    #[cold]
    pub(crate) fn bring_worker(&self, pool: &Pool<H>, maker: Maker) -> bool {
        loop {
            if self.wake_idle(pool) || self.transfer_worker(pool) {
                return true;
            }
            if maker == Maker::Watch && pool.state.counts().workers > 0 && self.leave_to_watch(pool)
            {
                return true;
            }
            let Err(reason) = self.make_worker(pool) else { return true };
            pool.state.abort_wake();
            // While the claim stood, others left the waking to the caller: a worker may have parked, or the cap may
            // have risen. A thread that does so from here on sees what is ready by itself.
            let counts = pool.state.counts();
            let has_room = matches!(reason, NoWorker::Full) && !self.is_full(pool);
            let again = (counts.idle > 0 || has_room)
                && is_stranded(counts, pool.target(), pool.looks_ready());
            if !again || !pool.state.begin_wake(pool.target()) {
                self.note_no_worker(pool, reason);
                return false;
            }
        }
    }

    /// Wakes an idle worker. The caller has claimed the wake.
    pub(crate) fn wake_idle(&self, pool: &Pool<H>) -> bool {
        let picked = pool.pick_idle(self, &mut pool.lock());
        let Some(token) = picked else { return false };
        token.send(self.host());
        true
    }

    /// A pool without any worker could never run an item, so the first must exist before a queue
    /// may use the pool.
    pub(crate) fn create_first_worker(&self, pool: &Pool<H>) -> Result<(), QueueError> {
        if !pool.state.begin_wake(1) {
            return Ok(());
        }
        self.try_spawn(pool).map_err(|reason| {
            pool.give_up_wake().settle(self);
            QueueError::NoThread(reason)
        })
    }

    /// Makes a worker. The caller has claimed the wake, and keeps it where this fails.
    fn make_worker(&self, pool: &Pool<H>) -> Result<(), NoWorker> {
        let now = self.host().now();
        if self.is_full(pool) {
            return Err(NoWorker::Full);
        }
        let again_at = pool.create_again_at.load(Ordering::Relaxed);
        if now < again_at {
            return Err(NoWorker::CoolsDown);
        }
        self.be_born();
        self.try_spawn(pool).map_err(NoWorker::Refused)?;
        if again_at != 0 {
            // Not the mark of a later failure: the new worker may have tried to make another one meanwhile, and the
            // watch tries again only where it finds the mark.
            let known = &pool.create_again_at;
            let _ = known.compare_exchange(again_at, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// No worker can come to `pool`. Not fatal: it has others, and rescuers, and the watch tries again.
    fn note_no_worker(&self, pool: &Pool<H>, reason: NoWorker) {
        let is_full = self.is_full(pool);
        let mut refused = None;
        if let NoWorker::Refused(reason) = reason {
            let again_at = self.host().now().saturating_add(COOL_DOWN_NS);
            // SeqCst: the watch looks at it after it has said that it sleeps.
            pool.create_again_at.store(again_at, Ordering::SeqCst);
            refused = Some(reason);
        } else {
            if pool.spec().shares {
                // As many as may be, so some of them are elsewhere with nothing to do.
                self.wake_idle_neighbour(pool);
            }
            if pool.spec().single && is_full {
                // The only worker that there is to be looks at items and timers after the one that it is in, and
                // theirs cannot run before. It may be in a wait, with no worker running.
                return self.be_seen(0);
            }
        }
        self.send_maydays(pool);
        self.wake_watch();
        // Last, as the reporter is user code.
        match refused {
            Some(reason) => self.report(Report::SpawnFailed { reason }),
            None if is_full => self.note_full(pool),
            None => {}
        }
    }

    /// Makes a thread for a worker of `pool`, for which the wake is claimed.
    fn try_spawn(&self, pool: &Pool<H>) -> Result<(), String> {
        let slot = self.allocate_slot();
        let slot = slot.ok_or_else(|| format!("an engine has at most {SLOTS_MAX} workers"))?;
        let Some(engine) = self.me() else {
            self.slots().release(slot);
            return Err("the engine is going away".to_owned());
        };
        self.slot(slot).home.store(pool.id, Ordering::Relaxed);
        pool.state.add_worker();
        pool.lock().workers.push(slot);
        let placed = self.cpus();
        let spec = WorkerSpec {
            name: pool.spec().thread_name(),
            cpus: placed.place(&pool.spec().cpus),
            nice: pool.spec().nice,
        };
        let (id, placed) = (pool.id, Link(std::ptr::from_ref(placed).cast_mut()));
        let main = Box::new(move || Worker::new(engine, id, slot).main(placed));
        self.host().spawn(&spec, main).map_err(|error| {
            pool.lock().workers.retain(|&worker| worker != slot);
            pool.state.abort_worker();
            self.slots().release(slot);
            error.0
        })
    }
}
