//! The child process: runs the arrivals of a plan through one runner, and prints its figures.

use std::thread;
use std::time::{Duration, Instant};

use uwork::topology::Machine;
use uwork_rivals::open::OpenPool;

use super::figures::{self, CpuTimes, Sojourns};
use super::generator::{self, Generated, Part, Planned};
use super::item::Item;
use super::plan::{self, Arrival};
use super::spin::Spin;
use super::{Order, cases, clock, limit, pools};
use crate::UserError;
use crate::bench::contestant::cpus;
use crate::bench::measured::{self, Figures, Measured};
use crate::bench::summary::Metric;

/// Arrivals in this first part of a run are not counted: threads start, and queues learn.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);
/// A run fails if its items do not end within this time after the last submission.
const HANGS: Duration = Duration::from_secs(60);
/// Interval between two checks for the end.
const GLANCE: Duration = Duration::from_millis(1);

/// Measures and prints. Pools and items are not cleaned up, because the process ends.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    measured::end_on_panic();
    let plan = arrivals(order);
    let spin = Spin::calibrate();
    let items: Vec<Item> = plan.iter().map(|arrival| Item::new(arrival, spin)).collect();
    let items: &'static [Item] = Vec::leak(items);
    let pools = pools(order, &plan)?;
    let parts = parts(order, &plan, items, pools)?;
    let cpu_ns = clock::process_cpu_ns();
    let Generated { start_ns, cpu_ns: generators_ns, .. } = generator::run(parts)?;
    let ends = ends(items)?;
    let process_ns = clock::process_cpu_ns() - cpu_ns;
    let last = ends.iter().max().copied().unwrap_or(start_ns);
    let available_ns = last.saturating_sub(start_ns) * cpus() as u64;

    let counted = plan.iter().zip(items).zip(ends).filter(|((arrival, _), _)| is_counted(arrival));
    let since_arrival = |arrival: &Arrival, ns: u64| {
        Duration::from_nanos(ns.saturating_sub(start_ns)).saturating_sub(arrival.at)
    };
    let (times, late): (Vec<_>, Vec<_>) = counted
        .map(|((arrival, item), end)| {
            let sojourn = (since_arrival(arrival, end), arrival.critical);
            (sojourn, since_arrival(arrival, item.submitted_ns()))
        })
        .unzip();
    let items_ns = items.iter().map(Item::computed_ns).sum();
    let mut all = figures::sojourns(times.into_iter());
    all.extend(figures::cpu_times(&CpuTimes { available_ns, process_ns, items_ns, generators_ns }));
    all.extend(figures::lateness(late.into_iter()));
    print(all);
    Ok(())
}

/// The figures of the same arrivals in a perfect queue.
pub(super) fn limit(order: &Order) -> Sojourns {
    Sojourns(Measured::new(limit_of(&arrivals(order), Duration::ZERO)))
}

/// `generator`: the CPU time that an arrival takes from a server.
fn limit_of(plan: &[Arrival], generator: Duration) -> Vec<(Metric, f64)> {
    let times = limit::sojourns(plan, cpus(), generator);
    let counted = plan.iter().zip(times).filter(|(arrival, _)| is_counted(arrival));
    figures::sojourns(counted.map(|(arrival, time)| (time, arrival.critical)))
}

/// Drops every item.
struct Nothing;

impl OpenPool<Item> for Nothing {
    fn submit(&self, _: &'static Item) {}
}

/// Runs the generators without a pool, and prints the figures of a perfect queue from which they take
/// their CPU time, but for what they spin: an item could run instead.
pub(super) fn run_generated(order: &Order) -> Result<(), UserError> {
    measured::end_on_panic();
    let plan = arrivals(order);
    let spin = Spin::calibrate();
    let items: &'static [Item] =
        Vec::leak(plan.iter().map(|arrival| Item::new(arrival, spin)).collect());
    let parts = parts(order, &plan, items, (&Nothing, &Nothing))?;
    let Generated { cpu_ns, spun_ns, .. } = generator::run(parts)?;
    // A spin that was preempted took less CPU time than it lasted, so this is too short, not too
    // long.
    let needed_ns = cpu_ns.saturating_sub(spun_ns);
    let each = Duration::from_nanos(needed_ns / plan.len().max(1) as u64);
    print(limit_of(&plan, each));
    Ok(())
}

fn print(figures: Vec<(Metric, f64)>) {
    let mut printed = Figures::default();
    figures.into_iter().for_each(|(metric, value)| printed.set(metric, value));
    printed.print();
}

fn arrivals(order: &Order) -> Vec<Arrival> {
    let end = WARM_UP + Duration::from_millis(order.millis);
    plan::arrivals(&cases::streams(&order.case), cpus(), end, order.seed)
}

fn is_counted(arrival: &Arrival) -> bool {
    arrival.at >= WARM_UP
}

/// The pools of the items, and of those that are latency-critical.
type Pools = (&'static dyn OpenPool<Item>, &'static dyn OpenPool<Item>);

fn pools(order: &Order, plan: &[Arrival]) -> Result<Pools, UserError> {
    let Order { runner, variant, .. } = order;
    let pool = pools::start(runner, variant, false)?;
    let has_critical = plan.iter().any(|arrival| arrival.critical);
    let critical = if has_critical { pools::start(runner, variant, true)? } else { pool };
    Ok((pool, critical))
}

/// The generators' parts, with the pools that they submit to.
fn parts(
    order: &Order,
    plan: &[Arrival],
    items: &'static [Item],
    (pool, critical): Pools,
) -> Result<Vec<Part>, UserError> {
    let mut parts = if order.generator_per_cpu {
        let machine = Machine::read().map_err(|error| UserError(error.to_string()))?;
        machine.allowed.iter().map(|cpu| Part { cpu: Some(cpu), list: Vec::new() }).collect()
    } else {
        vec![Part { cpu: None, list: Vec::new() }]
    };
    let generators = plan::divide(plan.len(), parts.len(), order.seed);
    for ((arrival, item), generator) in plan.iter().zip(items).zip(generators) {
        let pool = if arrival.critical { critical } else { pool };
        let at_ns = arrival.at.as_nanos() as u64;
        parts[generator].list.push(Planned { at_ns, item, pool });
    }
    Ok(parts)
}

/// Waits for all items. Returns the times of their ends.
fn ends(items: &[Item]) -> Result<Vec<u64>, UserError> {
    let submitted = Instant::now();
    let mut ends = Vec::with_capacity(items.len());
    for item in items {
        let end = loop {
            match item.ended_ns() {
                Some(end) => break end,
                None if submitted.elapsed() < HANGS => thread::sleep(GLANCE),
                None => {
                    let late = items.iter().filter(|item| item.ended_ns().is_none()).count();
                    let of = items.len();
                    return Err(UserError(format!(
                        "{late} of {of} items have not ended {} s after the last submission",
                        HANGS.as_secs()
                    )));
                }
            }
        };
        ends.push(end);
    }
    Ok(ends)
}
