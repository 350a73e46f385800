//! System calls that a filter refuses, before the library starts or later. Each has a replacement,
//! or the process ends with a message; `docs/reliability.md` has the table. Refusals that affect
//! the detection of blocked workers are in `blocking_faults.rs`, those of task work and rings in
//! `task/faults.rs`. Each scene is a process of its own.

mod support;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use support::child::{alone, alone_each, alone_with, ending_of};
use support::filter::{refuse, refuse_here};
use support::flag::SetOnDrop;
use support::forked::in_child;
use support::items::Job;
use support::left_out::not_here;
use support::machine::cpus;
use support::percpu::{Pair, add_one, in_each_mode};
use support::tiers::{collect_reports, reports};
use support::{queue, until, watchdog};
use uwork::percpu::PerCpu;
use uwork::task::{self, Delivery, Notify, TaskHandle};
use uwork::{ErrorKind, Queue, Report};

/// The variable that passes a scene the error with which calls are refused.
const ERRNO: &str = "UWORK_TEST_ERRNO";
/// A variable that no scene sets.
const NONE: &str = "UWORK_TEST_NONE";

fn number_of(errno: &str) -> i32 {
    match errno {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        "ENOMEM" => libc::ENOMEM,
        _ => libc::EAGAIN,
    }
}

/// The outcomes of the items of [`storm`].
#[derive(Default)]
struct Counts {
    queued: AtomicU64,
    taken: AtomicU64,
    ran: AtomicU64,
}

/// Queues items that run, wait behind others, and are cancelled, disabled and flushed by several
/// threads at once, which removes them from the lists of workers, until `over`.
fn storm(queue: &Queue, counts: &Arc<Counts>, over: &dyn Fn(u64) -> bool) {
    let ran = counts.clone();
    let jobs: Vec<_> = (0..8)
        .map(|_| {
            let ran = ran.clone();
            Job::new(move |_| _ = ran.ran.fetch_add(1, Ordering::Relaxed))
        })
        .collect();
    let cpus = cpus();
    for round in 0.. {
        if over(round) {
            break;
        }
        let cpu = cpus[round as usize % cpus.len()];
        for job in &jobs {
            let queued = queue.enqueue_on(cpu, job.clone()).unwrap().is_queued();
            counts.queued.fetch_add(u64::from(queued), Ordering::Relaxed);
        }
        for (number, job) in jobs.iter().enumerate() {
            let taken = match (number as u64 + round) % 4 {
                0 => job.work.cancel(),
                1 => job.work.cancel_sync().unwrap(),
                2 => {
                    let taken = job.work.disable_sync().unwrap();
                    job.work.enable().unwrap();
                    taken
                }
                _ => {
                    job.work.flush();
                    None
                }
            };
            counts.taken.fetch_add(u64::from(taken.is_some()), Ordering::Relaxed);
        }
    }
    jobs.iter().for_each(|job| _ = job.work.flush());
}

/// Rounds of a storm before and after the event in its middle.
const ROUNDS: u64 = 300;

/// Plays storms on several threads, with `middle` in the middle, and checks that no item was lost
/// or ran twice.
fn storm_around(middle: impl FnOnce()) {
    let queues = [queue("storm").build().unwrap(), queue("storm").per_cpu().build().unwrap()];
    let counts = Arc::new(Counts::default());
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for queue in queues.iter().cycle().take(4) {
            let (counts, is_over, rounds) = (&counts, &is_over, &rounds);
            scope.spawn(move || {
                storm(queue, counts, &|_| {
                    rounds.fetch_add(1, Ordering::Relaxed);
                    is_over.load(Ordering::Relaxed)
                });
            });
        }
        let _over = SetOnDrop(&is_over);
        let reach = |goal| until("the storm goes on", || rounds.load(Ordering::Relaxed) >= goal);
        reach(ROUNDS);
        middle();
        reach(rounds.load(Ordering::Relaxed) + ROUNDS);
    });
    queues.iter().for_each(|queue| queue.drain().unwrap());
    let [queued, taken, ran] =
        [&counts.queued, &counts.taken, &counts.ran].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(queued, taken + ran, "each item that was queued ran once, or was taken back");
}

