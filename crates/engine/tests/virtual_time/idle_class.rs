//! The idle class of the virtual machine: its threads have a CPU only while no normal thread is
//! ready there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use uwork_engine::host::Host;
use uwork_policy::cpuset::CpuSet;

use crate::chance::Chaos;
use crate::host::VirtualHost;
use crate::machine::{IDLE_YIELD_NS, Machine};
use crate::setup::{MS, US};
use crate::simulation;

/// Runs `body` in a thread on CPU 0 of a machine with this many CPUs.
fn on_machine(cpus: u32, chaos: Chaos, body: impl FnOnce(&VirtualHost) + Send + 'static) {
    let online: CpuSet = (0..cpus).collect();
    let host = VirtualHost::new(Machine::new(online, chaos, 1));
    let main = host.clone();
    let _main = host.start(&CpuSet::single(0), move || body(&main));
    simulation::run(&host, "idle class");
}

/// The schedules under which each promise holds.
const SCHEDULES: [Chaos; 3] = [
    Chaos::STEADY,
    Chaos { slice_ns: MS, ..Chaos::STEADY },
    Chaos { drawn_order: true, slice_ns: MS, ..Chaos::STEADY },
];

#[test]
fn a_normal_thread_that_becomes_ready_preempts_a_thread_of_the_idle_class() {
    for chaos in SCHEDULES {
        on_machine(1, chaos, |host| {
            let ended = Arc::new(AtomicU64::new(0));
            let (idle, end) = (host.clone(), ended.clone());
            let computing = host.start(&CpuSet::single(0), move || {
                assert!(idle.become_standby());
                idle.burn(10 * MS);
                end.store(idle.time(), Ordering::Relaxed);
            });
            // The normal thread wakes 1 ms into that burn and finds the CPU at once.
            host.doze(MS);
            assert_eq!(host.time(), MS);
            host.burn(5 * MS);
            assert_eq!((host.time(), ended.load(Ordering::Relaxed)), (6 * MS, 0));
            computing.join(host);
            assert_eq!(ended.load(Ordering::Relaxed), 15 * MS, "it has continued where it was");
        });
    }
}

#[test]
fn a_normal_thread_prefers_a_free_cpu_to_that_of_a_thread_of_the_idle_class() {
    on_machine(2, Chaos::STEADY, |host| {
        let idle = host.clone();
        let computing = host.start(&CpuSet::single(1), move || {
            let _ = idle.become_standby();
            idle.burn(2 * MS);
            assert_eq!(idle.time(), 2 * MS, "it was not preempted");
        });
        let normal = host.clone();
        let other = host.start(&CpuSet::new(), move || {
            normal.doze(MS);
            normal.burn(MS);
            assert_eq!((normal.time(), normal.cpu()), (2 * MS, 0));
        });
        computing.join(host);
        other.join(host);
    });
}

#[test]
fn a_thread_of_the_idle_class_runs_in_the_instant_in_which_the_only_normal_thread_blocks() {
    for chaos in SCHEDULES {
        on_machine(1, chaos, |host| {
            let (seen, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
            let (idle, times, end) = (host.clone(), seen.clone(), ends.clone());
            let waiting = host.start(&CpuSet::single(0), move || {
                let _ = idle.become_standby();
                while !end.load(Ordering::Relaxed) {
                    times.lock().unwrap().push(idle.time());
                    idle.yield_now();
                }
            });
            host.burn(MS);
            assert_eq!(*seen.lock().unwrap(), [], "the CPU was never idle");
            host.doze(7 * US);
            host.burn(MS);
            assert_eq!(*seen.lock().unwrap(), [MS], "it ran as soon as the normal thread slept");
            ends.store(true, Ordering::Relaxed);
            waiting.join(host);
        });
    }
}

#[test]
fn a_yield_of_a_thread_of_the_idle_class_takes_time_on_an_idle_cpu() {
    on_machine(1, Chaos::STEADY, |host| {
        let (ends, yields) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (idle, end, count) = (host.clone(), ends.clone(), yields.clone());
        let polling = host.start(&CpuSet::single(0), move || {
            let _ = idle.become_standby();
            while !end.load(Ordering::Relaxed) {
                idle.yield_now();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The clock reaches the end of this sleep although a thread polls all the time.
        host.doze(MS);
        assert_eq!(host.time(), MS);
        assert_eq!(yields.load(Ordering::Relaxed), MS / IDLE_YIELD_NS - 1);
        ends.store(true, Ordering::Relaxed);
        polling.join(host);
    });
}

#[test]
fn a_yield_of_a_normal_thread_takes_no_time() {
    on_machine(1, Chaos::STEADY, |host| {
        (0..100).for_each(|_| host.yield_now());
        assert_eq!(host.time(), 0);
    });
}
