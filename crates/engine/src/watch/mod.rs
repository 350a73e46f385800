//! One thread that looks at pools which cannot help themselves, and sleeps while there is none.
//!
//! Workers take batches, and a submitter that finds its pod busy wakes no worker. Both are right while
//! items are short, which is all that can be known. Should one turn out long, what waits behind it
//! must not wait for it while other CPUs are idle. So the pool's rule ([`crate::pool::progress`]) calls
//! the watch: a load where it is awake. The watch looks at growing intervals, moves what has become stuck,
//! and goes to sleep when nothing has been waiting for a while.
//!
//! ```text
//! a thread that leaves something waiting    the watch
//! lined_up += 1, or READY pushed            awake = ASLEEP
//! awake == AWAKE ?                          something waiting ?
//!   no: awake.swap(AWAKE) -> wake             yes: awake = AWAKE, go on
//! ```
//!
//! All of these are sequentially consistent: one of the two sees the other. Before it sleeps the watch
//! lingers for a while (LINGERS, entered in the same way), so that not every other item wakes it. In
//! a pool where workers sleep undeclared ([`sleepers`]) a thread that leaves something waiting wakes it from
//! that as well.
//!
//! It also looks after timers that no parked worker keeps ([`timers`]), makes workers that submitters miss
//! ([`wanted`]), and looks whether the CPUs have changed ([`changes`]).

mod changes;
mod deadlock;
mod hogs;
mod look;
mod sightings;
mod sleepers;
mod stall;
mod telling;
mod timers;
mod wanted;
mod watchdog;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use hogs::Hogs;
pub use hogs::{CPU_INTENSIVE_THRESH_NS, CPU_INTENSIVE_WARNING_THRESH};

use look::{INTERVAL_MAX_NS, REMEMBER_NS, SeenBefore};
use sleepers::SOON_NS;
pub use watchdog::WATCHDOG_THRESH_NS;
use watchdog::{Guard, Watchdog};

use crate::engine::Engine;
use crate::host::{Host, Report, SpawnError, WorkerSpec};
use crate::pool::{NEVER, Pool};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use crate::wake::WakeToken;

/// How long a batch may have been running, or a ready pwq waiting, before somebody else takes over.
pub(crate) const STUCK_NS: u64 = 200_000;
/// For how long nothing must have been waiting before the watch sleeps.
const LINGER_NS: u64 = 2 * INTERVAL_MAX_NS;
/// A value of `next_look`: there will be none.
const NO_LOOK: u64 = 0;

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;
/// It has found nothing waiting lately, and looks less and less often.
const LINGERS: u32 = 2;

/// How long after a failure the thread is not tried again (the kernel's `CREATE_COOLDOWN`).
pub(crate) const COOL_DOWN_NS: u64 = 1_000_000_000;

/// What the watch shares with others, under a lock.
#[derive(Default)]
pub(crate) struct Shared {
    /// Whether the watch's thread exists.
    exists: bool,
    /// Whether somebody tells stalls, or is about to.
    reporter: bool,
    /// Slots whose runs may wait for themselves.
    suspects: BTreeSet<u32>,
    /// Reports that are to be told.
    untold: Vec<Report>,
}

/// See the module.
pub(crate) struct Watch<H: Host> {
    awake: AtomicU32,
    /// When the CPUs will be looked at again; `NO_LOOK`.
    next_look: AtomicU64,
    /// A worker has asked for a look at the CPUs.
    called: AtomicBool,
    /// When the watch looks at timers that no parked worker keeps, if it is asleep.
    timers_at: AtomicU64,
    /// Whether its thread serves.
    present: AtomicBool,
    /// Whether a pool has a worker made by the watch.
    wanted: AtomicBool,
    /// When the watch last looked for such pools. Written by the watch.
    stranded_at: AtomicU64,
    /// Pools that were found without a worker that they should have had.
    rescues: AtomicU64,
    /// The thread, as the host names it. Guard: `placing` of the engine's CPUs.
    pub(crate) thread: AtomicU64,
    event: H::Event,
    shared: Lock<Shared>,
    retired: AtomicU32,
    pub(crate) watchdog: Watchdog,
}

