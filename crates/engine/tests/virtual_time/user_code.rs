//! User code other than items' functions runs with none of the engine's locks held. The host of
//! these tests checks that in every report.

use std::sync::Arc;

use uwork_engine::host::Report;
use uwork_engine::{Cpus, Kind, Queued};
use uwork_policy::scope::AffinityScope;

use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{MS, ON_PURPOSE, Setup, VirtualEngine, attrs, make, spec, with_engine};

fn limit_cpu_time(engine: &VirtualEngine, limit: Option<u32>) -> bool {
    let config = engine.config();
    let cpus = Cpus::new(&config.topology, config.allowed.clone(), limit);
    engine.host().unpreempted(|| engine.set_cpus(cpus))
}

#[test]
fn a_change_of_attributes_may_change_and_query_the_same_queue() {
    with_engine(Setup::exact("core:2"), |engine| {
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, spec("q", kind));
        let same = queue.clone();
        queue
            .change_attrs(move |outer| {
                same.change_attrs(|inner| {
                    inner.nice = 5;
                    inner.strict = true;
                })
                .unwrap();
                assert_eq!(same.kind().attrs().map(|attrs| attrs.nice), Some(5));
                outer.nice = 7;
            })
            .unwrap();
        let kind = queue.kind();
        let attrs = kind.attrs().expect("it is unbound");
        // Each attribute has its last change: the outer change has not touched this one.
        assert_eq!((attrs.nice, attrs.strict), (7, true));
    });
}

#[test]
fn a_change_of_cpus_reports_without_its_lock() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host();
        assert!(limit_cpu_time(engine, Some(1)));
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, spec("q", kind));
        let weak = Arc::downgrade(engine);
        let burn = move || weak.upgrade().expect("it runs this").host().burn(5 * MS);
        let items: Vec<_> = (0..8).map(|_| Item::new(burn.clone())).collect();
        for item in &items {
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        host.doze(MS);
        host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        let before = host.reports().len();
        // More workers should run at once, and cannot be spawned.
        assert!(limit_cpu_time(engine, None));
        host.break_spawn(None);
        let told = host.reports().split_off(before);
        let failed = |report: &Report| matches!(report, Report::SpawnFailed { .. });
        assert!(told.iter().any(failed), "{told:?}");
        queue.flush().unwrap();
    });
}

#[test]
fn the_probes_see_the_end_of_a_run_that_panics() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let items: Vec<_> =
            (0..6).map(|n| Item::new(move || assert!(n % 3 != 1, "{ON_PURPOSE}"))).collect();
        for item in &items {
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        assert_eq!(engine.host().probed_runs(), (6, 6));
        assert_eq!(engine.host().reports().len(), 2, "two items panicked");
    });
}
