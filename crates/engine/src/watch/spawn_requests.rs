//! Workers that submitters need, and pools that lack a worker without reason.
//!
//! A submitter that finds that one more worker should run, and that none is parked, would spend
//! some 20 us on creating a thread. Instead it leaves its claim on the wake to the watcher: WAKING
//! stays set, so the pool counts as served. The watcher gives the claim up and settles the pool,
//! which brings a worker if one is still owed. While the watcher's thread does not serve (before it
//! has begun, in a forked child, at the end of the engine) the claim stays with the submitter.
//!
//! ```text
//! submitter                                the watcher, at its end
//! W1: the pool's and the watch's request   W2: present = false
//! R1: present ?                            R2: a request ?
//!   no: takes its claim back                 yes: settles the pools
//! ```
//!
//! This is a Dekker pair, all SeqCst: the watcher sees the claim, or the submitter sees that the
//! watcher ends. If both do, the `swap` in `take_spawn_request` gives the claim to one of them. If neither
//! did, WAKING would stay set for ever, and the pool would wake no worker any more.
//!
//! **The backstop.** A pool is stranded if it has a ready item, fewer running workers than its
//! target, and no wake or spawn in progress. That breaks the rule of progress. It is normal only
//! between a change and its settlement, for an instant. If a pool stays stranded for
//! [`STRANDED_NS`], the watcher settles it, which brings a worker, and counts a rescue. Each rescue
//! is a defect of the engine. A pool that cannot have one more worker does not count as stranded.

use super::Watch;
use crate::engine::Engine;
use crate::pool::{NEVER, Pool};
use crate::words::host::{Host, Report};
use crate::words::sync::Ordering;
use crate::words::wake::WakeToken;
use uwork_policy::progress::is_stranded;

/// How long a pool may lack a worker that it should have. It must exceed the time for which a
/// thread that is about to settle its change may be kept from a CPU, on a machine with many more
/// threads than CPUs. A machine of 16 emulated CPUs on 2 real ones kept such threads for more than
/// 250 ms: they met a page fault while the thread that held the lock of the address space was
/// preempted.
const STRANDED_NS: u64 = 1_000_000_000;
/// The interval of scans while a pool is in that state. A longer gap between two scans restarts the
/// time: the process, and with it the thread that is about to settle, may have been stopped.
const STRANDED_SCAN_NS: u64 = 25_000_000;

impl<H: Host> Engine<H> {
    /// How often the watcher found a pool without a worker that it should have had, and woke or
    /// created one. A value other than 0 is a defect of the engine.
    pub fn rescues(&self) -> u64 {
        self.watch.rescues.load(Ordering::Relaxed)
    }
}

impl<H: Host> Watch<H> {
    /// Makes the watcher scan, whether it sleeps or not.
    pub(crate) fn wake_for_scan(&self, engine: &Engine<H>) {
        if self.start(engine).is_ok() {
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const self.event) }.send(engine.host());
        }
    }

    /// Settles the pools whose claims were left to the watcher.
    pub(super) fn spawn_requested(&self, engine: &Engine<H>) {
        let watch = self;
        if !watch.is_spawn_requested.load(Ordering::SeqCst)
            || !watch.is_spawn_requested.swap(false, Ordering::SeqCst)
        {
            return;
        }
        engine.for_each_pool(|pool| {
            if pool.take_spawn_request() {
                // Another worker may have taken the items since: the claim is worth what the pool
                // and its neighbours need now.
                pool.give_up_wake().settle(engine);
                pool.kick_for_neighbours(engine);
            }
        });
    }

    /// Settles each pool that has lacked a worker without reason for too long. Returns when to
    /// check again.
    pub(super) fn find_stranded(&self, engine: &Engine<H>) -> u64 {
        let (now, mut next) = (engine.host().now(), NEVER);
        let searched_at = self.stranded_at.swap(now, Ordering::Relaxed);
        let has_gap = now.saturating_sub(searched_at) > 2 * STRANDED_SCAN_NS;
        engine.for_each_pool(|pool| {
            if pool.is_stranded(engine, now, has_gap) {
                next = now.saturating_add(STRANDED_SCAN_NS);
            }
        });
        next
    }
}

impl<H: Host> Pool<H> {
    /// Leaves the caller's claim on a wake in this pool to the watcher. False if the watcher's thread
    /// does not serve.
    pub(crate) fn leave_spawn_to_watcher(&self, engine: &Engine<H>) -> bool {
        let watch = &engine.watch;
        if !watch.present.load(Ordering::SeqCst) {
            return false;
        }
        self.request_spawn();
        watch.is_spawn_requested.store(true, Ordering::SeqCst);
        // R1 after W1 (see the module): the watcher may have ended since the first check.
        if !watch.present.load(Ordering::SeqCst) && self.take_spawn_request() {
            return false;
        }
        engine.watch.wake_for_scan(engine);
        true
    }

    /// Whether a pool lacks a worker without reason. Settles the pool if that has lasted too long.
    fn is_stranded(&self, engine: &Engine<H>, now: u64, has_gap: bool) -> bool {
        let counts = self.state.counts();
        let since = self.stranded_since();
        // A pool that cannot have another worker has a reason.
        let has_reason =
            || now < self.create_again_at() || (counts.idle == 0 && self.is_full(engine));
        if !is_stranded(counts, self.target(), self.looks_ready()) || has_reason() {
            if since != 0 {
                self.set_stranded_since(0);
            }
            return false;
        }
        // A worker that took work since then restarts the time as well.
        if since == 0 || has_gap || self.last_batch_at() >= since {
            self.set_stranded_since(now.max(1));
        } else if now.saturating_sub(since) >= STRANDED_NS {
            self.set_stranded_since(0);
            engine.watch.rescues.fetch_add(1, Ordering::Relaxed);
            self.settle(engine);
            let missing_ns = now.saturating_sub(since);
            engine
                .caller()
                .report(Report::WorkerMissing { pool: self.spec().label.clone(), missing_ns });
        }
        true
    }
}
