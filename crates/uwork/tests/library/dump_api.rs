//! Dumps on real threads: during a flood, from inside items, and with a stuck worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::child::alone;
use crate::support::flag::SetOnDrop;
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::{WAIT_CAP, queue, until, watchdog};
use uwork::dump::{Dump, Gate as QueueGate, ITEMS_MAX, QueueDump, WorkerState};
use uwork::{ErrorKind, Flags, Report, Work, WorkItem};

fn seen(dump: &Dump, name: &str) -> QueueDump {
    let queue = dump.queues.iter().find(|queue| queue.name == name);
    queue.unwrap_or_else(|| panic!("{name} is missing: {dump}")).clone()
}

// Alone, because the counters of all pools are checked.
#[test]
fn dumps_during_a_flood_are_consistent() {
    alone("dumps_during_a_flood_are_consistent", flood);
}

fn flood() {
    let _watchdog = watchdog();
    let queues = [
        queue("flood-p").per_cpu().build().unwrap(),
        queue("flood-u").max_active(2).build().unwrap(),
        queue("flood-o").ordered().build().unwrap(),
    ];
    let stop = AtomicBool::new(false);
    let dumps = thread::scope(|scope| {
        for producer in 0..3_usize {
            let (queues, stop) = (&queues, &stop);
            scope.spawn(move || {
                let jobs: Vec<_> = (0..64).map(|_| Job::counting()).collect();
                let later = Later::counting();
                while !stop.load(Ordering::Relaxed) {
                    for (n, job) in jobs.iter().enumerate() {
                        drop(queues[(n + producer) % 3].enqueue(job.clone()));
                    }
                    drop(
                        queues[producer].enqueue_delayed(later.clone(), Duration::from_micros(50)),
                    );
                    let _ = jobs[0].work.cancel();
                    queues[producer].flush().unwrap();
                }
                // A timer that is still armed would enqueue the item after the drain.
                drop(later.work.cancel_sync().unwrap());
                queues[producer].drain().unwrap();
            });
        }
        // Two threads that dump at once, one of them from inside items.
        let inside = scope.spawn(|| {
            let looks = queue("flood-looks").build().unwrap();
            let mut dumps = 0_u32;
            loop {
                let text = looks.spawn(|| uwork::dump().to_string()).join().unwrap();
                assert!(text.contains("queue flood-looks"), "{text}");
                dumps += 1;
                // Checked after the dump: the other thread may finish before this one starts.
                if stop.load(Ordering::Relaxed) {
                    return dumps;
                }
            }
        });
        let over = SetOnDrop(&stop);
        for _ in 0..200 {
            let dump = uwork::dump();
            for name in queues.iter().map(uwork::Queue::name) {
                check(&seen(&dump, name));
            }
            for pool in &dump.pools {
                assert!(pool.nr_idle + pool.nr_running <= pool.nr_workers + 1, "{dump}");
            }
        }
        drop(over);
        inside.join().unwrap()
    });
    assert!(dumps > 0);
    for queue in &queues {
        queue.flush().unwrap();
        let dump = queue.dump();
        assert_eq!((dump.in_flight(), dump.pending(), dump.flushers), (0, 0, 0), "{dump}");
    }
}

fn check(queue: &QueueDump) {
    for pwq in &queue.pwqs {
        let in_flight: u64 = pwq.in_flight.iter().map(|&count| u64::from(count)).sum();
        assert!(pwq.pending.total as u64 <= in_flight, "{queue}");
        assert_eq!(pwq.pending.first.len(), pwq.pending.total.min(ITEMS_MAX), "{queue}");
        assert_eq!(pwq.max_active, queue.max_active, "{queue}");
    }
}

#[test]
fn a_stuck_worker_and_the_items_behind_it_are_shown() {
    alone("a_stuck_worker_and_the_items_behind_it_are_shown", stuck);
}

