//! Periodic tasks with and without saved power, on the same machine and with the same phases.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::flags::Flags;

use super::activity::{Activity, Overhead};
use super::machines::Powered;
use super::model::Energy;
use crate::chance::{Chance, Chaos};
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, VirtualEngine, VirtualQueue, make, spec, with_engine};
use crate::tape::{Tape, What};

/// Threads start, and pools learn, before the observation.
const WARM_UP_NS: u64 = SEC;
/// The work of a run, at capacity 1024.
const WORK_NS: u64 = 20_000;
/// The part of the observed time for which another item keeps a CPU awake, if one does.
const AWAKE_PART: f64 = 0.8;
/// The part of a period by which a task may be late.
const SLACK_PART: u64 = 4;

/// Which tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// One of 10 ms, one of 40 ms, and eight of 250 ms to 1 s.
    Audio,
    /// 200 of 20 ms to 1 s.
    Periodic,
}

/// Where the system's scheduler places an unpinned thread that wakes, if several CPUs are idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the CPU on which it ran last.
    Last,
    /// On any CPU: the worst for saved power.
    Drawn,
}

/// How the tasks are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each on the CPU that armed it.
    PerCpu,
    /// By one floating pool, whose workers the system places.
    Floating,
    /// By one floating pool, whose workers choose a CPU that is awake: saved power.
    Chosen,
}

/// A case of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Which tasks.
    pub tasks: Tasks,
    /// How the system's scheduler places threads.
    pub placement: Placement,
    /// The tasks are armed on the first so many CPUs, drawn uniformly.
    pub armed_on: usize,
    /// With what saved power is compared.
    pub off: Mode,
    /// A CPU on which an item computes for most of the time: the same work in both modes.
    pub awake: Option<u32>,
    /// The observed time of each run, in nanoseconds.
    pub observed_ns: u64,
    /// How many draws of phases, and of the CPUs on which the tasks are armed.
    pub draws: u64,
}

/// A task of a draw.
#[derive(Clone, Copy, Debug)]
struct Task {
    period_ns: u64,
    phase_ns: u64,
    /// The CPU on which it is armed first.
    cpu: u32,
}

/// The tasks of a draw, armed on so many CPUs.
fn draw(tasks: Tasks, cpus: u64, seed: u64) -> Vec<Task> {
    let mut chance = Chance::new(seed);
    let mut log_uniform = |from: u64, to: u64| {
        let fraction = chance.below(1 << 20) as f64 / f64::from(1 << 20);
        (from as f64 * (to as f64 / from as f64).powf(fraction)) as u64
    };
    let periods: Vec<u64> = match tasks {
        Tasks::Audio => [10 * MS, 40 * MS]
            .into_iter()
            .chain((0..8).map(|_| log_uniform(250 * MS, SEC)))
            .collect(),
        Tasks::Periodic => (0..200).map(|_| log_uniform(20 * MS, SEC)).collect(),
    };
    let task = |period_ns: u64| Task {
        period_ns,
        phase_ns: 1 + chance.below(period_ns),
        cpu: chance.below(cpus) as u32,
    };
    periods.into_iter().map(task).collect()
}

/// Both sides of one draw.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The mode of the case.
    pub off: Activity,
    /// Power saved.
    pub on: Activity,
}

/// Runs the tasks of each draw with and without saved power.
#[must_use]
pub fn run(machine: &Powered, case: Case) -> Vec<Pair> {
    let side = |seed: u64, mode: Mode| observe(machine, case, seed, mode);
    let pair = |seed: u64| Pair { off: side(seed, case.off), on: side(seed, Mode::Chosen) };
    (0..case.draws).map(pair).collect()
}

fn observe(machine: &Powered, case: Case, seed: u64, mode: Mode) -> Activity {
    let drawn_order = case.placement == Placement::Drawn;
    let chaos = Chaos { slice_ns: MS, drawn_order, ..Chaos::STEADY };
    let capacities: Vec<u32> = machine
        .domains
        .iter()
        .flat_map(|domain| domain.cpus.clone().map(|_| domain.capacity))
        .collect();
    let cpus = capacities.len();
    let tasks = draw(case.tasks, case.armed_on as u64, seed);
    let setup = Setup { machine: machine.notation, chaos, seed };
    let whole = (WARM_UP_NS, WARM_UP_NS + case.observed_ns);
    let awake = case.awake;
    let tape =
        with_engine(setup, move |engine| play(engine, &tasks, &capacities, whole, (mode, awake)));
    Activity::of(&tape, cpus, whole)
}

