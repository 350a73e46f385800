//! Workers that a debugger or a signal has stopped are reported, and not replaced; when they
//! continue, everything works as before. The test that starts a process stops it.

use std::collections::BTreeSet;
use std::io::Error;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::child::{Other, asked, say};
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::machine::{cpus, thread_id};
use crate::support::tiers::{VARIABLE, scene, workers_of};
use crate::support::{queue, until, watchdog};
use uwork::Report;

/// How often all threads are stopped.
const STOPS: usize = 20;
/// A timer's delay that is long compared with the watcher's scans for blocked workers.
const LONG: Duration = Duration::from_millis(50);
const TIERS: [&str; 3] = ["standby", "events", "sampling"];

fn in_tier(tier: &str) -> impl FnOnce(&mut Command) {
    move |command| _ = command.env(VARIABLE, tier)
}

/// A ptrace(2) request without data.
fn trace(request: libc::c_uint, thread: libc::pid_t) -> Result<(), Error> {
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: requests that read and write no memory.
    let outcome = unsafe { libc::ptrace(request, thread, null, null) };
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Waits until a traced thread, or a process, has stopped. False if it has ended.
fn until_stopped(thread: libc::pid_t, options: i32) -> bool {
    let mut status = 0;
    // SAFETY: the status is live.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, options) };
    assert_eq!(waited, thread, "{}", Error::last_os_error());
    libc::WIFSTOPPED(status)
}

/// Attaches to a thread and stops it. False if it has ended.
fn stop(thread: libc::pid_t) -> bool {
    match trace(libc::PTRACE_SEIZE, thread) {
        Ok(()) => {
            // Fails for a thread that ends. The wait reaps it: until then its process cannot be reaped.
            let _ = trace(libc::PTRACE_INTERRUPT, thread);
            until_stopped(thread, libc::__WALL)
        }
        // The system refuses a thread that ends as one that does not permit it.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && ends(thread) => false,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
        Err(error) => panic!("thread {thread}: {error}"),
    }
}

/// Whether a thread is a zombie, or gone.
fn ends(thread: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_none_or(|(_, fields)| fields.starts_with(" Z") || fields.starts_with(" X"))
}

fn go_on(thread: libc::pid_t) {
    trace(libc::PTRACE_DETACH, thread).expect("a thread that is stopped");
}

/// Prints the workers that are reported as stopped, which are not replaced.
fn report(report: &Report) {
    if let Report::WorkerStopped { thread } = report {
        say(&format!("stopped {thread}"));
    }
}

/// An item that blocks, and another one behind it.
fn one_behind_another() {
    let _watchdog = watchdog();
    uwork::set_reporter(report).expect("the first reporter");
    // Workers have recently been found blocked, and are observed.
    (0..5).for_each(|_| scene());
    let queue = queue("blocks").per_cpu().build().unwrap();
    let (inside, may_end) = (Gate::new(), Gate::new());
    let (entered, held) = (inside.clone(), may_end.clone());
    let first = Job::new(move |_| {
        say(&format!("thread {}", thread_id()));
        entered.open();
        held.wait();
    });
    assert!(queue.enqueue_on(cpus()[0], first.clone()).unwrap().is_queued());
    inside.wait();
    let behind = Job::new(|_| say("behind"));
    let clock = crate::support::queue("clock").dedicated().build().unwrap();
    while let Some(question) = asked() {
        match &question[..] {
            "next" => assert!(queue.enqueue_on(cpus()[0], behind.clone()).unwrap().is_queued()),
            "workers" => {
                let later = Later::counting();
                assert!(clock.enqueue_delayed(later.clone(), LONG).is_queued());
                until("the time is over", || later.tally.finished() == 1);
                say(&format!("workers {}", workers_of(&queue)));
            }
            _ => break,
        }
    }
    may_end.open();
    queue.flush().unwrap();
    assert_eq!((first.tally.finished(), behind.tally.finished()), (1, 1));
    say("done");
}

// Catches: a worker in the debugger that is taken for a blocked one and replaced, or reported at
// each scan, or not observed any more when it continues.
#[test]
fn a_worker_stopped_by_a_debugger_is_reported_and_not_replaced() {
    let test = "a_worker_stopped_by_a_debugger_is_reported_and_not_replaced";
    let _watchdog = watchdog();
    for tier in TIERS {
        let Some(mut other) = Other::start(test, in_tier(tier), one_behind_another) else { return };
        let said = other.hear();
        let thread: libc::pid_t = said.strip_prefix("thread ").expect("one").parse().unwrap();
        other.ask("workers");
        let workers = other.hear();
        assert!(stop(thread), "the worker is there");
        other.ask("next");
        assert_eq!(other.hear(), format!("stopped {thread}"));
        // It is neither reported again, nor replaced meanwhile.
        for _ in 0..2 {
            other.ask("workers");
            assert_eq!(other.hear(), workers, "{tier}: it is not replaced");
        }
        go_on(thread);
        assert_eq!(other.hear(), "behind", "{tier}: it is blocked, and is replaced");
        other.ask("end");
        assert_eq!(other.hear(), "done");
        other.end();
    }
}

/// Plays scenes until the starting process ends them.
fn scenes() {
    let _watchdog = watchdog();
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    scene();
    say("ready");
    std::thread::spawn(|| {
        let _ = asked();
        ENOUGH.store(true, Ordering::Relaxed);
    });
    while !ENOUGH.load(Ordering::Relaxed) {
        scene();
    }
    // One more scene after all stops.
    scene();
    say("played");
}

/// All threads of a process, except those that were just created.
fn threads(pid: libc::pid_t) -> BTreeSet<libc::pid_t> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let name = |task: std::io::Result<std::fs::DirEntry>| task.expect("a task").file_name();
    tasks.map(|task| name(task).to_str().expect("a number").parse().expect("a number")).collect()
}

