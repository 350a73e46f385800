//! The child process: executes an order and prints its figures.

use uwork_rivals::jobs::{JobPool, job_rivals};

use super::cases::{self, AT_ONCE, BURST_AT_ONCE, Size};
use super::obstacles::{Kind, Obstacles, check_faults};
use super::order::{BURN, Order};
use super::threads::Peak;
use super::uwork_jobs::UworkJobs;
use super::{burst, flood, latency, throughput};
use crate::UserError;
use crate::bench::burner::{self, Burner};
use crate::bench::contestant::cpus;
use crate::bench::measured::{self, Figures};
use crate::bench::privilege;
use crate::bench::uwork_pool;

/// Measures and prints. Threads and obstacles are not cleaned up, because the process ends.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    measured::end_on_panic();
    // Started before this process may lose the permission to read its own program file.
    let burner = cases::is_busy(&order.case).then(|| Burner::start(order.burner()?)).transpose()?;
    if order.unprivileged {
        privilege::drop().map_err(|error| UserError(format!("--unprivileged: {error}")))?;
    }
    if order.case == BURN {
        return burner::burn(cpus());
    }
    let mut figures = Figures::default();
    let size = Size::of(order.quick);
    match order.case.as_str() {
        "flood" => flood::measure(&size, &mut figures)?,
        "busy" => flood::measure_workers(&size, &mut figures)?,
        _ => blocking(order, &size, &mut figures)?,
    }
    drop(burner);
    figures.print();
    Ok(())
}

fn blocking(order: &Order, size: &Size, figures: &mut Figures) -> Result<(), UserError> {
    let may_fault = check_faults().is_ok();
    let kinds: &[Kind] = cases::kinds(&order.case);
    let kinds: Vec<Kind> =
        kinds.iter().copied().filter(|kind| *kind != Kind::Fault || may_fault).collect();
    let kinds: &'static [Kind] = Vec::leak(kinds);
    if kinds.is_empty() {
        return Err(UserError(format!("case '{}' cannot run here", order.case)));
    }
    let obstacles = Obstacles::new(kinds, AT_ONCE).map_err(|error| {
        UserError(format!("the obstacles for blocking items cannot be created: {error}"))
    })?;
    let obstacles: &'static Obstacles = Box::leak(Box::new(obstacles));

    let peak = Peak::begin();
    if order.case == "burst" {
        burst::measure(&*pool(order, BURST_AT_ONCE)?, obstacles, size, peak, figures);
    } else {
        let pool = pool(order, AT_ONCE)?;
        throughput::measure(&*pool, obstacles, kinds, size, peak, figures);
        drop(pool);
        latency::measure(&*pool_of_one(order)?, obstacles, kinds, size, figures);
    }
    Ok(())
}

/// A pool with one worker per CPU. If the pool replaces blocked items, up to `at_once` items may be
/// blocked.
fn pool(order: &Order, at_once: usize) -> Result<Box<dyn JobPool>, UserError> {
    if order.runner == uwork_pool::RUNNER {
        return Ok(Box::new(UworkJobs::unbound(&order.variant, at_once)?));
    }
    rival(order, cpus(), at_once)
}

/// A pool that runs one item at a time, except while an item is blocked.
fn pool_of_one(order: &Order) -> Result<Box<dyn JobPool>, UserError> {
    if order.runner == uwork_pool::RUNNER {
        return Ok(Box::new(UworkJobs::on_one_cpu(&order.variant)?));
    }
    rival(order, 1, AT_ONCE)
}

fn rival(order: &Order, workers: usize, at_once: usize) -> Result<Box<dyn JobPool>, UserError> {
    let Order { runner, variant, .. } = order;
    let mut rivals = job_rivals().into_iter();
    match rivals.find(|rival| rival.runner == runner && rival.variant == variant) {
        Some(rival) => Ok(rival.start(workers, at_once)),
        None => Err(UserError(format!("runner '{runner}' '{variant}' does not exist"))),
    }
}