fn stuck() {
    let _watchdog = watchdog();
    let queue = queue("stuck").ordered().freezable().build().unwrap();
    let (started, gate) = (Gate::new(), Gate::new());
    let held = Job::held(&started, &gate);
    assert!(queue.enqueue(held).is_queued());
    started.wait();
    let behind: Vec<_> = (0..ITEMS_MAX + 5).map(|_| Job::counting()).collect();
    for job in &behind {
        assert!(queue.enqueue(job.clone()).is_queued());
    }
    let later = Later::counting();
    assert!(queue.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
    let dump = uwork::dump();
    let shown = seen(&dump, queue.name());
    let [slot] = shown.slots[..] else { panic!("one worker runs it: {dump}") };
    let workers = || dump.pools.iter().flat_map(|pool| &pool.workers);
    let worker = workers().find(|worker| worker.slot == slot).expect("a worker of a pool");
    crate::support::until("the worker waits", || {
        let dump = uwork::dump();
        let mut workers = dump.pools.iter().flat_map(|pool| &pool.workers);
        workers.any(|worker| worker.slot == slot && worker.state == WorkerState::Waiting)
    });
    assert_eq!(worker.running.as_ref().unwrap().queue.as_deref(), Some(queue.name()));
    assert_eq!((shown.pending(), shown.in_flight()), (behind.len(), behind.len() as u64 + 1));
    let mut armed = dump.pools.iter().flat_map(|pool| &pool.armed);
    assert!(armed.any(|item| item.queue.as_deref() == Some(queue.name())), "{dump}");
    let text = dump.to_string();
    assert!(text.contains("      inactive  5 more\n"), "{text}");
    let mut inactive = text.lines().filter(|line| line.contains("inactive  item"));
    assert!(inactive.all(|line| line.ends_with("support::items::Job")), "{text}");
    let freezable = uwork::dump_queues(|_, flags| flags.contains(Flags::FREEZABLE));
    assert!(freezable.iter().any(|shown| shown.name == queue.name()));
    assert!(freezable.iter().all(|shown| shown.flags.contains(Flags::FREEZABLE)));
    let late = queue.flush_timeout(Duration::ZERO).expect_err("it is stuck");
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    gate.open();
    queue.flush_timeout(WAIT_CAP).unwrap();
    assert!(later.work.cancel().is_some());
    queue.destroy().unwrap();
    assert_eq!(queue.dump().gate, QueueGate::Closed);
}

/// A type with two items.
struct Twice {
    first: Work<Twice, 0>,
    second: Work<Twice, 1>,
}

uwork::has_work!(impl HasWork<0> for Twice { first });
uwork::has_work!(impl HasWork<1> for Twice { second });

impl WorkItem<0> for Twice {
    type Pointer = Arc<Twice>;

    fn run(_: Arc<Twice>) {}
}

impl WorkItem<1> for Twice {
    type Pointer = Arc<Twice>;

    fn run(_: Arc<Twice>) {}
}

fn doubles(n: u32) -> impl FnOnce() -> u32 {
    move || 2 * n
}

async fn answers() -> u32 {
    42
}

/// Optimized builds merge functions with the same code; the functions of these items differ in
/// their types only.
#[test]
fn every_kind_of_item_is_shown_by_its_type_or_closure() {
    alone("every_kind_of_item_is_shown_by_its_type_or_closure", every_kind);
}

fn every_kind() {
    let _watchdog = watchdog();
    let queue = queue("kinds").ordered().build().unwrap();
    let (started, gate) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &gate)).is_queued());
    started.wait();
    let twice = Arc::new(Twice { first: Work::new(), second: Work::new() });
    assert!(queue.enqueue::<_, 0>(twice.clone()).is_queued());
    assert!(queue.enqueue::<_, 1>(twice.clone()).is_queued());
    let (doubled, answer) = (queue.spawn(doubles(21)), queue.spawn_future(answers()));
    let later = Later::counting();
    assert!(queue.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
    let dump = uwork::on_stack(
        |_: &uwork::StackWork| {},
        |item| {
            assert!(item.enqueue(&queue).is_queued());
            let dump = uwork::dump();
            assert!(item.cancel());
            dump
        },
    );
    let shown = seen(&dump, queue.name());
    let pending = shown.pwqs.iter().flat_map(|pwq| &pwq.pending.first);
    let pending: Vec<String> = pending.map(|item| item.function.to_string()).collect();
    let kinds = "::every_kind::{{closure}}";
    let wanted =
        ["::Twice", "::Twice (item 1)", "::doubles::{{closure}}", "::answers::{{closure}}", kinds];
    assert_eq!(pending.len(), wanted.len(), "{dump}");
    for (name, wanted) in pending.iter().zip(wanted) {
        // Closures of one function are told apart by a number.
        let (path, number) = name.split_once('#').unwrap_or((name, ""));
        assert!(path.ends_with(wanted), "{name}, wanted {wanted}");
        assert_eq!(number.len() == 4, wanted.ends_with("{{closure}}"), "{name}");
    }
    let mut armed = dump.pools.iter().flat_map(|pool| &pool.armed);
    assert!(
        armed.any(|armed| armed.item.function.to_string().ends_with("::items::Later")),
        "{dump}"
    );
    let worker = |dump: &Dump, name: &str| {
        let mut workers = dump.pools.iter().flat_map(|pool| &pool.workers);
        workers.any(|worker| {
            let running = worker.running.as_ref().and_then(|running| running.function.as_ref());
            running.is_some_and(|function| function.to_string().contains(name))
        })
    };
    assert!(worker(&dump, "::items::Job"), "{dump}");
    let machine = uwork::topology::Machine::read().unwrap();
    let inside = uwork::work_on_cpu(machine.allowed.first().unwrap(), uwork::dump);
    assert!(worker(&inside.unwrap(), "uwork::dump_api::dump"), "a function is its own type");
    gate.open();
    assert_eq!((doubled.join().unwrap(), answer.join().unwrap()), (42, 42));
    assert!(later.work.cancel().is_some());
}

