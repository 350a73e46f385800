//! The tier of standbys: its threads exist where they are needed and nowhere else, and the tier
//! does without each of the means that the system may refuse. Each scene is a process of its own.

use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::blocks::{compute, compute_first, every_kind};
use crate::support::cgroup::Group;
use crate::support::child::{alone_each, alone_with};
use crate::support::filter::refuse;
use crate::support::flag::SetOnDrop;
use crate::support::forked::in_child;
use crate::support::gate::Gate;
use crate::support::items::Job;
use crate::support::left_out::not_here;
use crate::support::machine::{cpus, mask, two_cpus};
use crate::support::tiers::{
    BLOCKED, Blocked, VARIABLE, are_replaced, blocks, collect_reports, in_best_tier, in_standby,
    perf_files, reported, scene,
};
use crate::support::{WAIT_CAP, queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Queue, Shutdown, shutdown};

/// The variable that passes a scene the error with which a call is refused.
const ERRNO: &str = "UWORK_TEST_ERRNO";
/// Scenes until a tier has settled.
const SCENES: usize = 20;

/// The numbers of the threads that are standbys of this process.
fn standby_threads() -> Vec<libc::pid_t> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let is_standby = |task: &std::fs::DirEntry| {
        // A thread that has just ended has no name.
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.starts_with("uw/standby"))
    };
    let number = |task: std::fs::DirEntry| task.file_name().to_str()?.parse().ok();
    tasks.filter_map(Result::ok).filter(is_standby).filter_map(number).collect()
}

/// The number of standbys of this process.
fn standbys() -> usize {
    standby_threads().len()
}

/// Whether a standby has lowered its priority, as each does soon after it has its name.
fn is_any_lowered() -> bool {
    // SAFETY: numbers only.
    let is_lowered = |&thread| unsafe { libc::sched_getscheduler(thread) } == libc::SCHED_BATCH;
    standby_threads().iter().any(is_lowered)
}

/// Plays scenes until a standby exists.
fn until_a_standby_exists() {
    until("a standby exists", || {
        scene();
        standbys() > 0
    });
}

/// An item on this CPU blocks undeclared, and the item behind it runs.
fn replaced_on(queue: &Queue, cpu: u32) {
    let (inside, may_end) = (Gate::new(), Gate::new());
    let (entered, held) = (inside.clone(), may_end.clone());
    let first = Job::new(move |_| {
        entered.open();
        held.wait();
    });
    assert!(queue.enqueue_on(cpu, first.clone()).unwrap().is_queued());
    inside.wait();
    let behind = Job::counting();
    assert!(queue.enqueue_on(cpu, behind.clone()).unwrap().is_queued());
    until("the item behind has run", || behind.tally.finished() == 1);
    assert_eq!(first.tally.finished(), 0, "it still blocked");
    may_end.open();
    queue.flush().unwrap();
    assert_eq!((first.tally.finished(), behind.tally.started()), (1, 1));
}

fn assert_replaced_in_every_kind() {
    for (_, obstacle) in every_kind(BLOCKED) {
        are_replaced(&blocks(), obstacle, BLOCKED);
    }
}

// Catches: a refused priority that leads to an error, to threads that run at the usual priority, to
// no report, or to several.
#[test]
fn a_refused_priority_leads_to_events() {
    let test = "a_refused_priority_leads_to_events";
    alone_each(test, ERRNO, &["EPERM", "ENOSYS"], VARIABLE, |errno| {
        let _watchdog = watchdog();
        collect_reports();
        let number = if errno == "EPERM" { libc::EPERM } else { libc::ENOSYS };
        refuse(libc::SYS_sched_setattr, number);
        assert_replaced_in_every_kind();
        let [(tier, reason)] = &reported()[..] else { panic!("{:?}", reported()) };
        let error = Error::from_raw_os_error(number).to_string();
        let words = format!("the best there is; standby is refused: SCHED_BATCH: {error}");
        assert!(reason.starts_with(&words), "{reason}");
        // Records may be refused here too.
        assert!(tier == "events" || reason.contains("events is refused"), "{tier}: {reason}");
        assert_eq!(standbys(), 0);
    });
}

