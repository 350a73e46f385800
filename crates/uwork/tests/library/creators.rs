//! The scheduling of the library's threads is the process's, whichever thread creates them. Each test
//! runs in a process of its own, for its first queue.

use std::io::Error;
use std::sync::mpsc;

use crate::support::child::alone_each;
use crate::support::{queue, received, watchdog};

fn set_policy(thread: libc::pid_t, policy: libc::c_int) -> Result<(), Error> {
    let is_real_time = policy == libc::SCHED_FIFO;
    let parameters = libc::sched_param { sched_priority: i32::from(is_real_time) };
    // SAFETY: the structure is live.
    let outcome = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The policy of a worker of a queue that a thread of this policy makes, as the first use of the library.
fn policy_of_a_worker(creators: libc::c_int) -> Result<libc::c_int, Error> {
    let makes = move || {
        set_policy(0, creators)?;
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
        match policy_of_a_worker(creator) {
            Ok(policy) => assert_eq!(policy, process),
            Err(error) => eprintln!("{test}: {case}: skipped: {error}"),
        }
    });
}
