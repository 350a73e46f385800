//! Power-efficient queues: which CPUs wake for them, how often, and what a change of the settings
//! does to their items.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use uwork_engine::host::Report;
use uwork_engine::{Cpus, Kind, QueueError, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::{Chance, Chaos};
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, US, VirtualEngine, VirtualQueue, make, spec, with_engine};

/// The number of an item, the time and the CPU of each run. A periodic item has, instead of a number,
/// the time from its deadline to the run.
pub(crate) type Runs = Arc<Mutex<Vec<(usize, u64, u32)>>>;

/// The watcher checks the CPUs this often while any worker is busy.
const CHECK: u64 = 250 * MS;

/// CPUs that are shared in time slices, as by a system's scheduler.
pub(crate) fn sliced(machine: &'static str) -> Setup {
    Setup { machine, chaos: Chaos { slice_ns: MS, ..Chaos::STEADY }, seed: 0 }
}

pub(crate) fn efficient(engine: &Arc<VirtualEngine>, name: &str, more: Flags) -> VirtualQueue {
    let flags = Flags::PERCPU | Flags::POWER_EFFICIENT | more;
    make(engine, QueueSpec { flags, ..spec(name, Kind::PerCpu) })
}

pub(crate) fn save(engine: &Arc<VirtualEngine>, saves: bool) {
    let change = || engine.set_housekeeping(|settings| settings.power_efficient = saves);
    engine.host().unpreempted(change).expect("no mask is changed");
}

pub(crate) fn choose(engine: &Arc<VirtualEngine>, cpumask: &str) -> Result<(), QueueError> {
    let cpumask: CpuSet = cpumask.parse().expect("a list");
    let change = || engine.set_housekeeping(|settings| settings.cpumask = Some(cpumask));
    engine.host().unpreempted(change)
}

pub(crate) fn noting(
    engine: &Arc<VirtualEngine>,
    runs: &Runs,
    index: usize,
    slack: u64,
) -> Arc<Item> {
    let (host, runs) = (engine.host().clone(), runs.clone());
    Item::with_slack(slack, move || runs.lock().unwrap().push((index, host.time(), host.cpu())))
}

/// Arms an item that records its runs, computes for 20 us and arms itself again.
pub(crate) fn arm_periodic(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    runs: &Runs,
    period: u64,
    slack: u64,
) -> Arc<Item> {
    let me: Arc<OnceLock<Arc<Item>>> = Arc::default();
    let (host, runs, queue, again) =
        (engine.host().clone(), runs.clone(), queue.clone(), me.clone());
    let due = AtomicU64::new(host.time() + period);
    let item = Item::with_slack(slack, {
        let queue = queue.clone();
        move || {
            let late = host.time() - due.load(Ordering::Relaxed);
            runs.lock().unwrap().push((late as usize, host.time(), host.cpu()));
            host.burn(20 * US);
            due.store(host.time() + period, Ordering::Relaxed);
            let item = again.get().expect("it is set before it is armed");
            assert_ne!(item.queue_delayed(&queue, None, period), Queued::AlreadyPending);
        }
    });
    me.set(item.clone()).ok().expect("it is new");
    assert_eq!(item.queue_delayed(&queue, None, period), Queued::Yes);
    item
}

/// Queues an item on this CPU that computes for so long.
pub(crate) fn hog(engine: &Arc<VirtualEngine>, cpu: u32, ns: u64) -> (VirtualQueue, Arc<Item>) {
    engine.set_cpu_intensive_thresh(0);
    let (host, bound) =
        (engine.host().clone(), make(engine, spec(&format!("hog-{cpu}"), Kind::PerCpu)));
    let item = Item::new(move || host.burn(ns));
    assert_eq!(item.queue_on(&bound, cpu), Queued::Yes);
    (bound, item)
}

pub(crate) fn taken(runs: &Runs) -> Vec<(usize, u64, u32)> {
    std::mem::take(&mut runs.lock().unwrap())
}

/// A worker that wakes for its timers is idle at almost every check of the CPUs. The next check stays
/// planned, so the worker does not wake the watcher for it.
#[test]
fn the_watcher_wakes_only_to_check_the_cpus_beside_a_periodic_item() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let periodic = arm_periodic(engine, &queue, &Runs::default(), 10 * MS, 2_500 * US);
        host.doze(SEC);
        let before = host.counts().looks;
        host.doze(10 * SEC);
        assert_eq!(host.counts().looks - before, 10 * SEC / CHECK);
        periodic.disable(engine).unwrap();
        host.doze(SEC);
        let before = host.counts();
        host.doze(100 * SEC);
        assert_eq!(host.counts(), before, "nothing is armed");
    });
}

