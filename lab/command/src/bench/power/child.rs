//! The child process: starts the tasks, sleeps for the time of the sample, and prints its figures.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::figures::{self, Sample};
use super::system::{Counters, System};
use super::{AWAKE, COLD, Order, runners, tasks};
use uwork::topology::Machine;

use crate::UserError;
use crate::bench::measured;
use crate::bench::open::clock;

/// Threads start, and pools learn, before the sample.
const WARM_UP: Duration = Duration::from_secs(1);
const WORK_NS: u64 = 20_000;
/// The most runs that are recorded of a task.
const RUNS_MAX: usize = 1 << 14;

/// What one task has done.
struct Record {
    first: Instant,
    period: Duration,
    /// Runs so far.
    runs: AtomicU64,
    work_ns: AtomicU64,
    /// How late each run began, in nanoseconds and plus one; 0 if it has not begun.
    late: Box<[AtomicU64]>,
    early: AtomicU64,
    /// Runs on another CPU than the one that is awake.
    elsewhere: AtomicU64,
    /// What a run sums; if empty, it computes for `WORK_NS`.
    data: Vec<u64>,
}

static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
/// The CPU that another item keeps awake.
static AWAKE_CPU: OnceLock<u32> = OnceLock::new();

/// A run of the task of this number: notes how late it is, and computes.
fn run_task(number: usize) {
    let (now, begin_ns) = (Instant::now(), clock::thread_cpu_ns());
    let record = &RECORDS.get().expect("set before the tasks are started")[number];
    let run = record.runs.fetch_add(1, Ordering::Relaxed) as usize;
    let planned = record.first + record.period * run as u32;
    record.early.fetch_add(u64::from(now < planned), Ordering::Relaxed);
    if let Some(late) = record.late.get(run) {
        late.store(now.saturating_duration_since(planned).as_nanos() as u64 + 1, Ordering::Relaxed);
    }
    if let Some(&awake) = AWAKE_CPU.get() {
        record.elsewhere.fetch_add(u64::from(current_cpu() != awake), Ordering::Relaxed);
    }
    let mut used_ns = 0;
    if record.data.is_empty() {
        while used_ns < WORK_NS {
            used_ns = clock::thread_cpu_ns() - begin_ns;
        }
    } else {
        std::hint::black_box(record.data.iter().fold(0_u64, |sum, &word| sum.wrapping_add(word)));
        used_ns = clock::thread_cpu_ns() - begin_ns;
    }
    record.work_ns.fetch_add(used_ns, Ordering::Relaxed);
}

fn current_cpu() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::sched_getcpu() }.unsigned_abs()
}

/// Measures and prints. Nothing is cleaned up, because the process ends.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    measured::end_on_panic();
    let planned = tasks::of(&order.case);
    let start = Instant::now() + WARM_UP / 10;
    let record = |task: &tasks::Planned| Record {
        first: start + task.phase,
        period: task.period,
        runs: AtomicU64::new(0),
        work_ns: AtomicU64::new(0),
        late: (0..RUNS_MAX).map(|_| AtomicU64::new(0)).collect(),
        early: AtomicU64::new(0),
        elsewhere: AtomicU64::new(0),
        data: vec![1; tasks::data_of(&order.variant).unwrap_or(0) / size_of::<u64>()],
    };
    if order.case == AWAKE {
        let machine = Machine::read().map_err(|error| UserError(error.to_string()))?;
        let last = machine.allowed.last().ok_or_else(|| UserError("no CPU".to_owned()))?;
        runners::keep_awake(*AWAKE_CPU.get_or_init(|| last))?;
    }
    let records = RECORDS.get_or_init(|| planned.iter().map(record).collect());
    runners::start((&order.runner, &order.variant), &planned, start, run_task)?;
    thread::sleep(WARM_UP);
    let work_ns =
        || records.iter().map(|record| record.work_ns.load(Ordering::Relaxed)).sum::<u64>();
    let runs = || -> Vec<usize> {
        records.iter().map(|record| record.runs.load(Ordering::Relaxed) as usize).collect()
    };
    let (begin, counters, cpu_ns) =
        (Instant::now(), Counters::now(System::this()), clock::process_cpu_ns());
    let elsewhere =
        || records.iter().map(|record| record.elsewhere.load(Ordering::Relaxed)).sum::<u64>();
    let (work_before, runs_before, elsewhere_before) = (work_ns(), runs(), elsewhere());
    thread::sleep(Duration::from_secs(order.seconds));
    // A sample without a run says nothing about the runner: on a busy machine it lasts until one
    // has begun in it, and one has ended.
    let has_begun = |(record, &run): (&Record, &usize)| {
        record.late.get(run).is_none_or(|late| late.load(Ordering::Relaxed) > 0)
    };
    let has_run = || work_ns() > work_before && records.iter().zip(&runs_before).any(has_begun);
    let mut own_sleeps = 1;
    while !records.is_empty() && !has_run() {
        thread::sleep(Duration::from_secs(1));
        own_sleeps += 1;
    }
    let work = work_ns() - work_before;
    let elsewhere = AWAKE_CPU.get().map(|_| elsewhere() - elsewhere_before);
    let cpu = clock::process_cpu_ns() - cpu_ns;
    let after = Counters::now(System::this());
    let (mut late_ns, mut beyond_ns): (Vec<u64>, Vec<u64>) = Default::default();
    for ((record, from), to) in records.iter().zip(runs_before).zip(runs()) {
        let runs = record.late.iter().take(to).skip(from);
        let late = runs.filter_map(|late| late.load(Ordering::Relaxed).checked_sub(1));
        let known = late_ns.len();
        late_ns.extend(late);
        let slack = tasks::slack(record.period).as_nanos() as u64;
        beyond_ns.extend(late_ns[known..].iter().map(|late| late.saturating_sub(slack)));
    }
    late_ns.sort_unstable();
    beyond_ns.sort_unstable();
    let early = records.iter().map(|record| record.early.load(Ordering::Relaxed)).sum();
    let sample = Sample {
        wall: begin.elapsed(),
        own_sleeps,
        before: counters,
        after,
        cpu,
        work,
        late_ns,
        beyond_ns,
        early,
        elsewhere,
        times_items: order.case == COLD,
    };
    figures::of(&sample).print();
    Ok(())
}
