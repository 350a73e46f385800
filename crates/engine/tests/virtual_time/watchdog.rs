//! Items that wait while nothing progresses are reported, once for each stall (SEMANTICS 2.36).

use std::sync::{Arc, Mutex};

use uwork_engine::dump::{Stall, Wants, WorkerState};
use uwork_engine::host::{Host, Report};
use uwork_engine::{Attrs, Kind, QueueSpec, Queued, WATCHDOG_THRESH_NS};
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::host::{Event, VirtualHost};
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// How much later than the threshold the watcher may report: two scans, and the one after which it
/// sleeps.
const LATE: u64 = SEC / 2 + SEC / 4;

pub(crate) fn stalls(host: &VirtualHost) -> Vec<Stall> {
    let stall = |report| match report {
        Report::Stalled(stall) => Some(*stall),
        _ => None,
    };
    host.reports().into_iter().filter_map(stall).collect()
}

/// An engine with a threshold of a second.
fn with_threshold(machine: &'static str, body: impl FnOnce(&Arc<VirtualEngine>) + Send + 'static) {
    with_engine(Setup::exact(machine), |engine| {
        engine.set_watchdog_thresh(SEC);
        body(engine);
    });
}

pub(crate) fn ordered(engine: &Arc<VirtualEngine>, name: &str) -> VirtualQueue {
    let (cpumask, scope) = (engine.config().allowed.clone(), AffinityScopeChoice::Default);
    let attrs = Attrs { nice: 0, cpumask, scope, strict: false };
    make(engine, spec(name, Kind::Ordered(attrs)))
}

/// A latch that items wait for.
#[derive(Clone, Default)]
struct Latch(Arc<Event>);

impl Latch {
    /// An item that waits for the latch, declared or not.
    fn item(&self, engine: &Arc<VirtualEngine>, declared: bool) -> Arc<Item> {
        let (engine, event) = (engine.clone(), self.0.clone());
        Item::new(move || {
            let wait = || while !engine.host().park(&event, None) {};
            if declared { engine.blocking(wait) } else { wait() }
        })
    }

    fn open(&self, engine: &VirtualEngine) {
        // SAFETY: the event is live.
        unsafe { engine.host().wake(Arc::as_ptr(&self.0)) };
    }
}

fn queue(item: &Arc<Item>, queue: &VirtualQueue) {
    assert_eq!(item.queue(queue), Queued::Yes);
}

fn idle() -> Arc<Item> {
    Item::new(|| {})
}

// Catches: a stall that is missed because no pool has anything ready; one that is reported
// repeatedly, or only the first of two; a report that does not name the blocking item.
#[test]
fn a_stalled_ordered_queue_is_reported_once_for_each_stall() {
    with_threshold("core:2", |engine| {
        let (host, q) = (engine.host(), ordered(engine, "q"));
        for round in 1..=3 {
            let latch = Latch::default();
            let began = host.time();
            queue(&latch.item(engine, true), &q);
            queue(&idle(), &q);
            host.doze(SEC - MS);
            assert_eq!(stalls(host).len(), round - 1, "before the threshold is over");
            host.doze(30 * SEC);
            let stalls = stalls(host);
            assert_eq!(stalls.len(), round);
            let stall = &stalls[round - 1];
            assert!((SEC..=SEC + LATE).contains(&stall.stalled_ns), "{}", stall.stalled_ns);
            assert!((SEC..=SEC + LATE).contains(&(stall.at_ns - began)), "{}", stall.at_ns - began);
            assert_eq!((stall.wants, stall.pending), (Wants::Permit, 1));
            assert_eq!(stall.queues, ["q"]);
            let blocker = &stall.workers[0];
            assert!(blocker.blocks && stall.workers[1..].iter().all(|other| !other.blocks));
            assert_eq!(blocker.worker.state, WorkerState::Waiting);
            let running = blocker.worker.running.as_ref().expect("an item");
            assert_eq!(running.queue.as_deref(), Some("q"));
            assert_eq!(running.function.as_ref().unwrap().name.as_deref(), Some("test::Item"));
            assert!(stall.at_ns - running.batch_began_ns.unwrap() >= SEC);
            let stack = blocker.stack.as_ref().expect("the host knows it");
            let thread = format!("thread_{}", blocker.thread - 1);
            assert_eq!(stack[1].symbol.as_deref(), Some(thread.as_str()));
            assert_eq!(stall.deadlock, []);
            latch.open(engine);
            q.flush().unwrap();
        }
    });
}

