//! The text of reports, which a program without its own reporter gets on standard error.

use std::fmt;
use std::time::Duration;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::FlagsWarning;

use super::Report;
use crate::words::plural::Count;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::ItemPanicked { queue, message } => {
                write!(f, "an item of queue {queue:?} panicked: {message}")
            }
            Report::DrainIsLong { queue, rounds } => {
                let rounds = Count(u64::from(*rounds), "round");
                write!(f, "queue {queue:?} is not empty after {rounds} of draining")
            }
            Report::QueuedWhileDraining { queue } => refused_in_drain(f, queue),
            Report::CpusChanged { allowed, limit } => cpus_changed(f, allowed, *limit),
            Report::SlackBeyondPeriod { queue, period_ns, slack_ns } => {
                slack_beyond_period(f, queue, *period_ns, *slack_ns)
            }
            Report::VariableIgnored { variable, value, allowed } => {
                write!(f, "{variable}={value:?} is ignored: allowed are {allowed}")
            }
            Report::CpumaskWithoutCpu { cpumask, used } => cpumask_without_cpu(f, cpumask, used),
            Report::MachineUnread { reason } => write!(
                f,
                "files that describe this machine could not be read: {reason}; queues may not follow its \
                 caches and nodes"
            ),
            Report::NiceRefused { wanted, got } => write!(
                f,
                "niceness {wanted} was wanted, got {got}: lower needs CAP_SYS_NICE or RLIMIT_NICE"
            ),
            Report::BarrierRefused { reason } => write!(
                f,
                "membarrier(2) was allowed and is refused now: {reason}; fences cost more from here on"
            ),
            Report::NoControlSocket { reason } => write!(f, "no control socket: {reason}"),
            Report::SpawnFailed { reason } => write!(f, "no further worker thread: {reason}"),
            Report::RoutesKept { reason } => {
                write!(
                    f,
                    "queues could not follow a change, and keep their pools of before: {reason}"
                )
            }
            Report::PolicyRefused { wanted, got, reason } => {
                write!(f, "{wanted}, the policy of the process, was wanted, got {got}: {reason}")
            }
            Report::FlagsChanged { queue, warning } => flags_changed(f, queue, *warning),
            Report::CpuIntensive { function, name, count, used_ns } => {
                cpu_intensive(f, *function, name.as_deref(), *count, *used_ns)
            }
            Report::FlushDependency { from, on } => write!(
                f,
                "an item of {from:?}, which is MEM_RECLAIM, waits for {on:?}, which is not and may need a \
                 new thread"
            ),
            Report::BlockingTier { tier, reason, ignored: None } => {
                write!(f, "workers that block are noticed by way of {tier}: {reason}")
            }
            Report::BlockingTier { tier, reason, ignored: Some(ignored) } => {
                write!(f, "{ignored}; in use: {tier} ({reason})")
            }
            Report::WorkerStopped { thread } => write!(
                f,
                "worker thread {thread} was stopped by a signal or a debugger while others wait; it \
                 is not replaced"
            ),
            Report::WorkerMissing { pool, missing_ns } => write!(
                f,
                "pool {pool} lacked a worker for {} ms while an item waited there; the watcher has added one. \
                 This is a defect of uwork; please report it",
                missing_ns / 1_000_000
            ),
            Report::PerCpuMode { mode, reason } => {
                write!(f, "per-CPU locks are in mode {mode}: {reason}")
            }
            Report::CacheInUse { cache, objects } => {
                let objects = Count(*objects as u64, "object");
                write!(f, "cache {cache:?} was dropped with {objects} out; their memory is kept")
            }
            Report::WorkersMax { pool, max } => write!(
                f,
                "pool {pool} and the pools it shares work with have {}, as many as they may \
                 (module/parameters/pool_workers_max, or the limits of its queues), and all of them block \
                 while others wait",
                Count(u64::from(*max), "worker")
            ),
            Report::Stalled(stall) => stall.fmt(f),
            Report::ReadSideLeft { queue, function } => {
                let function = function.as_deref().unwrap_or("an item");
                write!(
                    f,
                    "{function} of the queue {queue:?} has returned in an RCU read side, which was ended"
                )
            }
            Report::HookPanicked { thread, ends, message } => {
                let event = if *ends { "end" } else { "start" };
                write!(f, "a hook for the {event} of the thread {thread:?} panicked: {message}")
            }
            Report::WaitInFuture { thread } => wait_in_future(f, thread),
            Report::BhWaits { queue } => bh_waits(f, queue),
        }
    }
}

