//! The scheduling of the library's threads is the process's, whichever thread creates them. Each test
//! runs in a process of its own, for its first queue.

use std::io::Error;
use std::sync::mpsc;

use uwork::Report;

use crate::support::child::{alone_each, become_nobody};
use crate::support::left_out::not_here;
use crate::support::tiers::{collect_reports, reports};
use crate::support::{queue, received, until, watchdog};

fn set_policy(thread: libc::pid_t, policy: libc::c_int) -> Result<(), Error> {
    let is_real_time = policy == libc::SCHED_FIFO;
    let parameters = libc::sched_param { sched_priority: i32::from(is_real_time) };
    // SAFETY: the structure is live.
    let outcome = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The policy of a worker of a queue that a thread of this policy makes, as the first use of the library.
/// `before`: what that thread does before.
fn policy_of_a_worker(
    creators: libc::c_int,
    before: impl FnOnce() + Send + 'static,
) -> Result<libc::c_int, Error> {
    let makes = move || {
        set_policy(0, creators)?;
        before();
        let queue = queue("created").build().unwrap();
        let (tell, told) = mpsc::channel();
        // A join could run the item on this thread.
        // SAFETY: no pointers.
        let policy = move || tell.send(unsafe { libc::sched_getscheduler(0) });
        let _detached = queue.spawn(policy);
        Ok(received(&told).unwrap())
    };
    std::thread::spawn(makes).join().unwrap()
}

// Catches: workers with the real-time priority of the thread that made the first queue.
#[test]
fn workers_have_the_policy_of_the_process_and_not_of_their_creator() {
    let test = "workers_have_the_policy_of_the_process_and_not_of_their_creator";
    let cases = ["batch", "fifo", "process"];
    alone_each(test, "UWORK_TEST_POLICY", &cases, "UWORK_BLOCKING", |case| {
        let _watchdog = watchdog();
        let (creator, process) = match case {
            "batch" => (libc::SCHED_BATCH, libc::SCHED_OTHER),
            "fifo" => (libc::SCHED_FIFO, libc::SCHED_OTHER),
            _ => (libc::SCHED_OTHER, libc::SCHED_BATCH),
        };
        // SAFETY: no arguments. The number of a process is that of its main thread.
        set_policy(unsafe { libc::getpid() }, process).unwrap();
        match policy_of_a_worker(creator, || ()) {
            Ok(policy) => assert_eq!(policy, process),
            Err(error) => not_here(&format!("{test}: {case}"), error),
        }
    });
}

// Catches: real-time queues that are not real-time, without a word.
#[test]
fn a_policy_that_workers_cannot_have_is_reported_once() {
    let test = "a_policy_that_workers_cannot_have_is_reported_once";
    alone_each(test, "UWORK_TEST_POLICY", &["idle", "fifo"], "UWORK_BLOCKING", |case| {
        let _watchdog = watchdog();
        collect_reports();
        let (creator, process, names) = match case {
            // Nobody leaves this policy without a privilege.
            "idle" => (libc::SCHED_IDLE, libc::SCHED_OTHER, ["SCHED_OTHER", "SCHED_IDLE"]),
            _ => (libc::SCHED_OTHER, libc::SCHED_FIFO, ["SCHED_FIFO 1", "SCHED_OTHER"]),
        };
        // SAFETY: no arguments.
        if let Err(error) = set_policy(unsafe { libc::getpid() }, process) {
            return not_here(&format!("{test}: {case}"), error);
        }
        assert_eq!(policy_of_a_worker(creator, become_nobody).unwrap(), creator);
        let said = || {
            reports(|report| match report {
                Report::PolicyRefused { wanted, got, .. } => Some([wanted.clone(), got.clone()]),
                _ => None,
            })
        };
        // One more thread, which is refused too.
        queue("another").dedicated().build().unwrap().flush().unwrap();
        until("the report is delivered", || !said().is_empty());
        assert_eq!(said(), [names.map(str::to_owned)]);
    });
}
