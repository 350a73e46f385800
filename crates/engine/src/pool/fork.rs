//! What a pool keeps across a fork.

use super::ready::ReadyList;
use super::{NEVER, NO_SLOT, Pool, PoolInner};
use crate::slot::IdleStack;
use crate::words::host::Host;
use crate::words::sync::Ordering;

impl<H: Host> Pool<H> {
    /// In a child after a fork: the pool has no worker and nothing is ready.
    pub(crate) fn forget(&self, inner: &mut PoolInner<H>) {
        // All fields by name: whoever adds one decides here what the child finds in it. What stays
        // is what the pool is for and what it has learned.
        let Pool {
            ready_inbox,
            state,
            target: _,
            id: _,
            cpu: _,
            spec: _,
            has_ready,
            create_again_at,
            mayday_at,
            last_progress_at,
            last_batch_at: _,
            last_steal_at: _,
            occupied_at: _,
            comes_to_help,
            sets_in_use: _,
            item_ns: _,
            residual_ns: _,
            scheduled_batches,
            blocking,
            off_cpu: _,
            recent,
            limits: _,
            full_reported,
            keeper_until,
            slack_of_ready: _,
            left_timers,
            is_spawn_requested,
            stranded_since,
            parked,
            routed: _,
            // `TimerBase::forget`.
            deferrable: _,
            timers: _,
            inner: _,
        } = self;
        let PoolInner { ready, idle, keeper, workers, queue: _ } = inner;
        let _ = ready_inbox.take_all();
        *ready = ReadyList::new();
        *idle = IdleStack::new();
        *keeper = None;
        workers.clear();
        has_ready.0.store(false, Ordering::SeqCst);
        state.forget();
        scheduled_batches.store(0, Ordering::SeqCst);
        keeper_until.store(NEVER, Ordering::SeqCst);
        is_spawn_requested.store(false, Ordering::SeqCst);
        stranded_since.store(0, Ordering::Relaxed);
        create_again_at.store(0, Ordering::Relaxed);
        mayday_at.store(0, Ordering::Relaxed);
        last_progress_at.store(0, Ordering::Relaxed);
        let _ = comes_to_help.take();
        self.note_room();
        full_reported.store(false, Ordering::Relaxed);
        left_timers.store(false, Ordering::Relaxed);
        blocking.forget();
        parked.store(NO_SLOT, Ordering::Relaxed);
        recent.iter().for_each(|cell| cell.store(NO_SLOT, Ordering::Relaxed));
    }
}