// Catches: blocks on one CPU that are found no more because the standby of another CPU serves; a
// report for each CPU whose standby is refused.
#[test]
fn a_priority_that_is_refused_later_leads_to_events_once() {
    let test = "a_priority_that_is_refused_later_leads_to_events_once";
    alone_with(test, in_best_tier, || {
        let _watchdog = watchdog();
        let Some((one, other)) = two_cpus() else { return };
        collect_reports();
        let on_each = queue("blocks").per_cpu().build().unwrap();
        until("a standby exists", || {
            replaced_on(&on_each, one);
            is_any_lowered()
        });
        refuse(libc::SYS_sched_setattr, libc::EPERM);
        until("the refusal is noticed", || {
            replaced_on(&on_each, other);
            !reported().is_empty()
        });
        for cpu in [one, other].into_iter().cycle().take(SCENES) {
            replaced_on(&on_each, cpu);
        }
        assert_replaced_in_every_kind();
        let [(tier, reason)] = &reported()[..] else { panic!("{:?}", reported()) };
        assert!(["events", "sampling"].contains(&&tier[..]), "{tier}");
        assert!(reason.contains("SCHED_BATCH was allowed, and is refused now"), "{reason}");
        assert_eq!(uwork::dump().blocking.tier.name(), tier);
        until("the refused thread has ended", || standbys() == 1);
    });
}

// Catches: a tier that is lowered, reported or described as incomplete for want of records, which
// it does without; blocked workers that are awaited through records that cannot be opened.
#[test]
fn without_records_the_tier_is_the_same() {
    let test = "without_records_the_tier_is_the_same";
    alone_each(test, "UWORK_TEST_WHEN", &["before", "later"], VARIABLE, |when| {
        let _watchdog = watchdog();
        collect_reports();
        if when == "later" {
            (0..SCENES).for_each(|_| scene());
        }
        refuse(libc::SYS_perf_event_open, libc::EPERM);
        (0..SCENES).for_each(|_| scene());
        assert_replaced_in_every_kind();
        until_a_standby_exists();
        let blocking = uwork::dump().blocking;
        assert_eq!((blocking.tier.name(), &blocking.reason[..]), ("standby", "the best there is"));
        assert_eq!(reported(), []);
        assert!(when == "later" || perf_files() == 0);
    });
}

// Catches: a standby that runs beside the worker, on another CPU than its own, and is taken for one
// that serves; standbys that are spawned without bound.
#[test]
fn a_refusal_to_pin_threads_leaves_blocks_to_the_watcher() {
    let test = "a_refusal_to_pin_threads_leaves_blocks_to_the_watcher";
    alone_each(test, "UWORK_TEST_WHEN", &["before", "later"], VARIABLE, |when| {
        let _watchdog = watchdog();
        collect_reports();
        if when == "later" {
            until_a_standby_exists();
        }
        refuse(libc::SYS_sched_setaffinity, libc::EPERM);
        for _ in 0..SCENES {
            scene();
            assert!(standbys() <= cpus().len(), "{} standbys", standbys());
        }
        assert_replaced_in_every_kind();
        every_item_waits_for_the_next(&queue("unpinned").nice(3).build().unwrap(), 2);
        assert_eq!(reported(), []);
    });
}

/// Lowers all threads of this process; later ones inherit that.
fn lower_own_priority(how: &str) {
    for task in std::fs::read_dir("/proc/self/task").expect("the threads of this process") {
        let name = task.expect("a thread").file_name();
        let thread: libc::pid_t = name.to_str().expect("a number").parse().expect("a number");
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure is live.
        let outcome = unsafe {
            match how {
                "nice" => libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, 19),
                _ => libc::sched_setscheduler(thread, libc::SCHED_IDLE, &raw const parameters),
            }
        };
        let error = Error::last_os_error();
        // A worker may have ended meanwhile.
        assert!(outcome == 0 || error.raw_os_error() == Some(libc::ESRCH), "{error}");
    }
}

// Catches: a standby that spins for a CPU that the workers need, where all have one priority; a
// worker that is not replaced because a standby of its own priority is taken for one that serves.
#[test]
fn a_process_that_lowers_its_own_priority_makes_progress() {
    let test = "a_process_that_lowers_its_own_priority_makes_progress";
    let cases = ["nice later", "nice at first", "idle later", "idle at first"];
    alone_each(test, "UWORK_TEST_PRIORITY", &cases, VARIABLE, |case| {
        let _watchdog = watchdog();
        collect_reports();
        let (how, when) = case.split_once(' ').expect("two words");
        if when == "later" {
            until_a_standby_exists();
        }
        lower_own_priority(how);
        (0..SCENES).for_each(|_| scene());
        assert_replaced_in_every_kind();
        every_item_waits_for_the_next(&queue("lowered").nice(3).build().unwrap(), 0);
        assert_eq!(reported(), []);
    });
}

