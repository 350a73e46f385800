//! The promises of a queue's flags (SEMANTICS 1, 2.29, 2.31, 2.34). Reports and thresholds are
//! process-wide, so most of these tests run in a process of their own.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::child::{alone, alone_with, become_nobody, limit};
use crate::support::flag::SetOnDrop;
use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::machine::{cpus, current_cpu, mask, thread_id};
use crate::support::{WAIT_MAX, queue, until, watchdog};
use uwork::{Builder, Flags, FlagsWarning, Queue, Report, StackWork, sysfs, system};

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn collect_reports() {
    uwork::set_reporter(|report| REPORTS.lock().unwrap().push(report.clone())).expect("the first");
}

fn reports<R>(wanted: impl Fn(&Report) -> Option<R>) -> Vec<R> {
    REPORTS.lock().unwrap().iter().filter_map(wanted).collect()
}

/// The CPU time of the calling thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(outcome, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn set_threshold(us: &str) {
    sysfs::set("module/parameters/cpu_intensive_thresh_us", us).unwrap();
}

fn enqueue_here(queue: &Queue, item: Arc<Job>) {
    assert!(queue.enqueue_on(cpus()[0], item).unwrap().is_queued());
}

/// Queues an item that computes until `enough`, which gets the gate of a second item and the CPU time
/// of the first one's run. Returns whether the second item ran meanwhile. The run ends after
/// [`WAIT_MAX`] of CPU time at the latest, and where the caller panics: the end of the queue waits
/// for it.
fn runs_beside_a_computing_item(
    queue: &Queue,
    enough: impl Fn(&Gate, Duration) -> bool + Send + Sync + 'static,
) -> bool {
    let (computes, second) = (Gate::new(), Gate::new());
    let beside = Log::new();
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let _end = SetOnDrop(&is_abandoned);
    let (entered, other, log) = (computes.clone(), second.clone(), beside.clone());
    let is_over = is_abandoned.clone();
    enqueue_here(
        queue,
        Job::new(move |_| {
            entered.open();
            let start = cpu_time();
            let used = || cpu_time() - start;
            while !enough(&other, used()) && used() < WAIT_MAX && !is_over.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            log.push(other.is_open());
        }),
    );
    computes.wait();
    enqueue_here(queue, Job::new(move |_| second.open()));
    queue.flush().unwrap();

    beside.events()[0]
}

// Catches: an item that waits behind one that computes for ever, undeclared; a threshold that does
// not reach the engine.
#[test]
fn s2_31_a_run_over_the_threshold_delays_no_other_item() {
    alone("s2_31_a_run_over_the_threshold_delays_no_other_item", || {
        let _watchdog = watchdog();
        let queue = queue("s2-31").per_cpu().build().unwrap();
        let until_it_ran = |second: &Gate, _: Duration| second.is_open();
        assert!(runs_beside_a_computing_item(&queue, until_it_ran));
        // 0 turns detection off. The first item uses several times the default threshold.
        set_threshold("0");
        let for_a_while = |_: &Gate, used: Duration| used > Duration::from_millis(60);
        assert!(!runs_beside_a_computing_item(&queue, for_a_while));
    });
}

// Catches: a report for each violation, or for the first ones, or for a CPU-intensive queue.
#[test]
fn s2_31_a_function_is_reported_from_the_fourth_time_on() {
    alone("s2_31_a_function_is_reported_from_the_fourth_time_on", || {
        let _watchdog = watchdog();
        collect_reports();
        set_threshold("500");
        let counts = || {
            reports(|report| match report {
                Report::CpuIntensive { count, used_ns, .. } => {
                    assert!(*used_ns >= 500_000);
                    Some(*count)
                }
                _ => None,
            })
        };
        let until_it_ran = |second: &Gate, _: Duration| second.is_open();
        let marked = queue("s2-31").per_cpu().cpu_intensive().build().unwrap();
        let unmarked = queue("s2-31").per_cpu().build().unwrap();
        for _ in 0..10 {
            assert!(runs_beside_a_computing_item(&marked, until_it_ran));
        }
        assert_eq!(counts(), [0_u64; 0], "it counts as CPU-intensive before it starts");
        for round in 1..=12 {
            assert!(runs_beside_a_computing_item(&unmarked, until_it_ran));
            let due: Vec<u64> = [4, 5, 7, 11].into_iter().filter(|&count| count <= round).collect();
            // The watcher reports after it has let the second item start.
            until("the reports are there", || counts().len() >= due.len());
            assert_eq!(counts(), due);
        }
    });
}