/// No CPU of the mask is awake, and a CPU outside of it is: the mask holds.
#[test]
fn a_mask_without_an_awake_cpu_is_kept() {
    with_engine(sliced("core:8"), |engine| {
        let host = engine.host();
        save(engine, true);
        choose(engine, "2-3").unwrap();
        let queue = efficient(engine, "pe", Flags::empty());
        let (_bound, _hog) = hog(engine, 5, 2 * SEC);
        let runs = Runs::default();
        let periodic = arm_periodic(engine, &queue, &runs, 10 * MS, 2_500 * US);
        host.doze(SEC);
        let seen = taken(&runs);
        assert!(seen.len() > 70, "{}", seen.len());
        assert_eq!(seen.iter().find(|&&(_, _, cpu)| !(2..=3).contains(&cpu)), None);
        periodic.disable(engine).unwrap();
        assert_eq!(host.reports(), [], "nothing is wrong");
    });
}

/// The fewest instants of which each window contains one.
fn stabs(windows: &[(u64, u64)]) -> Vec<u64> {
    let mut windows = windows.to_vec();
    windows.sort_unstable_by_key(|&(_, latest)| latest);
    let mut stabs: Vec<u64> = Vec::new();
    for (due, latest) in windows {
        if stabs.last().is_none_or(|&last| last < due) {
            stabs.push(latest);
        }
    }
    stabs
}

#[test]
fn windows_are_stabbed_with_the_fewest_wakes() {
    for seed in 0..20 {
        with_engine(Setup::exact("core:2"), move |engine| {
            let (host, mut chance) = (engine.host(), Chance::new(seed));
            save(engine, true);
            let queue = efficient(engine, "pe", Flags::empty());
            host.doze(MS);
            let (runs, mut windows) = (Runs::default(), Vec::new());
            let items: Vec<_> = (0..100)
                .map(|index| {
                    let delay = (1 + chance.below(2_000)) * *chance.pick(&[100 * US, MS, 3 * MS]);
                    let slack = delay / *chance.pick(&[1, 4, 50, delay]);
                    windows.push((host.time() + delay, host.time() + delay + slack));
                    let item = noting(engine, &runs, index, slack);
                    assert_eq!(item.queue_delayed(&queue, None, delay), Queued::Yes);
                    item
                })
                .collect();
            // A timer that leaves its bucket early leaves a bound behind, at most.
            host.doze(20 * SEC);
            let seen = taken(&runs);
            assert_eq!(seen.len(), items.len());
            for &(index, at, _) in &seen {
                let (due, latest) = windows[index];
                assert!(due <= at && at <= latest, "{due} <= {at} <= {latest}");
            }
            let mut instants: Vec<u64> = seen.iter().map(|&(_, at, _)| at).collect();
            instants.dedup();
            assert_eq!(instants, stabs(&windows), "seed {seed}");
        });
    }
}

/// A worker that is awake fires a bounded number of another pool's timers before it runs its own item;
/// that pool's own workers fire the rest.
#[test]
fn a_worker_does_not_empty_the_wheel_of_another_saving_pool() {
    const TIMERS: usize = 10_000;
    with_engine(Setup::exact("core:1"), |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let highpri = efficient(engine, "pe-high", Flags::HIGHPRI);
        host.doze(MS);
        let (runs, left) = (Runs::default(), Arc::new(OnceLock::new()));
        let (own, seen) = (engine.clone(), left.clone());
        let first = Item::new(move || {
            let armed = own.dump().pools.iter().map(|pool| pool.nr_armed).sum::<usize>();
            seen.set(armed).expect("it runs once");
        });
        let due = host.time() + 10 * MS;
        let others: Vec<_> = (0..TIMERS)
            .map(|index| {
                let item = noting(engine, &runs, index, 10 * MS);
                let delay = due - host.time();
                assert_eq!(item.queue_delayed(&highpri, None, delay), Queued::Yes);
                item
            })
            .collect();
        assert_eq!(first.queue_delayed(&queue, None, due - host.time()), Queued::Yes);
        host.doze(SEC);
        let left = *left.get().expect("it has run");
        assert!(left >= TIMERS - 2_048, "{left} timers were armed when it ran");
        assert_eq!(taken(&runs).len(), others.len());
    });
}

