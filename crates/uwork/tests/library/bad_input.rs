//! Invalid input is refused with one line that names the error and the allowed values, and has no
//! partial effect.

use std::sync::Arc;
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::machine::{cpus, mask};
use crate::support::{queue, watchdog, within};
use uwork::{
    AffinityScope, AffinityScopeChoice, Builder, CpuSet, DelayedWork, Enqueued, Error, ErrorKind,
    Flags, JoinError, Queue, freeze,
};

#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.is_empty(), "one line: {text:?}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    assert!(!error.would_deadlock());
}

#[track_caller]
fn assert_refused(builder: Builder, words: &[&str]) {
    assert_says(&builder.build().expect_err("bad input"), words);
}

/// A CPU that a set can hold and that no machine of the tests has.
const NO_CPU: u32 = 8_191;

fn allowed() -> String {
    mask(&cpus()).to_string()
}

// Catches: a name that is too long for a kernel queue, or one that is already in use.
#[test]
fn queue_names_have_1_to_31_bytes_and_are_unique() {
    let _watchdog = watchdog();
    for bad in ["", &"n".repeat(32), "with\0nul", "äöüäöüäöüäöüäöüä"] {
        assert_refused(Queue::builder(bad), &["name", "1 to 31", "control"]);
    }
    assert_refused(
        Queue::builder("a\0b"),
        &[r#"name "a\0b" has the control character '\0'; allowed"#],
    );
    assert_refused(Queue::builder("n".repeat(32)), &["\" has 32 bytes; allowed"]);
    let longest = "n".repeat(31);
    let queue = Queue::builder(longest.as_str()).build().expect("31 bytes are allowed");
    assert_refused(Queue::builder(longest.as_str()), &[&longest, "unique"]);
    assert_eq!(queue.name(), longest);
    queue.destroy().unwrap();
    assert_refused(Queue::builder(longest.as_str()), &["unique"]);
    drop(queue);
    assert!(Queue::builder(longest.as_str()).build().is_ok(), "the name is free again");
}

// Catches: a number that is skipped or given twice, a name that becomes too long or breaks a
// character, a reserved name that is given away, invalid names that a number hides.
#[test]
fn a_name_that_is_taken_gets_a_number() {
    let _watchdog = watchdog();
    let numbered = |name: &str| Queue::builder(name).numbered();
    let build = |name: &str| numbered(name).build().unwrap();
    let queues = [build("made"), build("made"), build("made")];
    assert_eq!(queues.each_ref().map(Queue::name), ["made", "made#2", "made#3"]);
    let [first, second, third] = queues;
    drop(second);
    let again = build("made");
    assert_eq!(again.name(), "made#2");
    drop((first, third));
    // Another letter than the longest name of the test above, which may hold that name now.
    let long = "w".repeat(31);
    let longest = [build(&long), build(&long)];
    assert_eq!(longest[1].name(), "w".repeat(29) + "#2");
    let umlauts = "ä".repeat(15);
    let pair = [build(&umlauts), build(&umlauts)];
    assert_eq!(pair[1].name(), "ä".repeat(14) + "#2");
    let system = uwork::system::long().name().to_owned();
    assert_eq!(build(&system).name(), system + "#2");
    assert_refused(numbered(""), &["1 to 31"]);
}

// Catches: a refused queue that keeps its name.
#[test]
fn a_refused_queue_leaves_nothing_behind() {
    let _watchdog = watchdog();
    let build = || Queue::builder("half-done");
    assert_refused(build().cpumask(CpuSet::new()), &["cpumask"]);
    assert_refused(build().nice(20), &["nice"]);
    assert_refused(build().max_active(0), &["max_active"]);
    assert!(build().build().is_ok());
}

// Catches: names of the system queues that a user can take.
#[test]
fn a_user_cannot_take_a_system_queue_away() {
    let _watchdog = watchdog();
    let users = Queue::builder("events_long").build();
    if let Err(error) = &users {
        assert_says(error, &["events_long"]);
    }
    assert_eq!(uwork::system::long().spawn(|| 42).join().unwrap(), 42);
    assert_refused(Queue::builder(uwork::system::long().name()), &["unique"]);
}

// Catches: a mask that leaves a queue without a CPU.
#[test]
fn a_cpumask_needs_a_cpu_that_the_process_may_use() {
    let _watchdog = watchdog();
    let allowed = allowed();
    assert_refused(queue("bad").cpumask(CpuSet::new()), &["cpumask", "empty", &allowed]);
    let outside = CpuSet::single(NO_CPU);
    assert_refused(queue("bad").cpumask(outside.clone()), &["8191", &allowed]);

    let live = queue("bad").build().unwrap();
    let before = live.cpumask();
    assert_says(&live.set_cpumask(outside).unwrap_err(), &["8191", &allowed]);
    assert_says(&live.set_cpumask(CpuSet::new()).unwrap_err(), &["empty", &allowed]);
    assert_eq!(live.cpumask(), before, "nothing was changed");
    // A mask that is partly outside is valid: the allowed CPUs of it are used.
    live.set_cpumask(mask(&[cpus()[0], NO_CPU])).unwrap();
    assert_eq!(live.cpumask(), mask(&[cpus()[0]]));
    assert_eq!(live.spawn(|| 1).join().unwrap(), 1);
}

// Catches: limits that are off by one, or that are clamped silently.
#[test]
fn max_active_is_1_to_2048() {
    let _watchdog = watchdog();
    for bad in [0, 2_049, u32::MAX] {
        let number = bad.to_string();
        assert_refused(queue("bad").max_active(bad), &["max_active", &number, "1 to 2048"]);
        assert_refused(queue("bad").per_cpu().max_active(bad), &["1 to 2048"]);
    }
    let live = queue("bad").max_active(2_048).build().unwrap();
    for bad in [0, 2_049] {
        assert_says(&live.set_max_active(bad).unwrap_err(), &["max_active", "1 to 2048"]);
    }
    assert_eq!(live.max_active(), 2_048);
    live.set_max_active(1).unwrap();
    assert_eq!(live.max_active(), 1);
}

// Catches: niceness that the system would clamp.
#[test]
fn nice_is_minus_20_to_19() {
    let _watchdog = watchdog();
    for bad in [-21, 20, i32::MIN, i32::MAX] {
        assert_refused(queue("bad").nice(bad), &["nice", &bad.to_string(), "-20 to 19"]);
        assert_refused(queue("bad").ordered().nice(bad), &["-20 to 19"]);
    }
    let live = queue("bad").nice(19).build().unwrap();
    assert_says(&live.set_nice(20).unwrap_err(), &["nice", "20", "-20 to 19"]);
    assert_eq!(live.spawn(|| 1).join().unwrap(), 1, "it works as before");
}

// Catches: attributes that a per-CPU queue accepts and ignores.
#[test]
fn a_per_cpu_queue_has_no_affinity_attributes() {
    let _watchdog = watchdog();
    let build = || queue("bad").per_cpu();
    let words = &["per-CPU", "unbound"];
    assert_refused(build().nice(1), words);
    assert_refused(build().cpumask(mask(&cpus())), words);
    assert_refused(
        build().affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Numa)),
        words,
    );
    assert_refused(build().affinity_strict(true), words);
    let live = build().build().unwrap();
    assert_eq!(live.affinity_scope(), None);
    assert_says(&live.set_nice(1).unwrap_err(), words);
    assert_says(&live.set_cpumask(mask(&cpus())).unwrap_err(), words);
    assert_says(&live.set_affinity_scope(AffinityScopeChoice::Default).unwrap_err(), words);
    assert_says(&live.set_affinity_strict(true).unwrap_err(), words);
}

