//! Delayed items: on time, in order, and cheap while nothing happens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, Queued, Rearmed};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;
use uwork_policy::timer::expiry;

use crate::chance::Chance;
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, US, VirtualEngine, attrs, make, spec, with_engine};

type Runs = Arc<Mutex<Vec<(usize, u64, u32)>>>;

/// Item number `index`: it records itself, the time and the CPU.
fn noting(engine: &Arc<VirtualEngine>, runs: &Runs, index: usize) -> Arc<Item> {
    let (host, runs) = (engine.host().clone(), runs.clone());
    Item::new(move || runs.lock().unwrap().push((index, host.time(), host.cpu())))
}

fn taken(runs: &Runs) -> Vec<(usize, u64, u32)> {
    std::mem::take(&mut runs.lock().unwrap())
}

#[test]
fn expiry_is_exact_on_an_idle_machine() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        // Around the wheel's tick (65,536 ns) and its levels, and far away.
        let tick = 65_536;
        for delay in [1, 999, US, tick - 1, tick, tick + 1, 64 * tick, MS, 37 * SEC, 86_400 * SEC] {
            let due = host.time() + delay;
            assert_eq!(item.queue_delayed(&queue, None, delay), Queued::Yes);
            assert!(item.is_pending());
            host.doze(delay + MS);
            assert_eq!(taken(&runs), [(0, due, 0)], "a delay of {delay} ns");
            assert!(!item.is_pending());
        }
    });
}

#[test]
fn no_delay_means_no_timer() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        assert_eq!(item.queue_delayed(&queue, None, 0), Queued::Yes);
        queue.flush().unwrap();
        assert_eq!(taken(&runs), [(0, 0, 0)]);
    });
}

#[test]
fn a_delayed_item_runs_on_the_named_cpu() {
    with_engine(Setup::exact("core:4"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let items: Vec<_> = (0..4).map(|index| noting(engine, &runs, index)).collect();
        for (item, cpu) in items.iter().zip([2, 0, 3, 1]) {
            let delay = u64::from(cpu + 1) * MS;
            assert_eq!(item.queue_delayed(&queue, Some(cpu), delay), Queued::Yes);
        }
        host.doze(10 * MS);
        let expected = [(1, MS, 0), (3, 2 * MS, 1), (0, 3 * MS, 2), (2, 4 * MS, 3)];
        assert_eq!(taken(&runs), expected);
    });
}

/// An expiry also costs only one wake-up of the keeper, and none of another worker.
#[test]
fn thousands_of_timers_fire_in_the_order_of_their_deadlines() {
    const TIMERS: usize = 5_000;
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        // Timers that expire together wait for each other, so the watcher would check for hogs:
        // turn that off.
        engine.set_cpu_intensive_thresh(0);
        let (runs, mut chance) = (Runs::default(), Chance::new(7));
        let mut due = Vec::new();
        let items: Vec<_> = (0..TIMERS).map(|index| noting(engine, &runs, index)).collect();
        for (index, item) in items.iter().enumerate() {
            // Some share a deadline, some a tick, some a slot of a coarse level.
            let unit = *chance.pick(&[1, US, 50 * US, MS, SEC]);
            let delay = (1 + chance.below(20)) * unit + chance.below(3);
            assert_eq!(item.queue_delayed(&queue, None, delay), Queued::Yes);
            due.push((host.time() + delay, index));
        }
        host.doze(1);
        let before = host.counts();
        host.doze(60 * SEC);
        let after = host.counts();
        due.sort_unstable();
        let ran = taken(&runs);
        assert_eq!(ran.len(), TIMERS);
        for (run, &(at, _)) in ran.iter().zip(&due) {
            assert_eq!(run.1, at, "fired in the order of deadlines, each on time");
            assert!(due.binary_search(&(at, run.0)).is_ok(), "{} had another deadline", run.0);
        }
        let mut times: Vec<u64> = due.iter().map(|&(at, _)| at).filter(|&at| at > 1).collect();
        times.dedup();
        assert_eq!(after.wake_ups - before.wake_ups, times.len() as u64);
        assert_eq!((after.wakes, after.spawns), (before.wakes, before.spawns));
        // At most two checks of the CPUs in each quarter of a second in which an item ran, and as
        // many of timers that are due so soon that an item might delay them.
        let busy: BTreeSet<u64> = times.iter().map(|at| at / (SEC / 4)).collect();
        assert!(after.looks - before.looks <= 5 * busy.len() as u64, "{after:?}");
    });
}