// Catches: a new queue's stall that is mistaken for one already reported, of a queue that was
// destroyed. The new queue reuses the pwq, and another worker has the same run number as the one
// that blocked it. The watcher has not scanned in between.
#[test]
fn a_queue_that_reuses_a_pwq_does_not_inherit_its_stall() {
    with_threshold("core:2", |engine| {
        let (host, beside) = (engine.host(), ordered(engine, "beside"));
        let (mut pwqs, busy) = (Vec::new(), Latch::default());
        for told in [1, 2] {
            let (q, latch) = (ordered(engine, "q"), Latch::default());
            if told == 2 {
                // This item occupies the first one's worker, so that another worker is needed.
                queue(&busy.item(engine, true), &beside);
                host.doze(MS);
            }
            queue(&latch.item(engine, true), &q);
            queue(&idle(), &q);
            host.doze(10 * SEC);
            let stalls = stalls(host);
            assert_eq!(stalls.len(), told);
            let stall = stalls[told - 1].workers.iter().find(|worker| worker.blocks);
            let running = stall.unwrap().worker.running.clone().expect("an item");
            assert_eq!(running.run, 1, "its worker's first run");
            pwqs.push(running.pwq);
            latch.open(engine);
            q.flush().unwrap();
        }
        busy.open(engine);
        beside.flush().unwrap();
        assert_eq!(pwqs[0], pwqs[1]);
    });
}

#[test]
fn the_text_of_a_stall() {
    with_threshold("core:2", |engine| {
        let (host, q, latch) = (engine.host(), ordered(engine, "log"), Latch::default());
        queue(&latch.item(engine, true), &q);
        queue(&idle(), &q);
        queue(&idle(), &q);
        host.doze(10 * SEC);
        let text = stalls(host)[0].to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("nothing has moved for 1."), "{text}");
        let place = " s in queue \"log\"; 2 items wait for a permit of max_active";
        assert!(lines[0].ends_with(place), "{text}");
        assert!(lines[1].starts_with("  in the way: uw/u0 (thread "), "{text}");
        let of = "), waiting, in test::Item of queue \"log\", for at most 1.";
        assert!(lines[1].contains(of), "{text}");
        assert_eq!(lines[2], "      0 0x1 wait", "{text}");
        assert!(lines[3].starts_with("      1 0x2 thread_"), "{text}");
        latch.open(engine);
        q.flush().unwrap();
    });
}

// Catches: a pool that stalls because its only worker blocks undeclared, with the waiting items on
// the ready list, or scheduled behind the blocked item in its batch.
#[test]
fn a_stalled_pool_is_reported_once() {
    for behind in [1, 5] {
        with_threshold("core:2", move |engine| {
            let (host, q) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
            let latch = Latch::default();
            // In one batch, or one after the other.
            for number in 0..=behind {
                let item = if number == 0 { latch.item(engine, false) } else { idle() };
                assert_eq!(item.queue_on(&q, 1), Queued::Yes);
                if behind == 1 {
                    host.doze(MS);
                }
            }
            host.doze(30 * SEC);
            let stalls = stalls(host);
            assert_eq!(stalls.len(), 1, "{stalls:?}");
            let stall = &stalls[0];
            assert_eq!((stall.wants, stall.pending), (Wants::Worker, behind));
            assert_eq!((stall.queues.as_slice(), stall.workers.len()), (&["q".to_owned()][..], 1));
            assert_eq!(stall.pool.as_ref().map(|(_, label)| label.as_str()), Some("1"));
            assert_eq!(stall.workers[0].worker.state, WorkerState::Asleep);
            assert!(stall.workers[0].blocks && stall.workers[0].stack.is_ok());
            latch.open(engine);
            q.flush().unwrap();
        });
    }
}

// Catches: a limit of several, or one that pods share, that is used up by items that do not end.
#[test]
fn items_that_use_up_the_limit_are_named() {
    for scope in [AffinityScope::System, AffinityScope::Cpu] {
        with_threshold("core:2", move |engine| {
            let host = engine.host();
            let kind = Kind::Unbound(attrs(engine, scope, false));
            let q = make(engine, QueueSpec { max_active: 2, ..spec("q", kind) });
            let latches = [Latch::default(), Latch::default()];
            for (latch, cpu) in latches.iter().zip(0..) {
                assert_eq!(latch.item(engine, true).queue_on(&q, cpu), Queued::Yes);
            }
            host.doze(MS);
            queue(&idle(), &q);
            host.doze(30 * SEC);
            let stalls = stalls(host);
            assert_eq!(stalls.len(), 1, "{scope}: {stalls:?}");
            assert_eq!((stalls[0].wants, stalls[0].pending), (Wants::Permit, 1));
            assert_eq!(stalls[0].workers.iter().filter(|worker| worker.blocks).count(), 2);
            latches.iter().for_each(|latch| latch.open(engine));
            q.flush().unwrap();
        });
    }
}