/// Queues of another niceness have another pool. A worker that wakes for its timers also queues the
/// items of the other pool, whose worker is woken on the same CPU.
#[test]
fn saving_pools_share_a_wake() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let highpri = efficient(engine, "pe-high", Flags::HIGHPRI);
        host.doze(MS);
        let begin = host.time();
        let first = noting(engine, &runs, 0, 10 * MS);
        let second = noting(engine, &runs, 1, 30 * MS);
        assert_eq!(first.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        assert_eq!(second.queue_delayed(&highpri, None, 15 * MS), Queued::Yes);
        host.doze(MS);
        let before = host.counts();
        host.doze(SEC);
        let seen = taken(&runs);
        assert_eq!(seen.iter().map(|&(_, at, _)| at - begin).collect::<Vec<_>>(), [20 * MS; 2]);
        assert_eq!(seen[0].2, seen[1].2, "on one CPU");
        // The first worker wakes by its timer, and wakes the second.
        let (wakes, wake_ups) = (host.counts().wakes, host.counts().wake_ups);
        assert_eq!((wakes - before.wakes, wake_ups - before.wake_ups), (1, 2));
    });
}

#[test]
fn a_slack_beyond_the_period_lengthens_the_period() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        queue.set_timer_slack(25 * MS);
        let item = arm_periodic(engine, &queue, &runs, 10 * MS, 0);
        host.doze(2 * SEC);
        let times: Vec<u64> = taken(&runs).iter().map(|&(_, at, _)| at).collect();
        assert!(times.len() >= 50);
        for pair in times.windows(2) {
            let apart = pair[1] - pair[0];
            assert!((10 * MS..=36 * MS).contains(&apart), "{apart}");
        }
        let report = Report::SlackBeyondPeriod {
            queue: "pe".to_owned(),
            period_ns: 10 * MS,
            slack_ns: 25 * MS,
        };
        assert_eq!(host.reports(), [report], "once");
        item.disable(engine).unwrap();
        // The longest delay and slack never expire, and cover nothing else.
        let never = noting(engine, &runs, 1, u64::MAX);
        assert_eq!(never.queue_delayed(&queue, None, u64::MAX), Queued::Yes);
        host.doze(3600 * SEC);
        assert!(taken(&runs).is_empty() && never.cancel(engine));
    });
}

/// A single shorter delay, such as that of a retry, is no period.
#[test]
fn a_slack_beyond_the_period_is_reported_after_a_shorter_delay() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, runs) = (engine.host(), AtomicU64::new(0));
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let me: Arc<OnceLock<Arc<Item>>> = Arc::default();
        let (inner, again) = (queue.clone(), me.clone());
        let item = Item::with_slack(25 * MS, move || {
            let delay = if runs.fetch_add(1, Ordering::Relaxed) == 0 { MS } else { 10 * MS };
            let item = again.get().expect("it is set before it is armed");
            assert_ne!(item.queue_delayed(&inner, None, delay), Queued::AlreadyPending);
        });
        me.set(item.clone()).ok().expect("it is new");
        assert_eq!(item.queue(&queue), Queued::Yes);
        host.doze(SEC);
        let (period_ns, slack_ns) = (10 * MS, 25 * MS);
        let report = Report::SlackBeyondPeriod { queue: "pe".to_owned(), period_ns, slack_ns };
        assert_eq!(host.reports(), [report]);
        item.disable(engine).unwrap();
    });
}

/// Two items arm themselves for the same delay, each once: neither has a period.
#[test]
fn a_delay_that_two_items_have_once_is_no_period() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let items = [(); 2].map(|()| {
            let (me, runs): (Arc<OnceLock<Arc<Item>>>, _) = (Arc::default(), AtomicU64::new(0));
            let (inner, again) = (queue.clone(), me.clone());
            let item = Item::with_slack(25 * MS, move || {
                if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                    let item = again.get().expect("it is set before it is queued");
                    assert_eq!(item.queue_delayed(&inner, None, 10 * MS), Queued::Yes);
                }
            });
            me.set(item.clone()).ok().expect("it is new");
            assert_eq!(item.queue(&queue), Queued::Yes);
            item
        });
        host.doze(SEC);
        assert_eq!(host.reports(), []);
        for item in &items {
            item.disable(engine).unwrap();
        }
    });
}