/// The order is independent of earlier timers and of the wheel slots that these passed through.
#[test]
fn equal_deadlines_fire_in_the_order_of_arming() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let at = 3 * SEC;
        for index in 0..20 {
            let other = noting(engine, &runs, 100 + index);
            let before = (index as u64 + 1) * 10 * MS;
            assert_eq!(other.queue_delayed(&queue, None, at - before - host.time()), Queued::Yes);
            let item = noting(engine, &runs, index);
            assert_eq!(item.queue_delayed(&queue, None, at - host.time()), Queued::Yes);
            host.doze(MS);
        }
        host.doze(2 * at);
        let order: Vec<_> = taken(&runs).iter().map(|run| run.0).filter(|&i| i < 100).collect();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    });
}

/// A worker that runs late finds many timers due, some of them in one slot of the wheel.
#[test]
fn timers_that_are_overdue_together_fire_in_the_order_of_their_deadlines() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let (runs, mut chance) = (Runs::default(), Chance::new(11));
        let busy = host.clone();
        assert_eq!(Item::new(move || busy.burn(20 * MS)).queue(&queue), Queued::Yes);
        let mut due = Vec::new();
        let items: Vec<_> = (0..2_000).map(|index| noting(engine, &runs, index)).collect();
        for (index, item) in items.iter().enumerate() {
            let delay = 1 + chance.below(3 * MS / US) * US / 2;
            assert_eq!(item.queue_delayed(&queue, None, delay), Queued::Yes);
            due.push((delay, index));
        }
        host.doze(SEC);
        due.sort_unstable();
        let order: Vec<_> = taken(&runs).iter().map(|run| run.0).collect();
        assert_eq!(order, due.iter().map(|&(_, index)| index).collect::<Vec<_>>());
    });
}

/// This holds also where the timer stays in its wheel slot, which here spans 17 s.
#[test]
fn an_item_that_is_armed_again_is_exact_and_the_last_of_its_instant() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let items: Vec<_> = (0..3).map(|index| noting(engine, &runs, index)).collect();
        for item in &items {
            assert_eq!(item.mod_delayed(&queue, 40 * SEC), Ok(Rearmed::Armed));
        }
        assert_eq!(items[0].mod_delayed(&queue, 40 * SEC), Ok(Rearmed::Moved));
        host.doze(100 * SEC);
        assert_eq!(taken(&runs), [1, 2, 0].map(|index| (index, 40 * SEC, 0)));

        for (round, step) in [1, US, MS, SEC, 10 * SEC, 60 * SEC].into_iter().enumerate() {
            let begin = host.time();
            assert_eq!(items[0].mod_delayed(&queue, 100 * SEC), Ok(Rearmed::Armed));
            assert_eq!(items[1].mod_delayed(&queue, 100 * SEC), Ok(Rearmed::Armed));
            assert_eq!(items[0].mod_delayed(&queue, 100 * SEC - step), Ok(Rearmed::Moved));
            assert_eq!(items[1].mod_delayed(&queue, 100 * SEC + step), Ok(Rearmed::Moved));
            host.doze(300 * SEC);
            let expected = [(0, begin + 100 * SEC - step, 0), (1, begin + 100 * SEC + step, 0)];
            assert_eq!(taken(&runs), expected, "round {round}");
        }
    });
}

/// More timers than a thread fires in a slice, many of which keep their places in the wheel.
#[test]
fn many_items_that_are_armed_again_for_one_instant_fire_in_the_order_of_arming() {
    const TIMERS: usize = 3_000;
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        engine.set_cpu_intensive_thresh(0);
        let (runs, mut chance) = (Runs::default(), Chance::new(13));
        let items: Vec<_> = (0..TIMERS).map(|index| noting(engine, &runs, index)).collect();
        for at in [40 * SEC, 40 * SEC + 1, 90 * SEC] {
            for item in &items {
                assert_eq!(item.queue_delayed(&queue, None, at), Queued::Yes);
            }
            let due = host.time() + at;
            let mut expected: Vec<usize> = (0..TIMERS).collect();
            for _ in 0..TIMERS {
                let place = chance.below(expected.len() as u64) as usize;
                let index = expected.remove(place);
                match chance.below(10) {
                    0 => assert!(items[index].cancel(engine)),
                    _ => {
                        assert_eq!(items[index].mod_delayed(&queue, at), Ok(Rearmed::Moved));
                        expected.push(index);
                    }
                }
            }
            host.doze(2 * at);
            let ran: Vec<_> = expected.into_iter().map(|index| (index, due, 0)).collect();
            assert!(taken(&runs) == ran, "{at}: in the order of arming, on time");
        }
    });
}

#[test]
fn an_item_can_be_moved_to_another_queue() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, first) = (engine.host(), make(engine, spec("first", Kind::PerCpu)));
        let second = make(engine, spec("second", Kind::PerCpu));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        assert_eq!(item.mod_delayed(&first, MS), Ok(Rearmed::Armed));
        assert_eq!(item.mod_delayed(&second, 2 * MS), Ok(Rearmed::Moved));
        drop(first);
        host.doze(SEC);
        assert_eq!((taken(&runs), item.released()), (vec![(0, 2 * MS, 0)], 0));
    });
}