#[test]
fn the_watchdog_threshold_is_the_kernels_and_0_is_off() {
    with_engine(Setup::exact("core:2"), |engine| {
        assert_eq!((engine.watchdog_thresh(), WATCHDOG_THRESH_NS), (30 * SEC, 30 * SEC));
        engine.set_watchdog_thresh(0);
        let (host, q, latch) = (engine.host(), ordered(engine, "q"), Latch::default());
        queue(&latch.item(engine, true), &q);
        queue(&idle(), &q);
        host.doze(SEC);
        let before = host.counts();
        host.doze(1_000 * SEC);
        assert_eq!((stalls(host).len(), host.counts()), (0, before), "looks, reports");
        // A stall that exists already is reported from the moment when the watchdog is on.
        engine.set_watchdog_thresh(2 * SEC);
        host.doze(SEC);
        assert_eq!(stalls(host).len(), 0);
        host.doze(3 * SEC);
        assert_eq!(stalls(host).len(), 1);
        // The stall was reported, and the watcher scans no more.
        let before = host.counts();
        host.doze(1_000 * SEC);
        assert_eq!((stalls(host).len(), host.counts()), (1, before), "looks, reports");
        latch.open(engine);
        q.flush().unwrap();
    });
}

/// An item that takes long and touches the watchdog is no stall, until it stops touching it.
#[test]
fn a_touch_restarts_the_threshold() {
    for inside in [true, false] {
        with_threshold("core:2", move |engine| {
            let (host, q) = (engine.host(), ordered(engine, "q"));
            let inner = engine.clone();
            let long = Item::new(move || {
                for _ in 0..40 {
                    inner.blocking(|| inner.host().doze(SEC / 2));
                    if inside {
                        inner.watchdog_touch();
                    }
                }
                inner.blocking(|| inner.host().doze(5 * SEC));
            });
            queue(&long, &q);
            queue(&idle(), &q);
            for _ in 0..40 {
                host.doze(SEC / 2);
                if !inside {
                    engine.watchdog_touch();
                }
            }
            assert_eq!(stalls(host).len(), 0, "{inside}");
            q.flush().unwrap();
            assert_eq!(stalls(host).len(), 1, "{inside}");
        });
    }
}

// Catches: a long run mistaken for a stuck one; pending items that cannot start and are not meant
// to.
#[test]
fn items_that_progress_are_no_stall() {
    with_threshold("core:2", |engine| {
        let (host, one) = (engine.host(), ordered(engine, "one"));
        let pool = make(engine, spec("pool", Kind::PerCpu));
        let flags = Flags::FREEZABLE;
        let frozen = make(engine, QueueSpec { flags, ..spec("frozen", Kind::PerCpu) });
        for number in 0..100 {
            let inner = engine.clone();
            let item = Item::new(move || match number % 2 {
                0 => inner.blocking(|| inner.host().doze(SEC * 9 / 10)),
                _ => inner.host().doze(SEC * 9 / 10),
            });
            queue(&item, if number < 50 { &one } else { &pool });
        }
        engine.freeze_begin().unwrap();
        queue(&idle(), &frozen);
        let armed = idle();
        assert_eq!(armed.queue_delayed(&pool, None, 500 * SEC), Queued::Yes);
        host.doze(200 * SEC);
        assert!(one.is_idle());
        assert_eq!(stalls(host), []);
        engine.thaw().unwrap();
        frozen.flush().unwrap();
        // A batch whose last item takes long: nothing is scheduled behind it.
        let inner = engine.clone();
        queue(&idle(), &pool);
        queue(&Item::new(move || inner.host().doze(20 * SEC)), &pool);
        // The waiting item is cancelled in time.
        let (latch, taken_back) = (Latch::default(), idle());
        queue(&latch.item(engine, true), &one);
        queue(&taken_back, &one);
        host.doze(SEC / 2);
        assert!(taken_back.cancel(engine));
        host.doze(20 * SEC);
        assert_eq!(stalls(host), []);
        latch.open(engine);
        one.flush().unwrap();
        assert!(armed.cancel(engine));
    });
}

