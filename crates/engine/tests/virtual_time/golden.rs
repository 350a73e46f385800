//! The golden scenarios, exact to the nanosecond. w0 burns 5 ms, sleeps 10 and burns 5; w1 and w2
//! burn 5 and sleep 10. All are on one CPU and queued at time 0.

use std::sync::{Arc, Mutex};

use uwork_engine::{Attrs, Kind, QueueSpec};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScopeChoice;

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, make, spec, with_engine};

/// Start, end of the first burn, and finish of one item, in milliseconds.
type Times = (u64, u64, u64);

fn work(engine: &Arc<VirtualEngine>, burns_again: bool, times: Arc<Mutex<Times>>) -> Arc<Item> {
    let engine = engine.clone();
    Item::new(move || {
        let host = engine.host();
        let exact = |ns: u64| {
            assert_eq!(ns % MS, 0, "{ns} ns");
            ns / MS
        };
        let start = exact(host.time());
        host.burn(5 * MS);
        let asleep = exact(host.time());
        engine.blocking(|| host.doze(10 * MS));
        if burns_again {
            host.burn(5 * MS);
        }
        *times.lock().unwrap() = (start, asleep, exact(host.time()));
    })
}

/// w0 goes to the first queue, w1 and w2 to the last.
fn scenario(specs: Vec<QueueSpec>) -> [Times; 3] {
    with_engine(Setup::exact("core:1"), move |engine| {
        let queues: Vec<_> = specs.into_iter().map(|spec| make(engine, spec)).collect();
        let times: [Arc<Mutex<Times>>; 3] = Default::default();
        for (index, times) in times.iter().enumerate() {
            let queue = if index == 0 { &queues[0] } else { &queues[queues.len() - 1] };
            assert!(work(engine, index == 0, times.clone()).queue(queue).is_queued());
        }
        queues.iter().for_each(|queue| queue.drain().unwrap());
        times.map(|times| *times.lock().unwrap())
    })
}

fn per_cpu(max_active: u32) -> QueueSpec {
    QueueSpec { max_active, ..spec("golden", Kind::PerCpu) }
}

#[test]
fn golden_with_one_item_at_a_time() {
    let expected = [(0, 5, 20), (20, 25, 35), (35, 40, 50)];
    assert_eq!(scenario(vec![per_cpu(1)]), expected);
    let (cpumask, scope) = (CpuSet::single(0), AffinityScopeChoice::Default);
    let ordered = Kind::Ordered(Attrs { nice: 0, cpumask, scope, strict: false });
    assert_eq!(scenario(vec![spec("ordered", ordered)]), expected);
}

#[test]
fn golden_with_max_active_3_or_more() {
    let expected = [(0, 5, 20), (5, 10, 20), (10, 15, 25)];
    assert_eq!(scenario(vec![per_cpu(3)]), expected);
    assert_eq!(scenario(vec![per_cpu(2048)]), expected);
}

#[test]
fn golden_with_max_active_2() {
    let expected = [(0, 5, 20), (5, 10, 20), (20, 25, 35)];
    assert_eq!(scenario(vec![per_cpu(2)]), expected);
}

#[test]
fn golden_with_two_cpu_intensive_items() {
    let intensive = QueueSpec { flags: Flags::CPU_INTENSIVE, ..spec("intensive", Kind::PerCpu) };
    let expected = [(0, 5, 20), (5, 10, 20), (5, 15, 25)];
    assert_eq!(scenario(vec![per_cpu(2048), intensive]), expected);
}
