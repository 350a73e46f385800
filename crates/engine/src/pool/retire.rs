//! Changes that every worker of a pool must see.

use super::Pool;
use crate::engine::Engine;
use crate::words::host::Host;
use crate::words::wake::WakeToken;

impl<H: Host> Pool<H> {
    /// Asks every worker to exit once it finds no work.
    pub(crate) fn retire(&self, engine: &Engine<H>) {
        self.state.set_retired(true);
        self.wake_all_parked(engine);
    }

    /// Wakes every parked worker of a pool without picking it, as the pool has changed in more than
    /// its items: each one checks retirement and timers.
    pub(crate) fn wake_all_parked(&self, engine: &Engine<H>) {
        let mut events = Vec::new();
        let inner = self.lock();
        let mut idle = inner.idle.top();
        while let Some(id) = idle {
            let slot = engine.slot(id);
            events.push(&raw const slot.event);
            idle = inner.idle.below(slot);
        }
        drop(inner);
        for event in events {
            // SAFETY: slots live as long as the engine.
            unsafe { WakeToken::<H>::new(event) }.send(engine.host());
        }
        self.settle(engine);
    }
}