fn cpus_changed(f: &mut fmt::Formatter<'_>, allowed: &CpuSet, limit: Option<u32>) -> fmt::Result {
    let quota = limit
        .map_or("without a CPU quota".to_owned(), |limit| format!("with a CPU quota of {limit}"));
    write!(f, "this process may now use the CPUs {allowed}, {quota}")
}

fn cpumask_without_cpu(f: &mut fmt::Formatter<'_>, cpumask: &CpuSet, used: &CpuSet) -> fmt::Result {
    write!(
        f,
        "this process may use none of the CPUs {cpumask} that were chosen for unbound queues; they use \
         {used} until one is back"
    )
}

fn flags_changed(f: &mut fmt::Formatter<'_>, queue: &str, warning: FlagsWarning) -> fmt::Result {
    let (flags, becomes) = match warning {
        FlagsWarning::NeitherPerCpuNorUnbound => ("neither PERCPU nor", "PERCPU"),
        FlagsWarning::BothPerCpuAndUnbound => ("both PERCPU and", "UNBOUND"),
    };
    write!(f, "queue {queue:?} is {flags} UNBOUND; it becomes {becomes}")
}

fn wait_in_future(f: &mut fmt::Formatter<'_>, thread: &str) -> fmt::Result {
    write!(
        f,
        "a future on the thread {thread:?} waits for items, and keeps the thread from other futures; \
         `uwork::unblock` makes such a call a future"
    )
}

fn bh_waits(f: &mut fmt::Formatter<'_>, queue: &str) -> fmt::Result {
    write!(f, "an item of the BH queue {queue:?} waits, which it must not")
}

fn refused_in_drain(f: &mut fmt::Formatter<'_>, queue: &str) -> fmt::Result {
    write!(f, "queue {queue:?} drains or is destroyed; an item was refused")
}

fn slack_beyond_period(
    f: &mut fmt::Formatter<'_>,
    queue: &str,
    period_ns: u64,
    slack_ns: u64,
) -> fmt::Result {
    let (period, slack) = (Duration::from_nanos(period_ns), Duration::from_nanos(slack_ns));
    write!(
        f,
        "an item of queue {queue:?} arms itself for {period:?} later with a slack of {slack:?}: its \
         period may be anything up to both together"
    )
}

fn cpu_intensive(
    f: &mut fmt::Formatter<'_>,
    function: usize,
    name: Option<&str>,
    count: u64,
    used_ns: u64,
) -> fmt::Result {
    match name {
        Some(name) => f.write_str(name)?,
        None => write!(f, "the item function at {function:#x}")?,
    }
    let (used_ms, times) = (used_ns / 1_000_000, Count(count, "time"));
    write!(
        f,
        " used the CPU for {used_ms} ms while other items waited, {times} so far; consider an \
         unbound or a CPU-intensive queue"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(max: u32) -> String {
        Report::WorkersMax { pool: "u0-1".to_owned(), max }.to_string()
    }

    #[test]
    fn reports_use_the_singular_for_one() {
        assert!(
            full(1).starts_with("pool u0-1 and the pools it shares work with have 1 worker, as")
        );
        assert!(
            full(3).starts_with("pool u0-1 and the pools it shares work with have 3 workers, as")
        );
        let drain = |rounds| Report::DrainIsLong { queue: "logs".to_owned(), rounds }.to_string();
        assert_eq!(drain(1), "queue \"logs\" is not empty after 1 round of draining");
        assert_eq!(drain(10), "queue \"logs\" is not empty after 10 rounds of draining");
    }

    #[test]
    fn an_ignored_request_is_reported_first() {
        let tier = uwork_policy::blocking::Tier::Sampling;
        let report = |ignored: Option<&str>| {
            let ignored = ignored.map(str::to_owned);
            Report::BlockingTier { tier, reason: "it was refused".to_owned(), ignored }.to_string()
        };
        assert_eq!(
            report(None),
            "workers that block are noticed by way of sampling: it was refused"
        );
        assert_eq!(
            report(Some("X is ignored: allowed is Y")),
            "X is ignored: allowed is Y; in use: sampling (it was refused)"
        );
    }
}
