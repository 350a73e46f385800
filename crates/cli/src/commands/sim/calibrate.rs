//! `uwork sim calibrate`: measures what this machine's instructions cost.
//!
//! Each figure is the median of several rounds, so that a round during which the thread lost its
//! CPU does not count.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, MembarrierCommand, membarrier, sched_getaffinity, sched_setaffinity};
use uwork::topology::Machine;
use uwork_policy::topology::{Cpu, Topology};
use uwork_sim::costs::{Cost, Costs, FIGURES};

use super::UserError;

/// Rounds of which the median counts.
const ROUNDS: usize = 15;
/// Repetitions in a round, of an instruction and of a system call.
const INSTRUCTIONS: u32 = 20_000;
const CALLS: u32 = 500;
/// How long a thread gets to fall asleep.
const ASLEEP_AFTER: Duration = Duration::from_micros(300);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Write the costs to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
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
fn on<R: Send + 'static>(
    cpu: u32,
    f: impl FnOnce() -> R + Send + 'static,
) -> std::thread::JoinHandle<Result<R, UserError>> {
    std::thread::spawn(move || pin(cpu).map(|()| f()))
}

fn join<R>(thread: std::thread::JoinHandle<Result<R, UserError>>) -> Result<R, UserError> {
    thread.join().expect("it does not panic")
}

/// The time that a line needs from one of these CPUs to the other.
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

/// A switch between two threads of one CPU, which wake each other.
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

fn measure(machine: &Topology, allowed: &[u32]) -> Result<Costs, UserError> {
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
    set(&mut costs, Cost::Access, access);
    set(&mut costs, Cost::Locked, locked - access);
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
    let switch_ns = (switch(first)? - 2.0 * syscall).max(1.0);
    set(&mut costs, Cost::Switch, switch_ns);
    let (waker, latency) = wake(first, second)?;
    set(&mut costs, Cost::Wake, waker);
    set(&mut costs, Cost::Idle, latency - switch_ns);
    let (creator, start) = spawn();
    set(&mut costs, Cost::Spawn, creator);
    set(&mut costs, Cost::Start, start);
    costs.source = format!("measured by `uwork sim calibrate` on {machine}");
    Ok(costs)
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let here = Machine::read().map_err(|error| UserError(error.to_string()))?;
    let before = sched_getaffinity(None).map_err(|error| UserError(error.to_string()))?;
    let topology = here.topology;
    let is_ours = |cpu: &u32| before.is_set(*cpu as usize);
    let allowed: Vec<u32> = topology.online().iter().filter(is_ours).collect();
    let measured = measure(&topology, &allowed);
    sched_setaffinity(None, &before).map_err(|error| UserError(error.to_string()))?;
    let text = measured?.text();
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| UserError(format!("{}: {error}", path.display())))?,
        None => print!("{text}"),
    }
    Ok(ExitCode::SUCCESS)
}