/// The watcher scans only where items wait: a lone item may wait for ever.
#[test]
fn the_watcher_does_not_wake_for_a_lone_waiter() {
    with_threshold("core:2", |engine| {
        let host = engine.host();
        let queues = [
            ordered(engine, "ordered"),
            make(engine, spec("per-cpu", Kind::PerCpu)),
            make(engine, spec("own", Kind::Dedicated(attrs(engine, AffinityScope::System, false)))),
        ];
        let latches: Vec<Latch> = queues
            .iter()
            .map(|one| {
                let latch = Latch::default();
                queue(&latch.item(engine, true), one);
                latch
            })
            .collect();
        host.doze(3 * SEC);
        let before = host.counts();
        host.doze(100_000 * SEC);
        assert_eq!(host.counts(), before);
        assert_eq!(stalls(host), []);
        // A stall behind these items is still detected.
        for (at, one) in queues.iter().enumerate().filter(|&(at, _)| at != 1) {
            let (began, reported) = (host.time(), stalls(host).len());
            queue(&idle(), one);
            host.doze(10 * SEC);
            let stalls = stalls(host);
            assert_eq!(stalls.len(), reported + 1, "{at}");
            assert_eq!(stalls[reported].queues, [one.name()]);
            let after = stalls[reported].at_ns - began;
            assert!((SEC..=SEC + LATE).contains(&after), "{at}: {after}");
        }
        latches.iter().for_each(|latch| latch.open(engine));
        queues.iter().for_each(|queue| queue.flush().unwrap());
    });
}

/// The machine is suspended: nothing has progressed, and nothing could.
#[test]
fn a_late_watcher_reports_no_stall() {
    with_threshold("core:2", |engine| {
        let (host, q, latch) = (engine.host(), ordered(engine, "q"), Latch::default());
        queue(&latch.item(engine, true), &q);
        queue(&idle(), &q);
        host.doze(SEC / 2);
        host.machine().now += 100 * SEC;
        host.doze(SEC / 4);
        assert_eq!(stalls(host), []);
        host.doze(2 * SEC);
        assert_eq!(stalls(host).len(), 1);
        latch.open(engine);
        q.flush().unwrap();
    });
}

/// No worker can be spawned, and every worker waits: the items and the workers are named.
#[test]
fn a_pool_that_gets_no_worker_is_reported() {
    with_threshold("core:1", |engine| {
        let (host, q, latch) =
            (engine.host(), make(engine, spec("q", Kind::PerCpu)), Latch::default());
        host.doze(MS);
        host.break_spawn(Some(crate::host::BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        queue(&latch.item(engine, true), &q);
        host.doze(MS);
        queue(&idle(), &q);
        host.doze(30 * SEC);
        let stalls = stalls(host);
        assert_eq!(stalls.len(), 1);
        assert_eq!((stalls[0].wants, stalls[0].pending), (Wants::Worker, 1));
        assert!(stalls[0].workers[0].blocks);
        assert_eq!(stalls[0].workers[0].worker.state, WorkerState::Waiting);
        latch.open(engine);
        q.flush().unwrap();
    });
}

/// No worker of the pool progresses, but a rescuer takes the items.
#[test]
fn items_run_by_a_rescuer_count_as_progress() {
    with_threshold("core:1", |engine| {
        let (host, latch) = (engine.host(), Latch::default());
        let blocked = make(engine, spec("blocked", Kind::PerCpu));
        let flags = Flags::MEM_RECLAIM;
        let rescued = make(engine, QueueSpec { flags, ..spec("rescued", Kind::PerCpu) });
        host.doze(MS);
        host.break_spawn(Some(crate::host::BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        queue(&latch.item(engine, true), &blocked);
        host.doze(MS);
        for _ in 0..30 {
            let inner = engine.clone();
            queue(&Item::new(move || inner.host().doze(SEC * 9 / 10)), &rescued);
        }
        rescued.flush().unwrap();
        assert_eq!(stalls(host), []);
        latch.open(engine);
        blocked.flush().unwrap();
    });
}

/// Under chaos: a stall is reported once, a load never.
#[test]
fn stalls_are_distinguished_from_loads_under_chaos() {
    use crate::chance::Chaos;
    for seed in 0..20 {
        let chaos = Chaos { preempt_one_in: 6, drawn_order: true, ..Chaos::default() };
        with_engine(Setup { machine: "core:2", chaos, seed }, move |engine| {
            engine.set_watchdog_thresh(SEC);
            let host = engine.host();
            let (stuck, moves) = (ordered(engine, "stuck"), ordered(engine, "moves"));
            let latch = Latch::default();
            queue(&latch.item(engine, seed % 2 == 0), &stuck);
            queue(&idle(), &stuck);
            let ran = Arc::new(Mutex::new(0));
            for _ in 0..30 {
                let (engine, ran) = (engine.clone(), ran.clone());
                let item = Item::new(move || {
                    engine.blocking(|| engine.host().doze(200 * MS));
                    *ran.lock().unwrap() += 1;
                });
                queue(&item, &moves);
            }
            host.doze(10 * SEC);
            assert_eq!(*ran.lock().unwrap(), 30, "seed {seed}");
            let stalls = stalls(host);
            assert_eq!(stalls.len(), 1, "seed {seed}: {stalls:?}");
            assert_eq!(stalls[0].queues, ["stuck"]);
            latch.open(engine);
            stuck.flush().unwrap();
        });
    }
}
