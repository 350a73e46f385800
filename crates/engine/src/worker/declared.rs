//! Declared waits of a worker inside its item: it is off the running count meanwhile.

use super::Worker;
use crate::pool::give_back;
use crate::slot::WasRunning;
use crate::words::host::Host;

impl<H: Host> Worker<H> {
    /// Enters a declared wait inside an item. [`Worker::end_wait`] must follow.
    pub(crate) fn begin_wait(&self) {
        let (pool, slot) = (self.pool(), self.slot());
        self.waits.set(self.waits.get() + 1);
        self.off_cpu.note_declared();
        slot.set_waits(true);
        if pool.spec().single {
            // No other worker can take over, so the rest of the batch stays scheduled here.
            if slot.declare_not_running() {
                self.counts_after.set(true);
                pool.state.block();
            }
            return;
        }
        self.engine.note_replaced(slot);
        // Give the batch back first: the settlement below must see those items as ready.
        let (behind, counted) = slot.begin_block();
        slot.end_batch_hint(&self.engine);
        give_back(&self.engine, behind);
        if counted != WasRunning::No {
            self.counts_after.set(true);
        }
        if counted == WasRunning::Yes {
            // First off the count, then `settle` reads the ready lists: the same handshake with a
            // submitter as in `go_idle`.
            pool.block().settle(&self.engine);
        } else {
            pool.settle(&self.engine);
        }
    }

    /// Ends a declared wait. The pool may then have more running workers than its target; it starts
    /// no new batch until the surplus is gone.
    pub(crate) fn end_wait(&self) {
        self.waits.set(self.waits.get() - 1);
        if self.waits.get() > 0 {
            return;
        }
        self.slot().set_waits(false);
        if self.counts_after.take() {
            // Count first, then clear the mark. Once the mark is clear, another thread may mark
            // this run as not running and take it off the count, so the count must already include
            // it.
            let pool = self.pool();
            pool.state.unblock();
            self.slot().end_block();
            if pool.state.counts().running > pool.target() {
                self.leave_cpu_for_long_items();
            }
        }
        self.engine.watch.heartbeat(&self.engine, 0);
    }
}
