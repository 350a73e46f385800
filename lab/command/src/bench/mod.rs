//! `uwork-lab bench`: measures uwork on this machine, and other pools for comparison.
//!
//! A benchmark is a list of groups, which go through the [`pipeline`]. The contestants of a group
//! run interleaved, sample by sample. So other activity of the machine affects all of them alike,
//! and their ratio remains meaningful. All checks of the command line precede the first
//! measurement.

#[path = "../../../../crates/uwork/tests/support/address.rs"]
#[cfg_attr(not(feature = "bridge"), expect(dead_code, reason = "shared"))]
mod address;
mod affinity;
mod all;
mod blocking;
#[cfg(feature = "bridge")]
mod bridge;
mod burner;
mod c_pool;
mod contestant;
mod golden;
mod guest;
mod hold;
mod idle;
mod interleave;
mod isolation;
mod legend;
mod measured;
mod nested;
mod observe;
mod open;
mod options;
mod origin;
mod percpu;
mod pingpong;
mod pipeline;
mod power;
mod privilege;
mod progress;
mod queues;
mod record;
mod report;
mod scope;
mod serve;
mod summary;
mod taskwork;
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
    All(all::Args),
    /// Items per second, enqueue latency and CPU cost of small work items (as the kernel's
    /// test_workqueue).
    Workqueue(workqueue::Args),
    /// Many submitters on one last-level cache: scope `cache` against the automatic fallback of
    /// `default`.
    Scope(scope::Args),
    /// Wake-ups per second of uwork's threads when there is no work.
    Idle(idle::Args),
    /// The kernel's concurrency scenarios, and the deviation of their finish times.
    Golden(golden::Args),
    /// The cost of a queue: to create it, its memory, to use it once, to destroy it.
    Queues(queues::Args),
    /// What the library does to its process, and a process to the library: timers at one moment.
    Guest(guest::Args),
    /// The cost of timers while a million are armed, and how late they expire.
    Timers(timers::Args),
    /// Items that block undeclared, among short items: the rate, the delay until the next item
    /// starts, and the number of threads.
    Blocking(blocking::Args),
    /// Tasks that make tasks: nested fork and join, and futures that yield.
    Nested(nested::Args),
    /// An open loop: the time from planned arrivals to the ends of their items, beside the limit.
    Open(open::Args),
    /// The cost of a process that looks in, and how fast an attribute set from outside takes effect.
    Observe(observe::Args),
    /// Periodic tasks on an idle machine: wake-ups, CPU time, lateness and energy.
    Power(power::Args),
    /// How late a ready item starts beside an item that sleeps or computes.
    Progress(progress::Args),
    /// Cycles of an allocation of 64 bytes: per-CPU caches in each mode, and other allocators.
    Percpu(percpu::Args),
    /// How drains of all batches disturb a thread that is alone on its CPU, in each mode.
    Isolation(isolation::Args),
    /// Requests per second of `uwork-lab serve` and of Debian's redis-server, as redis-benchmark counts
    /// them.
    Serve(serve::Args),
    /// Jobs of a redis-server, beside Celery, RQ, BullMQ and asynq; and a torture that counts lost
    /// jobs.
    #[cfg(feature = "bridge")]
    Bridge(bridge::Args),
    /// Threads that post work to each other, for each kind of wait: posts per second, and the time
    /// from a post to its run.
    Taskwork(taskwork::Args),
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    match args.bench {
        Bench::All(args) => all::run(&args),
        Bench::Workqueue(args) => workqueue::run(args),
        Bench::Scope(args) => scope::run(args),
        Bench::Idle(args) => idle::run(args),
        Bench::Golden(args) => golden::run(args),
        Bench::Queues(args) => queues::run(args),
        Bench::Guest(args) => guest::run(args),
        Bench::Timers(args) => timers::run(args),
        Bench::Blocking(args) => blocking::run(args),
        Bench::Nested(args) => nested::run(args),
        Bench::Open(args) => open::run(args),
        Bench::Observe(args) => observe::run(args),
        Bench::Power(args) => power::run(args),
        Bench::Progress(args) => progress::run(args),
        Bench::Percpu(args) => percpu::run(args),
        Bench::Isolation(args) => isolation::run(args),
        Bench::Serve(args) => serve::run(args),
        #[cfg(feature = "bridge")]
        Bench::Bridge(args) => bridge::run(args),
        Bench::Taskwork(args) => taskwork::run(args),
    }
}
