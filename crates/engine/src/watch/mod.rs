//! The watcher: one thread that helps pools which cannot help themselves, and sleeps while there
//! are none.
//!
//! Workers take batches, and a submitter that finds its pool busy wakes no worker. Both are right
//! while items are short, and no thread knows in advance that an item is long. If one is, the items
//! behind it must not wait for it while other CPUs are idle. So the pool's rule
//! ([`crate::pool::progress`]) calls the watcher, which costs a load while the watcher is awake.
//! The watcher scans at growing intervals, moves stuck items, and goes to sleep when nothing has
//! waited for a while.
//!
//! ```text
//! a thread that leaves something waiting    the watcher
//! W1: scheduled_batches += 1, or READY pushed        W2: awake = ASLEEP
//! R1: awake == AWAKE ?                      R2: something waiting ?
//!   no: awake.swap(AWAKE) -> wake             yes: awake = AWAKE, go on
//! ```
//!
//! This is a Dekker pair: each side writes, then reads what the other side wrote. All four accesses
//! are sequentially consistent. So either R1 sees W2 and the thread wakes the watcher, or R2 sees
//! W1 and the watcher stays awake. If either side could read before its write is visible, both
//! could miss, and the item would wait for the long run in front of it.
//!
//! Before it sleeps, the watcher lingers (LINGERS, entered by the same protocol), so that not every
//! other item wakes it. In a pool where workers sleep undeclared ([`blocked`]), a thread that
//! leaves something waiting wakes it from that state as well.
//!
//! The watcher also serves timers that no keeper covers ([`timers`]), creates workers that
//! submitters need ([`spawn_requests`]), and checks whether the CPUs have changed ([`changes`]).

mod blocked;
mod changes;
mod collect;
mod deadlock;
mod hogs;
mod reporting;
pub(crate) mod reports;
mod running;
mod samples;
mod scan;
mod spawn_requests;
mod stacks;
mod stall;
pub(crate) mod standby;
mod survey;
mod timers;
mod watchdog;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use hogs::Hogs;
pub use hogs::{CPU_INTENSIVE_THRESH_NS, CPU_INTENSIVE_WARNING_THRESH};

use scan::{REMEMBER_NS, Scan, ScanState};
pub(crate) use uwork_policy::scan::STUCK_NS;
use uwork_policy::scan::{Heard, Listening, Pace, Rest};
pub use watchdog::WATCHDOG_THRESH_NS;
use watchdog::{Guard, Watchdog};