// Catches: a scope that a dedicated queue accepts and ignores.
#[test]
fn a_dedicated_queue_has_no_scope() {
    let _watchdog = watchdog();
    let live = queue("bad").dedicated().build().unwrap();
    let words = &["affinity_scope", "thread to itself"];
    assert_says(
        &live.set_affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Numa)).unwrap_err(),
        words,
    );
    assert_says(&live.set_affinity_strict(true).unwrap_err(), words);
    live.set_nice(1).unwrap();
}

// Catches: a CPU out of range that reaches a table, an item that is queued despite the error, and
// one that is dropped instead of returned.
#[test]
fn enqueue_on_needs_a_cpu_that_the_process_may_use() {
    let _watchdog = watchdog();
    for builder in [queue("bad"), queue("bad").per_cpu(), queue("bad").ordered()] {
        let queue = builder.build().unwrap();
        for bad in [NO_CPU, u32::MAX, cpus().last().unwrap() + 1] {
            let (job, later) = (Job::counting(), Later::counting());
            let words: &[&str] = &["CPU", &bad.to_string(), &allowed()];
            let rejected = queue.enqueue_on(bad, job.clone()).unwrap_err();
            assert_says(&rejected.error, words);
            assert!(Arc::ptr_eq(&rejected.item, &job), "the item comes back");
            assert_says(&rejected.into(), words);
            assert_says(&queue.check_cpu(bad).unwrap_err(), words);
            let delay = std::time::Duration::from_millis(1);
            let rejected = queue.enqueue_delayed_on(bad, later.clone(), delay).unwrap_err();
            assert_says(&rejected.error, words);
            assert!(Arc::ptr_eq(&rejected.item, &later), "the item comes back");
            drop(rejected);
            let rejected = queue.mod_delayed_on(bad, later.clone(), delay).unwrap_err();
            assert_says(&rejected.error, words);
            assert!(Arc::ptr_eq(&rejected.item, &later), "the pointer comes back");
            drop(rejected);
            assert!(!job.work.is_pending() && !later.work.is_pending());
            assert_eq!((Arc::strong_count(&job), Arc::strong_count(&later)), (1, 1));
            assert!(queue.enqueue(job).is_queued(), "the item is as it was");
        }
    }
}

