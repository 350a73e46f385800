//! The child's side: carries out an order and prints its figures.

use std::time::Duration;

use uwork::percpu;
use uwork_rivals::alloc::{Allocator, Bare, Glibc, Jemalloc, Mimalloc, ThreadLocal};
use uwork_rivals::load::cpu_time;

use super::allocators::{PerCpuCache, ThroughC, Timed, keep, kept, pairs};
use super::{BARE, C, CPU, CYCLES, NANOS, Order, RATE, THREAD_LOCAL, cycles, lists, threads};
use crate::commands::UserError;
use crate::commands::bench::measured::Figures;
use crate::commands::bench::uwork_pool;

/// Measures and prints.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    // The engine's threads start from a thread that is not pinned.
    if order.runner == uwork_pool::RUNNER {
        let number = percpu::mode().number();
        if order.variant.trim_end_matches(C) != format!("mode{number}") {
            eprintln!("mode {}: {}", percpu::mode(), percpu::reason());
        }
    }
    if order.case != "threads4" {
        pin_to_one_cpu();
    }
    let before = cycles::per_nanosecond();
    let cpu = cpu_time();
    let (taken, operations) = measure(order)?;
    let cpu = cpu_time().saturating_sub(cpu);
    // The core may have changed its speed meanwhile.
    let per_nanosecond = f64::midpoint(before, cycles::per_nanosecond());
    print(taken, operations, cpu, per_nanosecond, order.case == "threads4");
    Ok(())
}

fn print(taken: Duration, operations: u64, cpu: Duration, per_nanosecond: f64, parallel: bool) {
    let ns = taken.as_secs_f64() * 1e9 / operations as f64;
    let mut figures = Figures::default();
    figures.set(RATE, 1e9 / ns);
    figures.set(NANOS, ns);
    if parallel {
        // Time on all CPUs, without what the threads slept.
        figures.set(CPU, cpu.as_secs_f64() * 1e6 / operations as f64);
        figures.set(CYCLES, cpu.as_secs_f64() * 1e9 / operations as f64 * per_nanosecond);
    } else {
        figures.set(CYCLES, ns * per_nanosecond);
    }
    figures.print();
}

fn measure(order: &Order) -> Result<Timed, UserError> {
    if order.case == "lock" {
        return Ok(match order.runner.as_str() {
            BARE => lists::bare(),
            _ if order.variant.ends_with(C) => lists::locked_through_c(),
            _ => lists::locked(),
        });
    }
    Ok(match order.runner.as_str() {
        uwork_pool::RUNNER if order.variant.ends_with(C) => with(order, &ThroughC::new()),
        uwork_pool::RUNNER => with(order, &PerCpuCache::new()),
        BARE => with(order, &Bare::new()),
        THREAD_LOCAL => with(order, &ThreadLocal),
        "glibc" => with(order, &Glibc),
        "mimalloc" => with(order, &Mimalloc),
        "jemalloc" => with(order, &Jemalloc),
        other => return Err(UserError(format!("runner '{other}' does not exist"))),
    })
}

fn with(order: &Order, allocator: &impl Allocator) -> Timed {
    match order.case.as_str() {
        "pair" => pairs(allocator),
        "threads4" => threads::ring(allocator, if order.quick { 500 } else { 10_000 }),
        case => keep(allocator, kept(order.quick), case == "write"),
    }
}

/// Keeps the calling thread on the CPU that it is on. Best effort: without it the figures are worse.
fn pin_to_one_cpu() {
    // SAFETY: no arguments.
    let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
    // SAFETY: all-zero bytes are a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number of a CPU that we are on is below CPU_SETSIZE, or 0.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: 0 is the calling thread, and the size is that of the set.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}