/// The policy, the niceness and the slice of a thread. The slice is 0 where the system does not tell it.
fn scheduling_of(thread: libc::pid_t) -> Option<(libc::c_int, i32, u64)> {
    // SAFETY: zeros are a valid value, and the structure is live and of the given length.
    unsafe {
        let mut told: libc::sched_attr = std::mem::zeroed();
        let length = size_of_val(&told);
        let outcome = libc::syscall(libc::SYS_sched_getattr, thread, &raw mut told, length, 0_u32);
        (outcome == 0).then_some((
            told.sched_policy as libc::c_int,
            told.sched_nice,
            told.sched_runtime,
        ))
    }
}

/// Whether the system keeps the slices of threads with the normal policy.
fn keeps_slices() -> bool {
    std::thread::spawn(|| scheduling_of(0).is_some_and(|(_, _, slice)| slice != 0)).join().unwrap()
}

// Catches: a standby, or another thread of the library, that delays the end of its process (exit, execve,
// setuid: each thread must run once), as it is too far below the others; a standby that disturbs them, as it
// is not below; a policy that the process cannot leave.
#[test]
fn a_standby_is_a_little_below_the_other_threads() {
    let test = "a_standby_is_a_little_below_the_other_threads";
    let cases = ["0", "10", "19", "idle"];
    alone_each(test, "UWORK_TEST_PRIORITY", &cases, VARIABLE, |case| {
        let _watchdog = watchdog();
        let nice = match case {
            "idle" => {
                lower_own_priority("idle");
                None
            }
            nice => Some(nice.parse().expect("a number")),
        };
        if nice.is_some_and(|nice| !has_nice(nice)) {
            return not_here(&format!("{test}: {case}"), Error::last_os_error());
        }
        until("a standby exists, and has lowered itself", || {
            scene();
            standby_threads().into_iter().filter_map(scheduling_of).any(|(policy, own, slice)| {
                match nice {
                    // The policy cannot be left, and the niceness does not count in it.
                    None => policy == libc::SCHED_IDLE,
                    // Ten more, up to 14.
                    Some(nice) => {
                        (policy, own) == (libc::SCHED_BATCH, (nice + 10).min(14).max(nice))
                            && (slice == 100_000 || !keeps_slices())
                    }
                }
            })
        });
        let Some(nice) = nice else { return };
        for task in std::fs::read_dir("/proc/self/task").expect("it is mounted") {
            let thread = task.expect("a task").file_name();
            let thread = thread.to_str().and_then(|thread| thread.parse().ok()).expect("a number");
            // It may have ended.
            let Some((policy, own, _)) = scheduling_of(thread) else { continue };
            assert!(policy != libc::SCHED_IDLE && own <= nice.max(14), "{thread}: {policy}, {own}");
        }
    });
}

// Catches: a change of the user that waits for a standby which gets no CPU beside real-time threads.
#[test]
fn a_real_time_process_has_no_standbys() {
    let test = "a_real_time_process_has_no_standbys";
    alone_with(test, in_best_tier, || {
        let _watchdog = watchdog();
        collect_reports();
        let parameters = libc::sched_param { sched_priority: 1 };
        // SAFETY: the structure is live. The number of a process is that of its main thread.
        let outcome = unsafe {
            libc::sched_setscheduler(libc::getpid(), libc::SCHED_FIFO, &raw const parameters)
        };
        if outcome != 0 {
            return not_here(test, Error::last_os_error());
        }
        for _ in 0..SCENES {
            scene();
            assert_eq!(standbys(), 0);
        }
        let reported = reported();
        assert_eq!(reported.len(), 1, "{reported:?}");
        let (tier, reason) = &reported[0];
        // Sampling where the system refuses records.
        assert!(["events", "sampling"].contains(&tier.as_str()), "{tier}");
        assert!(
            reason.contains("standby is refused: SCHED_BATCH: the threads are real-time"),
            "{reason}"
        );
    });
}

