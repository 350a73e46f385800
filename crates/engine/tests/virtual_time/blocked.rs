//! Items that block undeclared: another worker replaces the blocked one, and none is woken in vain.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

/// The tiers that detect undeclared blocking, and how late each may be.
const NOTICING: [(Tier, u64); 3] =
    [(Tier::Standby, 2 * MS), (Tier::Events, MS), (Tier::Sampling, 2 * MS)];

fn setup(machine: &'static str) -> Setup {
    Setup::exact(machine)
}

fn notice(engine: &VirtualEngine, tier: Tier) {
    engine.host().detecting().tier = tier;
}

/// The body of an item.
type Body = Box<dyn Fn(&VirtualEngine) + Send + Sync>;

/// Queues items with these bodies. Returns when each started and finished.
fn run_all(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    bodies: Vec<Body>,
) -> Vec<(u64, u64)> {
    // The first worker parks.
    engine.host().doze(MS);
    let began = engine.host().time();
    let times = Arc::new(Mutex::new(vec![(0, 0); bodies.len()]));
    for (at, body) in bodies.into_iter().enumerate() {
        let (engine, times) = (engine.clone(), times.clone());
        let item = Item::new(move || {
            let start = engine.host().time() - began;
            body(&engine);
            times.lock().unwrap()[at] = (start, engine.host().time() - began);
        });
        assert_eq!(item.queue(queue), Queued::Yes);
    }
    queue.flush().unwrap();
    let times = times.lock().unwrap();
    times.clone()
}

fn sleeps(ns: u64) -> Body {
    Box::new(move |engine| engine.host().doze(ns))
}

fn burns(ns: u64) -> Body {
    Box::new(move |engine| engine.host().burn(ns))
}

#[test]
fn items_behind_a_blocked_worker_start() {
    for (tier, late) in NOTICING {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, tier);
            let queue = make(engine, spec("q", Kind::PerCpu));
            let times = run_all(engine, &queue, vec![sleeps(40 * MS), burns(MS), burns(MS)]);
            assert!(times[1].0 <= late && times[2].0 <= late + MS, "{tier}: {times:?}");
            assert_eq!(times[0].1, 40 * MS);
        });
    }
}

#[test]
fn tier_declared_detects_no_undeclared_block() {
    with_engine(setup("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let times = run_all(engine, &queue, vec![sleeps(40 * MS), burns(MS)]);
        assert_eq!(times[1].0, 40 * MS);
    });
}

/// A worker that was found blocked counts again when it is back: no other item starts beside it.
#[test]
fn a_worker_that_is_back_counts_again() {
    for (tier, late) in NOTICING {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, tier);
            let queue = make(engine, spec("q", Kind::PerCpu));
            let back = |engine: &VirtualEngine| {
                engine.host().doze(5 * MS);
                for _ in 0..80 {
                    engine.host().burn(MS / 10);
                }
            };
            // The second item runs when the first comes back; the third has to wait for one of
            // them.
            let bodies = vec![Box::new(back) as Box<_>, burns(7 * MS), burns(MS)];
            let times = run_all(engine, &queue, bodies);
            let first_end = times[0].1.min(times[1].1);
            assert!(times[1].0 <= late, "{tier}: {times:?}");
            assert!(times[2].0 >= first_end, "{tier}: {times:?}");
        });
    }
}

/// 5 ms. A CPU has no time slices here: other threads get it between these steps.
fn burn_in_slices(engine: &VirtualEngine) {
    for _ in 0..50 {
        engine.host().burn(MS / 10);
    }
}

