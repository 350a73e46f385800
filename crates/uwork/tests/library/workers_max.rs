//! How many workers a pool may have: the default, the knob, and the reports. Each test runs in a
//! process of its own.

use std::sync::LazyLock;

use crate::support::child::{alone, limit};
use crate::support::forked::in_child;
use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{cpus, two_cpus};
use crate::support::tiers::workers_of;
use crate::support::{keep, queue, until, watchdog};
use uwork::dump::PoolDump;
use uwork::{AffinityScope, AffinityScopeChoice, Queue, Report, sysfs};

const KNOB: &str = "module/parameters/pool_workers_max";

/// The number of items that wait at once.
const WAITING: u32 = 48;

static REPORTS: LazyLock<Log<Report>> = LazyLock::new(Log::new);

/// The number of reports of reached caps, for pools with this many workers.
fn told(max: u32) -> usize {
    let is_it =
        |report: &&Report| matches!(report, Report::WorkersMax { max: of, .. } if *of == max);
    REPORTS.events().iter().filter(is_it).count()
}

/// Items that declare a wait until the gate opens; the log has those that have started.
fn fill(queue: &Queue, items: u32) -> (Gate, Log<u32>) {
    let (gate, started) = (Gate::new(), Log::new());
    for item in 0..items {
        let (gate, started) = (gate.clone(), started.clone());
        drop(queue.spawn(move || {
            started.push(item);
            gate.wait_blocking();
        }));
    }
    (gate, started)
}

fn wait_for_report(max: u32) {
    until("the cap is reported", || told(max) > 0);
}

/// The pools of this queue, which share their work: all their workers, and their cap.
fn pools_of(queue: &Queue) -> (u32, u32) {
    let dump = uwork::dump();
    let seen = dump.queues.iter().find(|seen| seen.name == queue.name()).unwrap();
    let is_its = |pool: &&PoolDump| seen.pwqs.iter().any(|pwq| pwq.pool == pool.id);
    let pools: Vec<_> = dump.pools.iter().filter(is_its).collect();
    (pools.iter().map(|pool| pool.nr_workers).sum(), pools[0].workers_max)
}

fn system_wide(name: &str, max_active: u32) -> Queue {
    queue(name)
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System))
        .max_active(max_active)
        .build()
        .unwrap()
}

// Catches: a cap that is not kept, not reported, reported repeatedly, or that cannot be lifted.
#[test]
fn the_knob_caps_a_pool_and_lifts_the_cap() {
    alone("the_knob_caps_a_pool_and_lifts_the_cap", || {
        let _watchdog = watchdog();
        uwork::set_reporter(|report| REPORTS.push(report.clone())).unwrap();
        assert_eq!(sysfs::get(KNOB).unwrap(), "0");
        sysfs::set(KNOB, "3\n").unwrap();
        let queue = system_wide("capped", 100);
        keep(&queue);
        let (gate, started) = fill(&queue, 12);
        started.wait_for_count(3);
        wait_for_report(3);
        assert_eq!((started.events().len(), pools_of(&queue)), (3, (3, 3)));
        assert_eq!(told(3), 1);
        sysfs::set(KNOB, "0").unwrap();
        started.wait_for_count(12);
        gate.open();
        queue.flush().unwrap();
        assert_eq!(
            REPORTS.events().iter().filter(|r| matches!(r, Report::WorkersMax { .. })).count(),
            1
        );
    });
}

// Catches: invalid values that are accepted with another meaning.
#[test]
fn the_knob_refuses_invalid_values_with_the_valid_ones() {
    alone("the_knob_refuses_invalid_values_with_the_valid_ones", || {
        for wrong in ["", "-1", "65535", "many"] {
            let error = sysfs::set(KNOB, wrong).unwrap_err().to_string();
            assert!(error.ends_with("allowed are 0 to 65534"), "{error}");
        }
        sysfs::set(KNOB, "65534").unwrap();
        assert_eq!(sysfs::get(KNOB).unwrap(), "65534");
    });
}

// Catches: a queue that has ended and still lets its pools have more workers, as long as a dump has its
// memory; for good in a child, where the thread that dumps does not exist.
#[test]
fn a_queue_that_has_ended_lets_no_pool_grow() {
    alone("a_queue_that_has_ended_lets_no_pool_grow", || {
        let _watchdog = watchdog();
        let own = system_wide("own", 7);
        let (_, before) = pools_of(&own);
        let other = system_wide("other", 100);
        assert_eq!(pools_of(&own).1, before + 100);
        let (begun, ends) = (Gate::new(), Gate::new());
        let (begins, may_end) = (begun.clone(), ends.clone());
        let dump = std::thread::spawn(move || {
            drop(uwork::dump_queues(|_, _| {
                begins.open();
                may_end.wait();
                false
            }));
        });
        begun.wait();
        drop(other);
        assert_eq!(pools_of(&own).1, before);
        in_child(|| assert_eq!(pools_of(&own).1, before));
        ends.open();
        dump.join().unwrap();
        assert_eq!(pools_of(&own).1, before);
    });
}

// Catches: a pool that uses up all the threads that the user may have.
#[test]
fn the_default_leaves_half_of_the_threads_to_others() {
    alone("the_default_leaves_half_of_the_threads_to_others", || {
        limit(libc::RLIMIT_NPROC, 40);
        let queue = system_wide("limited", 256);
        let (_, max) = pools_of(&queue);
        let mine = uwork::topology::Machine::read().unwrap().threads_max.unwrap();
        assert!(mine <= 40);
        assert_eq!(u64::from(max), mine / 2);
    });
}

/// Plays rounds on new pools: in each round `WAITING` items wait at once, in one of two pods in turn.
/// Returns whether the number of workers stayed within the bound.
fn rounds_stay_within_bound(nice: i32) -> bool {
    let cpus = cpus();
    let build = |name| {
        let scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
        queue(name).affinity_scope(scope).nice(nice)
    };
    let pods = build("pods").max_active(WAITING).build().unwrap();
    // The mere existence of other queues lets the pools grow further.
    let _other = build("other").build().unwrap();
    (0..6).all(|round| {
        let (gate, started) = (Gate::new(), Log::new());
        for item in 0..WAITING {
            let (gate, started) = (gate.clone(), started.clone());
            let job = Job::new(move |_| {
                started.push(item);
                gate.wait_blocking();
            });
            assert!(pods.enqueue_on(cpus[round % 2], job).unwrap().is_queued());
        }
        started.wait_for_count(WAITING as usize);
        let workers = workers_of(&pods);
        assert!(workers >= WAITING, "each has a worker");
        gate.open();
        pods.flush().unwrap();
        let idle = |pool: &PoolDump| pool.nr_idle == pool.nr_workers;
        until("all are idle", || uwork::dump().pools.iter().all(idle));
        // Each pod may keep as many idle workers as it has CPUs, and have one being woken.
        let most = WAITING + 2 * cpus.len() as u32;
        if workers > most {
            eprintln!("nice {nice}, round {round}: {workers} workers, at most {most}");
        }
        workers <= most
    })
}

// Catches: pods that share work whose pools each grow as if they were alone.
#[test]
fn pods_that_share_need_no_more_workers_than_one() {
    alone("pods_that_share_need_no_more_workers_than_one", || {
        let _watchdog = watchdog();
        if two_cpus().is_none() {
            return;
        }
        // A pool that has no keeper gives no idle worker away. If the next keeper waits for a CPU,
        // the neighbour spawns workers meanwhile. Between pools that never share no attempt
        // succeeds.
        assert!((0..20).any(rounds_stay_within_bound), "the workers stay within the bound");
    });
}
