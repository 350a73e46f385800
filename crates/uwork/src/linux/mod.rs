//! Linux, as the engine sees it. The only place that talks to the system on the engine's behalf.

pub(crate) mod asleep;
mod changes;
mod cpu;
mod event;
mod fork;
pub(crate) mod futex;
mod membarrier;
#[cfg_attr(
    all(feature = "symbols", any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "stack/mod.rs"
)]
#[cfg_attr(
    not(all(feature = "symbols", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "stack/absent.rs"
)]
#[allow(dead_code, reason = "asked by the watchdog only")]
pub(crate) mod stack;
pub(crate) mod task;
mod thread;

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use uwork_engine::host::{Activity, Detection, Host, Report, Seen, SpawnError, WorkerSpec};
use uwork_engine::{Config, Cpus, Engine, ThreadState};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::FlagsWarning;

pub(crate) use event::Event;
pub(crate) use thread::nice_had;

pub(crate) use fork::forks;

use crate::topology::Machine;

/// The host.
pub(crate) struct Linux {
    fences: membarrier::Fences,
    clock_base: std::time::Instant,
    changes: changes::Changes,
    asleep: asleep::Asleep,
}

static PANICS: AtomicU64 = AtomicU64::new(0);
static REPORTER: OnceLock<fn(&Report)> = OnceLock::new();

impl Linux {
    fn new() -> Linux {
        // Of the same clock; what lies between the two readings makes sleeps look that much longer.
        let (clock_base, monotonic_ns) = (std::time::Instant::now(), thread::monotonic_ns());
        Linux {
            fences: membarrier::Fences::new(),
            clock_base,
            changes: changes::Changes::new(),
            asleep: asleep::Asleep::new(monotonic_ns),
        }
    }
}

impl Host for Linux {
    type Event = Event;

    #[inline]
    fn now(&self) -> u64 {
        self.clock_base.elapsed().as_nanos() as u64
    }

    #[inline]
    fn current_cpu(&self) -> u32 {
        cpu::current()
    }