// Catches: queues that do not follow the caches for the life of a process, without a word.
#[test]
fn a_machine_for_whose_files_the_system_has_no_descriptor_is_reported_once() {
    alone("a_machine_for_whose_files_the_system_has_no_descriptor_is_reported_once", || {
        let _watchdog = watchdog();
        collect_reports();
        refuse(libc::SYS_openat, libc::ENFILE);
        let queue = queue("unread").build().unwrap();
        assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
        let said = reports(|report| match report {
            Report::MachineUnread { reason } => Some(reason.clone()),
            _ => None,
        });
        assert_eq!(said, [std::io::Error::from_raw_os_error(libc::ENFILE).to_string()]);
    });
}

fn barrier_refused(report: &Report) -> Option<String> {
    match report {
        Report::BarrierRefused { reason } => Some(reason.clone()),
        _ => None,
    }
}

// Catches: a fence that panics while the thread holds a worker's lists, or that has no effect.
#[test]
fn fences_hold_when_membarrier_is_refused_later() {
    let test = "fences_hold_when_membarrier_is_refused_later";
    alone_each(test, ERRNO, &["EPERM", "ENOSYS", "ENOMEM"], NONE, |errno| {
        let _watchdog = watchdog();
        collect_reports();
        storm_around(|| refuse(libc::SYS_membarrier, number_of(errno)));
        until("the refusal is reported", || {
            // On a busy machine a storm may pass in which no thread needs the barrier.
            storm_around(|| ());
            // A thread that starts reports the refusal.
            let own = queue("later").dedicated().build().unwrap();
            own.execute(|| ()).unwrap();
            own.flush().unwrap();
            !reports(barrier_refused).is_empty()
        });
        storm_around(|| ());
        assert_eq!(reports(barrier_refused).len(), 1, "once");
        // A child inherits its parent's replacement.
        in_child(|| storm_around(|| ()));
    });
}

