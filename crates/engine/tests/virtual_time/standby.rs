//! Standby threads: how many there are, whatever the number of pools, and what becomes of one that the
//! system does not leave on its CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::{Kind, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::off_cpu::RAISED_NS;
use uwork_policy::scope::AffinityScope;

use crate::host::VirtualHost;
use crate::item::Item;
use crate::setup::{MS, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// The standbys that the engine has spawned so far. `started`: threads of the test.
fn standbys(host: &VirtualHost, started: usize) -> Vec<usize> {
    let machine = host.machine();
    let threads = started + machine.counts.spawns as usize;
    (0..threads).filter(|&id| machine.name_of(id).starts_with("uw/standby")).collect()
}

/// Queues an item for this CPU that sleeps undeclared, and one behind it.
fn block(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    cpu: u32,
    ns: u64,
    ran: &Arc<AtomicU32>,
) {
    for doze_ns in [ns, 0] {
        let (host, ran) = (engine.host().clone(), ran.clone());
        let item = Item::new(move || {
            host.burn(20 * US);
            if doze_ns > 0 {
                host.doze(doze_ns);
            }
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(item.queue_on(queue, cpu), Queued::Yes);
    }
}

/// 5,120 pools on 64 CPUs, in all of which a worker blocks: 40 nicenesses, and strict or not.
#[test]
fn thousands_of_pools_share_the_standbys_of_their_cpus() {
    const CPUS: u32 = 64;
    with_engine(Setup::exact("llc:8 core:8"), |engine| {
        engine.host().detecting().tier = Tier::Standby;
        let of = |nice, strict| {
            let mut attrs = attrs(engine, AffinityScope::Cpu, strict);
            attrs.nice = nice;
            make(engine, spec(&format!("{nice} {strict}"), Kind::Unbound(attrs)))
        };
        let queues: Vec<_> = (-20..20).flat_map(|nice| [of(nice, false), of(nice, true)]).collect();
        let ran = Arc::new(AtomicU32::new(0));
        let items = 2 * CPUS * queues.len() as u32;
        for queue in &queues {
            (0..CPUS).for_each(|cpu| block(engine, queue, cpu, MS, &ran));
        }
        queues.iter().for_each(|queue| queue.flush().unwrap());
        assert_eq!(ran.load(Ordering::Relaxed), items);
        let standbys = standbys(engine.host(), 1).len();
        assert!((1..=CPUS as usize).contains(&standbys), "{standbys} standbys");
    });
}

/// As where the system refuses to pin a thread.
#[test]
fn a_standby_that_is_moved_away_is_spawned_later_each_time() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        host.detecting().tier = Tier::Standby;
        let queue = make(engine, spec("q", Kind::PerCpu));
        let (ran, items) = (Arc::new(AtomicU32::new(0)), 240);
        for _ in 0..items {
            block(engine, &queue, 1, 150 * MS, &ran);
            queue.flush().unwrap();
            // Until the pool has forgotten how long its items sleep: then only a standby finds the next.
            host.doze(2 * RAISED_NS);
            for id in standbys(host, 1) {
                let mut machine = host.machine();
                if !machine.is_gone(id) {
                    machine.place(id, &CpuSet::single(0));
                }
            }
        }
        assert_eq!(ran.load(Ordering::Relaxed), 2 * items);
        // At 0, 1, 3, 7, 15 and 31 s, and a little later each time.
        let spawned = standbys(host, 1).len();
        assert!((2..=6).contains(&spawned), "{spawned} in {} s", host.time() / (1_000 * MS));
    });
}