    fn spawn(&self, spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError> {
        thread::spawn(spec, main)
    }

    fn park(&self, event: &Event, deadline: Option<u64>) -> bool {
        event.wait(deadline.map(|at| Duration::from_nanos(at.saturating_sub(self.now()))))
    }

    unsafe fn wake(&self, event: *const Event) {
        // SAFETY: by this function's contract.
        unsafe { Event::set(event) };
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn relax(&self, round: u32) {
        relax(round);
    }

    #[inline(always)]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) {
        self.fences.heavy();
    }

    #[inline]
    fn thread(&self) -> *const ThreadState {
        thread::state()
    }

    fn thread_id(&self) -> u64 {
        thread::id()
    }

    fn cpu_time(&self, thread: u64) -> Option<u64> {
        thread::cpu_time(thread)
    }

    type Sight = asleep::Sight;

    #[inline]
    fn tier(&self) -> Tier {
        self.asleep.tier()
    }

    fn detection(&self) -> Detection {
        self.asleep.detection()
    }

    fn activity(&self, thread: u64) -> Option<Activity> {
        self.asleep.activity(thread)
    }

    fn observe(&self, thread: u64) -> Option<asleep::Sight> {
        let (sight, report) = self.asleep.observe(thread);
        if let Some(report) = report {
            self.report(report);
        }
        sight
    }

    fn look(&self, sight: &mut asleep::Sight) -> Seen {
        sight.look()
    }

    fn activity_of(&self, sight: &asleep::Sight, thread: u64) -> Option<Activity> {
        sight.activity().or_else(|| self.activity(thread))
    }

    fn park_observing(&self, event: &Event, sights: &[&asleep::Sight], deadline: u64) {
        if !event.wait(Some(Duration::ZERO)) {
            self.asleep.poll(sights, deadline.saturating_sub(self.now()));
        }
    }

    fn set_cpus(&self, thread: u64, cpus: &CpuSet) {
        thread::place(thread, cpus);
    }

    fn cpus_changed(&self) -> Option<Cpus> {
        self.changes.look()
    }

    fn renew(&self, event: &Event) {
        event.renew();
    }

    fn end_forked_thread(&self) -> ! {
        std::process::exit(0);
    }

    fn report(&self, report: Report) {
        if let Report::ItemPanicked { .. } = report {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        // Callers hold half-done things that must not be unwound past.
        let told = catch_unwind(AssertUnwindSafe(|| match REPORTER.get() {
            Some(reporter) => reporter(&report),
            None => print(&report),
        }));
        if let Err(payload) = told {
            std::mem::forget(payload);
        }
    }
}

/// See [`Host::relax`].
pub(crate) fn relax(round: u32) {
    match round {
        0..32 => std::hint::spin_loop(),
        32..256 => std::thread::yield_now(),
        // The thread that we wait for is preempted and this one may outrank it: only sleeping
        // lets it run.
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

fn print(report: &Report) {
    let text = match report {
        // The panic hook has spoken already.
        Report::ItemPanicked { .. } => return,
        Report::DrainIsLong { queue, rounds } => {
            format!("queue {queue:?} is not empty after {rounds} rounds of draining")
        }
        Report::QueuedWhileDraining { queue } => {
            format!("queue {queue:?} drains or is destroyed; an item was refused")
        }
        Report::CpusChanged { allowed, limit: None } => {
            format!("the CPUs that this process may use are now {allowed}, without a limit of time")
        }
        Report::CpusChanged { allowed, limit: Some(limit) } => format!(
            "the CPUs that this process may use are now {allowed}, with the time of {limit} at most"
        ),
        Report::NiceNotHad { wanted, got } => format!(
            "niceness {wanted} was wanted, got {got}: lower needs CAP_SYS_NICE or RLIMIT_NICE"
        ),
        Report::SpawnFailed { reason } => format!("no further worker thread: {reason}"),
        Report::FlagsChanged { queue, warning: FlagsWarning::NeitherPerCpuNorUnbound } => {
            format!("queue {queue:?} is neither PERCPU nor UNBOUND; it becomes PERCPU")
        }
        Report::FlagsChanged { queue, warning: FlagsWarning::BothPerCpuAndUnbound } => {
            format!("queue {queue:?} is both PERCPU and UNBOUND; it becomes UNBOUND")
        }
        Report::CpuIntensive { function, name, count, used_ns } => format!(
            "{} used the CPU for {} ms while other items waited, {count} times so far; consider an \
             unbound or a CPU-intensive queue",
            name.clone().unwrap_or_else(|| format!("the item function at {function:#x}")),
            used_ns / 1_000_000
        ),
        Report::FlushDependency { from, on } => format!(
            "an item of {from:?}, which is MEM_RECLAIM, waits for {on:?}, which is not and may need a \
             new thread"
        ),
        Report::BlockingTier { tier, reason } => {
            format!("workers that block are noticed by way of {tier}: {reason}")
        }
        Report::WorkerStopped { thread } => format!(
            "worker thread {thread} was stopped by a signal or a debugger while others wait; nobody stands \
             in for it"
        ),
        Report::WorkersMax { pool, max } => format!(
            "pool {pool:?} has {max} workers, as many as it may, and all of them block while others wait"
        ),
        Report::BhWaits { queue } => {
            format!("an item of the BH queue {queue:?} waits, which it must not")
        }
        other => format!("{other:?}"),
    };
    // Nobody can be told if this fails.
    let _ = writeln!(std::io::stderr(), "uwork: {text}");
}

/// Reports what became of a queue's flags: each kind of change once per process.
pub(crate) fn warn_of_flags(queue: &str, warning: FlagsWarning) {
    static SAID: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    if !SAID[warning as usize].swap(true, Ordering::Relaxed) {
        let queue = queue.to_owned();
        engine().host().report(Report::FlagsChanged { queue, warning });
    }
}

/// Whether `WQ_POWER_EFFICIENT` queues are unbound in this process: `UWORK_POWER_EFFICIENT` is 1, y or
/// on (the kernel's `workqueue.power_efficient`). Read once.
pub(crate) fn saves_power() -> bool {
    static SAVES: OnceLock<bool> = OnceLock::new();
    *SAVES.get_or_init(|| {
        std::env::var("UWORK_POWER_EFFICIENT")
            .is_ok_and(|value| matches!(value.as_str(), "1" | "y" | "Y" | "on"))
    })
}

pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Counts and reports the panic of the item that the calling thread is in.
pub(crate) fn report_panic(payload: &(dyn Any + Send)) {
    engine().report_panic_here(payload);
}

pub(crate) fn set_reporter(reporter: fn(&Report)) -> Result<(), fn(&Report)> {
    REPORTER.set(reporter)
}

/// The process's engine; made at first use.
#[inline]
pub(crate) fn engine() -> &'static Arc<Engine<Linux>> {
    static ENGINE: OnceLock<Arc<Engine<Linux>>> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let config = match Machine::read() {
            Ok(machine) => {
                let topology = machine.topology.clone();
                let Cpus { allowed, unbound_cpumask, cpu_limit } = changes::cpus_of(machine);
                let config = Config::new(topology, allowed);
                Config { unbound_cpumask, cpu_limit, ..config }
            }
            // Without sysfs and /proc: as many equal CPUs as the process may use.
            Err(_) => {
                let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
                let topology = uwork_policy::topology::Topology::flat(cpus);
                let allowed = topology.possible().clone();
                Config::new(topology, allowed)
            }
        };
        fork::register();
        Engine::new(Linux::new(), config)
    })
}