#[test]
fn slack_merges_expiries_within_their_windows() {
    const TIMERS: usize = 1_000;
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let mut chance = Chance::new(3);
        for slack in [0, 1, MS, 10 * MS, SEC] {
            let runs = Runs::default();
            host.doze(MS);
            let mut windows = Vec::new();
            let items: Vec<_> = (0..TIMERS)
                .map(|index| {
                    let (host, runs) = (host.clone(), runs.clone());
                    let note = move || runs.lock().unwrap().push((index, host.time(), 0));
                    Item::with_slack(slack, note)
                })
                .collect();
            for item in &items {
                let delay = MS + chance.below(SEC);
                assert_eq!(item.queue_delayed(&queue, None, SEC), Queued::Yes);
                assert_eq!(item.mod_delayed(&queue, delay), Ok(Rearmed::Moved));
                windows.push((host.time() + delay, expiry(host.time() + delay, slack)));
            }
            host.doze(1);
            let before = host.counts().wake_ups;
            host.doze(3 * SEC);
            let wake_ups = host.counts().wake_ups - before;
            let ran = taken(&runs);
            assert_eq!(ran.len(), TIMERS);
            for (index, at, _) in ran {
                let (deadline, expiry) = windows[index];
                assert!((deadline..=deadline + slack).contains(&at), "{slack} ns of slack");
                assert_eq!(at, expiry);
            }
            let mut times: Vec<u64> = windows.iter().map(|&(_, expiry)| expiry).collect();
            times.sort_unstable();
            times.dedup();
            // One more where a worker woke for the earlier time of a timer that was moved.
            let expected = times.len() as u64..=times.len() as u64 + 1;
            assert!(expected.contains(&wake_ups), "{wake_ups} for {} times", times.len());
            // A second and its slack, in steps of at least half the slack.
            assert!(slack == 0 || times.len() as u64 <= 2 * SEC.div_ceil(slack) + 3);
        }
    });
}

#[test]
fn a_delay_beyond_the_clock_expires_at_its_end() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        for slack in [0, SEC, u64::MAX] {
            for delay in [u64::MAX, u64::MAX - 1, u64::MAX / 2] {
                host.doze(SEC);
                let item = Item::with_slack(slack, || panic!("it has expired"));
                assert_eq!(item.queue_delayed(&queue, None, delay), Queued::Yes);
                assert_eq!(item.mod_delayed(&queue, delay), Ok(Rearmed::Moved));
                host.doze(1_000_000 * SEC);
                assert!(item.is_pending());
                assert!(item.cancel(engine));
            }
        }
    });
}

#[test]
fn mod_delayed_moves_an_armed_item_and_arms_an_idle_one() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        assert_eq!(item.mod_delayed(&queue, 10 * MS), Ok(Rearmed::Armed));
        assert_eq!(item.mod_delayed(&queue, 5 * MS), Ok(Rearmed::Moved));
        host.doze(4 * MS);
        assert_eq!(item.mod_delayed(&queue, 20 * MS), Ok(Rearmed::Moved));
        host.doze(30 * MS);
        assert_eq!(taken(&runs), [(0, 24 * MS, 0)]);
        // An item that is queued, not armed, is moved too.
        assert_eq!(item.queue(&queue), Queued::Yes);
        assert_eq!(item.mod_delayed(&queue, MS), Ok(Rearmed::Moved));
        host.doze(2 * MS);
        assert_eq!(taken(&runs), [(0, 35 * MS, 0)]);
    });
}

#[test]
fn a_timer_that_is_cancelled_does_not_fire() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let items: Vec<_> = (0..3).map(|index| noting(engine, &runs, index)).collect();
        for item in &items {
            assert_eq!(item.queue_delayed(&queue, None, MS), Queued::Yes);
            assert_eq!(item.queue_delayed(&queue, None, 2 * MS), Queued::AlreadyPending);
        }
        assert!(items[0].cancel(engine));
        assert!(!items[0].cancel(engine));
        assert_eq!(items[2].disable(engine), Ok(true));
        assert_eq!(items[2].queue_delayed(&queue, None, MS), Queued::Disabled);
        host.doze(5 * MS);
        assert_eq!(taken(&runs), [(1, MS, 0)]);
        assert_eq!(items[2].enable(engine), Ok(true));
        host.doze(5 * MS);
        assert!(taken(&runs).is_empty());
    });
}