impl<H: Host> Watch<H> {
    pub(crate) fn new() -> Watch<H> {
        Watch {
            awake: AtomicU32::new(ASLEEP),
            next_look: AtomicU64::new(NO_LOOK),
            called: AtomicBool::new(false),
            timers_at: AtomicU64::new(NEVER),
            present: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            stranded_at: AtomicU64::new(0),
            rescues: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            event: H::Event::default(),
            shared: Lock::new(Shared::default()),
            retired: AtomicU32::new(0),
            watchdog: Watchdog::new(),
        }
    }
}

impl<H: Host> Watch<H> {
    /// Holds on to what is shared.
    pub(crate) fn hold(&self) -> LockGuard<'_, Shared> {
        self.shared.lock()
    }

    /// In a child after a fork: there is no thread, and what was to be told is the parent's.
    pub(crate) fn forget(&self, host: &H, shared: &mut Shared) {
        // Not dropped: the allocator may be locked for the fork.
        std::mem::forget(std::mem::take(shared));
        host.renew(&self.event);
        self.awake.store(ASLEEP, Ordering::SeqCst);
        self.next_look.store(NO_LOOK, Ordering::SeqCst);
        self.called.store(false, Ordering::SeqCst);
        self.timers_at.store(NEVER, Ordering::SeqCst);
        self.present.store(false, Ordering::SeqCst);
        self.wanted.store(false, Ordering::SeqCst);
        self.thread.store(0, Ordering::Relaxed);
    }
}

impl<H: Host> Engine<H> {
    /// Something waits in `pool` behind workers that run. Without locks held.
    #[inline]
    pub(crate) fn call_watch(&self, pool: &Pool<H>) {
        let awake = self.watch_state().awake.load(Ordering::SeqCst);
        // Where sleeps are expected, it is to look now and not with the next interval.
        let calls = awake == ASLEEP
            || (awake == LINGERS && pool.suspect_until.load(Ordering::Relaxed) != 0);
        if calls && self.watch_helps(pool) {
            self.wake_watch();
        }
    }

    #[cold]
    pub(crate) fn wake_watch(&self) {
        let watch = self.watch_state();
        // It does, but in a child after a fork. A failure is tried again with the next reason.
        if self.start_watch().is_err() {
            return;
        }
        if watch.awake.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
        }
    }

    /// Sees to it that the watch's thread exists.
    pub(crate) fn start_watch(&self) -> Result<(), SpawnError> {
        if self.watch_state().present.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut shared = self.watch_state().hold();
        let Some(engine) = self.me().filter(|_| !shared.exists) else { return Ok(()) };
        shared.exists = true;
        drop(shared);
        let cpus = self.cpus().allowed.clone();
        let spec = WorkerSpec { name: "uw/watch".to_owned(), cpus, nice: 0 };
        self.host().spawn(&spec, Box::new(move || watch_main(&engine))).inspect_err(|_| {
            let watch = self.watch_state();
            watch.hold().exists = false;
            // Others may have relied on the thread meanwhile. The next change of a pool tries again.
            watch.awake.store(ASLEEP, Ordering::SeqCst);
            watch.timers_at.store(NEVER, Ordering::SeqCst);
            watch.next_look.store(NO_LOOK, Ordering::SeqCst);
        })
    }

    /// Ends the watch's thread.
    pub(crate) fn retire_watch(&self) {
        let watch = self.watch_state();
        watch.retired.store(1, Ordering::SeqCst);
        // SAFETY: the event lives as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
    }
}

