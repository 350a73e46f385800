//! Moves idle workers to where they are needed, between pods that share their work.
//!
//! Without this, each pod would spawn as many workers as it ever needs at once, although the same
//! items only move from pod to pod.
//!
//! ```text
//! thread that has claimed the wake         the worker, parked
//! `placing`, lock of its pool
//!   off the stack and the list,
//!   home = MOVING, picked = true
//! unlock the pool
//! lock of the new pool: onto its list      may wake by itself: picked, but MOVING,
//! unlock the new pool, then `placing`      so it parks again
//! home = the new pool, wakes it            goes to that pool's CPUs, arrives there
//! ```
//!
//! While the worker moves it is idle, in no run and on no list, and no two pool locks are held at
//! once. A thread that found the worker on the old list and counts one of its runs reads the
//! worker's home during that run; the worker does not move while in a run.

use super::Pool;
use crate::engine::Engine;
use crate::host::Host;
use crate::wake::WakeToken;

impl<H: Host> Pool<H> {
    /// Moves a worker to this pool from the nearest neighbour that can spare one. The caller has
    /// claimed the wake; if this returns true, the claim is used up.
    pub(crate) fn bring_from_neighbour(&self, engine: &Engine<H>) -> bool {
        let neighbours = self.spec().neighbours.iter().map(|&id| engine.pool(id));
        let may_spare = |other: &&Pool<H>| self.spec().shares && other.has_idle_to_spare();
        neighbours.filter(may_spare).any(|other| self.transfer_from(engine, other))
    }

    fn transfer_from(&self, engine: &Engine<H>, other: &Pool<H>) -> bool {
        // Under `placing`: a thread that places threads on CPUs finds the worker on exactly one
        // list.
        let placing = engine.versions.hold_placing();
        let Some(id) = other.give_away_idle(engine) else { return false };
        self.state.add_worker();
        self.lock().workers.push(id);
        drop(placing);
        let slot = engine.slot(id);
        slot.end_move(self.id);
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const slot.event) }.send(engine.host());
        true
    }
}

impl<H: Host> Pool<H> {
    /// Whether it has more idle workers than would run if it had work.
    fn has_idle_to_spare(&self) -> bool {
        self.state.counts().idle > self.base_target()
    }

    /// Removes a spare worker: the latest parked, except the keeper. Returns None if the pool has no
    /// keeper: the worker may have been woken to become it.
    fn give_away_idle(&self, engine: &Engine<H>) -> Option<u32> {
        let mut inner = self.lock();
        let keeper = inner.keeper.filter(|_| self.has_idle_to_spare())?;
        let top = inner.idle.top()?;
        let id = if top == keeper { inner.idle.below(engine.slot(top))? } else { top };
        self.remove_idle(engine, &mut inner, id);
        inner.workers.retain(|&worker| worker != id);
        self.state.exit_idle();
        let slot = engine.slot(id);
        slot.pick_to_move();
        Some(id)
    }
}
