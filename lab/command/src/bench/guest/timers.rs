//! Timers that are due at one moment, with an item that only counts. Without rayon, which has no timers.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uwork::{DelayedWork, WorkItem};
use uwork_rivals::at_once;

use super::{Case, Order};
use crate::UserError;
use crate::bench::contestant::cpus;
use crate::bench::measured::Figures;
use crate::bench::summary::Metric;
use crate::bench::uwork_pool;

pub(super) const CASE: Case = Case {
    name: "timers",
    about: "timers that are due at one moment",
    runners: &[uwork_pool::RUNNER, "thread", "tokio"],
    metrics: &[ALL_RAN, THREADS],
    sample: take_sample,
};

/// From the moment at which all are due to the end of the last item.
const ALL_RAN: Metric = Metric { name: "all_ran_ms", unit: "ms", title: "all_ran_ms", decimals: 1 };
/// The most threads of the process, the one that measures included.
const THREADS: Metric =
    Metric { name: "threads_most", unit: "threads", title: "threads_most", decimals: 0 };

/// More time for each timer than arming it takes.
const AHEAD: Duration = Duration::from_micros(10);
const BETWEEN_COUNTS: Duration = Duration::from_millis(2);

static TIMERS: AtomicUsize = AtomicUsize::new(0);
static RAN: AtomicUsize = AtomicUsize::new(0);
static LAST: OnceLock<Instant> = OnceLock::new();

fn run_timer(_number: usize) {
    if RAN.fetch_add(1, Ordering::Relaxed) + 1 == TIMERS.load(Ordering::Relaxed) {
        LAST.set(Instant::now()).expect("there is one last timer");
    }
}

#[derive(Default)]
struct Timer {
    work: DelayedWork<Timer>,
}

uwork::has_work!(impl HasDelayedWork for Timer { work });

impl WorkItem for Timer {
    type Pointer = &'static Timer;

    fn run(_this: &'static Timer) {
        run_timer(0);
    }
}

fn take_sample(order: &Order) -> Result<Figures, UserError> {
    let (runner, quick) = (&order.runner[..], order.quick);
    let timers = if quick { 100_000 } else { 1_000_000 };
    TIMERS.store(timers, Ordering::Relaxed);
    let moment = Instant::now() + AHEAD * timers as u32;
    if runner == uwork_pool::RUNNER {
        arm(timers, moment);
    } else {
        let started = at_once::start(runner, cpus(), timers, moment, run_timer);
        match started {
            Ok(true) => {}
            Ok(false) => return Err(UserError(format!("--order: there is no runner '{runner}'"))),
            Err(error) => return Err(UserError(format!("{runner}: {error}"))),
        }
    }
    if Instant::now() >= moment {
        return Err(UserError(format!("{runner}: the machine is too busy to arm in time")));
    }
    let (mut most, mut last) = (0, LAST.get());
    while last.is_none() {
        most = most.max(threads()?);
        thread::sleep(BETWEEN_COUNTS);
        last = LAST.get();
    }
    let mut figures = Figures::default();
    let took = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(moment));
    figures.set(ALL_RAN, took.as_secs_f64() * 1e3);
    figures.set(THREADS, most as f64);
    Ok(figures)
}

/// Arms uwork's timers.
fn arm(timers: usize, moment: Instant) {
    let queue = Box::leak(Box::new(uwork_pool::queue("default")));
    // Leaked, because the engine may access an item until it has run.
    let items: &'static [Timer] = Vec::leak((0..timers).map(|_| Timer::default()).collect());
    for item in items {
        let delay = moment.saturating_duration_since(Instant::now());
        assert!(queue.enqueue_delayed(item, delay).is_queued(), "an idle item is armed");
    }
}

/// How many threads this process has.
fn threads() -> Result<usize, UserError> {
    let path = "/proc/self/task";
    let entries = fs::read_dir(path).map_err(|error| UserError(format!("{path}: {error}")))?;
    Ok(entries.count())
}
