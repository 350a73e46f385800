//! The platform of the models: loom's threads, a clock that never advances, and a full fence on
//! both sides of the asymmetric fence.

use loom::sync::{Condvar, Mutex};
use loom::thread::JoinHandle;

use crate::words::host::Cpus;
use uwork_policy::blocking::Tier;

use crate::words::futex::Futex;
use crate::words::host::ThreadState;
use crate::words::host::{
    Activity, Detection, Forks, Frame, Heard, Host, NoStack, Observer, Placement, Report,
    SpawnError, ThreadSample, WorkerSpec,
};
use crate::words::sync::{AtomicU32, Ordering};

/// The time in every model. It is so early that no batch ever counts as stuck.
pub(crate) const NOW: u64 = 1;

/// A deadline that never passes in a model.
pub(crate) const FAR: u64 = 1 << 40;

/// The platform; see the module.
pub(crate) struct LoomHost {
    /// Whether loom explores the current steps.
    explores: std::sync::Mutex<bool>,
    /// Threads that may still be created.
    spawns_left: std::sync::Mutex<u32>,
    threads: std::sync::Mutex<Vec<JoinHandle<()>>>,
    reports: std::sync::Mutex<Vec<Report>>,
    /// Whether the asymmetric fences order anything.
    fences: std::sync::Mutex<bool>,
    /// Whether created threads never run, as those of a parent do not in its child.
    parent: std::sync::Mutex<bool>,
    observer: Unobserved,
}

impl LoomHost {
    /// A platform that can spawn `threads` threads.
    pub(crate) fn new(threads: u32) -> LoomHost {
        LoomHost {
            explores: std::sync::Mutex::new(true),
            spawns_left: std::sync::Mutex::new(threads),
            threads: std::sync::Mutex::default(),
            reports: std::sync::Mutex::default(),
            fences: std::sync::Mutex::new(true),
            parent: std::sync::Mutex::default(),
            observer: Unobserved::default(),
        }
    }

    /// How many more threads may be created.
    pub(crate) fn spawns_left(&self) -> u32 {
        *self.spawns_left.lock().unwrap()
    }

    /// From now on the light and the heavy fence do nothing.
    pub(crate) fn drop_asymmetric_fences(&self) {
        *self.fences.lock().unwrap() = false;
    }

    /// Whether threads that are created from now on belong to a parent: they never run.
    pub(crate) fn as_parent(&self, yes: bool) {
        *self.parent.lock().unwrap() = yes;
    }

    fn asymmetric_fence(&self) {
        if *self.fences.lock().unwrap() {
            crate::words::sync::fence(crate::words::sync::Ordering::SeqCst);
        }
    }

    /// From now on standbys detect blocks.
    pub(crate) fn detect_by_standbys(&self) {
        *self.observer.standby.lock().unwrap() = true;
    }

    /// Turns exploration on or off, for all threads.
    pub(crate) fn explore(&self, yes: bool) {
        let was = std::mem::replace(&mut *self.explores.lock().unwrap(), yes);
        match (was, yes) {
            (false, true) => loom::explore(),
            (true, false) => loom::stop_exploring(),
            _ => {}
        }
    }

    /// Waits for every thread that was created.
    pub(crate) fn join_all(&self) {
        loop {
            let thread = self.threads.lock().unwrap().pop();
            let Some(thread) = thread else { return };
            thread.join().unwrap();
        }
    }

    /// The reports of the engine.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.reports.lock().unwrap().clone()
    }
}

/// The event on which a thread of a model sleeps.
#[derive(Default)]
pub(crate) struct Event {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    /// Sleeps until woken.
    pub(crate) fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !std::mem::replace(&mut *woken, false) {
            woken = self.changed.wait(woken).unwrap();
        }
    }

    /// Whether a wake is stored for the next sleeper.
    pub(crate) fn is_woken(&self) -> bool {
        *self.woken.lock().unwrap()
    }

    /// Wakes the sleeper, or the next thread that waits.
    pub(crate) fn wake(&self) {
        let mut woken = self.woken.lock().unwrap();
        *woken = true;
        // Under the lock: the event may be destroyed as soon as its sleeper has seen `woken`.
        self.changed.notify_one();
    }
}

impl crate::words::host::Event for Event {
    fn renew(&self) {
        *self.woken.lock().unwrap() = false;
    }
}

/// Threads that sleep on words, and a timeout that a thread of the model triggers.
#[derive(Default)]
pub(crate) struct WordSleep(Mutex<Sleepers>);

#[derive(Default)]
struct Sleepers {
    /// Every wait times out.
    over: bool,
    /// The address that each sleeper sleeps on, in the order of arrival.
    asleep: Vec<(usize, std::sync::Arc<Event>)>,
}

impl WordSleep {
    /// Times out every wait, current and later.
    pub(crate) fn expire(&self) {
        let mut sleepers = self.0.lock().unwrap();
        sleepers.over = true;
        sleepers.asleep.drain(..).for_each(|(_, event)| event.wake());
    }

    /// Waits no longer time out.
    pub(crate) fn renew(&self) {
        self.0.lock().unwrap().over = false;
    }
}

