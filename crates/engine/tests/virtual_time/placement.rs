//! Which CPU does the work: pods help each other, except strict ones.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::Scope;

use crate::item::Item;
use crate::setup::{MS, Setup, attrs, make, spec, with_engine};

/// Queues `count` items of 10 ms from CPU 0. When all are done, and where they ran.
fn from_cpu_0(machine: &'static str, strict: bool, count: u32) -> (u64, BTreeSet<u32>) {
    with_engine(Setup::exact(machine), move |engine| {
        let host = engine.host().clone();
        let kind = Kind::Unbound(attrs(engine, Scope::Cache, strict));
        let queue = make(engine, spec("q", kind));
        host.doze(MS);
        let ran_on = Arc::new(Mutex::new(BTreeSet::new()));
        for _ in 0..count {
            let (host, ran_on) = (host.clone(), ran_on.clone());
            let item = Item::new(move || {
                ran_on.lock().unwrap().insert(host.cpu());
                host.burn(10 * MS);
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        (host.time() - MS, ran_on.lock().unwrap().clone())
    })
}

#[test]
fn an_idle_pod_takes_long_items_of_a_busy_one() {
    let (took, ran_on) = from_cpu_0("llc:2 core:1", false, 8);
    assert_eq!(ran_on, BTreeSet::from([0, 1]));
    assert_eq!(took, 40 * MS);
}

#[test]
fn every_cpu_of_every_pod_helps() {
    let (took, ran_on) = from_cpu_0("llc:4 core:2", false, 32);
    assert_eq!(ran_on, (0..8).collect());
    assert_eq!(took, 40 * MS);
}

#[test]
fn a_strict_pod_keeps_its_items() {
    let (took, ran_on) = from_cpu_0("llc:2 core:1", true, 8);
    assert_eq!(ran_on, BTreeSet::from([0]));
    assert_eq!(took, 80 * MS);
    let (took, ran_on) = from_cpu_0("llc:4 core:2", true, 32);
    assert_eq!(ran_on, BTreeSet::from([0, 1]));
    assert_eq!(took, 160 * MS);
}

/// The first items are short, so that the worker takes many at once; then comes a long one.
#[test]
fn what_is_lined_up_behind_a_long_item_is_taken_over() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host().clone();
        let kind = Kind::Unbound(attrs(engine, Scope::System, false));
        let queue = make(engine, spec("q", kind));
        let last = Arc::new(Mutex::new(0));
        for _ in 0..1_000 {
            assert_eq!(Item::new(|| {}).queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        let begin = host.time();
        for index in 0..64 {
            let (host, last) = (host.clone(), last.clone());
            let item = Item::new(move || {
                if index == 8 {
                    host.burn(100 * MS);
                } else {
                    *last.lock().unwrap() = host.time();
                }
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        assert_eq!(host.time() - begin, 100 * MS);
        assert!(*last.lock().unwrap() - begin < 10 * MS, "{}", *last.lock().unwrap() - begin);
    });
}

/// On one CPU, with nobody else to help: the wait itself hands on what the worker has taken.
#[test]
fn what_is_lined_up_behind_a_declared_wait_goes_on_at_once() {
    for flags in [Flags::empty(), Flags::CPU_INTENSIVE] {
        with_engine(Setup::exact("core:1"), move |engine| {
            let host = engine.host().clone();
            // Two places for eight items: each batch holds several.
            let queue = QueueSpec { flags, max_active: 2, ..spec("q", Kind::PerCpu) };
            let queue = make(engine, queue);
            for _ in 0..1_000 {
                assert_eq!(Item::new(|| {}).queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            let (begin, last) = (host.time(), Arc::new(Mutex::new(0)));
            for index in 0..8 {
                let (engine, last) = (engine.clone(), last.clone());
                let item = Item::new(move || match index {
                    0 => engine.blocking(|| engine.host().doze(100 * MS)),
                    _ => *last.lock().unwrap() = engine.host().time(),
                });
                assert_eq!(item.queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            assert_eq!((*last.lock().unwrap() - begin, host.time() - begin), (0, 100 * MS));
        });
    }
}