// Catches: BH items on another CPU, on two threads at once, out of order.
#[test]
fn s2_34_bh_items_run_in_queue_order_in_one_context_on_each_cpu() {
    const ITEMS: usize = 500;
    let _watchdog = watchdog();
    for builder in [queue("s2-34").bh(), queue("s2-34").bh().highpri()] {
        let (one, other) = (builder.build().unwrap(), queue("s2-34").bh().build().unwrap());
        // By CPU: the item numbers in the order of their runs, and the threads.
        type Seen = HashMap<u32, (Vec<usize>, Vec<i32>)>;
        let seen = Arc::new(Mutex::new(Seen::new()));
        for number in 0..ITEMS {
            for &cpu in &cpus() {
                let seen = seen.clone();
                let item = Job::new(move |_| {
                    assert_eq!(current_cpu(), cpu);
                    let mut seen = seen.lock().unwrap();
                    let (numbers, threads) = seen.entry(cpu).or_default();
                    numbers.push(number);
                    threads.push(thread_id());
                });
                assert!(one.enqueue_on(cpu, item).unwrap().is_queued());
                drop(other.enqueue_on(cpu, Job::counting()).unwrap());
            }
        }
        one.flush().unwrap();
        other.flush().unwrap();
        let mut seen = seen.lock().unwrap();
        for cpu in cpus() {
            let (numbers, mut threads) = seen.remove(&cpu).expect("items ran there");
            assert_eq!(numbers, (0..ITEMS).collect::<Vec<_>>());
            threads.dedup();
            assert_eq!(threads.len(), 1, "one context");
        }
        // No worker replaces one whose item computes for long.
        let for_a_while = |_: &Gate, used: Duration| used > Duration::from_millis(60);
        assert!(!runs_beside_a_computing_item(&one, for_a_while));
        let error = one.set_max_active(2).unwrap_err();
        assert!(error.to_string().contains("BH"), "{error}");
    }
}

// Catches: a BH item that waits unnoticed, is reported each time, or ends its context.
#[test]
fn s2_34_a_bh_item_that_waits_is_detected() {
    alone("s2_34_a_bh_item_that_waits_is_detected", || {
        let _watchdog = watchdog();
        collect_reports();
        let queue = queue("s2-34").bh().build().unwrap();
        let other = Queue::builder("waited-for").build().unwrap();
        for _ in 0..2 {
            let waited_for = other.clone();
            enqueue_here(&queue, Job::new(|_| uwork::blocking(|| {})));
            enqueue_here(&queue, Job::new(move |_| waited_for.flush().unwrap()));
            enqueue_here(&queue, Job::new(|_| assert!(!Job::new(|_| {}).work.flush_helping())));
            let flushes = |item: &StackWork| assert!(!item.flush());
            enqueue_here(&queue, Job::new(move |_| uwork::on_stack(|_| {}, flushes)));
            queue.flush().unwrap();
        }
        let name = queue.name();
        let waits = |report: &Report| {
            matches!(report, Report::BhWaits { queue } if queue == name).then_some(())
        };
        assert_eq!(reports(waits).len(), 1, "once for each queue");
        // A panic in debug builds, only a report in others.
        assert_eq!(uwork::panics(), if cfg!(debug_assertions) { 8 } else { 0 });
        let runs = Job::counting();
        enqueue_here(&queue, runs.clone());
        queue.flush().unwrap();
        assert_eq!(runs.tally.finished(), 1, "the context goes on");
    });
}

