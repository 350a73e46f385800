//! Items that sleep without a declaration, sixteen at a time, beside sixteen plain threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uwork_rivals::long_items;

use super::{Case, Order, start};
use crate::UserError;
use crate::bench::measured::Figures;
use crate::bench::summary::Metric;
use crate::bench::uwork_pool;

/// How long the items of each case sleep, in microseconds.
pub(super) const CASES: [Case; 8] = [
    case("sleep-20us"),
    case("sleep-50us"),
    case("sleep-100us"),
    case("sleep-200us"),
    case("sleep-500us"),
    case("sleep-1000us"),
    case("sleep-3000us"),
    case("sleep-10000us"),
];

const fn case(name: &'static str) -> Case {
    Case {
        name,
        about: "items that sleep so long, undeclared, 16 at a time",
        runners: &[
            uwork_pool::RUNNER,
            long_items::RUNNERS[0],
            long_items::RUNNERS[1],
            long_items::RUNNERS[2],
        ],
        metrics: &[ALL_RAN],
        sample: take_sample,
    }
}

/// From the first submission to the end of the last item.
const ALL_RAN: Metric = Metric { name: "all_ran_ms", unit: "ms", title: "all_ran_ms", decimals: 1 };

const AT_ONCE: usize = 16;
/// What the items of a sample sleep together, if none of them waits: a quarter of a second for sixteen
/// threads.
const SLEEP_IN_ALL: Duration = Duration::from_secs(4);
const ITEMS_MAX: usize = 40_000;

static SLEEP_NS: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);
static ENDED: OnceLock<Instant> = OnceLock::new();
static MAIN: OnceLock<thread::Thread> = OnceLock::new();

fn sleep(_number: usize) {
    thread::sleep(Duration::from_nanos(SLEEP_NS.load(Ordering::Relaxed)));
    if LEFT.fetch_sub(1, Ordering::AcqRel) == 1 {
        ENDED.set(Instant::now()).expect("there is one last item");
        MAIN.get().expect("set before the first item").unpark();
    }
}

fn take_sample(order: &Order) -> Result<Figures, UserError> {
    let us = order.case.trim_start_matches("sleep-").trim_end_matches("us").parse();
    let us: u64 = us.map_err(|error| UserError(format!("--order: {}: {error}", order.case)))?;
    let sleeps = Duration::from_micros(us);
    let items = (SLEEP_IN_ALL.as_nanos() / sleeps.as_nanos()) as usize;
    let items = items.min(ITEMS_MAX) / if order.quick { 20 } else { 1 };
    SLEEP_NS.store(us * 1_000, Ordering::Relaxed);
    LEFT.store(items, Ordering::Relaxed);
    let _ = MAIN.set(thread::current());
    let began = Instant::now();
    start(&order.runner, AT_ONCE, items, sleep)?;
    while ENDED.get().is_none() {
        thread::park();
    }
    let took = ENDED.get().map_or(Duration::ZERO, |ended| *ended - began);
    let mut figures = Figures::default();
    figures.set(ALL_RAN, took.as_secs_f64() * 1e3);
    Ok(figures)
}