/// The kernel's scenarios with undeclared blocking.
#[test]
fn golden_scenarios_with_undeclared_blocks() {
    let cases: [(u32, bool, [u64; 3]); 4] = [
        (1, false, [20, 35, 50]),
        (2, false, [20, 20, 35]),
        (3, false, [20, 20, 25]),
        (1024, true, [20, 20, 25]),
    ];
    for (max_active, intensive, should) in cases {
        for (tier, _) in NOTICING {
            with_engine(setup("core:1"), move |engine| {
                notice(engine, tier);
                let first = make(engine, QueueSpec { max_active, ..spec("q", Kind::PerCpu) });
                let flags = if intensive { Flags::CPU_INTENSIVE } else { Flags::empty() };
                let others = QueueSpec { flags, ..spec("others", Kind::PerCpu) };
                let others = intensive.then(|| make(engine, others));
                let finished = Arc::new(Mutex::new([0; 3]));
                engine.host().doze(MS);
                let began = engine.host().time();
                for at in 0..3 {
                    let (engine, finished) = (engine.clone(), finished.clone());
                    let item = Item::new(move || {
                        let burn = || match intensive {
                            // CPU-intensive items do not share their CPU in slices; nor do they in
                            // the kernel's scenario.
                            true => engine.host().burn(5 * MS),
                            false => burn_in_slices(&engine),
                        };
                        burn();
                        engine.host().doze(10 * MS);
                        if at == 0 {
                            burn();
                        }
                        finished.lock().unwrap()[at] = engine.host().time() - began;
                    });
                    let queue = if at == 0 { &first } else { others.as_ref().unwrap_or(&first) };
                    assert_eq!(item.queue(queue), Queued::Yes);
                }
                first.flush().unwrap();
                others.iter().for_each(|others| others.flush().unwrap());
                let finished = *finished.lock().unwrap();
                for (finish, should) in finished.iter().zip(should) {
                    let late = finish.abs_diff(should * MS);
                    assert!(late <= MS * 3 / 2, "{tier} {max_active}: {finished:?}");
                }
            });
        }
    }
}

/// With `max_active` used up no worker beyond it is spawned, and the blocked workers continue with
/// the other items.
#[test]
fn blocked_workers_are_as_many_as_max_active_and_no_more() {
    for (tier, _) in NOTICING {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, tier);
            let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
            let queue = make(engine, QueueSpec { max_active: 16, ..spec("q", kind) });
            let bodies = (0..320).map(|_| sleeps(10 * MS)).collect();
            let times = run_all(engine, &queue, bodies);
            let last = times.iter().map(|times| times.1).max().unwrap();
            // 20 rounds of 10 ms, and some time until all 16 workers exist.
            assert!(last <= 200 * MS * 115 / 100, "{tier}: {last}");
            assert!(engine.workers() <= 16 + 2 + 1, "{tier}: {}", engine.workers());
        });
    }
}

/// Blocks that end before a replacement could arrive cause no wake.
#[test]
fn brief_blocks_wake_few_workers() {
    for (tier, _) in NOTICING {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, tier);
            let queue = make(engine, spec("q", Kind::PerCpu));
            let brief = |engine: &VirtualEngine| {
                for _ in 0..20 {
                    engine.host().burn(20 * US);
                    engine.host().doze(20 * US);
                }
            };
            let bodies = (0..300).map(|_| Box::new(brief) as Box<_>).collect();
            run_all(engine, &queue, bodies);
            let wakes = engine.host().counts().wakes;
            assert!(engine.workers() <= 4, "{tier}: {}", engine.workers());
            assert!(wakes <= 300, "{tier}: {wakes} wakes for 6000 sleeps");
        });
    }
}

/// The fact that the items of a queue block says nothing about those of the next queue, which may
/// reuse the same pwq.
#[test]
fn the_presumption_about_a_queue_ends_with_it() {
    for (tier, _) in NOTICING {
        with_engine(setup("core:1"), move |engine| {
            notice(engine, tier);
            let block_score = make(engine, spec("block_score", Kind::PerCpu));
            run_all(engine, &block_score, (0..40).map(|_| sleeps(5 * MS)).collect());
            drop(block_score);
            let queue = make(engine, spec("computes", Kind::PerCpu));
            let mut times = run_all(engine, &queue, (0..10).map(|_| burns(MS)).collect());
            times.sort_unstable();
            for pair in times.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "{tier}: two at once on one CPU: {times:?}");
            }
        });
    }
}