/// A late run leaves less than the slack until the next point of the grid. That is no mistake.
#[test]
fn a_fixed_grid_with_late_runs_is_not_reported() {
    with_engine(sliced("core:2"), |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let me: Arc<OnceLock<Arc<Item>>> = Arc::default();
        let delays: Arc<Mutex<Vec<u64>>> = Arc::default();
        let item = Item::with_slack(9 * MS, {
            let (host, queue) = (host.clone(), queue.clone());
            let (again, delays, begin) = (me.clone(), delays.clone(), host.time());
            move || {
                // On a machine no two runs take the same time.
                let runs = delays.lock().unwrap().len() as u64;
                host.burn(US + 13 * runs);
                let delay = 10 * MS - (host.time() - begin) % (10 * MS);
                delays.lock().unwrap().push(delay);
                let item = again.get().expect("it is set before it is armed");
                assert_ne!(item.queue_delayed(&queue, None, delay), Queued::AlreadyPending);
            }
        });
        me.set(item.clone()).ok().expect("it is new");
        assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        // Another timer, with a period of its own, lets the windows end at different times.
        let runs = Runs::default();
        let other = arm_periodic(engine, &queue, &runs, 7_001 * US, 0);
        host.doze(SEC);
        let short = delays.lock().unwrap().iter().filter(|&&delay| delay < 9 * MS).count();
        assert!(short > 20, "{short} delays were shorter than the slack");
        assert_eq!(host.reports(), []);
        item.disable(engine).unwrap();
        other.disable(engine).unwrap();
    });
}

#[test]
fn nothing_wakes_for_deferrable_timers_alone() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let item = Item::deferrable(|| {});
        assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        host.doze(2 * SEC);
        let before = host.counts().without_scans();
        host.doze(60 * SEC);
        assert_eq!(host.counts().without_scans(), before);
        assert!(item.is_pending() && item.cancel(engine));
    });
}

/// Short items are left to one worker; if that is not enough, others come.
#[test]
fn a_backlog_gets_all_workers() {
    with_engine(sliced("core:4"), |engine| {
        let (host, runs) = (engine.host().clone(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let burning = |ns: u64| {
            let (host, runs) = (host.clone(), runs.clone());
            Item::new(move || {
                host.burn(ns);
                runs.lock().unwrap().push((0, host.time(), host.cpu()));
            })
        };
        let workers = engine.workers();
        let begin = host.time();
        let few: Vec<_> = (0..20).map(|_| burning(10 * US)).collect();
        few.iter().for_each(|item| assert_eq!(item.queue(&queue), Queued::Yes));
        queue.flush().unwrap();
        assert_eq!(engine.workers(), workers, "one worker ran them all");
        assert!(host.time() - begin < MS);
        let begin = host.time();
        let many: Vec<_> = (0..1_000).map(|_| burning(MS / 2)).collect();
        many.iter().for_each(|item| assert_eq!(item.queue(&queue), Queued::Yes));
        queue.flush().unwrap();
        let took = host.time() - begin;
        assert!(took < 200 * MS, "{took} ns on four CPUs instead of 125 ms");
        taken(&runs);
        // An item of a queue whose items were short, that computes for long.
        host.doze(SEC);
        few.iter().for_each(|item| assert_eq!(item.queue(&queue), Queued::Yes));
        queue.flush().unwrap();
        taken(&runs);
        let begin = host.time();
        let long = burning(5 * SEC);
        assert_eq!(long.queue(&queue), Queued::Yes);
        host.doze(MS);
        few.iter().for_each(|item| assert_eq!(item.queue(&queue), Queued::Yes));
        host.doze(2 * CHECK);
        let seen = taken(&runs);
        assert_eq!(seen.len(), few.len(), "after {} ns", host.time() - begin);
        queue.flush().unwrap();
    });
}

#[test]
fn the_switch_changes_queues_with_items_queued_and_armed() {
    with_engine(Setup::exact("core:4"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        let queue = efficient(engine, "pe", Flags::empty());
        let plain = make(engine, spec("plain", Kind::PerCpu));
        let per_cpu = Flags::PERCPU | Flags::POWER_EFFICIENT;
        let unbound = Flags::UNBOUND | Flags::POWER_EFFICIENT;
        for round in 0..6 {
            let saves = round % 2 == 0;
            let items: Vec<_> = (0..40).map(|index| noting(engine, &runs, index, 0)).collect();
            for (index, item) in items.iter().enumerate() {
                let outcome = match index % 2 {
                    0 => item.queue_on(&queue, index as u32 / 2 % 4),
                    _ => item.queue_delayed(&queue, Some(index as u32 / 2 % 4), MS),
                };
                assert_eq!(outcome, Queued::Yes);
            }
            save(engine, saves);
            assert_eq!(queue.flags(), if saves { unbound } else { per_cpu });
            assert_eq!(queue.is_per_cpu(), !saves);
            assert_eq!(queue.kind() == Kind::PerCpu, !saves);
            let scope = queue.effective_scope().map(|scope| scope.effective);
            assert_eq!(scope, saves.then_some(AffinityScope::System));
            assert_eq!((plain.is_per_cpu(), queue.stays_per_cpu()), (true, false));
            host.doze(100 * MS);
            let mut seen: Vec<usize> = taken(&runs).iter().map(|&(index, ..)| index).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..40).collect::<Vec<_>>(), "each item ran once");
            // Attributes can be changed while the queue is unbound, and end with that.
            assert_eq!(queue.change_attrs(|attrs| attrs.nice = 3).is_ok(), saves);
        }
        // A queue that is created while power is saved.
        save(engine, true);
        assert_eq!(efficient(engine, "later", Flags::empty()).flags(), unbound);
    });
}

