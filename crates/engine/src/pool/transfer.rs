//! Idle workers go where they are needed: between pods that share their work.
//!
//! Without this each pod would get as many workers as it ever needs at once, though their items are the same
//! ones, now here and now there.
//!
//! ```text
//! who needs a worker, claim in hand        the worker, parked
//! `placing`, lock of its pool
//!   off the stack and the list,
//!   home = MOVING, picked = true
//! unlock the pool
//! lock of the new pool: onto its list      may look up by itself: picked, but MOVING,
//! unlock both                              so it parks again
//! home = the new pool, wakes it            goes to that pool's CPUs, arrives there
//! ```
//!
//! It is idle, in no run and on no list while it moves, and no two pool locks are held at once. Whoever
//! found it on the old list and counts a run of it asks for its home with that run on, which it does not
//! leave in between.

use super::Pool;
use crate::engine::Engine;
use crate::host::Host;
use crate::sync::Ordering;
use crate::wake::WakeToken;

/// A value of `Slot::home`: the worker is on its way from one pool to another.
pub(crate) const MOVING: u32 = u32::MAX;

impl<H: Host> Engine<H> {
    /// Brings a worker to `pool` that the nearest neighbour can spare. The caller has claimed the wake,
    /// which is used up if that is true.
    pub(crate) fn transfer_worker(&self, pool: &Pool<H>) -> bool {
        let neighbours = pool.spec().neighbours.iter().map(|&id| self.pool(id));
        let may_spare = |other: &&Pool<H>| pool.spec().shares && other.has_idle_to_spare();
        neighbours.filter(may_spare).any(|other| self.transfer_from(other, pool))
    }

    fn transfer_from(&self, other: &Pool<H>, pool: &Pool<H>) -> bool {
        // Who places threads finds the worker on one of the lists.
        let placing = self.versions().hold_placing();
        let Some(id) = other.give_away_idle(self) else { return false };
        pool.state.add_worker();
        pool.lock().workers.push(id);
        drop(placing);
        let slot = self.slot(id);
        // Release: the worker finds itself on the list.
        slot.home.store(pool.id, Ordering::Release);
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const slot.event) }.send(self.host());
        true
    }
}

impl<H: Host> Pool<H> {
    /// Whether more are idle than would run if there was work.
    fn has_idle_to_spare(&self) -> bool {
        self.state.counts().idle > self.target()
    }

    /// Takes a worker out of the pool that it can spare: one that parked lately, and not the one that
    /// watches the timers. Without such a one none: the worker may have been called to become it.
    fn give_away_idle(&self, engine: &Engine<H>) -> Option<u32> {
        let mut inner = self.lock();
        let keeper = inner.keeper.filter(|_| self.has_idle_to_spare())?;
        let top = inner.idle_top?;
        let id = if top == keeper { engine.slot(top).idle_below_locked(&inner)? } else { top };
        self.remove_idle(engine, &mut inner, id);
        inner.workers.retain(|&worker| worker != id);
        self.state.exit_idle();
        let slot = engine.slot(id);
        slot.home.store(MOVING, Ordering::Relaxed);
        // Release: who finds itself picked finds that it moves.
        slot.picked.store(true, Ordering::Release);
        Some(id)
    }
}
