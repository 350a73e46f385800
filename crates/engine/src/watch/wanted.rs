//! Workers that submitters miss, and pools that lack one without reason.
//!
//! A thread that queues an item, and finds that one more worker should run and none is parked, would spend some
//! 20 us on making a thread. It leaves its claim on the wake to the watch instead: WAKING stays set, so the
//! pool is looked after, and the watch uses the claim up. Where the watch's thread does not serve (before it has begun,
//! after a fork, at the end of the engine) the claim stays with the submitter.
//!
//! The backstop: a pool where an item waits, fewer workers run than should, and none is on its way up, breaks
//! the pool's rule. Between a change and its settling that is so for an instant. A pool that stays so for
//! [`STRANDED_NS`] gets a worker, and `rescues` counts it: each one is a defect of the engine. A pool that cannot have
//! one more worker is left out.

use crate::engine::Engine;
use crate::host::{Host, Report};
use crate::pool::progress::Maker;
use crate::pool::{NEVER, Pool};
use crate::sync::Ordering;
use crate::wake::WakeToken;
use uwork_policy::progress::is_stranded;

/// How long a pool may be without a worker that it should have. Longer than a thread that is about to settle its
/// change may be kept from a CPU on a machine with many more threads than CPUs.
const STRANDED_NS: u64 = 250_000_000;
/// While a pool is so, the watch looks this often. A longer gap between two looks begins anew: the process, and with it
/// the thread that is about to settle, may have been stopped.
const STRANDED_LOOK_NS: u64 = 25_000_000;

impl<H: Host> Engine<H> {
    /// Leaves the caller's claim on a wake in `pool` to the watch. False if the watch's thread does not serve.
    pub(crate) fn leave_to_watch(&self, pool: &Pool<H>) -> bool {
        let watch = self.watch_state();
        if !watch.present.load(Ordering::SeqCst) {
            return false;
        }
        pool.wanted.store(true, Ordering::SeqCst);
        watch.wanted.store(true, Ordering::SeqCst);
        // SeqCst, as are the two at the end of the watch: it finds the claim, or the caller finds it gone.
        if !watch.present.load(Ordering::SeqCst) && pool.wanted.swap(false, Ordering::SeqCst) {
            return false;
        }
        self.nudge_watch();
        true
    }

    /// Lets the watch look around, wherever it is.
    pub(crate) fn nudge_watch(&self) {
        if self.start_watch().is_ok() {
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const self.watch_state().event) }.send(self.host());
        }
    }

    /// Uses up the claims that were left to the watch.
    pub(super) fn make_wanted(&self) {
        let watch = self.watch_state();
        if !watch.wanted.load(Ordering::SeqCst) || !watch.wanted.swap(false, Ordering::SeqCst) {
            return;
        }
        self.for_each_pool(|pool| {
            if pool.wanted.swap(false, Ordering::SeqCst) {
                self.bring_worker(pool, Maker::Caller);
            }
        });
    }

    /// Brings a worker up in each pool that has lacked one for long without reason. When to look again.
    pub(super) fn look_for_stranded(&self) -> u64 {
        let (now, mut next) = (self.host().now(), NEVER);
        let looked_at = self.watch_state().stranded_at.swap(now, Ordering::Relaxed);
        let has_gap = now.saturating_sub(looked_at) > 2 * STRANDED_LOOK_NS;
        self.for_each_pool(|pool| {
            if self.is_stranded(pool, now, has_gap) {
                next = now.saturating_add(STRANDED_LOOK_NS);
            }
        });
        next
    }

    /// Whether a pool lacks a worker without reason. Brings one up if that has been so for long.
    fn is_stranded(&self, pool: &Pool<H>, now: u64, has_gap: bool) -> bool {
        let counts = pool.state.counts();
        let since = pool.stranded_since.load(Ordering::Relaxed);
        // Where no worker can be made, that is the reason.
        let has_reason = || {
            now < pool.create_again_at.load(Ordering::Relaxed)
                || (counts.idle == 0 && self.is_full(pool))
        };
        if !is_stranded(counts, pool.target(), pool.looks_ready()) || has_reason() {
            if since != 0 {
                pool.stranded_since.store(0, Ordering::Relaxed);
            }
            return false;
        }
        // Each time that work was taken begins anew as well.
        let took_at = pool.took_at.get() as u64;
        if since == 0 || has_gap || took_at >= since {
            pool.stranded_since.store(now.max(1), Ordering::Relaxed);
        } else if now.saturating_sub(since) >= STRANDED_NS {
            pool.stranded_since.store(0, Ordering::Relaxed);
            self.watch_state().rescues.fetch_add(1, Ordering::Relaxed);
            self.settle(pool);
            let missing_ns = now.saturating_sub(since);
            self.report(Report::WorkerMissing { pool: pool.spec().label.clone(), missing_ns });
        }
        true
    }

    /// How often the watch found a pool without a worker that it should have had, and brought one up. Anything but
    /// 0 is a defect of the engine.
    pub fn rescues(&self) -> u64 {
        self.watch_state().rescues.load(Ordering::Relaxed)
    }
}