/// The chosen mask has no CPU that is left while items wait: they run on the others.
#[test]
fn a_mask_that_becomes_empty_stands_for_all_cpus() {
    with_engine(Setup::exact("core:4"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        choose(engine, "2-3").unwrap();
        assert_eq!(queue.cpus().to_string(), "2-3");
        let item = noting(engine, &runs, 0, 0);
        let cpus_of_run = |allowed: &str| {
            assert_eq!(item.queue_delayed(&queue, None, 500 * MS), Queued::Yes);
            let allowed: CpuSet = allowed.parse().expect("a list");
            let unbound_cpumask = allowed.clone();
            let cpus = Cpus { allowed, unbound_cpumask, cpu_limit: None };
            host.unpreempted(|| engine.set_cpus(cpus));
            host.doze(SEC);
            taken(&runs).iter().map(|&(_, _, cpu)| cpu).collect::<Vec<_>>()
        };
        let without_cpu = |used: &str| Report::CpumaskWithoutCpu {
            cpumask: "2-3".parse().expect("a list"),
            used: used.parse().expect("a list"),
        };
        assert!(matches!(cpus_of_run("0-1")[..], [0 | 1]));
        assert_eq!(queue.cpus().to_string(), "0-1");
        assert!(matches!(cpus_of_run("0")[..], [0]));
        let seen: Vec<Report> = host.reports();
        let seen = seen.iter().filter(|report| matches!(report, Report::CpumaskWithoutCpu { .. }));
        assert_eq!(seen.collect::<Vec<_>>(), [&without_cpu("0-1")], "once");
        assert_eq!(engine.housekeeping().cpumask, Some("2-3".parse().unwrap()), "it is kept");
        assert!(matches!(cpus_of_run("0-3")[..], [2 | 3]));
        let error = choose(engine, "4-7").unwrap_err();
        let text = "cpumask 4-7 has no CPU that this process may use; allowed are 0-3";
        assert_eq!(error.to_string(), text);
        assert_eq!(queue.cpus().to_string(), "2-3", "a refused change changes nothing");
    });
}

/// The other settings change the pods of queues that chose no scope.
#[test]
fn the_default_scope_and_the_shard_size_change_the_pods() {
    with_engine(Setup::exact("llc:2 core:8"), |engine| {
        let attrs = uwork_engine::Attrs {
            nice: 0,
            cpumask: engine.config().allowed.clone(),
            scope: uwork_policy::scope::AffinityScopeChoice::Default,
            strict: false,
        };
        let queue = make(engine, spec("q", Kind::Unbound(attrs)));
        let scope = || queue.effective_scope().expect("an unbound queue").effective;
        let pods = || {
            engine.dump().queues.iter().find(|q| q.name == "q").map(|q| q.pwqs.len()).unwrap_or(0)
        };
        assert_eq!(scope(), AffinityScope::Cache);
        let set = |change: fn(&mut uwork_engine::Housekeeping)| {
            engine.host().unpreempted(|| engine.set_housekeeping(change)).expect("no mask");
        };
        let before = pods();
        set(|settings| settings.cache_shard_size = 0);
        assert_eq!(engine.housekeeping().cache_shard_size, 1);
        set(|settings| settings.default_scope = AffinityScope::CacheShard);
        assert_eq!(scope(), AffinityScope::CacheShard);
        assert!(pods() > before, "a pwq for each core");
        set(|settings| settings.default_scope = AffinityScope::Cache);
        assert_eq!(scope(), AffinityScope::Cache);
    });
}