use crate::engine::Engine;
use crate::pool::{NEVER, Pool};
use crate::words::host::{Event, Host, Observer, Report, SpawnError};
use crate::words::sync::{AtomicBool, AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use crate::words::wake::WakeToken;

/// A value of `next_check`: no scan is planned.
const NO_CHECK: u64 = 0;

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;
/// It has found nothing waiting lately, and scans at growing intervals.
const LINGERS: u32 = 2;

/// After a failure to create a thread, the next attempt comes this much later (the kernel's
/// `CREATE_COOLDOWN`).
pub(crate) const COOL_DOWN_NS: u64 = 1_000_000_000;

/// The watcher's state that other threads change, under a lock.
#[derive(Default)]
pub(crate) struct Shared {
    /// Whether the watcher's thread exists.
    exists: bool,
    /// Whether a thread delivers reports, or is about to.
    reporter: bool,
    /// Slots whose runs may wait for themselves.
    suspects: BTreeSet<u32>,
    /// Reports that are not delivered yet.
    pending_reports: Vec<Report>,
}

/// See the module.
pub(crate) struct Watch<H: Host> {
    awake: AtomicU32,
    /// When the watcher checks the CPUs next; `NO_CHECK` if it does not.
    next_check: AtomicU64,
    /// A worker has asked for a check of the CPUs.
    called: AtomicBool,
    /// When the watcher, if asleep, serves timers that no keeper covers.
    timers_at: AtomicU64,
    /// Whether the watcher's thread serves requests.
    present: AtomicBool,
    /// Whether some pool has left its claim on a wake to the watcher.
    is_spawn_requested: AtomicBool,
    /// When the watcher last searched for stranded pools. The watcher alone writes it.
    stranded_at: AtomicU64,
    /// How often a pool was found without a worker that it should have had.
    rescues: AtomicU64,
    /// The thread's number on the host. Guard: `placing` of the engine's CPUs.
    thread: AtomicU64,
    event: H::Event,
    shared: Lock<Shared>,
    retired: AtomicBool,
    pub(crate) watchdog: Watchdog,
}

impl<H: Host> Watch<H> {
    pub(crate) fn new() -> Watch<H> {
        Watch {
            awake: AtomicU32::new(ASLEEP),
            next_check: AtomicU64::new(NO_CHECK),
            called: AtomicBool::new(false),
            timers_at: AtomicU64::new(NEVER),
            present: AtomicBool::new(false),
            is_spawn_requested: AtomicBool::new(false),
            stranded_at: AtomicU64::new(0),
            rescues: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            event: H::Event::default(),
            shared: Lock::new(Shared::default()),
            retired: AtomicBool::new(false),
            watchdog: Watchdog::new(),
        }
    }
}

impl<H: Host> Watch<H> {
    /// Locks the shared state.
    pub(crate) fn hold(&self) -> LockGuard<'_, Shared> {
        self.shared.lock()
    }

    /// In a forked child, where the watcher's thread does not exist and the reports are the
    /// parent's.
    pub(crate) fn forget(&self, shared: &mut Shared) {
        // All fields by name: whoever adds one decides here what the child finds in it.
        let Watch {
            awake,
            next_check,
            called,
            timers_at,
            present,
            is_spawn_requested,
            stranded_at: _,
            rescues: _,
            thread,
            event,
            shared: _,
            retired: _,
            watchdog: _,
        } = self;
        // Forget instead of drop: the fork may have happened while the allocator was locked.
        std::mem::forget(std::mem::take(shared));
        event.renew();
        awake.store(ASLEEP, Ordering::SeqCst);
        next_check.store(NO_CHECK, Ordering::SeqCst);
        called.store(false, Ordering::SeqCst);
        timers_at.store(NEVER, Ordering::SeqCst);
        present.store(false, Ordering::SeqCst);
        is_spawn_requested.store(false, Ordering::SeqCst);
        thread.store(0, Ordering::Relaxed);
    }
}

impl<H: Host> Watch<H> {
    #[cold]
    pub(crate) fn wake(&self, engine: &Engine<H>) {
        let watch = self;
        // The thread exists except in a forked child. After a failure the next call tries again.
        if self.start(engine).is_err() {
            return;
        }
        if watch.awake.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(engine.host());
        }
    }

    /// Makes the watcher scan, if its thread exists. Takes no lock.
    fn wake_present(&self, engine: &Engine<H>) {
        if self.present.load(Ordering::SeqCst) {
            self.awake.store(AWAKE, Ordering::SeqCst);
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const self.event) }.send(engine.host());
        }
    }

    /// Whether the watcher's thread is to end.
    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    /// The watcher's thread, as the host names it; 0 if none.
    pub(crate) fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Stores the number of the watcher's thread, which calls this; 0 when it ends.
    fn set_thread(&self, engine: &Engine<H>, thread: u64) {
        let _placing = engine.versions.hold_placing();
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Makes sure that the watcher's thread exists.
    pub(crate) fn start(&self, engine: &Engine<H>) -> Result<(), SpawnError> {
        if self.present.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut shared = self.hold();
        let Some(me) = engine.me().filter(|_| !shared.exists) else { return Ok(()) };
        shared.exists = true;
        drop(shared);
        let cpus = engine.cpus().allowed.clone();
        let spec = engine.service("uw/watch", cpus);
        engine.host().spawn(&spec, Box::new(move || watch_main(&me))).inspect_err(|_| {
            self.hold().exists = false;
            // Others may have relied on the thread meanwhile, so undo every promise that it would
            // scan. The next change of a pool tries again.
            self.awake.store(ASLEEP, Ordering::SeqCst);
            self.timers_at.store(NEVER, Ordering::SeqCst);
            self.next_check.store(NO_CHECK, Ordering::SeqCst);
        })
    }

    /// Ends the watcher's thread.
    pub(crate) fn retire(&self, engine: &Engine<H>) {
        let watch = self;
        watch.retired.store(true, Ordering::SeqCst);
        // SAFETY: the event lives as long as the engine.
        unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(engine.host());
    }
}

