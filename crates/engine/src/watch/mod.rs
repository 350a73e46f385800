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
//! lined_up += 1, or READY pushed        awake = ASLEEP
//! awake == AWAKE ?                      something waiting ?
//!   no: awake.swap(AWAKE) -> wake         yes: awake = AWAKE, go on
//! ```
//!
//! All of these are sequentially consistent: one of the two sees the other. Before it sleeps the watch
//! lingers for a while (LINGERS, entered in the same way), so that not every other item wakes it. In
//! a pool where workers sleep undeclared ([`sleepers`]) who leaves something waiting wakes it from that as
//! well.
//!
//! **It also looks whether the CPUs have changed** ([`crate::cpus`]), while anybody is at work: so
//! that a change is noticed within a second without a worker's doing, and applied by a thread that
//! holds no work and serves no pool. `next_look` says when it will look, or that it will not. A worker
//! that finds the time over wakes it; nobody at work, nobody looks, nobody is woken.
//!
//! ```text
//! a worker that gets to work            the watch
//! running += 1                          next_look = NO_LOOK
//! next_look is over, or NO_LOOK ?       anybody at work ?
//!   yes: claims it, wakes                 yes: next_look = in LOOK_NS, sleeps until then
//! ```
//!
//! Sequentially consistent again. A worker that stops to count while it is in an item is found by its
//! pool's lists instead; one that comes back from a wait asks again.

mod hogs;
mod sightings;
mod sleepers;

use std::sync::Arc;

pub(crate) use hogs::Hogs;
use hogs::Runs;
pub use hogs::{CPU_INTENSIVE_THRESH_NS, CPU_INTENSIVE_WARNING_THRESH};

use sightings::Sightings;
use sleepers::SOON_NS;
use uwork_policy::blocking::Tier;

use crate::engine::Engine;
use crate::host::{Host, SpawnError, WorkerSpec};
use crate::pool::{NEVER, Pool};
use crate::rescuer::MAYDAY_INTERVAL_NS;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use crate::wake::WakeToken;

/// How long a batch may have been running, or a ready pwq waiting, before somebody else takes over.
pub(crate) const STUCK_NS: u64 = 200_000;
/// The longest interval between two looks.
const INTERVAL_MAX_NS: u64 = 10_000_000;
/// The same where workers may be found asleep.
const INTERVAL_UNDECLARED_NS: u64 = 2_000_000;
/// The same where some were lately.
const INTERVAL_SUSPECT_NS: u64 = 1_000_000;
/// For how long nothing must have been waiting before the watch sleeps.
const LINGER_NS: u64 = 2 * INTERVAL_MAX_NS;

/// Times between two looks at the CPUs, at most, while somebody is at work.
const LOOK_NS: u64 = 250_000_000;
/// A value of `next_look`: there will be none.
const NO_LOOK: u64 = 0;

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;
/// It has found nothing waiting lately, and looks less and less often.
const LINGERS: u32 = 2;

/// How long after a failure the thread is not tried again (the kernel's `CREATE_COOLDOWN`).
pub(crate) const COOL_DOWN_NS: u64 = 1_000_000_000;

/// Whether what waits in this pool could be done by somebody else who exists.
fn others_may_help<H: Host>(pool: &Pool<H>) -> bool {
    pool.target() > 1 || pool.spec().shares
}

/// See the module.
pub(crate) struct Watch<H: Host> {
    awake: AtomicU32,
    /// When the CPUs will be looked at again; `NO_LOOK`.
    next_look: AtomicU64,
    /// A worker has asked for a look at the CPUs.
    called: AtomicBool,
    /// The thread, as the host names it. Guard: `placing` of the engine's CPUs.
    pub(crate) thread: AtomicU64,
    event: H::Event,
    /// Whether the thread exists.
    started: Lock<bool>,
    retired: AtomicU32,
}

impl<H: Host> Watch<H> {
    pub(crate) fn new() -> Watch<H> {
        Watch {
            awake: AtomicU32::new(ASLEEP),
            next_look: AtomicU64::new(NO_LOOK),
            called: AtomicBool::new(false),
            thread: AtomicU64::new(0),
            event: H::Event::default(),
            started: Lock::new(false),
            retired: AtomicU32::new(0),
        }
    }
}

impl<H: Host> Watch<H> {
    /// Holds on to whether the thread exists.
    pub(crate) fn hold(&self) -> LockGuard<'_, bool> {
        self.started.lock()
    }

    /// In a child after a fork: there is no thread.
    pub(crate) fn forget(&self, host: &H, exists: &mut bool) {
        *exists = false;
        host.renew(&self.event);
        self.awake.store(ASLEEP, Ordering::SeqCst);
        self.next_look.store(NO_LOOK, Ordering::SeqCst);
        self.called.store(false, Ordering::SeqCst);
        self.thread.store(0, Ordering::Relaxed);
    }
}