// Catches: a warning for every queue, or none; flags that differ from the kernel's result.
#[test]
fn neither_per_cpu_nor_unbound_and_both_are_reported_once_per_process() {
    alone("neither_per_cpu_nor_unbound_and_both_are_reported_once_per_process", || {
        let _watchdog = watchdog();
        collect_reports();
        let both = Flags::PERCPU | Flags::UNBOUND;
        for (asked, becomes) in [(Flags::empty(), Flags::PERCPU), (both, Flags::UNBOUND)] {
            for _ in 0..3 {
                let flags = asked | Flags::FREEZABLE;
                let queue = queue("flags").flags(flags).build().unwrap();
                assert_eq!(queue.flags(), becomes | Flags::FREEZABLE);
                assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
            }
        }
        for right in [Flags::PERCPU, Flags::UNBOUND, Flags::BH, Flags::ORDERED] {
            drop(queue("flags").flags(right).build().unwrap());
        }
        let warnings = reports(|report| match report {
            Report::FlagsChanged { queue, warning } => Some((queue.clone(), *warning)),
            _ => None,
        });
        let expected = [
            ("flags-0".to_owned(), FlagsWarning::NeitherPerCpuNorUnbound),
            ("flags-3".to_owned(), FlagsWarning::BothPerCpuAndUnbound),
        ];
        assert_eq!(warnings, expected, "each of them once, and nothing else");
    });
}

// Catches: a delayed item that overtakes, runs on another thread, or is not stopped when the queue
// ends.
#[test]
fn a_dedicated_queue_is_one_thread_with_delayed_items() {
    let _watchdog = watchdog();
    let cpu = cpus()[0];
    let queue = queue("worker").dedicated().cpumask(mask(&[cpu])).build().unwrap();
    assert!(queue.is_ordered() && queue.set_max_active(2).is_err());
    let log = Log::new();
    let say = |number: u32| {
        let log = log.clone();
        move || log.push((number, thread_id(), current_cpu()))
    };
    let (started, may_end) = (Gate::new(), Gate::new());
    // A wait, declared or not, starts no other worker.
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let delayed = |number: u32| {
        let say = say(number);
        Later::new(move |_| say())
    };
    let (soon, never, moved) = (delayed(100), delayed(101), delayed(1));
    let long = Duration::from_secs(3_600);
    assert!(queue.enqueue_delayed(soon.clone(), Duration::from_nanos(1)).is_queued());
    assert!(queue.enqueue_delayed(never.clone(), long).is_queued());
    assert!(queue.enqueue_delayed(moved.clone(), long).is_queued());
    assert!(matches!(queue.mod_delayed(moved, Duration::ZERO), uwork::Enqueued::Pending(_)));
    for number in 2..20 {
        let say = say(number);
        assert!(queue.enqueue(Job::new(move |_| say())).is_queued());
    }
    assert_eq!(log.events(), []);
    may_end.open();
    // Only the thread itself handles the queue's timer, when it is free.
    log.wait_for_count(20);
    // The last item has logged its number, and may not have ended.
    queue.flush().unwrap();
    let events = log.events();
    assert!(events.iter().all(|&(_, thread, on)| (thread, on) == (events[0].1, cpu)), "{events:?}");
    let numbers = events.iter().map(|event| event.0).filter(|&number| number != 100);
    assert_eq!(numbers.collect::<Vec<_>>(), (1..20).collect::<Vec<_>>());
    assert_eq!((soon.tally.finished(), never.tally.started()), (1, 0));
    assert!(never.work.cancel_sync().unwrap().is_some());
    // Two dedicated queues do not share a thread.
    let second = crate::support::queue("worker").dedicated().cpumask(mask(&[cpu])).build().unwrap();
    assert_ne!(in_a_worker(&second, thread_id), events[0].1);
}

/// Calls `f` in an item of `queue`, and returns its result. Not joined, because a joining thread
/// may run the item itself.
fn in_a_worker<R: Clone + PartialEq + std::fmt::Debug + Send + 'static>(
    queue: &Queue,
    f: impl Fn() -> R + Send + Sync + 'static,
) -> R {
    let log = Log::new();
    let theirs = log.clone();
    assert!(queue.enqueue(Job::new(move |_| theirs.push(f()))).is_queued());
    log.wait_for_count(1);
    log.events()[0].clone()
}

/// The niceness of the calling thread.
fn niceness() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// For the pools in which a queue's items run: the niceness they should have, and the one they
/// have.
fn pools_niceness(queue: &Queue) -> Vec<(i32, Option<i32>)> {
    let (dump, queue) = (uwork::dump(), queue.dump());
    let pools = queue.pwqs.iter().map(|pwq| &dump.pools[pwq.pool as usize]);
    pools.map(|pool| (pool.nice, pool.actual_nice)).collect()
}