impl Futex for WordSleep {
    /// As futex(2): the check of the word and the sleep are one atomic step for the waking threads.
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        let mut sleepers = self.0.lock().unwrap();
        if sleepers.over {
            return false;
        }
        if word.load(Ordering::Relaxed) == expected {
            let event = std::sync::Arc::new(Event::default());
            sleepers.asleep.push((std::ptr::from_ref(word).addr(), event.clone()));
            drop(sleepers);
            event.wait();
        }
        true
    }

    fn wake(&self, word: *const AtomicU32) {
        let mut sleepers = self.0.lock().unwrap();
        let sleeper = sleepers.asleep.iter().position(|&(on, _)| on == word.addr());
        if let Some(sleeper) = sleeper {
            sleepers.asleep.remove(sleeper).1.wake();
        }
    }
}

loom::thread_local! {
    static THREAD: ThreadState = ThreadState::new();
}

impl Host for LoomHost {
    type Event = Event;
    type Observer = Unobserved;

    fn observer(&self) -> &Unobserved {
        &self.observer
    }

    fn now(&self) -> u64 {
        NOW
    }

    fn current_cpu(&self) -> u32 {
        0
    }

    /// The watcher never runs: what a model proves must not depend on its rescans.
    fn spawn(&self, spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError> {
        if spec.name == "uw/watch" || *self.parent.lock().unwrap() {
            return Ok(());
        }
        let mut left = self.spawns_left.lock().unwrap();
        if *left == 0 {
            return Err(SpawnError("the model has no more threads".to_owned()));
        }
        *left -= 1;
        drop(left);
        let thread = loom::thread::spawn(main);
        self.threads.lock().unwrap().push(thread);
        Ok(())
    }

    fn park(&self, event: &Event, deadline: Option<u64>) -> bool {
        if deadline.is_none_or(|at| at > NOW) {
            event.wait();
            return true;
        }
        // The deadline has passed: a waiter that has not been woken by now gives up.
        std::mem::replace(&mut *event.woken.lock().unwrap(), false)
    }

    unsafe fn wake(&self, event: *const Event) {
        // SAFETY: live, by this function's contract, and not touched after its lock is released.
        unsafe { &*event }.wake();
    }

    /// No yield is needed: loom explores other interleavings anyway.
    fn yield_now(&self) {}

    /// Yields without a choice of the next thread. With a choice, two threads that both wait for a
    /// third could let each other run for ever. loom's own choice is the thread that has yielded
    /// least.
    fn relax(&self, _: u32) {
        let explores = *self.explores.lock().unwrap();
        self.explore(false);
        loom::thread::yield_now();
        self.explore(explores);
    }

    fn light_fence(&self) {
        self.asymmetric_fence();
    }

    fn heavy_fence(&self) {
        self.asymmetric_fence();
    }

    fn thread(&self) -> *const ThreadState {
        THREAD.with(std::ptr::from_ref)
    }

    /// The models' threads never migrate: loom decides where they run.
    fn thread_id(&self) -> u64 {
        0
    }

    fn report(&self, report: Report) {
        self.reports.lock().unwrap().push(report);
    }
}

/// The models mark the workers themselves.
#[derive(Default)]
pub(crate) struct Unobserved {
    /// Whether blocks are detected by standbys; otherwise not at all.
    standby: std::sync::Mutex<bool>,
}

impl Observer for Unobserved {
    type Event = Event;
    type Records = ();

    fn tier(&self) -> Tier {
        if *self.standby.lock().unwrap() { Tier::Standby } else { Tier::Declared }
    }

    fn detection(&self) -> Detection {
        Detection { tier: self.tier(), reason: "a model".to_owned() }
    }

    fn cpu_time(&self, _: u64) -> Option<u64> {
        None
    }

    fn run_delay(&self) -> Option<u64> {
        None
    }

    fn activity(&self, _: u64) -> Option<Activity> {
        None
    }

    fn stacks_of(&self, threads: &[u64], _: bool) -> Vec<Result<Vec<Frame>, NoStack>> {
        threads.iter().map(|_| Err(NoStack::Unavailable)).collect()
    }

    fn record(&self, _: u64) -> Option<()> {
        None
    }

    fn sample(&self, (): &mut ()) -> ThreadSample {
        ThreadSample::default()
    }

    fn park_on_records(&self, _: &Event, _: &[&()], _: u64) -> Heard {
        unreachable!("no thread is recorded");
    }
}

impl Placement for LoomHost {
    fn set_cpus(&self, _: u64, _: &uwork_policy::cpuset::CpuSet) {
        unreachable!("no thread has a number");
    }

    fn become_standby(&self) -> bool {
        unreachable!("the models run the steps of a standby themselves")
    }

    fn is_caller_real_time(&self) -> bool {
        false
    }

    fn rename_thread(&self, _: &str) {}

    fn cpus_changed(&self) -> Option<Cpus> {
        None
    }
}

/// The models of a fork have its child only, whose memory comes from the allocator.
impl Forks for LoomHost {}
