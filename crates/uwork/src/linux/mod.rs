//! The engine's host on Linux: the only part that makes system calls on the engine's behalf.

pub(crate) mod asleep;
mod changes;
mod cpu;
mod crossing;
mod event;
mod fatal;
mod fork;
pub(crate) mod futex;
mod membarrier;
mod pages;
pub(crate) mod rseq;
mod signals;
#[cfg_attr(
    all(feature = "symbols", any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "stack/mod.rs"
)]
#[cfg_attr(
    not(all(feature = "symbols", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "stack/absent.rs"
)]
pub(crate) mod stack;
pub(crate) mod task;
mod thread;

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use uwork_engine::host::{
    Activity, Detection, Frame, Host, NoStack, Report, Seen, SpawnError, WorkerSpec,
};
use uwork_engine::sync::assert_nothing_held;
use uwork_engine::{Config, Cpus, Engine, ThreadState};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::FlagsWarning;
use uwork_policy::percpu::Mode;

pub(crate) use event::Event;
pub(crate) use thread::actual_nice;

pub(crate) use fork::{ensure_fork_handlers, forks};

use crate::first_use;
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
    fn new(options: &Options) -> Linux {
        // Both are CLOCK_MONOTONIC; the time between the two readings makes sleeps appear longer by
        // that much.
        let (clock_base, monotonic_ns) = (std::time::Instant::now(), thread::monotonic_ns());
        Linux {
            fences: membarrier::Fences::new(),
            clock_base,
            changes: changes::Changes::new(),
            asleep: asleep::Asleep::new(monotonic_ns, options.blocking_tier),
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

    fn end_read_sides(&self, keep: u32) -> Option<String> {
        crate::foreign::end_read_sides(keep)
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

    fn stack_of(&self, thread: u64) -> Result<Vec<Frame>, NoStack> {
        stack::of_thread(thread)
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

    fn rename_thread(&self, name: &str) {
        thread::rename(name);
    }

    fn cpus_changed(&self) -> Option<Cpus> {
        if let Some(report) = membarrier::pending_report() {
            self.report(report);
        }
        self.changes.look()
    }

    fn renew(&self, event: &Event) {
        event.renew();
    }

    fn map_pages(bytes: usize) -> NonNull<u8> {
        pages::map(bytes)
    }

    unsafe fn unmap_pages(start: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { pages::unmap(start, bytes) };
    }

    fn end_forked_thread(&self) -> ! {
        std::process::exit(0);
    }

    fn report(&self, report: Report) {
        assert_nothing_held("a reporter");
        if let Report::ItemPanicked { .. } = report {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(report) = first_use::defer(report) {
            tell(report);
        }
    }
}

/// Calls the program's reporter, or prints. Not to be called while `first_use` makes an object, as
/// the reporter may need it.
pub(crate) fn tell(mut report: Report) {
    // Callers are in the middle of changes that an unwinding must not interrupt.
    let told = catch_unwind(AssertUnwindSafe(|| {
        // On a thread of its own, as the symbol lookup may take long.
        if let Report::Stalled(stall) = &mut report {
            stall.replace_items(&mut crate::foreign::represented_item);
            stall.name_functions(&mut crate::dump_api::names());
        }
        match REPORTER.get() {
            Some(reporter) => reporter(&report),
            None => print(&report),
        }
    }));
    if let Err(payload) = told {
        std::mem::forget(payload);
    }
    if cfg!(debug_assertions) && matches!(report, Report::WorkerMissing { .. }) {
        fatal::abort(format_args!("a debug build does not go on after a defect of its own"));
    }
}

/// The CPU that the caller runs on. A hint, possibly stale when it is used.
#[inline]
pub(crate) fn current_cpu() -> u32 {
    cpu::current()
}

/// Waits a little for another thread, longer from `round` to `round`.
pub(crate) fn relax(round: u32) {
    match round {
        0..32 => std::hint::spin_loop(),
        32..256 => std::thread::yield_now(),
        // The other thread is preempted and this one may outrank it: only sleeping lets it run.
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

fn print(report: &Report) {
    // The panic hook has printed it already.
    if !matches!(report, Report::ItemPanicked { .. }) {
        // A failure cannot be reported. One write, so that lines of several threads do not mix.
        let _ = std::io::stderr().write_all(format!("uwork: {report}\n").as_bytes());
    }
}

/// Reports a change that the rules made to a queue's flags: each kind of change once per process.
pub(crate) fn warn_of_flags(queue: &str, warning: FlagsWarning) {
    static SAID: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    if !SAID[warning as usize].swap(true, Ordering::Relaxed) {
        let queue = queue.to_owned();
        engine().host().report(Report::FlagsChanged { queue, warning });
    }
}

/// Whether `WQ_POWER_EFFICIENT` queues are unbound in this process: `UWORK_POWER_EFFICIENT` is 1, y
/// or on (the kernel's `workqueue.power_efficient`). Read once.
pub(crate) fn saves_power() -> bool {
    static SAVES: OnceLock<bool> = OnceLock::new();
    *first_use::once(&SAVES, || {
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

/// The program's choices. Fixed when the engine is made, or when the mode of per-CPU data is first
/// needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// How undeclared waits are detected.
    pub(crate) blocking_tier: Option<Tier>,
    /// How per-CPU data is locked.
    pub(crate) percpu_mode: Option<Mode>,
}

/// The choices, and their source: the program, or the defaults.
static OPTIONS: OnceLock<(Options, OptionsBy)> = OnceLock::new();

/// The source of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionsBy {
    /// The program.
    Setup,
    /// The defaults: a use of uwork needed the options before the program set any.
    Default,
}

/// Fixes the options. If they are fixed already, returns their source.
pub(crate) fn set_options(options: Options) -> Result<(), OptionsBy> {
    let settled = OPTIONS.set((options, OptionsBy::Setup));
    settled.map_err(|_| OPTIONS.get().map_or(OptionsBy::Default, |&(_, by)| by))
}

/// The options, which are fixed from now on.
pub(crate) fn options() -> &'static Options {
    &first_use::once(&OPTIONS, || (Options::default(), OptionsBy::Default)).0
}

static ENGINE: OnceLock<Arc<Engine<Linux>>> = OnceLock::new();

/// The process's engine, if it was made. For calls that do nothing outside of items.
#[inline]
pub(crate) fn started() -> Option<&'static Arc<Engine<Linux>>> {
    ENGINE.get()
}

/// The process's engine; made at first use.
#[inline]
pub(crate) fn engine() -> &'static Arc<Engine<Linux>> {
    first_use::once(&ENGINE, || {
        let options = options();
        let config = match Machine::read() {
            Ok(machine) => {
                let (topology, threads_max) = (machine.topology.clone(), machine.threads_max);
                let Cpus { allowed, unbound_cpumask, cpu_limit } = changes::cpus_of(machine);
                let config = Config::new(topology, allowed);
                Config { unbound_cpumask, cpu_limit, threads_max, ..config }
            }
            // Without sysfs and /proc: as many equal CPUs as the process may use.
            Err(_) => {
                let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
                let topology = uwork_policy::topology::Topology::flat(cpus);
                let allowed = topology.possible().clone();
                Config::new(topology, allowed)
            }
        };
        Engine::new(Linux::new(options), config)
    })
}
