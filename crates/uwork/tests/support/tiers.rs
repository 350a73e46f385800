//! Detection of blocked workers: its reports, and scenes that need it.

use std::fs;
use std::mem::ManuallyDrop;
use std::process::Command;
use std::sync::{Arc, Mutex};

use uwork::{Queue, Report};

use super::blocks::{Obstacle, compute_first};
use super::gate::{Gate, Log};
use super::items::Job;
use super::machine::cpus;
use super::{keep, until};

/// The environment variable that requests a tier.
pub(crate) const VARIABLE: &str = "UWORK_BLOCKING";

/// For a process that chooses its tier itself.
pub(crate) fn in_best_tier(command: &mut Command) {
    command.env_remove(VARIABLE);
}

/// For a process in the tier of standbys.
pub(crate) fn in_standby(command: &mut Command) {
    command.env(VARIABLE, "standby");
}

/// For a process in the tier of events.
pub(crate) fn in_events(command: &mut Command) {
    command.env(VARIABLE, "events");
}

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

/// Stores the reports from here on, for [`reports`].
pub(crate) fn collect_reports() {
    let kept = uwork::set_reporter(|report| REPORTS.lock().unwrap().push(report.clone()));
    assert!(kept.is_ok(), "the first reporter");
}

/// The reports so far, filtered by `f`.
pub(crate) fn reports<T>(f: impl FnMut(&Report) -> Option<T>) -> Vec<T> {
    REPORTS.lock().unwrap().iter().filter_map(f).collect()
}

/// The tiers that were reported, each with its reason.
pub(crate) fn reported() -> Vec<(String, String)> {
    reports(|report| match report {
        Report::BlockingTier { tier, reason, .. } => Some((tier.to_string(), reason.clone())),
        _ => None,
    })
}

/// The number of threads whose context switches this process records, plus one.
pub(crate) fn perf_files() -> usize {
    let files = fs::read_dir("/proc/self/fd").expect("the files of this process");
    let is_perf =
        |path| fs::read_link(path).is_ok_and(|at| at.ends_with("anon_inode:[perf_event]"));
    files.filter(|file| is_perf(file.as_ref().expect("a file").path())).count()
}

/// The workers of the pools that this queue uses.
pub(crate) fn workers_of(queue: &Queue) -> u32 {
    let mut pools: Vec<u32> = queue.dump().pwqs.iter().map(|pwq| pwq.pool).collect();
    pools.sort_unstable();
    pools.dedup();
    let of_queue = |pool: &uwork::dump::PoolDump| pools.binary_search(&pool.id).is_ok();
    uwork::dump().pools.iter().filter(|pool| of_queue(pool)).map(|pool| pool.nr_workers).sum()
}

/// Items that block in an obstacle.
pub(crate) struct Blocked {
    /// Never dropped if the test panics: dropping a queue with a stuck item hangs.
    queue: ManuallyDrop<Queue>,
    obstacle: Arc<dyn Obstacle>,
    pub(crate) items: Vec<Arc<Job>>,
    entered: Log<usize>,
}

impl Blocked {
    /// Queues as many items as the obstacle has places, all on the first CPU.
    pub(crate) fn queue(queue: &Queue, obstacle: Arc<dyn Obstacle>, places: usize) -> Blocked {
        let queue = ManuallyDrop::new(queue.clone());
        let entered = Log::new();
        let item = |place| {
            let (entered, obstacle) = (entered.clone(), obstacle.clone());
            Job::new(move |_| {
                entered.push(place);
                obstacle.block(place);
            })
        };
        let items: Vec<_> = (0..places).map(item).collect();
        for item in &items {
            assert!(queue.enqueue_on(cpus()[0], item.clone()).expect("a CPU").is_queued());
        }
        Blocked { queue, obstacle, items, entered }
    }

    /// Waits until `count` of them are inside.
    pub(crate) fn until_inside(&self, count: usize) {
        self.entered.wait_for_count(count);
    }

    /// How many are or were inside.
    pub(crate) fn entered(&self) -> usize {
        self.entered.events().len()
    }

    /// Releases all of them, and waits for them: each has run once.
    pub(crate) fn release(self) {
        (0..self.items.len()).for_each(|place| self.obstacle.release(place));
        self.queue.flush().unwrap();
        for item in &self.items {
            let tally = &item.tally;
            assert_eq!((tally.started(), tally.finished(), tally.overlapped()), (1, 1, false));
        }
        assert_eq!(uwork::panics(), 0);
        drop(ManuallyDrop::into_inner(self.queue));
    }
}

/// All workers of a queue block, undeclared, and the next item runs nevertheless; afterwards the
/// state is as before. The queue's `max_active` is greater than `places`.
pub(crate) fn are_replaced(queue: &Queue, obstacle: Arc<dyn Obstacle>, places: usize) {
    let limit = queue.max_active() + cpus().len() as u32 + 2;
    assert!(queue.max_active() as usize > places);
    let blocked = Blocked::queue(queue, obstacle, places);
    blocked.until_inside(places);
    let behind = Job::counting();
    assert!(queue.enqueue_on(cpus()[0], behind.clone()).unwrap().is_queued());
    until("the item behind those that block has run", || behind.tally.finished() == 1);
    let over = blocked.items.iter().filter(|item| item.tally.finished() > 0).count();
    let workers = workers_of(queue);
    blocked.release();
    assert_eq!(over, 0, "they still blocked");
    assert!(workers <= limit, "{workers} workers, at most {limit}");
    let workers = workers_of(queue);
    assert!(workers <= limit, "{workers} workers afterwards, at most {limit}");
    assert_eq!((behind.tally.started(), behind.tally.finished()), (1, 1));
}

/// Items of a [`scene`] that block at once. After two more in a row the next ones would be presumed
/// to block, and no worker would be observed.
pub(crate) const BLOCKED: usize = 6;

/// A queue for a scene, with pools of its own: the cap of a pool is the sum of its queues'.
pub(crate) fn blocks() -> Queue {
    super::queue("blocks").nice(1).max_active(BLOCKED as u32 + 1).build().unwrap()
}

/// Workers of a new queue, whose items are not known to block yet, are found running, and then
/// replaced when they block.
pub(crate) fn scene() {
    are_replaced(&blocks(), Arc::new(compute_first(BLOCKED)), BLOCKED);
}

/// As [`are_replaced`], with items that declare their wait.
pub(crate) fn declare_and_are_replaced(queue: &Queue, places: usize) {
    keep(queue);
    let (entered, may_end) = (Log::new(), Gate::new());
    let item = |place| {
        let (entered, may_end) = (entered.clone(), may_end.clone());
        Job::new(move |_| {
            entered.push(place);
            may_end.wait_blocking();
        })
    };
    let items: Vec<_> = (0..places).map(item).collect();
    for item in &items {
        assert!(queue.enqueue(item.clone()).is_queued());
    }
    entered.wait_for_count(places);
    let behind = Job::counting();
    assert!(queue.enqueue(behind.clone()).is_queued());
    until("the item behind those that wait has run", || behind.tally.finished() == 1);
    may_end.open();
    queue.flush().unwrap();
    assert!(items.iter().all(|item| item.tally.finished() == 1));
}
