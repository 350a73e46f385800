//! Which parked worker is woken, and where.
//!
//! The system wakes a thread on the CPU on which it last ran, or near the waker; which of the two
//! depends on the machine. A pod of several CPUs therefore remembers where each worker parked, and
//! prefers a worker on the right CPU: the waker's own if the waker waits next, another one if it goes
//! on computing. If there is none, a worker is moved: it is restricted to the right CPUs before the
//! wake, and lifts the restriction when it arrives.
//!
//! ```text
//! thread that has claimed the wake         the worker, parked
//! pool lock
//!   off the stack, home = MOVING, picked = true
//! unlock                                   may wake by itself: picked, but MOVING,
//! restricts the worker's thread            so it parks again
//! is_restricted = true, home = the pool
//! wakes it                                 is_restricted: back to all CPUs of the pod, arrives
//! ```

use uwork_policy::concurrency::wake_neighbour;
use uwork_policy::cpu_choice::{
    CANDIDATES_MAX, Habit, Waker, WorkerChoice, choose_worker, spares_wake,
};
use uwork_policy::cpuset::CpuSet;

use super::{Pool, PoolInner};
use crate::engine::Engine;
use crate::host::Host;
use crate::sync::{AtomicU64, Ordering};
use crate::wake::WakeToken;

/// The CPUs on which workers of a pool run, by their numbers modulo 64. A hint.
pub(super) struct Present(AtomicU64);

impl Present {
    pub(super) fn new() -> Present {
        Present(AtomicU64::new(0))
    }

    fn bit(cpu: u32) -> u64 {
        1 << (cpu % u64::BITS)
    }

    fn has(&self, cpu: u32) -> bool {
        self.0.load(Ordering::Relaxed) & Present::bit(cpu) != 0
    }

    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A picked worker.
struct Picked {
    slot: u32,
    /// The CPUs that it is moved to.
    moves_to: Option<CpuSet>,
}

impl<H: Host> Pool<H> {
    /// A running worker is about to take a batch on `cpu`. Returns the CPU to give to
    /// [`Pool::note_absent`] when it parks.
    #[inline]
    pub(crate) fn note_present(&self, engine: &Engine<H>, before: Option<u32>) -> Option<u32> {
        if self.target() == 1 {
            return None;
        }
        let cpu = engine.host().current_cpu();
        if before != Some(cpu) {
            self.note_absent(before);
        }
        // Usually it is noted already, and the load spares the exchange. Another worker may have
        // parked on the same CPU and removed the note.
        if !self.present.has(cpu) {
            self.present.0.fetch_or(Present::bit(cpu), Ordering::Relaxed);
        }
        Some(cpu)
    }

    /// A worker that was noted there parks or has moved.
    pub(crate) fn note_absent(&self, cpu: Option<u32>) {
        if let Some(cpu) = cpu {
            self.present.0.fetch_and(!Present::bit(cpu), Ordering::Relaxed);
        }
    }

    /// Whether the calling submitter, which owes the pool a worker, leaves its item to a worker that
    /// runs already. The caller then calls the watcher, in case that worker takes longer.
    ///
    /// The counters are read after the push: a worker that was running then scans the lists before
    /// it parks, and settles the pool before it blocks.
    pub(super) fn spares_wake_of(&self, engine: &Engine<H>) -> bool {
        if self.target() == 1 {
            return false;
        }
        let (caller, host) = (engine.caller(), engine.host());
        if caller.worker().is_some() {
            return false;
        }
        let habit = caller.thread.note_wake(|| host.waits());
        let short = !wake_neighbour(1, self.estimate());
        let worker_here = habit == Habit::Waits && self.present.has(host.current_cpu());
        let spared = spares_wake(habit, worker_here, short) && self.state.counts().running > 0;
        // Usually it is noted already. SeqCst: first this mark, then the caller reads whether the
        // watcher is awake.
        if spared && !self.has_spared_wake.load(Ordering::Relaxed) {
            self.has_spared_wake.store(true, Ordering::SeqCst);
        }
        spared
    }

    /// Whether a submitter has spared a wake since the last call.
    pub(crate) fn take_spared_wake(&self) -> bool {
        self.has_spared_wake.load(Ordering::SeqCst)
            && self.has_spared_wake.swap(false, Ordering::SeqCst)
    }

    /// Wakes an idle worker. The caller has claimed the wake.
    pub(crate) fn wake_idle(&self, engine: &Engine<H>) -> bool {
        // Before the lock, because a worker that finds it taken would wait for these questions.
        let waker = self.waker(engine);
        let picked = self.pick_idle(engine, &mut self.lock(), waker);
        let Some(Picked { slot, moves_to }) = picked else { return false };
        let slot = engine.slot(slot);
        if let Some(cpus) = moves_to {
            // The worker cannot end, because it was picked: its thread's number is valid.
            slot.restrict(engine, &cpus);
            slot.end_move(self.id);
        }
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const slot.event) }.send(engine.host());
        true
    }

    /// The calling thread as a waker. `None` if the choice of the worker does not depend on it.
    fn waker(&self, engine: &Engine<H>) -> Option<Waker> {
        if self.target() == 1 || self.state.counts().idle == 0 {
            return None;
        }
        let (caller, host) = (engine.caller(), engine.host());
        let habit = match caller.worker() {
            Some(worker) if worker.is_waiting() => Habit::Waits,
            Some(_) => Habit::Computes,
            None => caller.thread.habit(),
        };
        if habit == Habit::Unknown {
            return None;
        }
        let cpu = host.current_cpu();
        self.spec().cpus.contains(cpu).then_some(Waker { habit, cpu })
    }

    /// Takes a worker off the idle stack: one that parked lately, and the keeper only if it is the
    /// only one.
    ///
    /// The picked worker is off the stack before it is woken. Idle workers retire under the same
    /// lock, so a picked worker cannot retire in between and leave the work behind.
    fn pick_idle(
        &self,
        engine: &Engine<H>,
        inner: &mut PoolInner<H>,
        waker: Option<Waker>,
    ) -> Option<Picked> {
        let (mut ids, mut cpus, mut found) = ([0; CANDIDATES_MAX], [0; CANDIDATES_MAX], 0);
        let mut next = inner.idle.top();
        while let Some(id) = next.filter(|_| found < CANDIDATES_MAX) {
            let slot = engine.slot(id);
            next = inner.idle.below(slot);
            if inner.keeper != Some(id) || (found == 0 && next.is_none()) {
                (ids[found], cpus[found]) = (id, inner.idle.cpu_of(slot));
                found += 1;
            }
        }
        if found == 0 {
            return None;
        }
        let choice = waker.map_or(WorkerChoice::Stays(0), |w| choose_worker(w, &cpus[..found]));
        let cpu = waker.map_or(0, |waker| waker.cpu);
        let (at, moves_to) = match choice {
            WorkerChoice::Stays(at) => (at, None),
            WorkerChoice::MovesToWaker(at) => (at, Some(CpuSet::single(cpu))),
            WorkerChoice::MovesAway(at) => {
                (at, Some(self.spec().cpus.and_not(&CpuSet::single(cpu))))
            }
        };
        let id = ids[at];
        self.remove_idle(engine, inner, id);
        self.state.leave_idle();
        let slot = engine.slot(id);
        match moves_to {
            Some(_) => slot.pick_to_move(),
            None => slot.pick(),
        }
        Some(Picked { slot: id, moves_to })
    }
}
