//! The child process: executes an order and prints its figures.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use uwork::percpu;
use uwork_rivals::alloc::{Allocator, Bare, Glibc, Jemalloc, Mimalloc, ThreadLocal};
use uwork_rivals::collect::{self, Channel, Collect, MutexVec, Segments, Sink};
use uwork_rivals::count::{self, Count};
use uwork_rivals::load::cpu_time;

use super::allocators::{PerCpuCache, ThroughC, Timed, Touch, keep, kept, pairs};
use super::{BARE, C, CPU, CYCLES, LOCKED, NANOS, Order, RATE, THREAD_LOCAL};
use super::{batches, counters, cycles, lists, threads};
use crate::UserError;
use crate::bench::measured::Figures;
use crate::bench::{affinity, uwork_pool};

/// Measures and prints.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    // Starts the engine from a thread that is not pinned, because its threads inherit the mask.
    if order.runner == uwork_pool::RUNNER {
        let number = percpu::mode().number();
        if order.variant.trim_end_matches(C) != format!("mode{number}") {
            eprintln!("mode {}: {}", percpu::mode(), percpu::reason());
        }
    }
    let parallel = order.case.ends_with('4');
    if !parallel {
        pin_to_one_cpu();
    }
    let before = cycles::per_nanosecond();
    let cpu = cpu_time();
    let (taken, operations) = measure(order)?;
    let cpu = cpu_time().saturating_sub(cpu);
    // The clock frequency may have changed during the measurement.
    let per_nanosecond = f64::midpoint(before, cycles::per_nanosecond());
    print(taken, operations, cpu, per_nanosecond, parallel);
    Ok(())
}

fn print(taken: Duration, operations: u64, cpu: Duration, per_nanosecond: f64, parallel: bool) {
    let ns = taken.as_secs_f64() * 1e9 / operations as f64;
    let mut figures = Figures::default();
    figures.set(RATE, 1e9 / ns);
    figures.set(NANOS, ns);
    if parallel {
        // CPU time of all threads, without the time that they slept.
        figures.set(CPU, cpu.as_secs_f64() * 1e6 / operations as f64);
        figures.set(CYCLES, cpu.as_secs_f64() * 1e9 / operations as f64 * per_nanosecond);
    } else {
        figures.set(CYCLES, ns * per_nanosecond);
    }
    figures.print();
}

fn measure(order: &Order) -> Result<Timed, UserError> {
    let is_c = order.variant.ends_with(C);
    let measured = match (order.case.as_str(), order.runner.as_str()) {
        ("lock", BARE) if order.variant == LOCKED => lists::bare_locked(),
        ("lock", BARE) => lists::bare(),
        ("lock", uwork_pool::RUNNER) if is_c => lists::locked_through_c(),
        ("lock", uwork_pool::RUNNER) => lists::locked(),
        ("count" | "count4", uwork_pool::RUNNER) if is_c => {
            count(order, &counters::ThroughC::new())
        }
        ("count" | "count4", uwork_pool::RUNNER) => count(order, &counters::PerCpuCounter::new()),
        ("count" | "count4", "atomic") => count(order, &AtomicI64::new(0)),
        ("count" | "count4", THREAD_LOCAL) => count(order, &count::PerThread),
        ("count", BARE) => count(order, &count::Bare::new()),
        ("batch" | "batch4", _) => return batch(order, is_c),
        (_, uwork_pool::RUNNER) if is_c => allocate(order, &ThroughC::new()),
        (_, uwork_pool::RUNNER) => allocate(order, &PerCpuCache::new()),
        (_, BARE) if order.variant == LOCKED => allocate(order, &Bare::<true>::new()),
        (_, BARE) => allocate(order, &Bare::<false>::new()),
        (_, THREAD_LOCAL) => allocate(order, &ThreadLocal),
        (_, "glibc") => allocate(order, &Glibc),
        (_, "mimalloc") => allocate(order, &Mimalloc),
        (_, "jemalloc") => allocate(order, Jemalloc::get().ok_or_else(|| no_such(order))?),
        _ => return Err(no_such(order)),
    };
    Ok(measured)
}

fn no_such(Order { case, runner, .. }: &Order) -> UserError {
    UserError(format!("case '{case}' has no runner '{runner}'"))
}

fn allocate(order: &Order, allocator: &impl Allocator) -> Timed {
    let touch = match order.case.as_str() {
        "pair" => return pairs(allocator),
        "threads4" => return threads::ring(allocator, if order.quick { 500 } else { 10_000 }),
        "write" => Touch::Write,
        "recycled" => Touch::Again,
        _ => Touch::No,
    };
    keep(allocator, kept(order.quick), touch)
}

/// Number of additions, or items, of each of four threads.
fn each(order: &Order) -> u64 {
    if order.quick { 1_000_000 } else { 10_000_000 }
}

fn count(order: &Order, counter: &impl Count) -> Timed {
    match order.case.as_str() {
        "count" => counters::alone(counter),
        _ => counters::four(counter, each(order)),
    }
}

fn batch(order: &Order, is_c: bool) -> Result<Timed, UserError> {
    fn with(order: &Order, sink: &Sink, collector: &impl Collect) -> Timed {
        match order.case.as_str() {
            "batch" => batches::alone(sink, collector),
            _ => batches::four(sink, collector, each(order)),
        }
    }
    let sink = &Arc::new(Sink::default());
    Ok(match order.runner.as_str() {
        uwork_pool::RUNNER if is_c => with(order, sink, &batches::ThroughC::new(sink)),
        uwork_pool::RUNNER => with(order, sink, &batches::PerCpuBatch::new(sink)),
        BARE => with(order, sink, &collect::Bare::new(sink)),
        THREAD_LOCAL => with(order, sink, &collect::PerThread::new(sink)),
        "mutex" => with(order, sink, &MutexVec::new(sink)),
        "segqueue" => with(order, sink, &Segments::new(sink)),
        "channel" => with(order, sink, &Channel::new(sink)),
        _ => return Err(no_such(order)),
    })
}

/// Pins the calling thread to its current CPU. Best effort: without it the figures are noisier.
fn pin_to_one_cpu() {
    // SAFETY: the call takes no arguments.
    let cpu = u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
    let _ = affinity::restrict_to(&[cpu]);
}
