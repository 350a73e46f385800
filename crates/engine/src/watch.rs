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
use crate::hog::Runs;
use crate::host::{Host, SpawnError, WorkerSpec};
use crate::pool::{NEVER, Pool};
use crate::rescuer::MAYDAY_INTERVAL_NS;
use crate::sync::{AtomicU32, Lock, Ordering};
use crate::wake::WakeToken;

/// How long a batch may have been running, or a ready pwq waiting, before somebody else takes over.
pub(crate) const STUCK_NS: u64 = 200_000;
/// The longest interval between two looks.
const INTERVAL_MAX_NS: u64 = 10_000_000;
/// For how long nothing must have been waiting before the watch sleeps.
const LINGER_NS: u64 = 2 * INTERVAL_MAX_NS;

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;

/// How long after a failure the thread is not tried again (the kernel's `CREATE_COOLDOWN`).
pub(crate) const COOL_DOWN_NS: u64 = 1_000_000_000;

/// Whether what waits in this pool could be done by somebody else who exists.
fn others_may_help<H: Host>(pool: &Pool<H>) -> bool {
    pool.target() > 1 || pool.spec().shares
}

/// See the module.
pub(crate) struct Watch<H: Host> {
    awake: AtomicU32,
    event: H::Event,
    /// Whether the thread exists.
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
        if self.watch_state().awake.load(Ordering::SeqCst) == ASLEEP && self.may_matter(pool) {
            self.wake_watch();
        }
    }

    /// Whether a look at a pool where something waits can be of use.
    fn may_matter(&self, pool: &Pool<H>) -> bool {
        others_may_help(pool) || (self.hogs().is_on() && !pool.spec().single)
    }

    #[cold]
    pub(crate) fn wake_watch(&self) {
        let watch = self.watch_state();
        if watch.awake.swap(AWAKE, Ordering::SeqCst) == ASLEEP {
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
        }
    }

    /// Sees to it that the watch's thread exists.
    pub(crate) fn start_watch(&self) -> Result<(), SpawnError> {
        let mut exists = self.watch_state().started.lock();
        let Some(engine) = self.me().filter(|_| !*exists) else { return Ok(()) };
        *exists = true;
        drop(exists);
        let spec = WorkerSpec {
            name: "uw/watch".to_owned(),
            cpus: self.config().allowed.clone(),
            nice: 0,
        };
        self.host().spawn(&spec, Box::new(move || watch_main(&engine))).inspect_err(|_| {
            *self.watch_state().started.lock() = false;
        })
    }

    /// Ends the watch's thread.
    pub(crate) fn retire_watch(&self) {
        let watch = self.watch_state();
        watch.retired.store(1, Ordering::SeqCst);
        // SAFETY: the event lives as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
    }

    /// One look: moves what is stuck, looks for hogs, and after pools that could not get a worker.
    fn look(&self, now: u64, runs: &mut Runs) -> Look {
        let (mut waiting, mut overdue) = (Vec::new(), Vec::new());
        self.for_each_pool(|pool| {
            let lined_up = pool.lined_up.load(Ordering::SeqCst) > 0;
            let starved = pool.create_again_at.load(Ordering::Relaxed) != 0;
            if (lined_up || pool.looks_ready()) && (starved || self.may_matter(pool)) {
                waiting.push(pool.id);
            }
            if pool.next_timer.load(Ordering::Relaxed).saturating_add(STUCK_NS) <= now {
                overdue.push(pool.id);
            }
        });
        for id in overdue {
            self.pool(id).ensure_keeper(self);
        }
        let mut next = NEVER;
        for &id in &waiting {
            let pool = self.pool(id);
            if others_may_help(pool) {
                self.take_back_stuck(pool, now);
            }
            if !pool.spec().single {
                next = next.min(self.find_hogs(pool, runs, now));
            }
            self.feed_starved(pool, now);
            let since_take = now.saturating_sub(pool.last_take.load(Ordering::Relaxed));
            if others_may_help(pool) && pool.looks_ready() && since_take >= STUCK_NS {
                pool.kick(self);
                self.kick_neighbour(pool);
            }
        }
        Look { waiting: !waiting.is_empty(), next }
    }

    /// Tries again to get a worker for a pool that could not have one.
    fn feed_starved(&self, pool: &Pool<H>, now: u64) {
        let again_at = pool.create_again_at.load(Ordering::Relaxed);
        if again_at == 0 || !pool.looks_ready() {
            return;
        }
        if again_at <= now {
            pool.kick(self);
        } else if pool.mayday_at.load(Ordering::Relaxed) <= now {
            pool.mayday_at.store(now.saturating_add(MAYDAY_INTERVAL_NS), Ordering::Relaxed);
            self.send_maydays(pool);
        }
    }
}

/// What a look has found.
struct Look {
    /// Whether anything waits.
    waiting: bool,
    /// When it is worth looking again at the latest.
    next: u64,
}

fn watch_main<H: Host>(engine: &Arc<Engine<H>>) {
    let (host, watch) = (engine.host(), engine.watch_state());
    let retired = || watch.retired.load(Ordering::SeqCst) != 0;
    let mut runs = Runs::default();
    while !retired() {
        if watch.awake.load(Ordering::SeqCst) == ASLEEP {
            let _ = host.park(&watch.event, None);
            continue;
        }
        runs.clear();
        // What woke the watch has only just begun to wait.
        let (mut interval, mut last_waiting) = (STUCK_NS, host.now());
        let _ = host.park(&watch.event, Some(last_waiting.saturating_add(interval)));
        while !retired() {
            let now = host.now();
            let mut look = engine.look(now, &mut runs);
            if look.waiting {
                last_waiting = now;
            } else if now.saturating_sub(last_waiting) >= LINGER_NS {
                watch.awake.store(ASLEEP, Ordering::SeqCst);
                look = engine.look(now, &mut runs);
                if !look.waiting {
                    break;
                }
                watch.awake.store(AWAKE, Ordering::SeqCst);
            }
            interval = (interval * 2).min(INTERVAL_MAX_NS);
            let next = look.next.min(now.saturating_add(interval));
            let _ = host.park(&watch.event, Some(next));
        }
    }
}