// Catches: an error that does not list the valid scopes.
#[test]
fn an_unknown_scope_is_refused_with_the_valid_names() {
    let _watchdog = watchdog();
    for bad in ["socket", "", "CPU", "cpu ", "numa\n"] {
        let error = bad.parse::<AffinityScopeChoice>().unwrap_err().to_string();
        for scope in AffinityScope::ALL {
            assert!(error.contains(scope.name()), "{error}");
        }
        assert!(error.contains("default"), "{error}");
        assert_eq!(error, bad.parse::<AffinityScope>().unwrap_err().to_string());
    }
    for scope in AffinityScope::ALL {
        assert_eq!(scope.name().parse(), Ok(AffinityScopeChoice::Explicit(scope)));
    }
    assert_eq!("default".parse(), Ok(AffinityScopeChoice::Default));
}

// Catches: a disable depth below zero, which would disable the item for good.
#[test]
fn an_enable_without_a_disable_is_an_error() {
    let _watchdog = watchdog();
    let queue = queue("bad").build().unwrap();
    let job = Job::counting();
    for _ in 0..2 {
        let error = job.work.enable().unwrap_err().to_string();
        assert!(error.contains("no disable") && !error.contains('\n'), "{error}");
    }
    assert!(queue.enqueue(job.clone()).is_queued(), "it is not disabled by that");
    queue.flush().unwrap();
    assert!(job.work.disable().unwrap().is_none());
    assert_eq!(job.work.enable(), Ok(true));
    assert!(job.work.enable().is_err());
    let later = Later::counting();
    assert!(later.work.enable().is_err());
}

// Catches: a disable depth that overflows into other bits of the word, or is lost.
#[test]
fn one_disable_too_many_is_an_error() {
    const DEPTH_MAX: u32 = 2_047;
    let _watchdog = watchdog();
    let queue = queue("bad").build().unwrap();
    let job = Job::counting();
    assert!((0..DEPTH_MAX).all(|_| job.work.disable().unwrap().is_none()));
    for error in [job.work.disable(), job.work.disable_sync(), job.work.cancel_sync()] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("2047") && !error.contains('\n'), "{error}");
    }
    assert_eq!(job.disable_depth(), DEPTH_MAX);
    assert!(matches!(queue.enqueue(job.clone()), Enqueued::Disabled(_)));
    assert!((1..DEPTH_MAX).all(|_| job.work.enable() == Ok(false)));
    assert_eq!(job.work.enable(), Ok(true));
    assert!(queue.enqueue(job.clone()).is_queued());
    queue.flush().unwrap();
    assert_eq!(job.tally.finished(), 1);
}

// Catches: a delay that overflows the clock and expires at once. Negative delays do not exist.
#[test]
fn a_huge_delay_is_cut_to_the_clocks_range() {
    let _watchdog = watchdog();
    let queue = queue("bad").build().unwrap();
    let slack = Later::of(DelayedWork::new().with_slack(Duration::MAX), |_| {});
    let lax = crate::support::queue("bad").timer_slack(Duration::MAX).build().unwrap();
    for (queue, later) in [(&queue, Later::counting()), (&queue, slack), (&lax, Later::counting())]
    {
        for huge in [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(1 << 40)] {
            assert!(queue.enqueue_delayed(later.clone(), huge).is_queued());
            assert!(matches!(queue.mod_delayed(later.clone(), huge), Enqueued::Pending(_)));
            let on = queue.mod_delayed_on(cpus()[0], later.clone(), huge);
            assert!(matches!(on, Ok(Enqueued::Pending(_))));
            queue.flush_timeout(huge).expect("it is armed and not queued");
            assert_eq!((later.tally.started(), later.work.is_pending()), (0, true));
            assert!(later.work.cancel().is_some());
        }
        assert!(queue.enqueue(later.clone()).is_queued());
        queue.flush().unwrap();
        assert_eq!(later.tally.finished(), 1);
    }
}