#[test]
fn a_dump_keeps_no_queue_alive() {
    let _watchdog = watchdog();
    let stop = Arc::new(AtomicBool::new(false));
    let over = SetOnDrop(&stop);
    let flag = stop.clone();
    let looking = thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            let _ = uwork::dump();
        }
    });
    for round in 0..100 {
        let queue = queue("short-lived").build().unwrap();
        let name = queue.name().to_owned();
        let handle = queue.spawn(move || round);
        drop(queue);
        assert_eq!(handle.join().unwrap(), round);
        crate::support::until("the queue is destroyed", || {
            uwork::dump_queues(|known, _| known == name).is_empty()
        });
    }
    drop(over);
    looking.join().unwrap();
}

/// Adds the names of all fields.
fn fields(value: &serde_json::Value, names: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
        serde_json::Value::Object(object) => object.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            fields(value, names);
        }),
        _ => {}
    }
}

// Catches: a field of the JSON that the documented structures lack.
#[test]
fn the_structures_of_a_dump_have_every_field_of_its_json() {
    let structures = include_str!("../../../engine/src/words/dump/mod.rs");
    let queue = queue("fields").mem_reclaim().build().unwrap();
    let json = queue.spawn(|| uwork::dump().to_json()).join().unwrap();
    assert!(!json.contains('\n'), "on a line");
    let mut names = std::collections::BTreeSet::new();
    fields(&serde_json::from_str(&json).unwrap(), &mut names);
    assert!(names.len() > 60 && names.contains("batch_began_ns"), "{names:?}");
    for name in names {
        assert!(structures.contains(&format!("    pub {name}: ")), "{name}");
    }
}

/// As data: sets of CPUs, flags and scopes have the same text as in the attribute tree.
#[test]
fn a_dump_is_data() {
    let _watchdog = watchdog();
    let queue = queue("data").per_cpu().freezable().build().unwrap();
    let data: serde_json::Value = serde_json::from_str(&uwork::dump().to_json()).unwrap();
    let queues = data["queues"].as_array().unwrap();
    let shown = queues.iter().find(|shown| shown["name"] == queue.name()).unwrap();
    assert_eq!((&shown["flags"], &shown["gate"]), (&"FREEZABLE | PERCPU".into(), &"open".into()));
    assert_eq!(shown["cpus"], queue.cpumask().to_string());
    assert_eq!(data["machine"]["default_scope"], "cache");
    assert_eq!(data["scopes"][0]["scope"], "cpu");
}

#[test]
fn a_reporter_may_dump() {
    static DUMPS: Mutex<Vec<Dump>> = Mutex::new(Vec::new());
    alone("a_reporter_may_dump", || {
        let _watchdog = watchdog();
        let keep = |_: &Report| DUMPS.lock().unwrap().push(uwork::dump());
        assert!(uwork::set_reporter(keep).is_ok());
        let queue = queue("dumped").max_active(1).build().unwrap();
        assert!(queue.spawn(|| panic!("on purpose")).join().is_err());
        until("it has dumped", || !DUMPS.lock().unwrap().is_empty());
        assert_eq!(seen(&DUMPS.lock().unwrap()[0], queue.name()).name, queue.name());
    });
}
