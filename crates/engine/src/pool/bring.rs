//! Brings a worker up for a claimed wake: an idle worker, one that a neighbour can spare, or a new
//! one.

use uwork_policy::progress::is_stranded;

use super::Pool;
use super::progress::Maker;
use super::transfer::Spare;
use crate::engine::Engine;
use crate::queue::QueueError;
use crate::slot::Slot;
use crate::watch::COOL_DOWN_NS;
use crate::words::host::{Host, Report, WorkerSpec};
use crate::words::item::word::SLOTS_MAX;
use crate::words::sync::{Link, Ordering};
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

impl<H: Host> Pool<H> {
    /// Uses up the caller's claim. Returns false if no worker can come: then the claim is given up,
    /// rescuers are called, and the watcher retries.
    #[cold]
    pub(crate) fn bring_worker(&self, engine: &Engine<H>, maker: Maker) -> bool {
        loop {
            if self.wake_idle(engine) || self.bring_from_neighbour(engine, Spare::Surplus) {
                return true;
            }
            if maker == Maker::Watch
                && self.state.counts().workers > 0
                && self.leave_spawn_to_watcher(engine)
            {
                return true;
            }
            let Err(reason) = self.spawn_worker(engine) else { return true };
            if !matches!(reason, NoWorker::Refused(_))
                && self.bring_from_neighbour(engine, Spare::Last)
            {
                return true;
            }
            self.state.abort_wake();
            self.note_room();
            // While the claim stood, other threads relied on it: a worker may have parked, or the
            // cap may have risen. A thread that makes such a change from here on settles the pool
            // by itself.
            let counts = self.state.counts();
            let has_room = matches!(reason, NoWorker::Full) && !self.is_full(engine);
            let again = (counts.idle > 0 || has_room)
                && is_stranded(counts, self.target(), self.looks_ready());
            if !again || !self.state.begin_wake(self.target()) {
                self.note_no_worker(engine, reason, maker);
                return false;
            }
        }
    }

    /// Spawns the first worker of a pod's first pool that is in place. A pod without any worker might never
    /// run an item, so this happens before a queue may use the pod.
    pub(crate) fn create_first_worker(&self, engine: &Engine<H>) -> Result<(), QueueError> {
        if !self.state.begin_wake(1) {
            return Ok(());
        }
        self.try_spawn(engine).map_err(|reason| {
            self.give_up_wake().settle(engine);
            QueueError::NoThread(reason)
        })
    }

    /// Spawns a worker. The caller has claimed the wake, and keeps the claim if this fails.
    fn spawn_worker(&self, engine: &Engine<H>) -> Result<(), NoWorker> {
        let now = engine.host().now();
        if self.is_full(engine) {
            return Err(NoWorker::Full);
        }
        let again_at = self.create_again_at.load(Ordering::Relaxed);
        if now < again_at {
            return Err(NoWorker::CoolsDown);
        }
        self.try_spawn(engine).map_err(NoWorker::Refused)?;
        if again_at != 0 {
            // Clear only the mark read above, not that of a later failure. The new worker may have
            // failed to spawn another one meanwhile, and the watcher retries only if it finds the
            // mark.
            let known = &self.create_again_at;
            let _ = known.compare_exchange(again_at, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Handles that no worker can come to this pool. This is not fatal: the pool has other workers and
    /// rescuers, and the watcher retries.
    fn note_no_worker(&self, engine: &Engine<H>, reason: NoWorker, maker: Maker) {
        let is_full = self.is_full(engine);
        let mut refused = None;
        if let NoWorker::Refused(reason) = reason {
            let again_at = engine.host().now().saturating_add(COOL_DOWN_NS);
            // SeqCst: partner of the watcher, which announces its sleep first and reads this mark
            // second.
            self.create_again_at.store(again_at, Ordering::SeqCst);
            refused = Some(reason);
        }
        if self.spec().shares && maker != Maker::Neighbour {
            // Some of the workers may idle in other pools; this one may have none.
            self.wake_idle_neighbour(engine);
        }
        if refused.is_none() && self.spec().single && is_full {
            // The pool's only worker checks items and timers after its present item, before which
            // they cannot run anyway. It may be in a wait, with no worker running.
            return engine.watch.heartbeat(engine, 0);
        }
        self.send_maydays(engine);
        engine.watch.wake(engine);
        // Last, because the reporter is user code.
        match refused {
            Some(reason) => engine.caller().report(Report::SpawnFailed { reason }),
            None if is_full => self.note_full(engine),
            None => {}
        }
    }

    /// Spawns a thread for a worker of this pool, whose wake is claimed.
    fn try_spawn(&self, engine: &Engine<H>) -> Result<(), String> {
        let slot = Slot::allocate(&engine.slots);
        let slot = slot.ok_or_else(|| format!("an engine has at most {SLOTS_MAX} workers"))?;
        let Some(me) = engine.me() else {
            engine.slots.release(slot);
            return Err("the engine is being destroyed".to_owned());
        };
        engine.slot(slot).set_home(self.id);
        self.state.add_worker();
        let queue = {
            let mut inner = self.lock();
            inner.workers.push(slot);
            inner.queue
        };
        let placed = engine.cpus();
        let spec = WorkerSpec {
            name: self.spec().thread_name(),
            cpus: placed.place_in(self.spec().places()),
            nice: self.spec().nice,
            runner: Some(self.spec().runner(queue)),
        };
        let (id, placed) = (self.id, Link(std::ptr::from_ref(placed).cast_mut()));
        let main = Box::new(move || Worker::new(me, id, slot).main(placed));
        engine.host().spawn(&spec, main).map_err(|error| {
            self.lock().workers.retain(|&worker| worker != slot);
            self.state.abort_worker();
            engine.slots.release(slot);
            error.0
        })
    }
}