// Catches: a limit that a BH queue accepts and ignores, flags that cannot be combined with BH.
#[test]
fn a_bh_queue_takes_no_limit_and_no_other_kind_of_flag() {
    let _watchdog = watchdog();
    for limit in [0, 1, 16, 2_048] {
        assert_refused(queue("bad").bh().max_active(limit), &["BH", &limit.to_string(), "none"]);
    }
    for flag in [Flags::UNBOUND, Flags::FREEZABLE, Flags::MEM_RECLAIM, Flags::CPU_INTENSIVE] {
        let words: &[&str] = &["HIGHPRI and PERCPU only", &flag.to_string()];
        assert_refused(queue("bad").flags(Flags::BH | flag), words);
    }
    assert_refused(queue("bad").bh().nice(1), &["per-CPU"]);
    let live = queue("bad").bh().build().unwrap();
    assert_says(&live.set_max_active(4).unwrap_err(), &["BH", "max_active"]);
    assert_says(&live.set_min_active(4).unwrap_err(), &["min_active", "unbound"]);
    let ordered = queue("bad").ordered();
    assert_refused(ordered.clone().max_active(2), &["ordered", "1"]);
    assert_refused(ordered.flags(Flags::ORDERED | Flags::PERCPU), &["unbound", "PERCPU"]);
}

// Catches: a second freeze that needs a second thaw.
#[test]
fn freezing_twice_is_an_error() {
    alone("freezing_twice_is_an_error", || {
        let _watchdog = watchdog();
        let queue = queue("bad").freezable().build().unwrap();
        freeze::begin().unwrap();
        assert_eq!(freeze::begin(), Err(freeze::FreezeError::AlreadyFrozen));
        freeze::thaw().unwrap();
        assert_eq!(freeze::thaw(), Err(freeze::FreezeError::NotFrozen));
        assert_eq!(freeze::is_busy(), Err(freeze::FreezeError::NotFrozen));
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    });
}

// Catches: pending items that are dropped with their queue, or run after it.
#[test]
fn dropping_a_queue_runs_pending_items() {
    let _watchdog = watchdog();
    for builder in [queue("drop"), queue("drop").per_cpu(), queue("drop").ordered()] {
        let queue = builder.build().unwrap();
        let (started, may_end) = (Gate::new(), Gate::new());
        assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
        started.wait();
        let jobs: Vec<_> = (0..100).map(|_| Job::counting()).collect();
        for job in &jobs {
            assert!(queue.enqueue(job.clone()).is_queued());
        }
        let dropping = std::thread::spawn(move || drop(queue));
        assert!(!dropping.is_finished(), "it waits for what is queued");
        may_end.open();
        within("the drop of a queue", move || dropping.join()).unwrap();
        assert!(jobs.iter().all(|job| job.tally.finished() == 1 && Arc::strong_count(job) == 1));
    }
}

// Catches: an item that a destroyed queue keeps, and a join that waits for it.
#[test]
fn a_destroyed_queue_returns_items() {
    let _watchdog = watchdog();
    let queue = queue("destroyed").build().unwrap();
    queue.destroy().unwrap();
    let job = Job::counting();
    let Enqueued::Refused(back) = queue.enqueue(job.clone()) else { panic!("destroyed") };
    assert!(Arc::ptr_eq(&back, &job));
    let outcome = queue.enqueue_on(cpus()[0], job.clone()).unwrap();
    assert!(outcome.into_refused().is_some());
    assert!(queue.enqueue_node(0, job.clone()).unwrap().into_refused().is_some());
    let held = Arc::new(());
    let captured = held.clone();
    let handle = queue.spawn(move || drop(captured));
    assert_eq!(Arc::strong_count(&held), 1, "the closure was dropped");
    assert!(handle.is_finished() && !handle.cancel());
    let outcome = within("join of a refused closure", move || handle.join());
    assert!(matches!(outcome, Err(JoinError::Refused)));
    let handle = queue.spawn_future(async { 1 });
    let outcome = within("join of a refused future", move || handle.join());
    let Err(error @ JoinError::Refused) = outcome else { panic!("destroyed") };
    assert!(!error.to_string().contains('\n') && error.to_string().contains("destroyed"));
    assert_eq!((job.tally.started(), job.work.is_pending()), (0, false));
}

