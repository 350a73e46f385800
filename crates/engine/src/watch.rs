//! Somebody looks again: one thread that is awake only while work waits behind work.
//!
//! Workers take batches, and a submitter that finds its pod busy wakes nobody. Both are right while
//! items are short, which is all that can be known. Should one turn out long, what waits behind it
//! must not wait for it while other CPUs have nothing to do. So whoever leaves something waiting
//! makes sure that the watch is awake: a load where it is. The watch looks at growing intervals,
//! moves what has become stuck, and goes to sleep when nothing has been waiting for a while.
//!
//! ```text
//! who leaves something waiting          the watch
//! lined_up += 1, or READY pushed        awake = 0
//! awake == 1 ?                          something waiting ?
//!   no: awake.swap(1) == 0 -> wake        yes: awake.swap(1) == 0 -> go on
//! ```
//!
//! All of these are sequentially consistent: one of the two sees the other.

use std::sync::Arc;

use crate::engine::Engine;
use crate::host::{Host, Report, WorkerSpec};
use crate::pool::Pool;
use crate::sync::{AtomicU32, Lock, Ordering};
use crate::wake::WakeToken;

/// How long a batch may have been running, or a ready pwq waiting, before somebody else takes over.
pub(crate) const STUCK_NS: u64 = 200_000;
/// The longest interval between two looks.
const INTERVAL_MAX_NS: u64 = 10_000_000;
/// For how long nothing must have been waiting before the watch sleeps.
const LINGER_NS: u64 = 100_000_000;

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;

/// See the module.
pub(crate) struct Watch<H: Host> {
    awake: AtomicU32,
    event: H::Event,
    /// Whether the thread exists. Guard: itself.
    started: Lock<bool>,
    retired: AtomicU32,
}

impl<H: Host> Watch<H> {
    pub(crate) fn new() -> Watch<H> {
        Watch {
            awake: AtomicU32::new(ASLEEP),
            event: H::Event::default(),
            started: Lock::new(false),
            retired: AtomicU32::new(0),
        }
    }
}

impl<H: Host> Engine<H> {
    /// The caller has left something waiting in `pool`. Without locks held.
    #[inline]
    pub(crate) fn watch(&self, pool: &Pool<H>) {
        let others_may_help = pool.target() > 1 || pool.spec().shares;
        if others_may_help && self.watch_state().awake.load(Ordering::SeqCst) == ASLEEP {
            self.wake_watch();
        }
    }

    #[cold]
    fn wake_watch(&self) {
        let watch = self.watch_state();
        if watch.awake.swap(AWAKE, Ordering::SeqCst) == AWAKE {
            return;
        }
        let mut started = watch.started.lock();
        let first = !std::mem::replace(&mut *started, true);
        drop(started);
        if !first {
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
            return;
        }
        let Some(engine) = self.me() else { return };
        let spec = WorkerSpec {
            name: "uw/watch".to_owned(),
            cpus: self.config().allowed.clone(),
            nice: 0,
        };
        if let Err(error) = self.host().spawn(&spec, Box::new(move || watch_main(&engine))) {
            *watch.started.lock() = false;
            watch.awake.store(ASLEEP, Ordering::SeqCst);
            self.host().report(Report::SpawnFailed { reason: error.0 });
        }
    }

    /// Ends the watch's thread.
    pub(crate) fn retire_watch(&self) {
        let watch = self.watch_state();
        watch.retired.store(1, Ordering::SeqCst);
        // SAFETY: the event lives as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
    }

    /// One look: moves what is stuck. Whether anything is waiting at all.
    fn look(&self, now: u64) -> bool {
        let (mut waiting, mut stuck) = (false, Vec::new());
        self.for_each_pool(|pool| {
            let lined_up = pool.lined_up.load(Ordering::SeqCst) > 0;
            if lined_up || pool.looks_ready() {
                waiting = true;
                stuck.push(pool.id);
            }
        });
        for id in stuck {
            let pool = self.pool(id);
            self.take_back_stuck(pool, now);
            let since_take = now.saturating_sub(pool.last_take.load(Ordering::Relaxed));
            if pool.looks_ready() && since_take >= STUCK_NS {
                pool.kick(self);
                self.kick_neighbour(pool);
            }
        }
        waiting
    }
}

fn watch_main<H: Host>(engine: &Arc<Engine<H>>) {
    let (host, watch) = (engine.host(), engine.watch_state());
    let (mut interval, mut last_waiting) = (STUCK_NS, host.now());
    while watch.retired.load(Ordering::SeqCst) == 0 {
        let now = host.now();
        if engine.look(now) {
            last_waiting = now;
        }
        if now.saturating_sub(last_waiting) < LINGER_NS {
            let _ = host.park(&watch.event, Some(now.saturating_add(interval)));
            interval = (interval * 2).min(INTERVAL_MAX_NS);
            continue;
        }
        watch.awake.store(ASLEEP, Ordering::SeqCst);
        if !engine.look(now) {
            while watch.awake.load(Ordering::SeqCst) == ASLEEP
                && watch.retired.load(Ordering::SeqCst) == 0
            {
                let _ = host.park(&watch.event, None);
            }
        }
        watch.awake.store(AWAKE, Ordering::SeqCst);
        (interval, last_waiting) = (STUCK_NS, host.now());
        // What woke the watch has only just begun to wait.
        let _ = host.park(&watch.event, Some(last_waiting.saturating_add(interval)));
    }
}