/// A function that has always blocked leaves its CPU to the next item before it blocks, though the
/// items of another function, which compute, are queued between. Those do not leave it.
#[test]
fn a_function_that_blocks_is_told_from_one_that_computes() {
    const BLOCKS: u64 = 60;
    for (tier, _) in NOTICING {
        with_engine(setup("core:1"), move |engine| {
            notice(engine, tier);
            let queue = make(engine, spec("q", Kind::PerCpu));
            engine.host().doze(MS);
            let (late, computing) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
            let blocked_at = Arc::new(AtomicU64::new(0));
            for _ in 0..BLOCKS {
                let (of_item, at) = (engine.clone(), blocked_at.clone());
                let blocks = Item::of_other_function(move || {
                    at.store(of_item.host().time(), Ordering::Relaxed);
                    of_item.host().doze(2 * MS);
                });
                assert_eq!(blocks.queue(&queue), Queued::Yes);
                for _ in 0..5 {
                    let (of_item, at) = (engine.clone(), blocked_at.clone());
                    let (late, computing) = (late.clone(), computing.clone());
                    let computes = Item::new(move || {
                        let at = at.swap(0, Ordering::Relaxed);
                        if at != 0 {
                            late.lock().unwrap().push(of_item.host().time() - at);
                        }
                        assert_eq!(computing.fetch_add(1, Ordering::Relaxed), 0, "{tier}");
                        of_item.host().burn(50 * US);
                        computing.fetch_sub(1, Ordering::Relaxed);
                    });
                    assert_eq!(computes.queue(&queue), Queued::Yes);
                }
            }
            queue.flush().unwrap();
            let late = late.lock().unwrap();
            // The first ones are found by the watcher or the standby, and score when they end.
            let last = &late[late.len() / 2..];
            assert!(last.len() >= 20 && last.iter().all(|&late| late == 0), "{tier}: {late:?}");
        });
    }
}

/// Once a block was found, a standby finds the next ones in the instant in which they begin.
#[test]
fn a_standby_finds_blocks_at_once() {
    for machine in ["core:1", "core:2"] {
        with_engine(setup(machine), |engine| {
            notice(engine, Tier::Standby);
            let queue = make(engine, spec("q", Kind::PerCpu));
            let body =
                |at: u64| if at.is_multiple_of(2) { sleeps(20 * MS) } else { burns(50 * US) };
            let mut times = run_all(engine, &queue, (0..40).map(body).collect());
            // In the order of their starts: a short item begins where the block before it begins.
            times.sort_unstable();
            let late: Vec<u64> = times
                .windows(2)
                .filter(|pair| pair[0].1 - pair[0].0 >= 20 * MS)
                .map(|pair| pair[1].0 - pair[0].0)
                .collect();
            let at_once = late.iter().filter(|&&late| late <= 20 * US).count();
            // The watcher finds the first blocks; then it spawns the standby.
            assert!(at_once >= late.len() - 3, "{late:?}");
        });
    }
}

/// The bound holds for any number of workers. A limit for each pod leaves the pod one pool.
#[test]
fn a_bounded_number_of_threads_is_recorded() {
    with_engine(setup("core:100"), |engine| {
        notice(engine, Tier::Events);
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let flags = Flags::POD_LIMITS;
        let queue = make(engine, QueueSpec { flags, max_active: 200, ..spec("q", kind) });
        let most = Arc::new(AtomicU32::new(0));
        let body = |at: u32| -> Body {
            let most = most.clone();
            Box::new(move |engine| {
                // One blocked worker makes it worthwhile to observe the others.
                if at.is_multiple_of(100) {
                    engine.host().doze(5 * MS);
                }
                engine.host().burn(3 * MS);
                most.fetch_max(engine.host().detecting().recorded as u32, Ordering::Relaxed);
            })
        };
        run_all(engine, &queue, (0..1_000).map(body).collect());
        assert_eq!(most.load(Ordering::Relaxed), 64);
    });
}

/// A worker that loses its CPU to another process is not blocked.
#[test]
fn computing_workers_are_not_replaced() {
    for (tier, _) in NOTICING {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, tier);
            let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
            let queue = make(engine, spec("q", kind));
            let host = engine.host();
            let other = host.clone();
            let burner = host.start(&engine.config().allowed, move || {
                for _ in 0..200 {
                    other.burn(MS);
                    other.doze(1);
                }
            });
            let bodies = (0..500).map(|_| burns(300 * US)).collect();
            run_all(engine, &queue, bodies);
            assert!(engine.workers() <= 3, "{tier}: {}", engine.workers());
            burner.join(host);
        });
    }
}

#[test]
fn a_refusal_midway_leaves_the_rest_to_sampling() {
    for recorded_max in [0, 1] {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, Tier::Events);
            engine.host().detecting().recorded_max = recorded_max;
            let queue = make(engine, spec("q", Kind::PerCpu));
            let bodies = (0..20).flat_map(|_| [sleeps(30 * MS), burns(MS)]).collect();
            let times = run_all(engine, &queue, bodies);
            // Each blocked worker costs the time to detect it, not the time of its block.
            let last_start = times.iter().map(|times| times.0).max().unwrap();
            assert!(last_start <= 20 * MS + 20 * 2 * MS, "{recorded_max}: {last_start}");
        });
    }
}