/// Gives all threads of the process this niceness. False if the system refuses it.
fn has_nice(nice: i32) -> bool {
    // Each thread: the test may have been started at another niceness.
    let mut threads = std::fs::read_dir("/proc/self/task").expect("it is mounted");
    threads.all(|thread| {
        let thread = thread.expect("a task").file_name();
        let thread = thread.to_str().and_then(|thread| thread.parse().ok()).expect("a number");
        // SAFETY: no pointers.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, nice) == 0 }
    })
}

// Catches: blocks that are not found where the process is in a group of the idle class, or of the least
// weight. The group is alone in another one, so that other programs do not starve it.
#[test]
fn blocks_are_found_in_a_cgroup_of_the_least_weight() {
    let test = "blocks_are_found_in_a_cgroup_of_the_least_weight";
    alone_each(test, "UWORK_TEST_WEIGHT", &["idle", "least"], VARIABLE, |case| {
        let _watchdog = watchdog();
        let grouped = Group::new("cpu").and_then(|outer| {
            let inner = outer.nested()?;
            match case {
                "idle" => inner.set(&["cpu.idle"], "1")?,
                _ => inner.set(&["cpu.weight", "cpu.shares"], "2")?,
            }
            inner.add(std::process::id()).map(|()| (inner, outer))
        });
        // The inner group is dropped first.
        let _groups = match grouped {
            Ok(groups) => groups,
            Err(why) => return not_here(&format!("{test}: {case}"), why),
        };
        collect_reports();
        until_a_standby_exists();
        assert_replaced_in_every_kind();
        assert_eq!(reported(), []);
    });
}

// Catches: a standby that the child takes for its own, so that it gets none or wakes a thread that
// does not exist; a standby of the child that does not end.
#[test]
fn a_fork_while_standbys_exist() {
    let test = "a_fork_while_standbys_exist";
    alone_with(test, in_standby, || {
        let _watchdog = watchdog();
        collect_reports();
        until_a_standby_exists();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The forks meet standbys at any point.
            scope.spawn(|| {
                let queue = queue("parent").nice(2).max_active(BLOCKED as u32 + 1).build().unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    are_replaced(&queue, Arc::new(compute_first(BLOCKED)), BLOCKED);
                }
            });
            let _over = SetOnDrop(&is_over);
            for _ in 0..10 {
                in_child(|| {
                    assert_eq!(standbys(), 0, "the threads do not exist here");
                    until_a_standby_exists();
                    (0..5).for_each(|_| scene());
                    assert!(standbys() <= cpus().len());
                    let report = shutdown(Shutdown::Cancel, WAIT_CAP).unwrap();
                    assert!(report.is_complete(), "{report}");
                    until("the standbys have ended", || standbys() == 0);
                });
                scene();
            }
        });
        assert!(standbys() > 0, "the parent's go on");
        assert_eq!(reported(), []);
    });
}

// Catches: standbys that outlive a shutdown.
#[test]
fn a_shutdown_ends_the_standbys() {
    alone_with("a_shutdown_ends_the_standbys", in_standby, || {
        let _watchdog = watchdog();
        until_a_standby_exists();
        let report = shutdown(Shutdown::Drain, WAIT_CAP).unwrap();
        assert!(report.is_complete(), "{report}");
        until("the standbys have ended", || standbys() == 0);
    });
}

/// Queues that differ in the attributes that determine the pool.
fn many_queues() -> Vec<Queue> {
    let (all, mut queues) = (cpus(), Vec::new());
    for nice in -20..20 {
        for strict in [false, true] {
            for mask in [mask(&all[..1]), mask(&all)] {
                for scope in [AffinityScope::Cpu, AffinityScope::System] {
                    let scope = AffinityScopeChoice::Explicit(scope);
                    let builder = queue("kind").nice(nice).affinity_strict(strict).max_active(3);
                    queues
                        .push(builder.cpumask(mask.clone()).affinity_scope(scope).build().unwrap());
                }
            }
        }
    }
    queues
}

