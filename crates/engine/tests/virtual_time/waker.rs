//! Which worker of a pod with several CPUs and one pool is woken, and where: it depends on what the
//! submitter does next.

use std::sync::{Arc, Mutex};

use uwork_engine::host::Host;
use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use uwork_sim::chance::Chaos;
use uwork_sim::host::{Event, VirtualHost};
use uwork_sim::item::Item;
use uwork_sim::setup::{
    MS, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

/// Machines with one pod of 4, 16 and 64 CPUs in the scope `system`.
const MACHINES: [&str; 3] = ["core:4", "core:16", "llc:8 core:8"];

/// The submitter's CPU. New workers start on CPU 0.
const HERE: u32 = 2;
const ROUNDS: usize = 100;
/// By then, the submitter's habit is known and the worker has been moved.
const LEARNED: usize = 50;

/// A pod of all CPUs, which a limit for each pod leaves whole.
fn pod(engine: &Arc<VirtualEngine>) -> VirtualQueue {
    let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
    make(engine, QueueSpec { flags: Flags::POD_LIMITS, ..spec("q", kind) })
}

/// Runs `f` in a thread on CPU `HERE`.
fn submit_here(host: &VirtualHost, f: impl FnOnce() + Send + 'static) {
    host.start(&CpuSet::single(HERE), f).join(host);
}

/// Queues an item and waits for it. Returns the CPU that it ran on.
fn wait_for_item(host: &VirtualHost, queue: &VirtualQueue) -> u32 {
    let (ran_on, done) = (Arc::new(Mutex::new(0)), Arc::new(Event::default()));
    let (inner, cpu, event) = (host.clone(), ran_on.clone(), done.clone());
    let item = Item::new(move || {
        *cpu.lock().unwrap() = inner.cpu();
        // SAFETY: this closure holds the event.
        unsafe { inner.wake(Arc::as_ptr(&event)) };
    });
    assert_eq!(item.queue(queue), Queued::Yes);
    while !host.park(&done, None) {}
    *ran_on.lock().unwrap()
}

#[test]
fn a_submitter_that_waits_gets_a_worker_on_its_cpu() {
    MACHINES.into_iter().for_each(a_submitter_waits);
}

fn a_submitter_waits(machine: &'static str) {
    with_engine(Setup::exact(machine), move |engine| {
        let (host, queue) = (engine.host().clone(), pod(engine));
        let ran_on = Arc::new(Mutex::new(Vec::new()));
        let (inner, seen) = (host.clone(), ran_on.clone());
        submit_here(&host, move || {
            for _ in 0..ROUNDS {
                let cpu = wait_for_item(&inner, &queue);
                seen.lock().unwrap().push(cpu);
                // Meanwhile the worker parks.
                inner.doze(20 * US);
            }
        });
        let ran_on = ran_on.lock().unwrap();
        assert_ne!(ran_on[0], HERE);
        assert_eq!(ran_on[LEARNED..], [HERE; ROUNDS - LEARNED]);
    });
}

/// A submitter that sleeps between its items: each takes 100 us, and one comes every 70 us. Returns
/// how long each took from its submission to its end. A thread that has lost its CPU waits for it.
fn sojourns_behind_sleeps(machine: &'static str) -> Vec<u64> {
    let chaos = Chaos { slice_ns: MS, stays_on_cpu: true, ..Chaos::STEADY };
    with_engine(Setup { machine, chaos, seed: 1 }, move |engine| {
        let (host, queue) = (engine.host().clone(), pod(engine));
        let sojourns = Arc::new(Mutex::new(Vec::new()));
        let (inner, seen, items) = (host.clone(), sojourns.clone(), queue.clone());
        submit_here(&host, move || {
            for _ in 0..ROUNDS {
                let (host, seen, queued_at) = (inner.clone(), seen.clone(), inner.time());
                let item = Item::new(move || {
                    host.burn(100 * US);
                    seen.lock().unwrap().push(host.time() - queued_at);
                });
                assert_eq!(item.queue(&items), Queued::Yes);
                inner.doze(70 * US);
            }
        });
        queue.flush().expect("not inside of an item");
        let sojourns = sojourns.lock().unwrap();
        sojourns[LEARNED..].to_vec()
    })
}

#[test]
fn a_submitter_that_sleeps_gets_no_second_worker_on_its_cpu() {
    for machine in MACHINES {
        assert_eq!(sojourns_behind_sleeps(machine), [100 * US; ROUNDS - LEARNED], "{machine}");
    }
}

#[test]
fn a_submitter_that_computes_gets_a_worker_on_another_cpu() {
    MACHINES.into_iter().for_each(a_submitter_computes);
}

fn a_submitter_computes(machine: &'static str) {
    with_engine(Setup::exact(machine), move |engine| {
        let (host, queue) = (engine.host().clone(), pod(engine));
        let late = Arc::new(Mutex::new(Vec::new()));
        let (inner, seen) = (host.clone(), late.clone());
        submit_here(&host, move || {
            // It waits at first, so that its worker is on its CPU.
            for _ in 0..LEARNED {
                wait_for_item(&inner, &queue);
                inner.doze(20 * US);
            }
            for _ in 0..ROUNDS {
                let (host, seen, queued_at) = (inner.clone(), seen.clone(), inner.time());
                let item = Item::new(move || {
                    seen.lock().unwrap().push((host.cpu(), host.time() - queued_at));
                });
                assert_eq!(item.queue(&queue), Queued::Yes);
                inner.burn(100 * US);
            }
        });
        let late = late.lock().unwrap();
        assert_eq!(late.len(), ROUNDS);
        // While the habit is still taken for the old one, an item may wait for the submitter's CPU.
        let slow = late.iter().filter(|(_, ns)| *ns > 0).count();
        assert!(slow <= LEARNED, "{slow} items waited");
        assert!(late[LEARNED..].iter().all(|&(cpu, ns)| cpu != HERE && ns == 0), "{late:?}");
    });
}