// Catches: a highpri queue whose workers have plain priority, without a report.
#[test]
fn highpri_is_minus_20_or_the_dump_says_what() {
    let _watchdog = watchdog();
    for builder in [queue("highpri").per_cpu(), queue("highpri"), queue("highpri").bh()] {
        let queue = builder.highpri().build().unwrap();
        let got = in_a_worker(&queue, niceness);
        for (wanted, had) in pools_niceness(&queue) {
            assert_eq!((wanted, had.unwrap_or(wanted)), (-20, got));
        }
    }
    let plain = queue("highpri").per_cpu().build().unwrap();
    let got = in_a_worker(&plain, niceness);
    let (wanted, had) = pools_niceness(&plain)[0];
    // That of the process.
    assert_eq!((wanted, had.unwrap_or(wanted)), (niceness(), got));
}

// Catches: a niceness that is refused without a report, or reported for each thread.
#[test]
fn a_niceness_that_cannot_be_had_is_reported_once() {
    alone("a_niceness_that_cannot_be_had_is_reported_once", || {
        let _watchdog = watchdog();
        collect_reports();
        limit(libc::RLIMIT_NICE, 0);
        become_nobody();
        let own = niceness();
        let wanted = if own > -20 { -20 } else { return };
        let builders: [fn(Builder) -> Builder; 3] =
            [Builder::per_cpu, Builder::unbound, Builder::dedicated];
        for kind in builders {
            let queue = kind(queue("highpri")).highpri().build().unwrap();
            assert_eq!(in_a_worker(&queue, niceness), own);
            assert!(pools_niceness(&queue).iter().all(|nice| *nice == (wanted, Some(own))));
            let text = uwork::dump().to_string();
            assert!(text.contains(&format!("nice -20 (has {own})")), "{text}");
        }
        let said = || {
            reports(|report| match report {
                // A process with a raised niceness cannot set 0 either.
                Report::NiceRefused { wanted: -20, got } => Some(*got),
                _ => None,
            })
        };
        until("the report is delivered", || !said().is_empty());
        assert_eq!(said(), [own]);
        // Raising the niceness needs no privilege.
        let more = (own + 1).min(19);
        let polite = queue("polite").nice(more).build().unwrap();
        assert_eq!(in_a_worker(&polite, niceness), more);
        assert_eq!(pools_niceness(&polite)[0], (more, None));
    });
}

/// The niceness of each thread of the process, with its name.
fn niceness_of_threads() -> Vec<(String, i32)> {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        // A thread that ends meanwhile has no file any more.
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (name, behind) = stat.rsplit_once(") ").expect("a name in brackets");
        let nice = behind.split(' ').nth(16).expect("field 19").parse().expect("a number");
        Some((name.to_owned(), nice))
    };
    threads.filter_map(of_thread).collect()
}

/// As nice(1) does, at the niceness 10 or the higher one of this process.
fn at_a_raised_niceness(command: &mut Command) {
    let raised = niceness().max(10);
    let prepare = move || {
        // SAFETY: no pointers.
        match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, raised) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between the fork and the execution it changes the niceness only.
    unsafe { command.pre_exec(prepare) };
}

// Catches: queues that ignore the niceness of the process: with a privilege its threads are above it,
// without one each program reports that it did not get 0.
#[test]
fn queues_and_threads_have_the_niceness_of_the_process() {
    alone_with("queues_and_threads_have_the_niceness_of_the_process", at_a_raised_niceness, || {
        let _watchdog = watchdog();
        collect_reports();
        let raised = niceness();
        assert!(raised >= 10, "{raised}");
        let queues = || {
            let builders: [fn(Builder) -> Builder; 5] = [
                Builder::per_cpu,
                Builder::unbound,
                Builder::ordered,
                Builder::bh,
                Builder::dedicated,
            ];
            builders.map(|kind| kind(queue("polite")).build().unwrap())
        };
        let have_it = |queues: &[Queue]| {
            for queue in queues {
                assert_eq!(in_a_worker(queue, niceness), raised, "{}", queue.name());
                assert!(pools_niceness(queue).iter().all(|nice| *nice == (raised, None)));
                assert_eq!(queue.dump().nice, raised);
            }
            let above: Vec<_> =
                niceness_of_threads().into_iter().filter(|&(_, nice)| nice < raised).collect();
            assert!(above.is_empty(), "{above:?}");
        };
        have_it(&queues());
        become_nobody();
        have_it(&queues());
        let refused = reports(|report| match report {
            Report::NiceRefused { wanted, got } => Some((*wanted, *got)),
            _ => None,
        });
        assert!(refused.is_empty(), "{refused:?}");
        // Chosen values are absolute.
        let more = (raised + 5).min(19);
        let queue = queue("polite").nice(more).build().unwrap();
        assert_eq!((in_a_worker(&queue, niceness), queue.dump().nice), (more, more));
    });
}

