//! The host's hooks on a worker, between two batches.

use super::Worker;
use crate::words::host::{Host, ThreadState};

impl<H: Host> Worker<H> {
    /// Calls the host's hooks off the running count, as they may block: another worker takes over.
    #[cold]
    pub(super) fn call_hooks(&self, thread: &ThreadState) {
        let (pool, engine) = (self.pool(), &*self.engine);
        self.slot().declare_not_running();
        if pool.spec().single {
            pool.state.block();
        } else {
            pool.block().settle(engine);
        }
        engine.host().call_hooks(thread);
        // Count first, then clear the mark. See `end_wait`.
        pool.state.unblock();
        self.slot().end_block();
    }
}
