//! `uwork sim calibrate`: measures what this machine's instructions cost.
//!
//! Each figure is the median of several rounds, so that a round during which the thread lost its
//! CPU does not count.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, MembarrierCommand, membarrier, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use uwork::topology::Machine;
use uwork::{Queue, Work, WorkItem};
use uwork_policy::scope::AffinityScopeChoice;
use uwork_policy::topology::{Cpu, Topology};
use uwork_sim::costs::load::{self, Load, run as play};
use uwork_sim::costs::{Cost, Costs, FIGURES};

use super::{UserError, verify};
use crate::commands::print;
use crate::commands::progress::Progress;

/// Rounds of which the median counts.
const ROUNDS: usize = 15;
/// Repetitions in a round, of an instruction and of a system call.
const INSTRUCTIONS: u32 = 20_000;
const CALLS: u32 = 500;
/// Wakes on the waker's own CPU.
const WAKES: u32 = 1_000;
/// Items of a batch on one CPU.
const PATH_ITEMS: usize = 2_000;
/// How long a thread gets to fall asleep.
const ASLEEP_AFTER: Duration = Duration::from_micros(300);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Write the costs to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare the costs with this machine: run small programs on it, and simulate the same
    #[arg(long, conflicts_with = "output")]
    verify: bool,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The nanoseconds of one of `count` calls of `f`.
fn each(count: u32, mut f: impl FnMut()) -> f64 {
    let round = |_| {
        let began = Instant::now();
        (0..count).for_each(|_| f());
        began.elapsed().as_nanos() as f64 / f64::from(count)
    };
    median((0..ROUNDS).map(round).collect())
}

fn pin(cpu: u32) -> Result<(), UserError> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(|error| UserError(format!("pin to CPU {cpu}: {error}")))
}

/// Runs `f` on a thread that is pinned to this CPU.
pub(super) fn on<R: Send + 'static>(
    cpu: u32,
    f: impl FnOnce() -> R + Send + 'static,
) -> std::thread::JoinHandle<Result<R, UserError>> {
    std::thread::spawn(move || pin(cpu).map(|()| f()))
}

pub(super) fn join<R>(
    thread: std::thread::JoinHandle<Result<R, UserError>>,
) -> Result<R, UserError> {
    thread.join().expect("it does not panic")
}

/// The CPU time of the calling thread, in nanoseconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The time that a line needs from one of these CPUs to the other, polled for with
/// pauses: without them, the poller of a core with two threads slows the other down.
fn transfer(here: u32, there: u32) -> Result<f64, UserError> {
    let turn = Arc::new(AtomicU64::new(0));
    let rounds = u64::from(CALLS) * ROUNDS as u64;
    let theirs = turn.clone();
    let other = on(there, move || {
        for round in 0..rounds {
            while theirs.load(Ordering::Acquire) != 2 * round + 1 {
                std::hint::spin_loop();
            }
            theirs.store(2 * round + 2, Ordering::Release);
        }
    });
    pin(here)?;
    let mut values = Vec::new();
    for block in 0..ROUNDS as u64 {
        let began = Instant::now();
        for round in block * u64::from(CALLS)..(block + 1) * u64::from(CALLS) {
            turn.store(2 * round + 1, Ordering::Release);
            while turn.load(Ordering::Acquire) != 2 * round + 2 {
                std::hint::spin_loop();
            }
        }
        values.push(began.elapsed().as_nanos() as f64 / f64::from(CALLS) / 2.0);
    }
    join(other)?;
    Ok(median(values))
}