/// Plays the tasks until the end of the period, and returns the record of that period.
fn play(
    engine: &Arc<VirtualEngine>,
    tasks: &[Task],
    capacities: &[u32],
    (from, to): (u64, u64),
    (mode, awake): (Mode, Option<u32>),
) -> Tape {
    let host = engine.host();
    host.machine().dispatches_max = u64::MAX;
    if mode == Mode::Floating {
        host.refuse_moves();
    }
    let saves = mode != Mode::PerCpu;
    let change = || engine.set_housekeeping(|settings| settings.power_efficient = saves);
    host.unpreempted(change).expect("no mask is changed");
    let flags = Flags::PERCPU | Flags::POWER_EFFICIENT;
    let queue = make(engine, QueueSpec { flags, ..spec("tasks", Kind::PerCpu) });
    let is_over = Arc::new(AtomicBool::new(false));
    for task in tasks {
        arm(engine, &queue, *task, capacities, &is_over);
    }
    host.doze(from - host.time());
    host.machine().tape = Some(Tape::default());
    let hog = awake.map(|cpu| keep_awake(engine, cpu, ((to - from) as f64 * AWAKE_PART) as u64));
    host.doze(to - host.time());
    let tape = host.machine().tape.take().expect("it was set above");
    is_over.store(true, Ordering::Relaxed);
    queue.drain().expect("not called by an item");
    drop(hog);
    tape
}

/// Queues an item that computes for so long.
fn keep_awake(engine: &Arc<VirtualEngine>, cpu: u32, work_ns: u64) -> (VirtualQueue, Arc<Item>) {
    engine.set_cpu_intensive_thresh(0);
    let (host, queue) = (engine.host().clone(), make(engine, spec("awake", Kind::PerCpu)));
    let item = Item::new(move || host.burn(work_ns));
    assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
    (queue, item)
}

/// Arms a task that works at the speed of its CPU and arms itself again, for the next multiple of
/// its period.
fn arm(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    task: Task,
    capacities: &[u32],
    is_over: &Arc<AtomicBool>,
) {
    let me: Arc<OnceLock<Arc<Item>>> = Arc::default();
    let first = engine.host().time() + task.phase_ns;
    let item = Item::with_slack(task.period_ns / SLACK_PART, {
        let (host, queue, again) = (engine.host().clone(), queue.clone(), me.clone());
        let (capacities, is_over) = (capacities.to_vec(), is_over.clone());
        move || {
            host.record(What::Starts(0));
            let capacity = u64::from(capacities[host.cpu() as usize]);
            host.burn(WORK_NS * 1024 / capacity);
            if !is_over.load(Ordering::Relaxed) {
                let now = host.time();
                let next = first + (now - first) / task.period_ns * task.period_ns + task.period_ns;
                let item = again.get().expect("it is set before it is armed");
                let _ = item.queue_delayed(&queue, None, next - now);
            }
        }
    });
    me.set(item.clone()).ok().expect("it is new");
    let queued = item.queue_delayed(queue, Some(task.cpu), task.phase_ns);
    assert_eq!(queued, Queued::Yes, "an idle item is armed");
}

/// The mean energy of each domain over all draws: without and with saved power.
#[must_use]
pub fn energy(machine: &Powered, pairs: &[Pair], work: Overhead) -> Vec<(Energy, Energy)> {
    let of = |domain: &super::model::Domain| {
        let mean = |side: fn(&Pair) -> &Activity| {
            mean(pairs.iter().map(|pair| domain.energy(side(pair), work)))
        };
        (mean(|pair| &pair.off), mean(|pair| &pair.on))
    };
    machine.domains.iter().map(of).collect()
}

fn mean(energies: impl ExactSizeIterator<Item = Energy>) -> Energy {
    let count = energies.len().max(1);
    let mut sum = Energy::default();
    for energy in energies {
        sum.joules += energy.joules;
        sum.active_j += energy.active_j;
        sum.wake_j += energy.wake_j;
        sum.wakes += energy.wakes;
        sum.asleep += energy.asleep;
    }
    let parts = count as f64;
    Energy {
        joules: sum.joules / parts,
        active_j: sum.active_j / parts,
        wake_j: sum.wake_j / parts,
        wakes: sum.wakes / count,
        asleep: sum.asleep / parts,
    }
}

/// The part of the energy that is saved: of each domain, and of all of them at the end.
#[must_use]
pub fn saved(energies: &[(Energy, Energy)]) -> Vec<f64> {
    let part = |(off, on): (f64, f64)| 1.0 - on / off;
    let joules = energies.iter().map(|(off, on)| (off.joules, on.joules));
    let total = joules.clone().fold((0.0, 0.0), |sum, (off, on)| (sum.0 + off, sum.1 + on));
    joules.chain([total]).map(part).collect()
}