impl<H: Host> Pool<H> {
    /// Calls the watcher: something waits in this pool behind running workers. The caller holds no
    /// locks.
    #[inline]
    pub(crate) fn call_watch(&self, engine: &Engine<H>) {
        // SeqCst: R1 of the module's diagram. The caller's push (W1) comes before it.
        let awake = engine.watch.awake.load(Ordering::SeqCst);
        // Where blocks are expected, they must be found now and not at the end of the watcher's
        // interval.
        let soon = self.blocking.expects_any() && !engine.standbys.call(engine, self);
        let calls = awake == ASLEEP || (awake == LINGERS && soon);
        if calls && self.watcher_helps(engine) && !self.spares_watcher() {
            engine.watch.wake(engine);
        }
    }
}

fn watch_main<H: Host>(engine: &Arc<Engine<H>>) {
    let watch = &engine.watch;
    watch.set_thread(engine, engine.host().thread_id());
    watch.present.store(true, Ordering::SeqCst);
    // SAFETY: the event lives as long as the engine, which this thread holds.
    unsafe { engine.host().watcher_begins(&raw const watch.event) };
    let mut watcher = Watcher::new(engine);
    while !watch.is_retired() {
        engine.host().watcher_woke();
        watch.spawn_requested(engine);
        if watch.awake.load(Ordering::SeqCst) == ASLEEP {
            watcher.sleep();
        } else {
            watcher.scan_while_needed();
        }
    }
    // A claim that is left from here on stays with the thread that leaves it. Partner of both
    // stores: `leave_spawn_to_watcher`.
    watch.present.store(false, Ordering::SeqCst);
    watch.spawn_requested(engine);
    watch.set_thread(engine, 0);
}

/// What the watcher's thread keeps while it lives.
struct Watcher<'a, H: Host> {
    engine: &'a Engine<H>,
    state: ScanState<H>,
    guard: Guard,
    /// When it checks the CPUs next; None if no check is planned.
    check_at: Option<u64>,
    /// When it searches for stranded pools next.
    stranded_at: u64,
}

impl<'a, H: Host> Watcher<'a, H> {
    fn new(engine: &'a Engine<H>) -> Watcher<'a, H> {
        let (state, guard) = (ScanState::new(), Guard::new());
        Watcher { engine, state, guard, check_at: None, stranded_at: NEVER }
    }

    /// Sleeps until something is due, or until the watcher is called.
    fn sleep(&mut self) {
        let (engine, watch, host) = (self.engine, &self.engine.watch, self.engine.host());
        let timers_at = watch.serve_due_timers(engine);
        let deadline = self.check_at.unwrap_or(NEVER).min(self.state.clear_at).min(self.guard.next);
        let deadline = deadline.min(timers_at).min(self.stranded_at);
        let _ = host.park(&watch.event, (deadline != NEVER).then_some(deadline));
        self.check_at = watch.check_cpus(engine, self.check_at);
        if self.check_at.is_some() && engine.saving_pools_wait() {
            watch.awake.store(AWAKE, Ordering::SeqCst);
        }
        self.stranded_at = watch.find_stranded(engine);
        self.guard.check_if_due(engine, self.check_at.is_some());
        if self.state.clear_at <= host.now() {
            self.state.clear();
        }
    }

    /// Scans until nothing has waited for a while, and publishes that the watcher sleeps.
    fn scan_while_needed(&mut self) {
        let (engine, watch, host) = (self.engine, &self.engine.watch, self.engine.host());
        let now = host.now();
        let (mut pace, mut listening) = (Pace::woken(now), Listening::default());
        if let Some(at) = pace.first_scan_at(watch.is_any_suspect(engine, now)) {
            let _ = host.park(&watch.event, Some(at));
        }
        let mut heard = Heard::Nothing;
        while !watch.is_retired() {
            engine.host().watcher_woke();
            watch.spawn_requested(engine);
            self.check_at = watch.check_cpus(engine, self.check_at);
            self.guard.check_if_due(engine, true);
            let now = host.now();
            let (scan, rest) = self.scan_and_rest(pace, now);
            if rest == Rest::Sleep {
                self.stranded_at = scan.stranded_at;
                break;
            }
            let next;
            (pace, next) = pace.after(scan.scanned, now);
            listening = listening.after(heard, self.state.samples.take_slept(), now);
            heard = self.park_until(next, listening);
        }
        self.guard.check_if_due(engine, self.check_at.is_some());
        self.state.runs.clear();
        if self.state.samples.records_any() {
            self.state.clear_at = host.now().saturating_add(REMEMBER_NS);
        }
    }

    /// Sleeps until the next scan is due, until the watcher is called, or until there are records that it
    /// reads now.
    fn park_until(&self, next: u64, listening: Listening) -> Heard {
        let (host, event) = (self.engine.host(), &self.engine.watch.event);
        let records = self.state.samples.wanted();
        let from = if records.is_empty() { next } else { listening.from.min(next) };
        if records.is_empty() || from > host.now() {
            let is_called = host.park(event, Some(from));
            if is_called || from == next {
                return Heard::Nothing;
            }
        }
        self.engine.observer().park_on_records(event, &records, next)
    }

    /// Scans, and publishes a rest if one is due. Then the watcher must scan once more: something
    /// that began to wait before the rest was published has not called it. The result is the last
    /// scan, and the rest that it leaves.
    fn scan_and_rest(&mut self, pace: Pace, now: u64) -> (Scan, Rest) {
        let (engine, watch) = (self.engine, &self.engine.watch);
        let mut scan = watch.scan(engine, now, &mut self.state);
        let lingers = watch.awake.load(Ordering::SeqCst) != AWAKE;
        let mut rest = pace.rest(scan.scanned.waiting, lingers, now);
        // W2 before R2 (see the module): publish the state first, then scan.
        match rest {
            Rest::No => {}
            Rest::Linger => watch.awake.store(LINGERS, Ordering::SeqCst),
            Rest::Sleep => watch.awake.store(ASLEEP, Ordering::SeqCst),
        }
        if rest != Rest::No {
            scan = watch.scan(engine, now, &mut self.state);
        }
        if scan.scanned.waiting {
            watch.awake.store(AWAKE, Ordering::SeqCst);
            rest = Rest::No;
        }
        (scan, rest)
    }
}

/// Access for the models, which run without the watcher's thread.
#[cfg(all(test, loom))]
mod model {
    use super::{ASLEEP, ScanState};
    use crate::engine::Engine;
    use crate::models::LoomHost;
    use crate::pool::NEVER;
    use crate::watch::AWAKE;
    use crate::words::host::Host;
    use crate::words::sync::Ordering;