/// Inside a queue that runs one item at a time no item can wait for the next one.
#[test]
fn a_flush_inside_a_queue_with_one_context_reports_that_it_did_not_wait() {
    for dedicated in [false, true] {
        with_engine(Setup::exact("core:2"), move |engine| {
            let attrs = attrs(engine, AffinityScope::System, false);
            let kind = if dedicated { Kind::Dedicated(attrs) } else { Kind::Ordered(attrs) };
            let (queue, runs) = (make(engine, spec("q", kind)), Arc::new(Mutex::new(0)));
            let count = runs.clone();
            let item = Item::new(move || *count.lock().unwrap() += 1);
            assert_eq!(item.queue_delayed(&queue, None, SEC), Queued::Yes);
            let answer = Arc::new(Mutex::new(None));
            let (target, place, seen) = (item.clone(), answer.clone(), runs.clone());
            let weak = Arc::downgrade(engine);
            let inside = Item::new(move || {
                let engine = weak.upgrade().expect("it runs this");
                let waited = target.flush_delayed(&engine);
                *place.lock().unwrap() = Some((waited, *seen.lock().unwrap()));
            });
            assert_eq!(inside.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
            let by_then = engine.host().time();
            assert_eq!((*answer.lock().unwrap(), *runs.lock().unwrap()), (Some((false, 0)), 1));
            assert!(by_then < SEC, "it was queued at once");
        });
    }
}

#[test]
fn flush_delayed_runs_it_now() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        assert_eq!(item.queue_delayed(&queue, None, SEC), Queued::Yes);
        assert!(item.flush_delayed(engine));
        assert_eq!(taken(&runs), [(0, 0, 0)]);
        assert!(!item.flush_delayed(engine));
        engine.host().doze(2 * SEC);
        assert!(taken(&runs).is_empty());
    });
}

#[test]
fn a_timer_of_a_destroyed_queue_releases_its_item() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let keep = make(engine, spec("keep", Kind::PerCpu));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        assert_eq!(item.queue_delayed(&queue, None, MS), Queued::Yes);
        drop(queue);
        host.doze(2 * MS);
        assert_eq!((taken(&runs).len(), item.released(), item.is_pending()), (0, 1, false));
        assert_eq!(item.queue(&keep), Queued::Yes);
        keep.flush().unwrap();
        assert_eq!(taken(&runs).len(), 1);
    });
}

/// The pool's only worker is in a long item, but its pod has CPUs to spare.
#[test]
fn a_timer_is_on_time_while_the_only_worker_is_busy() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host().clone();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, spec("q", kind));
        let runs = Runs::default();
        let timer = noting(engine, &runs, 0);
        // The wait is undeclared: to the engine the worker runs, but CPU 0 is free.
        let busy = host.clone();
        assert_eq!(Item::new(move || busy.doze(SEC)).queue(&queue), Queued::Yes);
        host.doze(MS);
        assert_eq!(timer.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        host.doze(2 * SEC);
        let at: Vec<u64> = taken(&runs).iter().map(|run| run.1).collect();
        assert_eq!(at, [11 * MS]);
    });
}

/// The keeper may be one idle worker too many, and retire.
#[test]
fn a_timer_outlives_its_keeper() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let (early, late) = (noting(engine, &runs, 0), noting(engine, &runs, 1));
        for _ in 0..5 {
            let engine = engine.clone();
            let waits = Item::new(move || engine.blocking(|| engine.host().doze(MS)));
            assert_eq!(waits.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        let begin = host.time();
        assert_eq!(early.queue_delayed(&queue, None, 200 * SEC), Queued::Yes);
        assert_eq!(late.queue_delayed(&queue, None, 2_000 * SEC), Queued::Yes);
        host.doze(3_000 * SEC);
        let expected = [(0, begin + 200 * SEC, 0), (1, begin + 2_000 * SEC, 0)];
        assert_eq!(taken(&runs), expected);
    });
}

/// A thread of the test on another CPU cancels and arms again at the very time of expiry.
#[test]
fn a_cancel_at_the_time_of_expiry_cancels_or_the_item_runs() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host().clone(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let item = noting(engine, &runs, 0);
        for round in 0..50 {
            assert_eq!(item.queue_delayed(&queue, Some(0), MS), Queued::Yes);
            let cancelled = Arc::new(Mutex::new(false));
            let (theirs, other, place) = (engine.clone(), item.clone(), cancelled.clone());
            let canceller = host.start(&CpuSet::single(1), move || {
                theirs.host().doze(MS - 1 + round % 2);
                *place.lock().unwrap() = other.cancel_sync(&theirs).unwrap();
            });
            canceller.join(&host);
            queue.flush().unwrap();
            let ran = taken(&runs).len();
            assert_eq!(ran + usize::from(*cancelled.lock().unwrap()), 1);
        }
    });
}