// Catches: a standby for each pool; a pool that is forgotten because a standby knows few pools.
#[test]
fn many_pools_share_the_standbys_of_their_cpus() {
    alone_with("many_pools_share_the_standbys_of_their_cpus", in_standby, || {
        let _watchdog = watchdog();
        collect_reports();
        let queues = many_queues();
        assert!(queues.len() >= 300, "{}", queues.len());
        let mut most = 0;
        for _ in 0..3 {
            let blocked: Vec<_> = queues
                .iter()
                .map(|queue| Blocked::queue(queue, Arc::new(compute_first(2)), 2))
                .collect();
            let behind: Vec<_> = queues
                .iter()
                .map(|queue| {
                    let item = Job::counting();
                    assert!(queue.enqueue_on(cpus()[0], item.clone()).unwrap().is_queued());
                    item
                })
                .collect();
            for item in &behind {
                until("the item behind has run", || item.tally.finished() == 1);
                most = most.max(standbys());
            }
            blocked.into_iter().for_each(Blocked::release);
        }
        assert!((1..=cpus().len()).contains(&most), "{most} standbys for {} CPUs", cpus().len());
        assert_eq!(reported(), []);
    });
}

/// Items of a flood, and how long each computes.
const ITEMS: u32 = 3_000;
const ITEM: Duration = Duration::from_micros(50);

// Catches: standbys for pools whose items only compute or declare their blocks.
#[test]
fn queues_that_never_block_undeclared_have_no_standby() {
    alone_with("queues_that_never_block_undeclared_have_no_standby", in_standby, || {
        let _watchdog = watchdog();
        let queues = [queue("flood").build().unwrap(), queue("flood").per_cpu().build().unwrap()];
        let ran = Arc::new(AtomicU32::new(0));
        // Kept until the flood is over: a worker that frees an item may sleep on a lock of the
        // allocator, which is a block without a declaration.
        let mut items = Vec::new();
        for number in 0..ITEMS {
            for queue in &queues {
                let ran = ran.clone();
                let item = Job::new(move |_| {
                    compute(ITEM);
                    if number % 8 == 0 {
                        uwork::blocking(std::thread::yield_now);
                    }
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                items.push(item.clone());
                assert!(queue.enqueue(item).is_queued());
            }
        }
        until("the flood is over", || {
            assert_eq!(standbys(), 0);
            ran.load(Ordering::Relaxed) == 2 * ITEMS
        });
        queues.iter().for_each(|queue| queue.flush().unwrap());
        assert_eq!(standbys(), 0);
    });
}

/// Items in a chain.
const CHAIN: usize = 400;

/// Each item blocks until the next one has begun. Every item whose number is a multiple of
/// `computes` computes instead, so that the next item is not presumed to block; 0 for none.
fn every_item_waits_for_the_next(queue: &Queue, computes: usize) {
    let gates: Arc<[Gate]> = (0..=CHAIN).map(|_| Gate::new()).collect();
    let item = |number: usize| {
        let gates = gates.clone();
        Job::new(move |_| {
            gates[number].open();
            match computes != 0 && number.is_multiple_of(computes) {
                true => compute(ITEM),
                false => gates[number + 1].wait(),
            }
        })
    };
    let items: Vec<_> = (0..CHAIN).map(item).collect();
    for item in &items {
        assert!(queue.enqueue_on(cpus()[0], item.clone()).unwrap().is_queued());
    }
    until("the last item has begun", || gates[CHAIN - 1].is_open());
    gates[CHAIN].open();
    queue.flush().unwrap();
    for item in &items {
        let tally = &item.tally;
        assert_eq!((tally.started(), tally.finished(), tally.overlapped()), (1, 1, false));
    }
}

// Catches: a block that is not found because the worker had only just been replaced, examined in
// vain, or given up by its standby.
#[test]
fn a_queue_that_blocks_in_every_item_makes_progress() {
    alone_with("a_queue_that_blocks_in_every_item_makes_progress", in_standby, || {
        let _watchdog = watchdog();
        collect_reports();
        let system = AffinityScopeChoice::Explicit(AffinityScope::System);
        let queues = [
            queue("chain").build().unwrap(),
            queue("chain").per_cpu().build().unwrap(),
            queue("chain").affinity_scope(system).build().unwrap(),
        ];
        for queue in &queues {
            for computes in [0, 2, 5] {
                every_item_waits_for_the_next(queue, computes);
            }
        }
        assert!((1..=cpus().len()).contains(&standbys()));
        assert_eq!(reported(), []);
    });
}
