//! `uwork-lab bench`: measures uwork on this machine, and other pools for comparison.
//!
//! A benchmark is a list of groups, which go through the [`pipeline`]. The contestants of a group
//! run interleaved, sample by sample. So other activity of the machine affects all of them alike,
//! and their ratio remains meaningful. All checks of the command line precede the first
//! measurement.

#![cfg_attr(not(feature = "all"), expect(dead_code, reason = "of the other benchmarks"))]

#[cfg(feature = "all")]
#[path = "../../../../crates/uwork/tests/support/address.rs"]
mod address;
#[cfg(feature = "all")]
mod affinity;
#[cfg(feature = "all")]
mod all;
#[cfg(feature = "all")]
mod blocking;
#[cfg(feature = "all")]
mod bridge;
mod burner;
#[cfg(feature = "all")]
mod c_pool;
mod contestant;
#[cfg(feature = "all")]
mod golden;
#[cfg(feature = "all")]
mod guest;
mod hold;
#[cfg(feature = "all")]
mod idle;
mod interleave;
#[cfg(feature = "all")]
mod isolation;
#[cfg(feature = "all")]
mod legend;
mod measured;
#[cfg(feature = "all")]
mod nested;
#[cfg(feature = "all")]
mod observe;
#[cfg(feature = "all")]
mod open;
mod options;
mod origin;
#[cfg(feature = "all")]
mod percpu;
mod pingpong;
mod pipeline;
#[cfg(feature = "all")]
mod power;
#[cfg(feature = "all")]
mod privilege;
#[cfg(feature = "all")]
mod progress;
#[cfg(feature = "all")]
mod queues;
mod record;
mod report;
#[cfg(feature = "all")]
mod scope;
#[cfg(feature = "all")]
mod serve;
mod summary;
#[cfg(feature = "all")]
mod taskwork;
#[cfg(feature = "all")]
mod timers;
mod uwork_pool;
mod verdict;
mod warning;
mod workqueue;

use std::process::ExitCode;

use crate::UserError;

/// The command line of `uwork-lab bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Every benchmark, one after the other, with a file of figures for each: what `make bench` runs.
    #[cfg(feature = "all")]
    All(all::Args),
    /// Items per second, enqueue latency and CPU cost of small work items (as the kernel's
    /// test_workqueue).
    Workqueue(workqueue::Args),
    /// Many submitters on one last-level cache: scope `cache` against the automatic fallback of
    /// `default`.
    #[cfg(feature = "all")]
    Scope(scope::Args),
    /// Wake-ups per second of uwork's threads when there is no work.
    #[cfg(feature = "all")]
    Idle(idle::Args),
    /// The kernel's concurrency scenarios, and the deviation of their finish times.
    #[cfg(feature = "all")]
    Golden(golden::Args),
    /// The cost of a queue: to create it, its memory, to use it once, to destroy it.
    #[cfg(feature = "all")]
    Queues(queues::Args),
    /// What the library does to its process, and a process to the library: timers at one moment.
    #[cfg(feature = "all")]
    Guest(guest::Args),
    /// The cost of timers while a million are armed, and how late they expire.
    #[cfg(feature = "all")]
    Timers(timers::Args),
    /// Items that block undeclared, among short items: the rate, the delay until the next item
    /// starts, and the number of threads.
    #[cfg(feature = "all")]
    Blocking(blocking::Args),
    /// Tasks that make tasks: nested fork and join, and futures that yield.
    #[cfg(feature = "all")]
    Nested(nested::Args),
    /// An open loop: the time from planned arrivals to the ends of their items, beside the limit.
    #[cfg(feature = "all")]
    Open(open::Args),
    /// The cost of a process that looks in, and how fast an attribute set from outside takes effect.
    #[cfg(feature = "all")]
    Observe(observe::Args),
    /// Periodic tasks on an idle machine: wake-ups, CPU time, lateness and energy.
    #[cfg(feature = "all")]
    Power(power::Args),
    /// How late a ready item starts beside an item that sleeps or computes.
    #[cfg(feature = "all")]
    Progress(progress::Args),
    /// Cycles of an allocation of 64 bytes: per-CPU caches in each mode, and other allocators.
    #[cfg(feature = "all")]
    Percpu(percpu::Args),
    /// How drains of all batches disturb a thread that is alone on its CPU, in each mode.
    #[cfg(feature = "all")]
    Isolation(isolation::Args),
    /// Requests per second of `uwork-lab serve` and of Debian's redis-server, as redis-benchmark counts
    /// them.
    #[cfg(feature = "all")]
    Serve(serve::Args),
    /// Jobs of a redis-server, beside Celery, RQ, BullMQ and asynq; and a torture that counts lost
    /// jobs.
    #[cfg(feature = "all")]
    Bridge(bridge::Args),
    /// Threads that post work to each other, for each kind of wait: posts per second, and the time
    /// from a post to its run.
    #[cfg(feature = "all")]
    Taskwork(taskwork::Args),
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    match args.bench {
        #[cfg(feature = "all")]
        Bench::All(args) => all::run(&args),
        Bench::Workqueue(args) => workqueue::run(args),
        #[cfg(feature = "all")]
        Bench::Scope(args) => scope::run(args),
        #[cfg(feature = "all")]
        Bench::Idle(args) => idle::run(args),
        #[cfg(feature = "all")]
        Bench::Golden(args) => golden::run(args),
        #[cfg(feature = "all")]
        Bench::Queues(args) => queues::run(args),
        #[cfg(feature = "all")]
        Bench::Guest(args) => guest::run(args),
        #[cfg(feature = "all")]
        Bench::Timers(args) => timers::run(args),
        #[cfg(feature = "all")]
        Bench::Blocking(args) => blocking::run(args),
        #[cfg(feature = "all")]
        Bench::Nested(args) => nested::run(args),
        #[cfg(feature = "all")]
        Bench::Open(args) => open::run(args),
        #[cfg(feature = "all")]
        Bench::Observe(args) => observe::run(args),
        #[cfg(feature = "all")]
        Bench::Power(args) => power::run(args),
        #[cfg(feature = "all")]
        Bench::Progress(args) => progress::run(args),
        #[cfg(feature = "all")]
        Bench::Percpu(args) => percpu::run(args),
        #[cfg(feature = "all")]
        Bench::Isolation(args) => isolation::run(args),
        #[cfg(feature = "all")]
        Bench::Serve(args) => serve::run(args),
        #[cfg(feature = "all")]
        Bench::Bridge(args) => bridge::run(args),
        #[cfg(feature = "all")]
        Bench::Taskwork(args) => taskwork::run(args),
    }
}