impl<H: Host> Engine<H> {
    /// The caller has left something waiting in `pool`. Without locks held.
    #[inline]
    pub(crate) fn watch(&self, pool: &Pool<H>) {
        let awake = self.watch_state().awake.load(Ordering::SeqCst);
        // Where sleeps are expected, it is to look now and not with the next interval.
        let calls = awake == ASLEEP
            || (awake == LINGERS && pool.suspect_until.load(Ordering::Relaxed) != 0);
        if calls && self.may_matter(pool) {
            self.wake_watch();
        }
    }

    /// Whether a look at a pool where something waits can be of use.
    fn may_matter(&self, pool: &Pool<H>) -> bool {
        let finds = self.hogs().is_on() || self.host().tier() != Tier::Declared;
        others_may_help(pool) || (finds && !pool.spec().single)
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
        let mut exists = self.watch_state().started.lock();
        let Some(engine) = self.me().filter(|_| !*exists) else { return Ok(()) };
        *exists = true;
        drop(exists);
        let cpus = self.cpus().allowed.clone();
        let spec = WorkerSpec { name: "uw/watch".to_owned(), cpus, nice: 0 };
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

    /// The caller is a worker that gets to work at `now`, or at a time that it does not know.
    #[inline]
    pub(crate) fn be_seen(&self, now: u64) {
        // SeqCst: comes after the count of running workers was raised (see the module).
        if self.watch_state().next_look.load(Ordering::SeqCst) <= now {
            self.call_for_a_look();
        }
    }

    #[cold]
    fn call_for_a_look(&self) {
        if self.host().thread_id() == 0 {
            return;
        }
        let (watch, now) = (self.watch_state(), self.host().now());
        let due = watch.next_look.load(Ordering::SeqCst);
        let next = now.saturating_add(LOOK_NS);
        let claim = |due| {
            watch.next_look.compare_exchange(due, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if due <= now && claim(due) && self.start_watch().is_ok() {
            watch.called.store(true, Ordering::SeqCst);
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
        }
    }

    /// The watch looks at the CPUs if it was asked to or the time has come. Until when it may sleep.
    fn look_at_cpus(&self, at: Option<u64>) -> Option<u64> {
        let watch = self.watch_state();
        let called = watch.called.swap(false, Ordering::SeqCst);
        if !called && at.is_none_or(|at| at > self.host().now()) {
            return at;
        }
        if let Some(cpus) = self.host().cpus_changed() {
            self.set_cpus(cpus);
        }
        self.refit_again();
        // First the mark, then the look at who is at work (see the module).
        watch.next_look.store(NO_LOOK, Ordering::SeqCst);
        // Who has called may be done already, and will be back: one more look is less than a call for
        // each item.
        if !called && !self.is_anybody_at_work() {
            return None;
        }
        let next = self.host().now().saturating_add(LOOK_NS);
        watch.next_look.store(next, Ordering::SeqCst);
        Some(next)
    }

    /// Whether any worker looks for items or is in one, and not in a declared wait.
    fn is_anybody_at_work(&self) -> bool {
        let mut found = false;
        self.for_each_pool(|pool| {
            let counts = pool.state.counts();
            found |= counts.running > 0;
            if !found && counts.workers > counts.idle {
                let inner = pool.lock();
                found = inner.workers.iter().any(|&id| self.slot(id).is_busy_locked(&inner));
            }
        });
        found
    }

    /// One look: moves what is stuck, looks for sleepers and hogs, and after pools that could not get a
    /// worker.
    fn look(&self, now: u64, seen: &mut SeenBefore<H>) -> Look {
        let (mut waiting, mut overdue) = (Vec::new(), Vec::new());
        let (mut stranded, mut next) = (false, NEVER);
        let mut longest = match self.host().tier() {
            Tier::Declared => INTERVAL_MAX_NS,
            Tier::Events | Tier::Sampling => INTERVAL_UNDECLARED_NS,
        };
        seen.sightings.begin(now);
        if seen.tidy_at <= now {
            seen.tidy_at = now.saturating_add(REMEMBER_NS);
            seen.sightings.forget_before(now.saturating_sub(REMEMBER_NS));
        }
        self.for_each_pool(|pool| {
            let lined_up = pool.lined_up.load(Ordering::SeqCst) > 0;
            let starved = pool.create_again_at.load(Ordering::Relaxed) != 0;
            if (lined_up || pool.looks_ready()) && (starved || self.may_matter(pool)) {
                waiting.push(pool.id);
            }
            let timer = pool.next_wake();
            if timer.saturating_add(STUCK_NS) <= now {
                overdue.push(pool.id);
            }
            if starved && timer != NEVER && pool.state.counts().idle == 0 {
                // All its workers are taken, and it could get no other: nobody else looks after them.
                stranded = true;
                let again_at = pool.create_again_at.load(Ordering::Relaxed);
                next = next.min(timer.saturating_add(STUCK_NS).max(again_at));
            }
        });
        for id in overdue {
            self.pool(id).ensure_keeper(self);
        }
        for id in self.helpers_of(&waiting) {
            next = next.min(self.find_sleepers(self.pool(id), &mut seen.sightings, now));
        }
        for &id in &waiting {
            let pool = self.pool(id);
            if others_may_help(pool) {
                self.take_back_stuck(pool, now);
            }
            if !pool.spec().single {
                next = next.min(self.find_sleepers(pool, &mut seen.sightings, now));
                next = next.min(self.find_hogs(pool, &mut seen.runs, now));
                if sleepers::is_suspect(pool, now) {
                    longest = longest.min(INTERVAL_SUSPECT_NS);
                }
            }
            self.feed_starved(pool, now);
            let since_take = now.saturating_sub(pool.last_take.load(Ordering::Relaxed));
            if others_may_help(pool) && pool.looks_ready() && since_take >= STUCK_NS {
                pool.kick(self);
                self.kick_neighbour(pool);
            }
        }
        let suspect = longest == INTERVAL_SUSPECT_NS;
        Look { waiting: !waiting.is_empty() || stranded, next, longest, suspect }
    }

    /// Whether sleeps are expected anywhere.
    fn is_any_suspect(&self, now: u64) -> bool {
        let mut any = false;
        self.for_each_pool(|pool| any |= sleepers::is_suspect(pool, now));
        any
    }

    /// Pools in which nothing waits, and whose workers take what waits in these.
    fn helpers_of(&self, waiting: &[u32]) -> Vec<u32> {
        let mut helpers = Vec::new();
        if self.host().tier() != Tier::Declared {
            for &id in waiting.iter().filter(|&&id| self.pool(id).spec().shares) {
                helpers.extend(&self.pool(id).spec().neighbours);
            }
            helpers.sort_unstable();
            helpers.dedup();
            helpers.retain(|id| !waiting.contains(id) && !self.pool(*id).spec().single);
        }
        helpers
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
    /// The longest interval until then.
    longest: u64,
    /// Whether sleeps are expected where something waits.
    suspect: bool,
}

/// What the watch remembers from one look to the next.
struct SeenBefore<H: Host> {
    runs: Runs,
    sightings: Sightings<H>,
    /// When those that were not met for long are forgotten.
    tidy_at: u64,
    /// When all are, if the watch sleeps until then.
    clear_at: u64,
}

impl<H: Host> SeenBefore<H> {
    fn clear(&mut self) {
        self.runs.clear();
        self.sightings.clear();
        self.clear_at = NEVER;
    }
}

/// How long a worker that is not met is remembered.
const REMEMBER_NS: u64 = 1_000_000_000;

fn watch_main<H: Host>(engine: &Arc<Engine<H>>) {
    let (host, watch) = (engine.host(), engine.watch_state());
    engine.name_watch(host.thread_id());
    let retired = || watch.retired.load(Ordering::SeqCst) != 0;
    let mut seen = SeenBefore {
        runs: Runs::default(),
        sightings: Sightings::new(),
        tidy_at: 0,
        clear_at: NEVER,
    };
    let mut look_at = None;
    while !retired() {
        if watch.awake.load(Ordering::SeqCst) == ASLEEP {
            let deadline = look_at.unwrap_or(NEVER).min(seen.clear_at);
            let _ = host.park(&watch.event, (deadline != NEVER).then_some(deadline));
            look_at = engine.look_at_cpus(look_at);
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
            look_at = engine.look_at_cpus(look_at);
            let now = host.now();
            let mut look = engine.look(now, &mut seen);
            let rested = now.saturating_sub(last_waiting) >= LINGER_NS;
            if !look.waiting && (rested || watch.awake.load(Ordering::SeqCst) == AWAKE) {
                // First the mark, then a last look (see the module).
                watch.awake.store(if rested { ASLEEP } else { LINGERS }, Ordering::SeqCst);
                look = engine.look(now, &mut seen);
                if rested && !look.waiting {
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
        seen.runs.clear();
        if seen.sightings.observes() {
            seen.clear_at = host.now().saturating_add(REMEMBER_NS);
        }
    }
    engine.name_watch(0);
}