/// Threads that were stopped; they go on when it is dropped, also in a panic: the process could not be
/// reaped else.
struct Stopped(Vec<libc::pid_t>);

impl Drop for Stopped {
    fn drop(&mut self) {
        for &thread in &self.0 {
            let detached = trace(libc::PTRACE_DETACH, thread);
            assert!(detached.is_ok() || std::thread::panicking(), "{thread}: {detached:?}");
        }
    }
}

/// Stops all threads of a process, until no running one is left.
fn stop_all(pid: libc::pid_t) -> Stopped {
    let (mut seen, mut stopped) = (BTreeSet::new(), Stopped(Vec::new()));
    loop {
        let fresh: Vec<_> = threads(pid).difference(&seen).copied().collect();
        if fresh.is_empty() {
            return stopped;
        }
        stopped.0.extend(fresh.iter().copied().filter(|&thread| stop(thread)));
        seen.extend(fresh);
    }
}

// Catches: threads that are taken for blocked because they were stopped together, and replaced; a
// wrong count afterwards. Each scene checks the number of workers.
#[test]
fn a_process_that_a_debugger_stops_goes_on_as_before() {
    let test = "a_process_that_a_debugger_stops_goes_on_as_before";
    let _watchdog = watchdog();
    for tier in TIERS {
        let Some(mut other) = Other::start(test, in_tier(tier), scenes) else { return };
        assert_eq!(other.hear(), "ready");
        for _ in 0..STOPS {
            drop(stop_all(other.pid()));
        }
        other.ask("enough");
        assert_eq!(other.hear(), "played");
        other.end();
    }
}

// Catches: as above, for the signals of a shell's job control.
#[test]
fn a_process_that_a_signal_stops_goes_on_as_before() {
    let test = "a_process_that_a_signal_stops_goes_on_as_before";
    let _watchdog = watchdog();
    for tier in TIERS {
        let Some(mut other) = Other::start(test, in_tier(tier), scenes) else { return };
        assert_eq!(other.hear(), "ready");
        for _ in 0..STOPS {
            // SAFETY: signals to our own child, which has not been waited for.
            assert_eq!(unsafe { libc::kill(other.pid(), libc::SIGSTOP) }, 0);
            assert!(until_stopped(other.pid(), libc::WUNTRACED));
            // SAFETY: as above.
            assert_eq!(unsafe { libc::kill(other.pid(), libc::SIGCONT) }, 0);
        }
        other.ask("enough");
        assert_eq!(other.hear(), "played");
        other.end();
    }
}
