//! Moves idle workers to where they are needed, between pools that share their work.
//!
//! Without this, each pool would spawn as many workers as it ever needs at once, although the same
//! items only move from pool to pool.
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
use crate::words::host::Host;
use crate::words::wake::WakeToken;

/// Which workers a pool spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// Idle ones beyond those that would run if it had work; all of a displaced pool.
    Surplus,
    /// An idle one that waits for others of the pool to block. For a set of pools that has as many
    /// workers as it may have.
    Last,
}

impl<H: Host> Pool<H> {
    /// Moves a worker to this pool from the nearest neighbour that can spare one. The caller has
    /// claimed the wake; if this returns true, the claim is used up.
    pub(crate) fn bring_from_neighbour(&self, engine: &Engine<H>, spare: Spare) -> bool {
        let neighbours = self.spec().neighbours.iter().map(|&id| engine.pool(id));
        let may_spare = |other: &&Pool<H>| self.spec().shares && other.can_spare(spare);
        neighbours.filter(may_spare).any(|other| self.transfer_from(engine, other, spare))
    }

    fn transfer_from(&self, engine: &Engine<H>, other: &Pool<H>, spare: Spare) -> bool {
        // Under `placing`: a thread that places threads on CPUs finds the worker on exactly one
        // list.
        let placing = engine.versions.hold_placing();
        let Some((id, was_keeper)) = other.give_away_idle(engine, spare) else { return false };
        self.state.add_worker();
        self.lock().workers.push(id);
        drop(placing);
        if was_keeper {
            other.settle(engine);
        }
        let slot = engine.slot(id);
        slot.end_move(self.id);
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const slot.event) }.send(engine.host());
        true
    }
}

impl<H: Host> Pool<H> {
    fn can_spare(&self, spare: Spare) -> bool {
        let counts = self.state.counts();
        match spare {
            Spare::Surplus => counts.idle > self.kept_workers(),
            Spare::Last => counts.idle > 0 && counts.idle + counts.running > self.kept_workers(),
        }
    }

    /// Removes a spare worker: the latest parked, except the keeper if others are parked. Returns it, and
    /// whether it was the keeper: then the caller settles the pool, whose timers no worker covers. Returns
    /// None if the pool has no keeper: the worker may have been woken to become it.
    fn give_away_idle(&self, engine: &Engine<H>, spare: Spare) -> Option<(u32, bool)> {
        let mut inner = self.lock();
        let keeper = inner.keeper.filter(|_| self.can_spare(spare))?;
        let top = inner.idle.top()?;
        let below = (top == keeper).then(|| inner.idle.below(engine.slot(top))).flatten();
        let id = below.unwrap_or(top);
        self.remove_idle(engine, &mut inner, id);
        inner.workers.retain(|&worker| worker != id);
        self.state.exit_idle();
        let slot = engine.slot(id);
        slot.pick_to_move();
        Some((id, id == keeper))
    }
}
