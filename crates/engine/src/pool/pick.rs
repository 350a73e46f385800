//! Which parked worker is woken, and where.
//!
//! The system wakes a thread on the CPU on which it last ran, or near the waker; which of the two
//! depends on the machine. A pool of several CPUs therefore remembers where each worker parked, and
//! prefers a worker on the right CPU: the waker's own if the waker waits next, another one if it goes
//! on computing. If there is none, a worker is moved: it is restricted to the right CPUs before the
//! wake, and lifts the restriction when it arrives. In a saving pool it stays there until it parks
//! (`worker/keep.rs`).
//!
//! ```text
//! thread that has claimed the wake         the worker, parked
//! pool lock
//!   off the stack, home = MOVING, picked = true
//! unlock                                   may wake by itself: picked, but MOVING,
//! restricts the worker's thread            so it parks again
//! restricted_to = CPU, home = the pool
//! wakes it                                 is restricted: back to the pool's CPUs, or keeps to
//!                                            that CPU (a saving pool); arrives
//! ```

use uwork_policy::cpu_choice::{
    CANDIDATES_MAX, Habit, Waker, WorkerChoice, choose_worker, habit_beside_run,
};
use uwork_policy::cpuset::CpuSet;

use super::{Pool, PoolInner};
use crate::engine::Engine;
use crate::words::host::Host;
use crate::words::wake::WakeToken;

/// A picked worker.
struct Picked {
    slot: u32,
    /// The CPUs that it is moved to.
    moves_to: Option<CpuSet>,
}

impl<H: Host> Pool<H> {
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
        let wake = unsafe { WakeToken::<H>::new(&raw const slot.event) };
        wake.send(engine.host());
        true
    }

    /// The calling thread as a waker. `None` if the choice of the worker does not depend on it.
    fn waker(&self, engine: &Engine<H>) -> Option<Waker> {
        if self.spec().cpus.len() == 1 || self.state.counts().idle == 0 {
            return None;
        }
        if self.spec().saves {
            return self.waker_to_join(engine);
        }
        let (habit, cpu) = (self.habit_of_caller(engine), engine.host().current_cpu());
        if habit == Habit::Unknown {
            return None;
        }
        self.uses(engine, cpu).then_some(Waker { habit, cpu })
    }

    /// What the calling thread does after it has woken a worker of this pool.
    pub(super) fn habit_of_caller(&self, engine: &Engine<H>) -> Habit {
        match engine.caller().note_wake() {
            // Only a worker that runs can be in a long run.
            Habit::Waits if self.state.counts().running > 0 => {
                let cpu = engine.host().current_cpu();
                habit_beside_run(Habit::Waits, self.run_on(engine, cpu), self.estimate())
            }
            habit => habit,
        }
    }

    /// How long a worker that took a batch on this CPU has been in it. Blocked workers do not count.
    /// A hint.
    fn run_on(&self, engine: &Engine<H>, cpu: u32) -> Option<u64> {
        let recent = self.recent().map(|id| engine.slot(id));
        let here = recent.filter(|slot| slot.batch.cpu() == Some(cpu) && slot.computes());
        let began = here.filter_map(|slot| slot.batch.get().1).min()?;
        Some(engine.host().now().saturating_sub(began))
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
        let choice = match waker {
            None => WorkerChoice::Stays(0),
            // Also a worker that parked on this CPU: the system may wake it on an idle one.
            Some(_) if self.spec().saves => WorkerChoice::MovesToWaker(0),
            Some(waker) => choose_worker(waker, &cpus[..found]),
        };
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