// Catches: a CPU out of range that reaches a table of the functions that wait.
#[test]
fn work_on_cpu_needs_a_cpu_that_the_process_may_use() {
    let _watchdog = watchdog();
    for bad in [NO_CPU, u32::MAX, cpus().last().unwrap() + 1] {
        let error = uwork::work_on_cpu::<_, ()>(bad, || unreachable!("refused")).unwrap_err();
        assert_says(&error, &["CPU", &bad.to_string(), &allowed()]);
        assert_eq!((error.kind(), error.kind().errno()), (ErrorKind::BadCpu, libc::EINVAL));
    }
}

// Catches: a wait for a run that never comes, or an item that is no longer usable.
#[test]
fn an_item_that_was_never_queued_can_be_waited_for_and_cancelled() {
    let _watchdog = watchdog();
    let queue = queue("bad").build().unwrap();
    let (job, later) = (Job::counting(), Later::counting());
    let (theirs, theirs_later) = (job.clone(), later.clone());
    within("waits for idle items", move || {
        assert!(!theirs.work.flush() && !theirs.work.flush_helping());
        assert!(theirs.work.cancel().is_none());
        assert!(theirs.work.cancel_sync().unwrap().is_none());
        assert!(!theirs_later.work.flush());
        assert!(theirs_later.work.cancel().is_none());
        assert!(theirs_later.work.cancel_sync().unwrap().is_none());
    });
    assert!(queue.enqueue(job.clone()).is_queued() && queue.enqueue(later.clone()).is_queued());
    queue.flush().unwrap();
    assert_eq!((job.tally.finished(), later.tally.finished()), (1, 1));
}

// Catches: an item that is queued although it could not be enabled, or that is not returned.
#[test]
fn enable_and_enqueue_of_an_enabled_item_returns_it() {
    let _watchdog = watchdog();
    let queue = queue("bad").build().unwrap();
    let job = Job::counting();
    let (error, back) = queue.enable_and_enqueue(job.clone()).unwrap_err();
    assert!(Arc::ptr_eq(&back, &job) && !job.work.is_pending());
    assert!(error.to_string().contains("no disable"), "{error}");
    drop((job.work.disable(), job.work.disable()));
    let Ok(Enqueued::Disabled(_)) = queue.enable_and_enqueue(job.clone()) else {
        panic!("one disable is left")
    };
    assert!(matches!(queue.enable_and_enqueue(job.clone()), Ok(Enqueued::Queued)));
    queue.flush().unwrap();
    assert_eq!((job.tally.finished(), job.disable_depth()), (1, 0));
}

// Catches: a description that is stored for a thread that runs no item.
#[test]
fn outside_of_items_a_description_is_refused() {
    let _watchdog = watchdog();
    assert!(!uwork::set_worker_desc("nobody"));
    assert_eq!(uwork::current_work(), None);
    let queue = queue("bad").build().unwrap();
    assert!(queue.spawn(|| uwork::set_worker_desc(&"long".repeat(1_000))).join().unwrap());
}

// Catches: two kinds of error that cannot be distinguished, or one without a number.
#[test]
fn errors_have_a_kind_and_a_number() {
    let _watchdog = watchdog();
    let live = queue("kinds").build().unwrap();
    let error_of = |builder: Builder| builder.build().unwrap_err();
    let inside = live.clone();
    let cases = [
        (error_of(Queue::builder("")), ErrorKind::BadName, libc::EINVAL),
        (error_of(Queue::builder(live.name())), ErrorKind::NameTaken, libc::EEXIST),
        (error_of(queue("bad").max_active(0)), ErrorKind::BadMaxActive, libc::EINVAL),
        (error_of(queue("bad").cpumask(CpuSet::new())), ErrorKind::NoCpu, libc::EINVAL),
        (error_of(queue("bad").nice(20)), ErrorKind::BadNice, libc::EINVAL),
        (error_of(queue("bad").per_cpu().nice(1)), ErrorKind::NotForThisKind, libc::EINVAL),
        (live.check_cpu(NO_CPU).unwrap_err(), ErrorKind::BadCpu, libc::EINVAL),
        (error_of(queue("bad").bh().mem_reclaim()), ErrorKind::BadFlags, libc::EINVAL),
        (
            live.spawn(move || inside.flush()).join().unwrap().unwrap_err(),
            ErrorKind::WouldDeadlock,
            libc::EDEADLK,
        ),
    ];
    for (error, kind, errno) in cases {
        assert_eq!((error.kind(), error.kind().errno()), (kind, errno), "{error}");
    }
    assert_eq!(ErrorKind::NoThread.errno(), libc::EAGAIN);
}