    impl Engine<LoomHost> {
        /// Sends the watcher to sleep: the steps at the end of its loop and at the beginning of the
        /// next round. Returns the time until which it sleeps.
        pub(crate) fn watch_sleeps(&self) -> u64 {
            let watch = &self.watch;
            watch.awake.store(ASLEEP, Ordering::SeqCst);
            if watch.scan(self, self.host().now(), &mut ScanState::new()).scanned.waiting {
                watch.awake.store(AWAKE, Ordering::SeqCst);
            }
            watch.serve_due_timers(self)
        }

        /// Whether the watcher is awake, or was woken.
        pub(crate) fn watch_is_called(&self) -> bool {
            let watch = &self.watch;
            watch.awake.load(Ordering::SeqCst) != ASLEEP || watch.event.is_woken()
        }

        /// Whether a thread sleeps no longer than until the next timer of this pool, or was woken
        /// to serve it. The watcher sleeps until `watch_at`. The error describes the state.
        pub(crate) fn check_timers(&self, pool: u32, watch_at: u64) -> Result<(), String> {
            let pool = self.pool(pool);
            let next = pool.next_wake();
            assert_ne!(next, NEVER, "a timer is armed");
            let inner = pool.lock();
            let sleeps_for_it = |id| pool.keeper_until() <= next || self.slot(id).event.is_woken();
            let by_keeper = inner.keeper.is_some_and(sleeps_for_it);
            let by_watch = watch_at <= next + pool.timer_slack() || self.watch_is_called();
            let counts = pool.state.counts();
            let (keeper, kept) = (inner.keeper, pool.keeper_until());
            if by_keeper || by_watch {
                return Ok(());
            }
            Err(format!(
                "timer {next}: keeper {keeper:?} until {kept}, watch {watch_at}, {counts:?}"
            ))
        }

        /// Moves ready pwqs from the inboxes to the lists, as a dump does.
        pub(crate) fn move_ready_lists(&self) {
            self.for_each_pool(|pool| pool.for_each_ready(&mut pool.lock(), |_| {}));
        }
    }
}
