//! Brings a worker up for a claimed wake: an idle worker, one that a neighbour can spare, or a new
//! one.

use uwork_policy::progress::is_stranded;

use super::Pool;
use super::progress::Maker;
use crate::engine::Engine;
use crate::host::{Host, Report, WorkerSpec};
use crate::item::word::SLOTS_MAX;
use crate::queue::QueueError;
use crate::sync::{Link, Ordering};
use crate::watch::COOL_DOWN_NS;
use crate::worker::Worker;

/// Why no worker can be spawned.
enum NoWorker {
    /// The pool has as many workers as it may have.
    Full,
    /// A spawn failed a moment ago.
    CoolsDown,
    /// The system refuses a thread.
    Refused(String),
}

impl<H: Host> Engine<H> {
    /// Uses up the caller's claim. Returns false if no worker can come: then the claim is given up,
    /// rescuers are called, and the watcher retries.
    #[cold]
    pub(crate) fn bring_worker(&self, pool: &Pool<H>, maker: Maker) -> bool {
        loop {
            if self.wake_idle(pool) || self.transfer_worker(pool) {
                return true;
            }
            if maker == Maker::Watch
                && pool.state.counts().workers > 0
                && self.leave_spawn_to_watcher(pool)
            {
                return true;
            }
            let Err(reason) = self.spawn_worker(pool) else { return true };
            pool.state.abort_wake();
            // While the claim stood, other threads relied on it: a worker may have parked, or the
            // cap may have risen. A thread that makes such a change from here on settles the pool
            // by itself.
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

    /// Spawns a pool's first worker. A pool without any worker could never run an item, so this
    /// happens before a queue may use the pool.
    pub(crate) fn create_first_worker(&self, pool: &Pool<H>) -> Result<(), QueueError> {
        if !pool.state.begin_wake(1) {
            return Ok(());
        }
        self.try_spawn(pool).map_err(|reason| {
            pool.give_up_wake().settle(self);
            QueueError::NoThread(reason)
        })
    }

    /// Spawns a worker. The caller has claimed the wake, and keeps the claim if this fails.
    fn spawn_worker(&self, pool: &Pool<H>) -> Result<(), NoWorker> {
        let now = self.host().now();
        if self.is_full(pool) {
            return Err(NoWorker::Full);
        }
        let again_at = pool.create_again_at.load(Ordering::Relaxed);
        if now < again_at {
            return Err(NoWorker::CoolsDown);
        }
        self.finish_fork();
        self.try_spawn(pool).map_err(NoWorker::Refused)?;
        if again_at != 0 {
            // Clear only the mark read above, not that of a later failure. The new worker may have
            // failed to spawn another one meanwhile, and the watcher retries only if it finds the
            // mark.
            let known = &pool.create_again_at;
            let _ = known.compare_exchange(again_at, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Handles that no worker can come to `pool`. This is not fatal: the pool has other workers and
    /// rescuers, and the watcher retries.
    fn note_no_worker(&self, pool: &Pool<H>, reason: NoWorker) {
        let is_full = self.is_full(pool);
        let mut refused = None;
        if let NoWorker::Refused(reason) = reason {
            let again_at = self.host().now().saturating_add(COOL_DOWN_NS);
            // SeqCst: partner of the watcher, which announces its sleep first and reads this mark
            // second.
            pool.create_again_at.store(again_at, Ordering::SeqCst);
            refused = Some(reason);
        } else {
            if pool.spec().shares {
                // The cap is reached, so some of the workers idle in other pools.
                self.wake_idle_neighbour(pool);
            }
            if pool.spec().single && is_full {
                // The pool's only worker checks items and timers after its present item, before
                // which they cannot run anyway. It may be in a wait, with no worker running.
                return self.heartbeat(0);
            }
        }
        self.send_maydays(pool);
        self.wake_watch();
        // Last, because the reporter is user code.
        match refused {
            Some(reason) => self.report(Report::SpawnFailed { reason }),
            None if is_full => self.note_full(pool),
            None => {}
        }
    }

    /// Spawns a thread for a worker of `pool`, whose wake is claimed.
    fn try_spawn(&self, pool: &Pool<H>) -> Result<(), String> {
        let slot = self.allocate_slot();
        let slot = slot.ok_or_else(|| format!("an engine has at most {SLOTS_MAX} workers"))?;
        let Some(engine) = self.me() else {
            self.slots().release(slot);
            return Err("the engine is being destroyed".to_owned());
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