fn watch_main<H: Host>(engine: &Arc<Engine<H>>) {
    let (host, watch) = (engine.host(), engine.watch_state());
    engine.name_watch(host.thread_id());
    watch.present.store(true, Ordering::SeqCst);
    let retired = || watch.retired.load(Ordering::SeqCst) != 0;
    let mut seen = SeenBefore::new();
    let (mut look_at, mut stranded_at, mut guard) = (None, NEVER, Guard::new());
    while !retired() {
        engine.make_wanted();
        if watch.awake.load(Ordering::SeqCst) == ASLEEP {
            let timers_at = engine.look_at_timers();
            let deadline = look_at.unwrap_or(NEVER).min(seen.clear_at).min(guard.next);
            let deadline = deadline.min(timers_at).min(stranded_at);
            let _ = host.park(&watch.event, (deadline != NEVER).then_some(deadline));
            look_at = engine.look_at_cpus(look_at);
            stranded_at = engine.look_for_stranded();
            guard.look(engine, look_at.is_some());
            if seen.clear_at <= host.now() {
                seen.clear();
            }
            continue;
        }
        // What woke the watch has only just begun to wait.
        let (mut interval, mut last_waiting) = (STUCK_NS, host.now());
        let mut was_waiting = false;
        if !engine.is_any_suspect(last_waiting) {
            let _ = host.park(&watch.event, Some(last_waiting.saturating_add(interval)));
        }
        while !retired() {
            engine.make_wanted();
            look_at = engine.look_at_cpus(look_at);
            guard.look(engine, true);
            let now = host.now();
            let mut look = engine.look(now, &mut seen);
            let rested = now.saturating_sub(last_waiting) >= LINGER_NS;
            if !look.waiting && (rested || watch.awake.load(Ordering::SeqCst) == AWAKE) {
                // First the mark, then a last look (see the module).
                watch.awake.store(if rested { ASLEEP } else { LINGERS }, Ordering::SeqCst);
                look = engine.look(now, &mut seen);
                if rested && !look.waiting {
                    stranded_at = look.stranded_at;
                    break;
                }
            }
            if look.waiting {
                last_waiting = now;
                watch.awake.store(AWAKE, Ordering::SeqCst);
                if !was_waiting {
                    interval = if look.suspect { SOON_NS / 2 } else { STUCK_NS / 2 };
                }
            }
            was_waiting = look.waiting;
            interval = if look.next <= now.saturating_add(SOON_NS) {
                SOON_NS
            } else {
                (interval * 2).min(look.longest)
            };
            let next = look.next.min(now.saturating_add(interval));
            let sights = seen.sightings.wanted();
            if sights.is_empty() {
                let _ = host.park(&watch.event, Some(next));
            } else {
                host.park_observing(&watch.event, &sights, next);
            }
        }
        guard.look(engine, look_at.is_some());
        seen.runs.clear();
        if seen.sightings.observes() {
            seen.clear_at = host.now().saturating_add(REMEMBER_NS);
        }
    }
    // A claim that is left from here on stays with the thread that leaves it.
    watch.present.store(false, Ordering::SeqCst);
    engine.make_wanted();
    engine.name_watch(0);
}

/// What the models ask of the watch, of which they have no thread.
#[cfg(all(test, loom))]
mod model {
    use super::{ASLEEP, SeenBefore};
    use crate::engine::Engine;
    use crate::host::Host;
    use crate::models::LoomHost;
    use crate::pool::NEVER;
    use crate::sync::Ordering;
    use crate::watch::AWAKE;

    impl Engine<LoomHost> {
        /// The watch goes to sleep: the steps at the end of its loop, and at the beginning of the next round.
        /// Until when it sleeps.
        pub(crate) fn watch_sleeps(&self) -> u64 {
            let watch = self.watch_state();
            watch.awake.store(ASLEEP, Ordering::SeqCst);
            if self.look(self.host().now(), &mut SeenBefore::new()).waiting {
                watch.awake.store(AWAKE, Ordering::SeqCst);
            }
            self.look_at_timers()
        }

        /// Whether the watch is awake, or was woken.
        pub(crate) fn watch_is_called(&self) -> bool {
            let watch = self.watch_state();
            watch.awake.load(Ordering::SeqCst) != ASLEEP || watch.event.is_woken()
        }

        /// Whether a thread sleeps no longer than until the next timer of this pool, or was woken to look at it.
        /// The watch sleeps until `watch_at`. The error says what was seen.
        pub(crate) fn check_timers(&self, pool: u32, watch_at: u64) -> Result<(), String> {
            let pool = self.pool(pool);
            let next = pool.next_wake();
            assert_ne!(next, NEVER, "a timer is armed");
            let inner = pool.lock();
            let sleeps_for_it = |id| pool.kept_until() <= next || self.slot(id).event.is_woken();
            let by_keeper = inner.keeper.is_some_and(sleeps_for_it);
            let by_watch = watch_at <= next + pool.timer_slack() || self.watch_is_called();
            let counts = pool.state.counts();
            let (keeper, kept) = (inner.keeper, pool.kept_until());
            if by_keeper || by_watch {
                return Ok(());
            }
            Err(format!(
                "timer {next}: keeper {keeper:?} until {kept}, watch {watch_at}, {counts:?}"
            ))
        }

        /// Moves what is ready from the inboxes to the lists, as a dump does.
        pub(crate) fn move_ready_lists(&self) {
            self.for_each_pool(|pool| pool.for_each_ready(self.host(), &mut pool.lock(), |_| {}));
        }
    }
}
