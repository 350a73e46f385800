//! The pools and what their workers do, as two tables with tabs.

use std::fmt::Write as _;

use super::status::plain;
use crate::dump::{Dump, PoolDump, WorkerDump, WorkerState};
use crate::dump_api::{Names, dump_with};

/// The columns of the first table. New ones are added at the end.
const POOL_COLUMNS: &str =
    "id\tcpus\tnice\ttarget\tworkers\tworkers_max\trunning\tidle\tready\tarmed";
/// The columns of the second table. New ones are added at the end.
const WORKER_COLUMNS: &str = "pool\tslot\tname\tthread\tstate\tqueue\tfunction\tfor_us\tscheduled";

/// A line for each pool after the names of the columns, an empty line, and the same for the workers.
/// A helper, which is a worker of no pool, has the pool `-`.
pub(super) fn pools(named: Names) -> String {
    let dump = dump_with(named);
    let mut text = format!("{POOL_COLUMNS}\n");
    // One that has lost its CPUs is of interest as long as it has something to do.
    let is_idle = |pool: &PoolDump| pool.nr_workers == 0 && pool.nr_ready + pool.nr_armed == 0;
    for pool in dump.pools.iter().filter(|pool| !(pool.retired || pool.displaced && is_idle(pool)))
    {
        let _ = writeln!(
            text,
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            pool.id,
            pool.cpus,
            pool.nice,
            pool.target,
            pool.nr_workers,
            pool.workers_max,
            pool.nr_running,
            pool.nr_idle,
            pool.nr_ready,
            pool.nr_armed,
        );
    }
    let _ = writeln!(text, "\n{WORKER_COLUMNS}");
    for pool in &dump.pools {
        pool.workers.iter().for_each(|worker| line(&mut text, &pool.id.to_string(), worker, &dump));
    }
    dump.helpers.iter().for_each(|helper| line(&mut text, "-", helper, &dump));
    text
}

fn line(text: &mut String, pool: &str, worker: &WorkerDump, dump: &Dump) {
    let running = worker.running.as_ref();
    let queue = running.and_then(|running| running.queue.as_deref()).unwrap_or("-");
    let function = running.and_then(|running| running.function.as_ref());
    let began = running.and_then(|running| running.batch_began_ns);
    let _ = writeln!(
        text,
        "{pool}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
        worker.slot,
        if worker.thread.is_empty() { "-" } else { &worker.thread },
        worker.thread_id,
        if worker.sleeps { WorkerState::Asleep } else { worker.state },
        plain(queue),
        function.map_or("-".to_owned(), |function| plain(&function.to_string())),
        began.map_or(0, |began| dump.at_ns.saturating_sub(began) / 1_000),
        worker.scheduled.total,
    );
}
