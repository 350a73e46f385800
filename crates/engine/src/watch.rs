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

/// How long after a failure the thread is not tried again (the kernel's `CREATE_COOLDOWN`).
const COOL_DOWN_NS: u64 = 1_000_000_000;

struct Started {
    /// Whether the thread exists.
    exists: bool,
    /// When it may be tried again.
    again_at: u64,
}

/// Whether what waits in this pool could be done by somebody else.
pub(crate) fn others_may_help<H: Host>(pool: &Pool<H>) -> bool {
    pool.target() > 1 || pool.spec().shares
}

/// See the module.
pub(crate) struct Watch<H: Host> {
    awake: AtomicU32,
    event: H::Event,
    started: Lock<Started>,
    retired: AtomicU32,
}

impl<H: Host> Watch<H> {
    pub(crate) fn new() -> Watch<H> {
        Watch {
            awake: AtomicU32::new(ASLEEP),
            event: H::Event::default(),
            started: Lock::new(Started { exists: false, again_at: 0 }),
            retired: AtomicU32::new(0),
        }
    }
}

impl<H: Host> Engine<H> {
    /// The caller has left something waiting in `pool`. Without locks held.
    #[inline]
    pub(crate) fn watch(&self, pool: &Pool<H>) {
        if others_may_help(pool) && self.watch_state().awake.load(Ordering::SeqCst) == ASLEEP {
            self.wake_watch();
        }
    }

    #[cold]
    fn wake_watch(&self) {
        let watch = self.watch_state();
        if !self.start_watch() || watch.awake.swap(AWAKE, Ordering::SeqCst) == AWAKE {
            return;
        }
        // SAFETY: the event lives as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
    }

    /// Sees to it that the watch's thread exists. False if it cannot be made at present.
    pub(crate) fn start_watch(&self) -> bool {
        let mut started = self.watch_state().started.lock();
        if started.exists {
            return true;
        }
        let (Some(engine), now) = (self.me(), self.host().now()) else { return false };
        if now < started.again_at {
            return false;
        }
        started.exists = true;
        drop(started);
        let spec = WorkerSpec {
            name: "uw/watch".to_owned(),
            cpus: self.config().allowed.clone(),
            nice: 0,
        };
        let outcome = self.host().spawn(&spec, Box::new(move || watch_main(&engine)));
        let Err(error) = outcome else { return true };
        let mut started = self.watch_state().started.lock();
        started.exists = false;
        started.again_at = now.saturating_add(COOL_DOWN_NS);
        drop(started);
        self.host().report(Report::SpawnFailed { reason: error.0 });
        false
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
        let (mut waiting, mut stuck, mut overdue) = (false, Vec::new(), Vec::new());
        self.for_each_pool(|pool| {
            let lined_up = pool.lined_up.load(Ordering::SeqCst) > 0;
            if others_may_help(pool) && (lined_up || pool.looks_ready()) {
                waiting = true;
                stuck.push(pool.id);
            }
            if pool.next_wake().saturating_add(STUCK_NS) <= now {
                overdue.push(pool.id);
            }
        });
        for id in overdue {
            self.pool(id).ensure_keeper(self);
        }
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
    let retired = || watch.retired.load(Ordering::SeqCst) != 0;
    while !retired() {
        if watch.awake.load(Ordering::SeqCst) == ASLEEP {
            let _ = host.park(&watch.event, None);
            continue;
        }
        // What woke the watch has only just begun to wait.
        let (mut interval, mut last_waiting) = (STUCK_NS, host.now());
        let _ = host.park(&watch.event, Some(last_waiting.saturating_add(interval)));
        while !retired() {
            let now = host.now();
            if engine.look(now) {
                last_waiting = now;
            } else if now.saturating_sub(last_waiting) >= LINGER_NS {
                watch.awake.store(ASLEEP, Ordering::SeqCst);
                if !engine.look(now) {
                    break;
                }
                watch.awake.store(AWAKE, Ordering::SeqCst);
            }
            interval = (interval * 2).min(INTERVAL_MAX_NS);
            let _ = host.park(&watch.event, Some(now.saturating_add(interval)));
        }
    }
}