#[test]
fn lost_records_only_delay_detection() {
    with_engine(setup("core:2"), |engine| {
        notice(engine, Tier::Events);
        engine.host().detecting().lossy = 2;
        let queue = make(engine, spec("q", Kind::PerCpu));
        let bodies = (0..20).flat_map(|_| [sleeps(30 * MS), burns(MS)]).collect();
        let times = run_all(engine, &queue, bodies);
        let last_start = times.iter().map(|times| times.0).max().unwrap();
        assert!(last_start <= 20 * MS + 20 * 2 * MS, "{last_start}");
    });
}

/// Idle workers, and pools without waiting items, are not sampled.
#[test]
fn the_watcher_does_not_scan_when_no_item_waits() {
    for (tier, _) in NOTICING {
        with_engine(setup("core:2"), move |engine| {
            notice(engine, tier);
            let queue = make(engine, spec("q", Kind::PerCpu));
            run_all(engine, &queue, vec![sleeps(5 * MS), sleeps(5 * MS), burns(MS)]);
            engine.host().doze(2 * SEC);
            assert_eq!(engine.host().detecting().recorded, 0, "{tier}: recordings have ended");
            let before = engine.host().counts();
            engine.host().doze(100 * SEC);
            assert_eq!(engine.host().counts(), before, "{tier}");
        });
    }
}

/// Nothing waits behind a lone item that blocks, nor behind the last item of a batch.
#[test]
fn the_watcher_does_not_scan_after_the_last_item() {
    for (tier, _) in NOTICING {
        for others in [0, 20] {
            with_engine(setup("core:2"), move |engine| {
                notice(engine, tier);
                let queue = make(engine, spec("q", Kind::PerCpu));
                let shorts: Vec<_> = (0..others).map(|_| Item::new(|| {})).collect();
                let last = Item::new({
                    let engine = engine.clone();
                    move || engine.host().doze(200 * MS)
                });
                shorts.iter().chain([&last]).for_each(|item| {
                    assert_eq!(item.queue(&queue), Queued::Yes);
                });
                engine.host().doze(60 * MS);
                let before = engine.host().counts();
                engine.host().doze(100 * MS);
                let after = engine.host().counts();
                assert_eq!(after.without_scans(), before.without_scans(), "{tier} {others}");
                // The watcher may check the CPUs.
                assert!(after.looks - before.looks <= 1, "{tier} {others}: {before:?} {after:?}");
                queue.flush().unwrap();
            });
        }
    }
}

/// Every item runs once, whatever is detected and when.
#[test]
fn no_item_is_lost_or_run_twice_under_chaos() {
    use crate::chance::Chaos;
    for seed in 0..60 {
        let chaos = Chaos { preempt_one_in: 6, drawn_order: true, ..Chaos::default() };
        with_engine(Setup { machine: "core:2", chaos, seed }, move |engine| {
            let tier = [Tier::Standby, Tier::Events, Tier::Sampling][seed as usize % 3];
            notice(engine, tier);
            engine.host().detecting().lossy = seed % 5;
            let per_cpu = make(engine, spec("q", Kind::PerCpu));
            let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
            let shared = make(engine, QueueSpec { max_active: 5, ..spec("u", kind) });
            let (ran, time) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
            for at in 0..60_u64 {
                let (engine, ran, time) = (engine.clone(), ran.clone(), time.clone());
                let item = Item::new(move || {
                    let host = engine.host();
                    match at % 4 {
                        0 => host.doze((1 + at % 7) * 300 * US),
                        1 => engine.blocking(|| host.doze(400 * US)),
                        2 => {
                            host.doze(500 * US);
                            engine.blocking(|| host.doze(100 * US));
                            host.burn(50 * US);
                        }
                        _ => host.burn(200 * US),
                    }
                    ran.fetch_add(1, Ordering::Relaxed);
                    time.store(host.time(), Ordering::Relaxed);
                });
                let queue = if at % 3 == 0 { &shared } else { &per_cpu };
                assert_eq!(item.queue(queue), Queued::Yes);
            }
            per_cpu.flush().unwrap();
            shared.flush().unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 60);
            // Workers rejoin the running count as often as they left it: each pool has as many idle
            // as there are workers.
            engine.host().doze(SEC);
            let dump = engine.dump();
            for pool in &dump.pools {
                assert_eq!(pool.nr_running, 0, "seed {seed}: {pool:?}");
            }
        });
    }
}