/// For the waker and until the woken thread runs: a wake of a thread that sleeps on this CPU.
fn wake(here: u32, there: u32) -> Result<(f64, f64), UserError> {
    let (woken_at, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (theirs, end, epoch) = (woken_at.clone(), ends.clone(), Instant::now());
    let sleeper = on(there, move || {
        while !end.load(Ordering::Acquire) {
            std::thread::park();
            theirs.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
        }
    });
    pin(here)?;
    let (mut waker, mut latency) = (Vec::new(), Vec::new());
    for round in 0..4 * ROUNDS {
        std::thread::sleep(ASLEEP_AFTER);
        woken_at.store(0, Ordering::Release);
        ends.store(round == 4 * ROUNDS - 1, Ordering::Release);
        let began = epoch.elapsed().as_nanos() as u64;
        sleeper.thread().unpark();
        waker.push((epoch.elapsed().as_nanos() as u64 - began) as f64);
        while woken_at.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        latency.push((woken_at.load(Ordering::Acquire).saturating_sub(began)) as f64);
    }
    join(sleeper)?;
    Ok((median(waker), median(latency)))
}

/// For the waker: a wake of a thread that sleeps on the waker's CPU. The woken thread may run at
/// once, so only the waker's own CPU time counts.
fn ready(cpu: u32) -> Result<f64, UserError> {
    let (woken, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (theirs, end) = (woken.clone(), ends.clone());
    let sleeper = on(cpu, move || {
        while !end.load(Ordering::Acquire) {
            std::thread::park();
            theirs.store(true, Ordering::Release);
        }
    });
    pin(cpu)?;
    let (mut clock, mut waker) = (Vec::new(), Vec::new());
    for round in 0..WAKES {
        ends.store(round == WAKES - 1, Ordering::Release);
        let before = cpu_time();
        let began = cpu_time();
        sleeper.thread().unpark();
        waker.push(cpu_time() - began);
        clock.push(began - before);
        // The sleeper sleeps again once it yields this CPU.
        while !woken.swap(false, Ordering::AcqRel) {
            std::thread::yield_now();
        }
    }
    join(sleeper)?;
    Ok((median(waker) - median(clock)).max(0.0))
}

/// A switch between two threads of one CPU, which wake each other: park, wake and switch.
fn switch(cpu: u32) -> Result<f64, UserError> {
    let turn = Arc::new(AtomicU64::new(0));
    let theirs = turn.clone();
    pin(cpu)?;
    let main = std::thread::current();
    let rounds = u64::from(CALLS) * ROUNDS as u64;
    let other = on(cpu, move || {
        for round in 0..rounds {
            while theirs.load(Ordering::Acquire) != 2 * round + 1 {
                std::thread::park();
            }
            theirs.store(2 * round + 2, Ordering::Release);
            main.unpark();
        }
    });
    let began = Instant::now();
    for round in 0..rounds {
        turn.store(2 * round + 1, Ordering::Release);
        other.thread().unpark();
        while turn.load(Ordering::Acquire) != 2 * round + 2 {
            std::thread::park();
        }
    }
    let ns = began.elapsed().as_nanos() as f64 / rounds as f64 / 2.0;
    join(other)?;
    Ok(ns)
}

/// For the creator and until the thread runs: the creation of a thread.
fn spawn() -> (f64, f64) {
    let (mut creator, mut start) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let thread = std::thread::spawn(move || began.elapsed().as_nanos() as f64);
        let created = began.elapsed().as_nanos() as f64;
        let started = thread.join().expect("it does not panic");
        creator.push(created);
        start.push((started - created).max(0.0));
    }
    (median(creator), median(start))
}

/// An item of a batch, and its producer.
struct Counted {
    work: Work<Counted>,
    left: Arc<AtomicUsize>,
    producer: Thread,
}

uwork::has_work!(impl HasWork for Counted { work });

impl WorkItem for Counted {
    type Pointer = &'static Counted;

    fn run(this: &'static Counted) {
        if this.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            this.producer.unpark();
        }
    }
}

/// An item's time on one CPU, from its submission to its end, in batches: nothing contends.
fn path(cpu: u32) -> Result<f64, UserError> {
    pin(cpu)?;
    let failed = |error: uwork::Error| UserError(error.to_string());
    let queue = Queue::builder("calibrate").per_cpu().build().map_err(failed)?;
    let left = Arc::new(AtomicUsize::new(0));
    let item = |_| {
        let (left, producer) = (left.clone(), std::thread::current());
        Counted { work: Work::new(), left, producer }
    };
    // Leaked: references are the cheapest owners, and the process ends after the calibration.
    let items: &'static [Counted] = (0..PATH_ITEMS).map(item).collect::<Vec<_>>().leak();
    let round = |_| {
        left.store(PATH_ITEMS, Ordering::SeqCst);
        let began = Instant::now();
        for item in items {
            let _ = queue.enqueue(item);
        }
        while left.load(Ordering::SeqCst) > 0 {
            std::thread::park();
        }
        began.elapsed().as_nanos() as f64 / PATH_ITEMS as f64
    };
    Ok(median((0..ROUNDS).map(round).collect()))
}

/// The same, simulated.
fn simulated_path(costs: &Costs) -> Result<f64, UserError> {
    let machine = "core:1".parse().expect("a notation");
    let load = Load { batch: PATH_ITEMS, batches: 2, ..Load::new(AffinityScopeChoice::Default) };
    let outcome = play(&machine, costs, load::Queue::EnginePerCpu, load).map_err(UserError)?;
    Ok(outcome.ns_per_item())
}

/// What an access and the code around it cost: the simulated path is as long as the measured one.
/// The path's length is linear in this figure, so two simulations give it.
fn set_access(costs: &mut Costs, path_ns: f64) -> Result<(), UserError> {
    let mut at = |access_ns| {
        set(costs, Cost::Access, access_ns);
        simulated_path(costs)
    };
    let (one, two) = (at(1.0)?, at(2.0)?);
    set(costs, Cost::Access, 1.0 + (path_ns - one) / (two - one));
    Ok(())
}