// Catches: the same for locks of CPUs' parts that are taken from other CPUs.
#[test]
fn locks_of_other_cpus_exclude_when_membarrier_is_refused_later() {
    in_each_mode("locks_of_other_cpus_exclude_when_membarrier_is_refused_later", || {
        let _watchdog = watchdog();
        let pairs = PerCpu::new(|_| Pair::default());
        let (is_over, locked) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..4_u32 {
                let (pairs, is_over, locked) = (&pairs, &is_over, &locked);
                scope.spawn(move || {
                    let cpus = cpus();
                    for round in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let cpu = cpus[(number + round) as usize % cpus.len()];
                        match round % 8 {
                            0 => add_one(&mut pairs.lock(cpu).unwrap()),
                            _ => add_one(&mut pairs.lock_local().unwrap()),
                        }
                        locked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let _over = SetOnDrop(&is_over);
            let reach = |goal| until("locks are taken", || locked.load(Ordering::Relaxed) >= goal);
            reach(5_000);
            refuse(libc::SYS_membarrier, libc::EPERM);
            reach(locked.load(Ordering::Relaxed) + 5_000);
        });
        let sum: u64 = pairs.into_inner().iter().map(|pair| pair.0).sum();
        assert_eq!(sum, locked.load(Ordering::Relaxed));
    });
}

// Catches: use of a fence that the kernel does not have.
#[test]
fn without_membarrier_from_the_start_every_fence_is_full() {
    let test = "without_membarrier_from_the_start_every_fence_is_full";
    alone_each(test, ERRNO, &["EPERM", "ENOSYS"], NONE, |errno| {
        let _watchdog = watchdog();
        collect_reports();
        refuse(libc::SYS_membarrier, number_of(errno));
        storm_around(|| ());
        let pairs = PerCpu::new(|_| Pair::default());
        cpus().into_iter().for_each(|cpu| add_one(&mut pairs.lock(cpu).unwrap()));
        assert_eq!(reports(barrier_refused), [] as [String; 0], "it never was allowed");
    });
}

/// Asserts that a process aborted, with these words in its message.
#[track_caller]
fn assert_aborted(ending: Option<(std::process::ExitStatus, String)>, words: &[&str]) {
    let Some((status, said)) = ending else { return };
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}\n{said}");
    assert!(words.iter().any(|words| said.contains(words)), "none of {words:?} is in: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

// Catches: a panic that unwinds with locks held, or a missing fence, where nothing can replace
// membarrier.
#[test]
fn without_any_barrier_the_process_ends_with_a_message() {
    let test = "without_any_barrier_the_process_ends_with_a_message";
    let ending = ending_of(
        test,
        |_| {},
        || {
            let _watchdog = watchdog();
            storm_around(|| {
                refuse(libc::SYS_sched_setaffinity, libc::EPERM);
                refuse(libc::SYS_membarrier, libc::EPERM);
                // Some thread needs the barrier sooner or later. A storm without end is a hang.
                until("the process ends", || false);
            });
        },
    );
    assert_aborted(
        ending,
        &["uwork: membarrier(2) was allowed and is refused (Operation not permitted)"],
    );
}

// Catches: threads that spin for ever where they cannot sleep, or that sleep for ever because no
// wake reaches them.
#[test]
fn without_futexes_the_process_ends_with_a_message() {
    let test = "without_futexes_the_process_ends_with_a_message";
    const WORDS: &[&str] = &[
        "uwork: futex(2) is refused (Operation not permitted)",
        // The C library's message, if it waits first.
        "futex facility returned an unexpected error code",
    ];
    let later = |command: &mut Command| _ = command.env(ERRNO, "later");
    let before = |command: &mut Command| _ = command.env(ERRNO, "before");
    let scene = || {
        let _watchdog = watchdog();
        let refuses = || refuse(libc::SYS_futex, libc::EPERM);
        if std::env::var(ERRNO).is_ok_and(|when| when == "before") {
            refuses();
        }
        let queue = queue("futex").build().unwrap();
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        refuse(libc::SYS_futex, libc::EPERM);
        loop {
            assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        }
    };
    assert_aborted(ending_of(test, before, scene), WORDS);
    assert_aborted(ending_of(test, later, scene), WORDS);
}

fn refuse_threads(errno: i32) {
    refuse(libc::SYS_clone3, errno);
    refuse(libc::SYS_clone, errno);
}

// Catches: a queue that is created and never runs an item; a panic.
#[test]
fn without_threads_from_the_start_no_queue_is_created() {
    let test = "without_threads_from_the_start_no_queue_is_created";
    alone_each(test, ERRNO, &["EPERM", "ENOSYS", "EAGAIN"], NONE, |errno| {
        let _watchdog = watchdog();
        refuse_threads(number_of(errno));
        for _ in 0..2 {
            let error = queue("refused").build().expect_err("no thread can be made");
            assert_eq!(error.kind(), ErrorKind::NoThread, "{error}");
        }
    });
}

// Catches: items that wait for ever for a thread that cannot be spawned.
#[test]
fn without_threads_later_items_run_on_the_existing_ones() {
    let test = "without_threads_later_items_run_on_the_existing_ones";
    alone_each(test, ERRNO, &["EPERM", "ENOSYS", "EAGAIN"], NONE, |errno| {
        let _watchdog = watchdog();
        collect_reports();
        let queues = [queue("few").build().unwrap(), queue("few").per_cpu().build().unwrap()];
        refuse_threads(number_of(errno));
        for queue in &queues {
            let items: Vec<_> = (0..100)
                .map(|number| {
                    queue.spawn(move || {
                        uwork::blocking(std::thread::yield_now);
                        number
                    })
                })
                .collect();
            let sum: u32 = items.into_iter().map(|item| item.join().unwrap()).sum();
            assert_eq!(sum, 99 * 100 / 2);
            queue.flush().unwrap();
        }
        let error =
            queue("refused").per_cpu().highpri().build().expect_err("no thread can be made");
        assert_eq!(error.kind(), ErrorKind::NoThread, "{error}");
    });
}

// Catches: a refusal taken for the niceness -1, which each program without a privilege would report.
#[test]
fn without_getpriority_queues_have_the_niceness_0() {
    alone("without_getpriority_queues_have_the_niceness_0", || {
        let _watchdog = watchdog();
        collect_reports();
        refuse(libc::SYS_getpriority, libc::EPERM);
        let queue = queue("nice").build().unwrap();
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        assert_eq!(queue.dump().nice, 0);
    });
}

// Catches: the first of the two ways to create a thread taken for the only one.
#[test]
fn without_clone3_threads_are_created_with_clone() {
    alone("without_clone3_threads_are_created_with_clone", || {
        let _watchdog = watchdog();
        refuse(libc::SYS_clone3, libc::ENOSYS);
        storm_around(|| ());
    });
}

// Catches: a thread without restartable sequences that takes a CPU's lock as if it had them.
#[test]
fn without_restartable_sequences_locks_are_taken_another_way() {
    let test = "without_restartable_sequences_locks_are_taken_another_way";
    for when in ["before", "later"] {
        let prepare = |command: &mut Command| {
            command.env(ERRNO, when);
            if when == "later" {
                // Each thread registers its own area: otherwise the C library would end the process
                // where registration fails.
                command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
            }
            if when == "before" {
                let refuses = || {
                    refuse_here(libc::SYS_rseq, libc::EPERM);
                    Ok(())
                };
                // SAFETY: between the fork and the execution it installs a filter, for which it
                // allocates; this process has only this thread that does so.
                unsafe { command.pre_exec(refuses) };
            }
        };
        alone_with(test, prepare, || {
            let _watchdog = watchdog();
            let when = std::env::var(ERRNO).unwrap();
            let pairs = PerCpu::new(|_| Pair::default());
            add_one(&mut pairs.lock_local().unwrap());
            if when == "later" {
                // Threads created from here on have no area.
                refuse(libc::SYS_rseq, libc::EPERM);
            }
            let work = || {
                for round in 0..2_000_usize {
                    match round % 8 {
                        0 => add_one(&mut pairs.lock(cpus()[round / 8 % cpus().len()]).unwrap()),
                        _ => add_one(&mut pairs.lock_local().unwrap()),
                    }
                }
            };
            std::thread::scope(|scope| {
                (0..3).for_each(|_| _ = scope.spawn(work));
                work();
            });
            storm_around(|| ());
            let sum: u64 = pairs.into_inner().iter().map(|pair| pair.0).sum();
            assert_eq!(sum, 4 * 2_000 + 1);
        });
    }
}

// Catches: a hang where the C library makes no thread without a restartable sequence.
#[test]
fn without_restartable_sequences_later_the_c_library_may_end_the_process() {
    let test = "without_restartable_sequences_later_the_c_library_may_end_the_process";
    let ending = ending_of(
        test,
        |_| {},
        || {
            let _watchdog = watchdog();
            refuse(libc::SYS_rseq, libc::EPERM);
            storm_around(|| ());
        },
    );
    let Some((status, said)) = ending else { return };
    let words = "rseq registration failed";
    assert!(status.success() || (status.signal() == Some(libc::SIGABRT) && said.contains(words)));
}

// Catches: a panic, and a thread that can no longer be notified in any way.
#[test]
fn without_eventfds_notifiers_are_refused_and_existing_ones_work() {
    alone("without_eventfds_notifiers_are_refused_and_existing_ones_work", || {
        let _watchdog = watchdog();
        let add = |handle: &TaskHandle| {
            let (send, receive) = std::sync::mpsc::channel();
            handle.add_fn(Notify::Signal, move || send.send(()).unwrap()).unwrap();
            receive
        };
        let (send, handles) = std::sync::mpsc::channel();
        let (refused, is_refused) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let (saw, go) = (refused.clone(), is_refused.clone());
        std::thread::spawn(move || {
            task::set_delivery(Delivery::Light).unwrap();
            task::notifier().unwrap();
            send.send(TaskHandle::current()).unwrap();
            go.wait();
            saw.store(task::notifier().is_ok(), Ordering::Relaxed);
            loop {
                task::park();
            }
        });
        let handle = handles.recv().unwrap();
        refuse(libc::SYS_eventfd2, libc::EPERM);
        is_refused.wait();
        assert_eq!(support::received(&add(&handle)), Ok(()));
        assert!(refused.load(Ordering::Relaxed), "the thread's own stays");
        let error = task::notifier().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        storm_around(|| ());
    });
}

// Catches: a reactor that waits in vain, or a refusal that is reported as another error.
#[test]
fn without_io_uring_later_existing_reactors_work() {
    use uwork::ring::Reactor;
    alone("without_io_uring_later_existing_reactors_work", || {
        let _watchdog = watchdog();
        let Ok(mut reactor) = Reactor::builder().build() else {
            return not_here(
                "without_io_uring_later_existing_reactors_work",
                "there is no io_uring",
            );
        };
        refuse(libc::SYS_io_uring_setup, libc::EPERM);
        let handle = TaskHandle::current();
        let added = std::thread::spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
        reactor.wait(None).unwrap();
        assert!(added.join().unwrap());
        let other =
            std::thread::spawn(|| Reactor::builder().build().err().map(|error| error.kind()));
        assert_eq!(other.join().unwrap(), Some(std::io::ErrorKind::PermissionDenied));
        // The call with which the reactor waits.
        refuse(libc::SYS_io_uring_enter, libc::EPERM);
        // Completions that came before are taken without the call.
        let mut waits = (0..8).map(|_| {
            while reactor.next().is_some() {}
            reactor.wait(Some(std::time::Duration::from_secs(1)))
        });
        let error = waits.find_map(Result::err).expect("it cannot wait");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
    });
}
