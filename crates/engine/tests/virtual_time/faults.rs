//! Threads that cannot be spawned.

use std::sync::{Arc, Mutex};

use uwork_engine::host::Report;
use uwork_engine::{Kind, Queue, QueueError, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{MS, Setup, US, attrs, make, spec, with_engine};

const NO_MORE: BrokenSpawn = BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 };

/// Whichever spawn fails, the error says so, no thread is left over (the simulation would not end),
/// and the name can be used again.
#[test]
fn a_queue_whose_spawn_fails_leaves_nothing_behind() {
    for after in 0..5 {
        with_engine(Setup::exact("core:4"), move |engine| {
            let host = engine.host();
            host.break_spawn(Some(BrokenSpawn { after, ..NO_MORE }));
            let refused = Queue::new(engine, spec("q", Kind::PerCpu)).err();
            assert_eq!(refused, Some(QueueError::NoThread("no thread to be had".to_owned())));
            host.doze(MS);
            host.break_spawn(None);
            let queue = make(engine, spec("q", Kind::PerCpu));
            host.doze(MS);
            assert_eq!(engine.workers(), 4);
            let done = Arc::new(Mutex::new(0));
            for cpu in 0..4 {
                let done = done.clone();
                let item = Item::new(move || *done.lock().unwrap() += 1);
                assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
            }
            queue.drain().unwrap();
            assert_eq!(*done.lock().unwrap(), 4);
        });
    }
}

#[test]
fn items_wait_for_the_existing_workers() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        host.break_spawn(Some(NO_MORE));
        for _ in 0..3 {
            let engine = engine.clone();
            let item = Item::new(move || engine.blocking(|| engine.host().doze(10 * MS)));
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        assert_eq!((host.time(), engine.workers()), (30 * MS, 1));
        let failed = |report: &Report| matches!(report, Report::SpawnFailed { .. });
        assert!(host.reports().iter().all(failed) && !host.reports().is_empty());
    });
}

/// While a thread is being spawned, no other worker is woken: WAKING is set. When the spawn fails,
/// an idle worker must take the items that have arrived meanwhile.
#[test]
fn items_that_arrive_during_a_failing_spawn_run() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host().clone();
        // All CPUs have one pool.
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, QueueSpec { flags: Flags::POD_LIMITS, ..spec("q", kind) });
        host.doze(MS);
        let begin = host.time();
        host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 50 * US, lags_ns: 0 }));
        // The wait is undeclared: to the engine the worker runs, but CPU 0 is free.
        let busy = host.clone();
        assert_eq!(Item::new(move || busy.doze(20 * US)).queue(&queue), Queued::Yes);
        host.doze(US);
        // The only worker is busy; this submission asks for another, whose spawn takes 50 us to
        // fail. The busy worker takes the item and parks meanwhile.
        let (theirs, second) = (queue.clone(), Item::new(|| {}));
        let asks = host.start(&CpuSet::single(1), move || {
            assert_eq!(second.queue(&theirs), Queued::Yes);
        });
        host.doze(35 * US);
        let (clock, ran_at) = (host.clone(), Arc::new(Mutex::new(None)));
        let place = ran_at.clone();
        let third = Item::new(move || *place.lock().unwrap() = Some(clock.time()));
        assert_eq!(third.queue(&queue), Queued::Yes);
        assert_eq!(host.time(), begin + 36 * US);
        asks.join(&host);
        host.doze(MS);
        let ran_at = *ran_at.lock().unwrap();
        assert!(ran_at.is_some_and(|at| at <= begin + 51 * US), "{ran_at:?} from {begin}");
    });
}

/// The last handle is dropped inside an item, and no thread can be spawned that waits for the
/// queue.
#[test]
fn the_name_of_a_queue_is_free_though_no_thread_can_wait_for_it() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host().clone();
        let (queue, dropped) = (make(engine, spec("q", Kind::PerCpu)), Arc::new(Mutex::new(None)));
        *dropped.lock().unwrap() = Some(make(engine, spec("dropped", Kind::PerCpu)));
        host.doze(MS);
        host.break_spawn(Some(NO_MORE));
        let item = Item::new(move || drop(dropped.lock().unwrap().take()));
        assert_eq!(item.queue(&queue), Queued::Yes);
        queue.flush().unwrap();
        let failed = |report: &Report| matches!(report, Report::SpawnFailed { .. });
        assert!(host.reports().iter().any(failed));
        host.break_spawn(None);
        let again = Queue::new(engine, spec("dropped", Kind::PerCpu));
        assert_eq!(again.as_ref().err(), None);
    });
}