/// The first pair of these CPUs whose closest relation is this one.
fn pair(cpus: &[Cpu], related: impl Fn(&Cpu, &Cpu) -> bool) -> Option<(u32, u32)> {
    cpus.iter().find_map(|a| {
        let other = cpus.iter().find(|b| b.id != a.id && related(a, b));
        other.map(|b| (a.id, b.id))
    })
}

/// Sets a figure, moved into its limits.
fn set(costs: &mut Costs, cost: Cost, ns: f64) {
    let figure = FIGURES[cost as usize];
    costs.set(cost, ns.clamp(figure.least, figure.most)).expect("it is within its limits");
}

/// The lines between CPUs. A relation that the machine does not have gets its default, or what the
/// next closer one costs if that is more.
fn measure_lines(costs: &mut Costs, cpus: &[Cpu]) -> Result<(), UserError> {
    let in_core = pair(cpus, |a, b| a.core == b.core);
    let in_cache = pair(cpus, |a, b| a.core != b.core && a.llc == b.llc);
    let in_node = pair(cpus, |a, b| a.llc != b.llc && a.node == b.node);
    let remote = pair(cpus, |a, b| a.node != b.node);
    let relations = [
        (Cost::Core, in_core),
        (Cost::Cache, in_cache),
        (Cost::Node, in_node),
        (Cost::Remote, remote),
    ];
    let mut least = 0.0_f64;
    for (cost, pair) in relations {
        let ns = match pair {
            Some((a, b)) => transfer(a, b)?,
            None => FIGURES[cost as usize].default,
        };
        least = least.max(ns);
        set(costs, cost, least);
    }
    Ok(())
}

pub(super) fn measure(machine: &Topology, allowed: &[u32]) -> Result<Costs, UserError> {
    let cpus: Vec<Cpu> =
        machine.cpus().iter().filter(|cpu| allowed.contains(&cpu.id)).copied().collect();
    let first = cpus.first().expect("the process runs on a CPU").id;
    let second = cpus.last().map_or(first, |cpu| cpu.id);
    let mut costs = Costs::default();
    pin(first)?;
    let word = AtomicU64::new(0);
    let access = each(INSTRUCTIONS, || {
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    let locked = each(INSTRUCTIONS, || {
        word.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::Acquire);
    });
    set(&mut costs, Cost::Locked, locked - access);
    let pause = each(CALLS, std::hint::spin_loop);
    set(&mut costs, Cost::Pause, pause);
    let clock = each(CALLS, || {
        std::hint::black_box(Instant::now());
    });
    set(&mut costs, Cost::Clock, clock);
    let syscall = each(CALLS, || {
        let _ = std::hint::black_box(rustix::process::getppid());
    });
    set(&mut costs, Cost::Syscall, syscall);
    // The system may refuse barriers; the default stays then.
    if membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
        let barrier = each(CALLS, || {
            let _ = membarrier(MembarrierCommand::PrivateExpedited);
        });
        set(&mut costs, Cost::Barrier, barrier);
    }
    measure_lines(&mut costs, &cpus)?;
    let ready_ns = ready(first)?;
    set(&mut costs, Cost::Ready, ready_ns);
    let switch_ns = (switch(first)? - syscall - ready_ns).max(1.0);
    set(&mut costs, Cost::Switch, switch_ns);
    let (waker, latency) = wake(first, second)?;
    set(&mut costs, Cost::Wake, waker);
    set(&mut costs, Cost::Idle, latency - switch_ns);
    let (creator, start) = spawn();
    set(&mut costs, Cost::Spawn, creator);
    set(&mut costs, Cost::Start, start);
    set_access(&mut costs, path(first)?)?;
    costs.source = format!("measured by `uwork sim calibrate` on {machine}");
    Ok(costs)
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let here = Machine::read().map_err(|error| UserError(error.to_string()))?;
    let before = sched_getaffinity(None).map_err(|error| UserError(error.to_string()))?;
    let topology = here.topology;
    let is_ours = |cpu: &u32| before.is_set(*cpu as usize);
    let allowed: Vec<u32> = topology.online().iter().filter(is_ours).collect();
    if args.verify {
        let verified = verify::run(&topology, &allowed);
        sched_setaffinity(None, &before).map_err(|error| UserError(error.to_string()))?;
        return verified;
    }
    let progress = Progress::new(None);
    progress.begin("measures what instructions, wakes and threads cost");
    let measured = measure(&topology, &allowed);
    drop(progress);
    sched_setaffinity(None, &before).map_err(|error| UserError(error.to_string()))?;
    let text = measured?.text();
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| UserError(format!("{}: {error}", path.display())))?,
        None => _ = print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}
