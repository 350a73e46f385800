//! Records of switches: those of preemptions wake the watcher seldom, and those of blocks early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uwork_engine::host::{Heard, Host, Observer};
use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::flags::Flags;
use uwork_policy::scan::{INTERVAL_SUSPECT_NS, UNREAD_MAX_NS};
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::host::Event;
use crate::item::Item;
use crate::setup::{MS, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// One CPU, which threads that compute lose to each other after this time.
const SLICE: u64 = 20 * US;

fn sliced() -> Setup {
    Setup { machine: "core:1", chaos: Chaos { slice_ns: SLICE, ..Chaos::STEADY }, seed: 0 }
}

fn put(
    queue: &VirtualQueue,
    engine: &Arc<VirtualEngine>,
    body: impl Fn(&VirtualEngine) + Send + Sync + 'static,
) {
    let engine = engine.clone();
    assert_eq!(Item::new(move || body(&engine)).queue(queue), Queued::Yes);
}

/// Two queues with workers of their own on the CPU. Blocks are expected in the first one.
fn two_queues(engine: &Arc<VirtualEngine>) -> [VirtualQueue; 2] {
    engine.host().detecting().tier = Tier::Events;
    let queues = [0, 5].map(|nice| {
        let mut of_queue = attrs(engine, AffinityScope::System, false);
        of_queue.nice = nice;
        let kind = Kind::Unbound(of_queue);
        make(engine, QueueSpec { max_active: 16, ..spec(&format!("nice-{nice}"), kind) })
    });
    for _ in 0..4 {
        put(&queues[0], engine, |engine| engine.host().doze(2 * MS));
    }
    queues[0].flush().unwrap();
    queues
}

/// Of two workers that take the CPU from each other.
#[test]
fn thousands_of_preemptions_lead_to_few_scans() {
    with_engine(sliced(), |engine| {
        let queues = two_queues(engine);
        let (begun, before) = (engine.host().time(), engine.host().counts());
        for queue in &queues {
            // Too short for a hog.
            (0..100).for_each(|_| put(queue, engine, |engine| engine.host().burn(4 * MS)));
        }
        queues.iter().for_each(|queue| queue.flush().unwrap());
        let (took, after) = (engine.host().time() - begun, engine.host().counts());
        let preemptions = after.evictions - before.evictions;
        assert!(preemptions > 10_000, "{preemptions}");
        let scans = after.looks - before.looks;
        assert!(scans <= took / UNREAD_MAX_NS + took / INTERVAL_SUSPECT_NS, "{scans} in {took} ns");
    });
}

/// The watcher leaves records unread after a call as before it.
#[test]
fn only_a_wait_until_its_deadline_is_silence() {
    with_engine(sliced(), |engine| {
        let (host, event) = (engine.host(), Event::default());
        let begun = host.time();
        assert_eq!(host.park_on_records(&event, &[], begun + MS), Heard::Silence);
        assert_eq!(host.time(), begun + MS);
        // SAFETY: the event is live.
        unsafe { host.wake(&raw const event) };
        assert_eq!(host.park_on_records(&event, &[], begun + 2 * MS), Heard::Nothing);
        assert_eq!(host.time(), begun + MS);
    });
}

/// A worker that has a CPU for itself has no records: that is no sleep.
#[test]
fn a_worker_that_never_switches_leads_to_no_scans() {
    with_engine(Setup { machine: "core:2", ..sliced() }, |engine| {
        engine.host().detecting().tier = Tier::Events;
        let of = |name, flags| {
            make(engine, QueueSpec { flags, max_active: 16, ..spec(name, Kind::PerCpu) })
        };
        let (queue, high) = (of("normal", Flags::empty()), of("high", Flags::HIGHPRI));
        let put_on = |cpu, queue: &VirtualQueue, body: fn(&VirtualEngine)| {
            let engine = engine.clone();
            assert_eq!(Item::new(move || body(&engine)).queue_on(queue, cpu), Queued::Yes);
        };
        for _ in 0..4 {
            put_on(0, &queue, |engine| engine.host().doze(2 * MS));
        }
        queue.flush().unwrap();
        let (begun, before) = (engine.host().time(), engine.host().counts());
        // The worker of CPU 1 that replaces this one has never switched.
        put_on(1, &queue, |engine| engine.host().doze(900 * MS));
        for _ in 0..100 {
            // Two workers share CPU 0.
            for (cpu, queue) in [(0, &queue), (0, &high), (1, &queue), (1, &queue)] {
                put_on(cpu, queue, |engine| engine.host().burn(4 * MS));
            }
        }
        [&queue, &high].into_iter().for_each(|queue| queue.flush().unwrap());
        let (took, after) = (engine.host().time() - begun, engine.host().counts());
        let preemptions = after.evictions - before.evictions;
        assert!(preemptions > 10_000, "{preemptions}");
        let scans = after.looks - before.looks;
        assert!(scans <= took / UNREAD_MAX_NS + took / INTERVAL_SUSPECT_NS, "{scans} in {took} ns");
    });
}

/// A worker that blocks among the preemptions is replaced when the watcher reads the next time.
#[test]
fn a_block_among_preemptions_is_found() {
    with_engine(sliced(), |engine| {
        let queues = two_queues(engine);
        put(&queues[1], engine, |engine| engine.host().burn(100 * MS));
        for round in 0..40 {
            put(&queues[0], engine, move |engine| {
                engine.host().burn(MS + round * 70 * US);
                engine.host().doze(20 * MS);
            });
            let (engine, blocked) = (engine.clone(), engine.host().time());
            let begun = Arc::new(AtomicU64::new(0));
            let begins = begun.clone();
            put(&queues[0], &engine, move |engine| {
                begins.store(engine.host().time(), Ordering::Relaxed);
            });
            queues[0].flush().unwrap();
            let waited = begun.load(Ordering::Relaxed) - blocked;
            // Beside the other worker the burn takes twice its time.
            let burn = 2 * (MS + round * 70 * US);
            assert!(waited <= burn + MS, "{round}: {waited} ns, of which {burn} before the block");
        }
    });
}
