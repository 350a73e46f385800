//! Runs that compute for too long do not delay the items behind them (SEMANTICS 2.31).

use std::sync::{Arc, Mutex};

use uwork_engine::host::Report;
use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, attrs, make, spec, with_engine};

/// Queues an item that computes for `first`, and a second one. Returns when the second one starts.
fn second_starts_at(
    engine: &Arc<VirtualEngine>,
    flags: Flags,
    first: impl Fn(&VirtualEngine) + Send + Sync + 'static,
) -> u64 {
    let host = engine.host();
    let queue = make(engine, QueueSpec { flags, ..spec("q", Kind::PerCpu) });
    // The first worker parks.
    host.doze(MS);
    let began = host.time();
    let started = Arc::new(Mutex::new(0));
    let inner = engine.clone();
    let hog = Item::new(move || first(&inner));
    let (clock, note) = (host.clone(), started.clone());
    let second = Item::new(move || *note.lock().unwrap() = clock.time() - began);
    assert_eq!(hog.queue(&queue), Queued::Yes);
    host.doze(1);
    assert_eq!(second.queue(&queue), Queued::Yes);
    queue.flush().unwrap();

    *started.lock().unwrap()
}

/// Two CPUs, so that the watcher can run on one while an item computes on the other.
fn two_cpus() -> Setup {
    Setup::exact("core:2")
}

/// The hog's CPU has no time slices here, so the second item starts on it when the hog yields it
/// for an instant.
fn in_slices(engine: &VirtualEngine) {
    for _ in 0..400 {
        engine.host().burn(MS / 10);
    }
}

#[test]
fn a_run_over_the_threshold_lets_the_next_one_start() {
    with_engine(two_cpus(), |engine| {
        let at = second_starts_at(engine, Flags::empty(), in_slices);
        // The watcher's first scan sees the run, and 10 ms of CPU time later it is a hog.
        assert!((10 * MS..12 * MS).contains(&at), "{at}");
        assert_eq!(engine.host().reports(), []);
    });
}

#[test]
fn a_threshold_of_zero_turns_hog_detection_off() {
    with_engine(two_cpus(), |engine| {
        engine.set_cpu_intensive_thresh(0);
        assert_eq!(second_starts_at(engine, Flags::empty(), in_slices), 40 * MS);
    });
}

#[test]
fn a_run_that_blocks_undeclared_is_no_hog() {
    with_engine(two_cpus(), |engine| {
        let sleep = |engine: &VirtualEngine| engine.host().doze(40 * MS);
        assert_eq!(second_starts_at(engine, Flags::empty(), sleep), 40 * MS);
    });
}

#[test]
fn a_cpu_intensive_queue_is_not_measured() {
    with_engine(two_cpus(), |engine| {
        let at = second_starts_at(engine, Flags::CPU_INTENSIVE, in_slices);
        assert!(at < MS, "{at}");
    });
}

/// A hog that declares a wait and returns is counted once, not twice.
#[test]
fn a_hog_that_declares_a_wait_is_counted_once() {
    with_engine(two_cpus(), |engine| {
        let at = second_starts_at(engine, Flags::empty(), |engine| {
            in_slices(engine);
            engine.blocking(|| engine.host().doze(5 * MS));
            in_slices(engine);
        });
        assert!((10 * MS..12 * MS).contains(&at), "{at}");
        // If the hog were counted twice, or not counted again, the pool's target of one would
        // appear reached, or two workers would run.
        let again = second_starts_at_after(engine);
        assert_eq!(again, 5 * MS);
    });
}

/// No run is over the threshold, so the second of two items waits for the first.
fn second_starts_at_after(engine: &Arc<VirtualEngine>) -> u64 {
    let host = engine.host();
    let queue = make(engine, spec("again", Kind::PerCpu));
    host.doze(MS);
    let began = host.time();
    let starts = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let (clock, starts) = (host.clone(), starts.clone());
        let item = Item::new(move || {
            starts.lock().unwrap().push(clock.time() - began);
            clock.burn(5 * MS);
        });
        assert_eq!(item.queue(&queue), Queued::Yes);
    }
    queue.flush().unwrap();

    *starts.lock().unwrap().last().unwrap()
}

#[test]
fn a_function_is_reported_from_its_fourth_violation_at_growing_distances() {
    with_engine(two_cpus(), |engine| {
        for round in 1..=12_u32 {
            second_starts_at(engine, Flags::empty(), in_slices);
            let counts: Vec<u64> = engine
                .host()
                .reports()
                .iter()
                .filter_map(|report| match report {
                    Report::CpuIntensive { count, used_ns, .. } => {
                        assert!(*used_ns >= 10 * MS);
                        Some(*count)
                    }
                    _ => None,
                })
                .collect();
            let due: Vec<u64> =
                [4, 5, 7, 11].into_iter().filter(|&count| count <= u64::from(round)).collect();
            assert_eq!(counts, due);
        }
    });
}

/// Submitters that queue while the first item runs find the pwq ready and do not call the watcher.
/// The worker that takes one of several items must call it.
#[test]
fn a_burst_behind_a_hog_starts_in_time() {
    with_engine(two_cpus(), |engine| {
        let host = engine.host();
        let queue = make(engine, spec("q", Kind::PerCpu));
        host.doze(MS);
        let began = host.time();
        let starts = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..3 {
            let (engine, starts) = (engine.clone(), starts.clone());
            let item = Item::new(move || {
                starts.lock().unwrap().push(engine.host().time() - began);
                in_slices(&engine);
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        let starts = starts.lock().unwrap();
        // Each item gets some extra time: the watcher scans every 10 ms.
        assert!(starts[1] < 25 * MS && starts[2] < 50 * MS, "{starts:?}");
    });
}

/// On a machine with two CPUs more than four workers at once make nothing faster.
#[test]
fn hogs_of_a_shared_pool_do_not_multiply_its_workers() {
    with_engine(two_cpus(), |engine| {
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, spec("q", kind));
        for _ in 0..30 {
            let engine = engine.clone();
            let item = Item::new(move || in_slices(&engine));
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        engine.host().doze(200 * MS);
        assert!(engine.workers() <= 5, "{}", engine.workers());
        queue.flush().unwrap();
        assert_eq!(engine.host().reports(), []);
    });
}