/// Name, flags, and the function that returns the queue.
type SystemQueue = (&'static str, Flags, fn() -> &'static Queue);

const SYSTEM_QUEUES: [SystemQueue; 10] = [
    ("events", Flags::PERCPU, system::percpu),
    ("events_highpri", Flags::PERCPU.union(Flags::HIGHPRI), system::highpri),
    ("events_long", Flags::PERCPU, system::long),
    ("events_unbound", Flags::UNBOUND, system::dfl),
    ("events_dfl_long", Flags::UNBOUND, system::dfl_long),
    ("events_freezable", Flags::PERCPU.union(Flags::FREEZABLE), system::freezable),
    (
        "events_power_efficient",
        Flags::PERCPU.union(Flags::POWER_EFFICIENT),
        system::power_efficient,
    ),
    (
        "events_freezable_pwr_efficient",
        Flags::PERCPU.union(Flags::FREEZABLE).union(Flags::POWER_EFFICIENT),
        system::freezable_power_efficient,
    ),
    ("events_bh", Flags::PERCPU.union(Flags::BH), system::bh),
    ("events_bh_highpri", Flags::PERCPU.union(Flags::BH).union(Flags::HIGHPRI), system::bh_highpri),
];

// Catches: a system queue that is missing, is another one, or has other flags than the kernel's.
#[test]
fn the_system_queues_are_the_kernels() {
    let _watchdog = watchdog();
    for (name, flags, get) in SYSTEM_QUEUES {
        let queue = get();
        assert_eq!((queue.name(), queue.flags()), (name, flags));
        assert_eq!(get().name(), queue.name(), "the same one each time");
        assert_eq!(queue.spawn(|| 6 * 7).join().unwrap(), 42, "{name}");
        if !flags.contains(Flags::BH) {
            assert_eq!(queue.max_active(), 1_024);
        }
        assert!(Queue::builder(name).build().is_err(), "the name is kept for it");
    }
    let mut names: Vec<_> = SYSTEM_QUEUES.iter().map(|(name, ..)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10);
}

// Catches: a flag that changes the kind that was chosen before it.
#[test]
fn power_efficient_changes_no_kind_that_was_chosen() {
    let _watchdog = watchdog();
    let flags = |builder: Builder| builder.build().unwrap().flags();
    let efficient = Flags::POWER_EFFICIENT;
    assert_eq!(flags(queue("pe").power_efficient()), efficient | Flags::PERCPU);
    assert_eq!(flags(queue("pe").unbound().power_efficient()), efficient | Flags::UNBOUND);
    let ordered = efficient | Flags::UNBOUND | Flags::ORDERED;
    assert_eq!(flags(queue("pe").ordered().power_efficient()), ordered);
    assert_eq!(flags(queue("pe").power_efficient().ordered()), ordered);
    assert!(queue("pe").bh().power_efficient().build().is_err());
    assert!(queue("pe").power_efficient().bh().build().is_err());
}

// Catches: a switch that has no effect, or that changes other queues too.
#[test]
fn power_efficient_queues_are_unbound_if_the_process_saves_power() {
    let test = "power_efficient_queues_are_unbound_if_the_process_saves_power";
    alone_with(
        test,
        |command| _ = command.env("UWORK_POWER_EFFICIENT", "1"),
        || {
            let _watchdog = watchdog();
            assert_eq!(sysfs::get("module/parameters/power_efficient").unwrap(), "Y");
            let swapped = Flags::UNBOUND | Flags::POWER_EFFICIENT;
            assert_eq!(system::power_efficient().flags(), swapped);
            let freezable = system::freezable_power_efficient();
            assert_eq!(freezable.flags(), swapped | Flags::FREEZABLE);
            assert_eq!(system::percpu().flags(), Flags::PERCPU);
            assert_eq!(freezable.spawn(|| 1).join().unwrap(), 1);
        },
    );
}
