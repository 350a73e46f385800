//! Task work: what is promised of adding, running, taking back and the end.

mod support;

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use support::gate::{Gate, Log};
use support::slow::times;
use support::{until, watchdog, within};
use uwork::task::{self, Added, Delivery, Notifier, Notify, TaskHandle, TaskItem, TaskWork};

/// An item that logs its number.
struct Job {
    work: TaskWork<Job>,
    number: u32,
    log: Log<u32>,
}

uwork::has_task_work!(impl HasTaskWork for Job { work });

impl TaskItem for Job {
    type Pointer = Arc<Job>;

    fn run(this: Arc<Job>) {
        assert!(!this.work.is_pending());
        this.log.push(this.number);
    }
}

fn jobs(log: &Log<u32>, count: u32) -> Vec<Arc<Job>> {
    let job = |number| Arc::new(Job { work: TaskWork::new(), number, log: log.clone() });
    (0..count).map(job).collect()
}

/// A thread that does as told, until told to end.
struct Target {
    handle: TaskHandle,
    thread: JoinHandle<()>,
    over: Arc<AtomicBool>,
}

impl Target {
    /// `wait` waits for task work once, in whatever way.
    fn new(delivery: Delivery, mut wait: impl FnMut() + Send + 'static) -> Target {
        let (send, receive) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            task::set_delivery(delivery).unwrap();
            send.send(TaskHandle::current()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                wait();
            }
        });
        Target { handle: receive.recv().unwrap(), thread, over }
    }

    fn end(self) {
        let over = self.over.clone();
        let ends = move || over.store(true, Ordering::Relaxed);
        assert!(self.handle.add_fn(Notify::Signal, ends).is_ok());
        within("the target ends", move || self.thread.join().unwrap());
    }
}

/// Ways to wait, with the deliveries that end them.
fn targets() -> Vec<(&'static str, Target)> {
    let mut targets = Vec::new();
    for delivery in [Delivery::Auto, Delivery::Light, Delivery::Signal] {
        targets.push(("park", Target::new(delivery, || _ = task::park())));
        targets.push(("notifier", Target::new(delivery, wait_in_poll)));
        targets.push(("read", Target::new(delivery, wait_in_read())));
        targets.push(("epoll", Target::new(delivery, wait_in_epoll())));
    }
    targets
}

fn wait_in_poll() {
    let notifier = task::notifier().unwrap();
    notifier.wait(|| {
        let mut poll =
            libc::pollfd { fd: notifier.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, -1) }
    });
    task::safe_point();
}

/// A pipe into which nothing is ever written: only task work ends the call, one time in each round.
fn wait_in_read() -> impl FnMut() + Send {
    let (reader, writer) = std::io::pipe().unwrap();
    move || {
        let _open = &writer;
        let mut byte = [0_u8; 1];
        let arguments =
            [reader.as_raw_fd() as usize, byte.as_mut_ptr().expose_provenance(), 1, 0, 0, 0];
        // SAFETY: the buffer is live and of the length given.
        let error = unsafe { task::syscall(libc::SYS_read, arguments) }.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        task::safe_point();
    }
}

fn wait_in_epoll() -> impl FnMut() + Send {
    // SAFETY: no pointers.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0);
    move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let event = (&raw mut event).expose_provenance();
        let arguments = [epoll as usize, event, 1, usize::MAX, 0, 8];
        // SAFETY: one event, which is live.
        let error = unsafe { task::syscall(libc::SYS_epoll_pwait, arguments) }.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        task::safe_point();
    }
}

#[test]
fn every_wait_ends_for_a_signal_whatever_the_delivery() {
    let _watchdog = watchdog();
    for (name, target) in targets() {
        for round in 0..times(2_000) {
            let (send, receive) = channel();
            let sent = move || send.send(std::thread::current().id()).unwrap();
            assert!(target.handle.add_fn(Notify::Signal, sent).is_ok());
            let ran_on = receive.recv_timeout(support::WAIT_MAX);
            let ran_on = ran_on.unwrap_or_else(|_| panic!("{name}, round {round}: not run"));
            assert_eq!(ran_on, target.thread.thread().id());
        }
        target.end();
    }
}

#[test]
fn items_run_in_the_order_in_which_they_were_added() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let notifies = [Notify::None, Notify::Resume, Notify::Signal];
    for (job, notify) in jobs(&log, 9).into_iter().zip(notifies.into_iter().cycle()) {
        assert!(handle.add(job, notify).is_added());
    }
    assert_eq!(task::run(), 9);
    assert_eq!(log.events(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn what_items_add_runs_after_what_was_there() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let jobs = jobs(&log, 3);
    let (last, again) = (jobs[2].clone(), handle.clone());
    let first = log.clone();
    handle
        .add_fn(Notify::None, move || {
            assert!(again.add(last, Notify::None).is_added());
            first.push(10);
            // A run inside of a run goes on with what is older.
            assert_eq!(task::run(), 3);
            first.push(11);
        })
        .unwrap();
    assert!(handle.add(jobs[0].clone(), Notify::None).is_added());
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    assert_eq!(task::run(), 1);
    assert_eq!(log.events(), [10, 0, 1, 2, 11]);
}

#[test]
fn one_run_takes_what_was_there_and_leaves_what_came_meanwhile() {
    let _watchdog = watchdog();
    let handle = TaskHandle::current();
    fn again(handle: TaskHandle, runs: Arc<AtomicU32>) {
        let next = handle.clone();
        let function = move || {
            runs.fetch_add(1, Ordering::Relaxed);
            again(next, runs);
        };
        // Refused when the thread ends.
        let _ = handle.add_fn(Notify::Signal, function);
    }
    let runs = Arc::new(AtomicU32::new(0));
    again(handle, runs.clone());
    assert_eq!(task::run_once(), 1);
    assert_eq!(task::safe_point(), 1);
    assert_eq!(task::park(), 1);
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[test]
fn an_item_is_in_one_list_at_a_time() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let job = &jobs(&log, 1)[0];
    assert!(handle.add(job.clone(), Notify::None).is_added());
    assert!(matches!(handle.add(job.clone(), Notify::Signal), Added::Pending(_)));
    let other = within("another thread's handle", TaskHandle::current);
    assert!(matches!(other.add(job.clone(), Notify::None), Added::Pending(_)));
    // The refused one notified nobody.
    assert!(!task::is_notified());
    assert_eq!(task::run(), 1);
    assert!(handle.add(job.clone(), Notify::None).is_added());
    assert_eq!(task::run(), 1);
}

#[test]
fn no_notification_and_resume_wake_nobody() {
    let _watchdog = watchdog();
    let handle = TaskHandle::current();
    assert!(handle.add_fn(Notify::None, || ()).is_ok());
    assert!(!task::is_notified());
    // Sleeps although there is something to run.
    assert_eq!(task::park_timeout(Duration::from_millis(1)), 0);
    assert!(handle.add_fn(Notify::Resume, || ()).is_ok());
    assert!(task::is_notified());
    assert_eq!(task::park(), 2);
}

#[test]
fn a_resume_that_comes_during_a_wait_is_run_after_it() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let waited = notifier.wait(|| {
        within("an adder", move || handle.add_fn(Notify::Resume, || ()).is_ok());
        let mut poll =
            libc::pollfd { fd: notifier.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, 0) }
    });
    assert_eq!(waited, Some(0), "nobody has written to the descriptor");
    assert_eq!(task::safe_point(), 1);
}

fn poll_for(notifier: &Notifier, timeout_ms: i32) -> i32 {
    let fd = notifier.as_fd().as_raw_fd();
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which is live.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }
}

// Catches: a thread that nobody tells any more, as the inner wait has ended the outer one, or has taken its place.
#[test]
fn a_wait_inside_of_a_wait_leaves_the_outer_one_declared() {
    let _watchdog = watchdog();
    task::set_delivery(Delivery::Light).unwrap();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let add = |notify| {
        let to = handle.clone();
        within("an adder", move || to.add_fn(notify, || ()).unwrap());
    };
    let no_time = Duration::ZERO;
    // The inner wait has ended by itself, and the item comes then.
    let ready = notifier.wait(|| {
        assert_eq!(task::park_timeout(no_time), 0);
        add(Notify::Signal);
        poll_for(&notifier, 0)
    });
    assert_eq!((ready, task::run()), (Some(1), 1));
    // The inner wait was not begun.
    let ready = notifier.wait(|| {
        add(Notify::Resume);
        assert_eq!(task::park(), 1);
        add(Notify::Signal);
        poll_for(&notifier, 0)
    });
    assert_eq!((ready, task::run()), (Some(1), 1));
    // It was ended by an item, which it leaves to others to run.
    let ready = notifier.wait(|| {
        let (to, waits) = (handle.clone(), Gate::new());
        let may_add = waits.clone();
        let adder = std::thread::spawn(move || {
            may_add.wait();
            to.add_fn(Notify::Signal, || ()).unwrap();
        });
        let inner = notifier.wait(|| {
            waits.open();
            poll_for(&notifier, -1)
        });
        adder.join().unwrap();
        (inner, poll_for(&notifier, 0))
    });
    assert_eq!((ready, task::run()), (Some((Some(1), 1)), 1));
    // Afterwards all is as before.
    assert_eq!(notifier.wait(|| poll_for(&notifier, 0)), Some(0));
}

// Catches: an eventfd that stays readable, so that no later wait ever sleeps.
#[test]
fn a_run_inside_of_a_wait_leaves_the_descriptor_as_it_was() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let poll = |timeout_ms| {
        let fd = notifier.as_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }
    };
    let waits = Gate::new();
    let (handle, may_add) = (TaskHandle::current(), waits.clone());
    let adder = std::thread::spawn(move || {
        may_add.wait();
        handle.add_fn(Notify::Signal, || ()).is_ok()
    });
    let inside = notifier.wait(|| {
        waits.open();
        (poll(-1), task::run_once())
    });
    assert_eq!(inside, Some((1, 1)));
    assert!(adder.join().unwrap());
    assert_eq!(notifier.wait(|| poll(0)), Some(0));
}

#[test]
fn a_second_signal_notifies_nobody_until_the_list_was_run() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let counter = || {
        let mut count = 0_u64;
        // SAFETY: the number is live.
        let bytes = unsafe { libc::read(notifier.as_fd().as_raw_fd(), (&raw mut count).cast(), 8) };
        if bytes < 0 { 0 } else { count }
    };
    for _ in 0..3 {
        let adder = handle.clone();
        let written = notifier.wait(|| {
            within("adders", move || {
                for _ in 0..100 {
                    assert!(adder.add_fn(Notify::Signal, || ()).is_ok());
                }
            });
            counter()
        });
        assert_eq!(written, Some(1), "one write for a hundred items");
        assert_eq!(task::run(), 100);
    }
}

#[test]
fn a_thread_that_computes_runs_items_at_its_safe_point() {
    let _watchdog = watchdog();
    for delivery in [Delivery::Auto, Delivery::Light, Delivery::Signal] {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let target = Target::new(delivery, || _ = task::safe_point());
        for number in 0..100 {
            let ran = ran.clone();
            assert!(
                target
                    .handle
                    .add_fn(Notify::Signal, move || ran.lock().unwrap().push(number))
                    .is_ok()
            );
        }
        target.end();
        assert_eq!(*ran.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn cancel_takes_back_what_has_not_been_taken_off_the_list() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let jobs = jobs(&log, 4);
    for job in &jobs {
        assert!(handle.add(job.clone(), Notify::Signal).is_added());
    }
    assert!(handle.cancel(&jobs[1].work).is_some_and(|job| job.number == 1));
    assert!(handle.cancel(&jobs[1].work).is_none(), "it is idle");
    let other = within("another thread's handle", TaskHandle::current);
    assert!(other.cancel(&jobs[0].work).is_none(), "it is in another list");
    // The oldest that matches.
    let found = handle.cancel_match::<Arc<Job>, 0>(|job| job.number >= 2);
    assert!(found.is_some_and(|job| job.number == 2));
    assert!(handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 2).is_none());
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    assert_eq!(task::run(), 3);
    assert_eq!(log.events(), [0, 3, 1]);
    assert_eq!(Arc::strong_count(&jobs[2]), 1);
}

#[test]
fn cancel_does_not_reach_what_a_run_has_taken_off() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let job = jobs(&log, 1).remove(0);
    let (behind, canceller) = (job.clone(), handle.clone());
    let function = move || assert!(canceller.cancel(&behind.work).is_none());
    assert!(handle.add_fn(Notify::None, function).is_ok());
    assert!(handle.add(job, Notify::None).is_added());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0]);
}

#[test]
fn cancel_by_match_sees_only_items_of_its_type() {
    struct Other {
        work: TaskWork<Other>,
    }
    uwork::has_task_work!(impl HasTaskWork for Other { work });
    impl TaskItem for Other {
        type Pointer = Arc<Other>;
        fn run(_this: Arc<Other>) {}
    }
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    assert!(handle.add(jobs(&log, 1).remove(0), Notify::None).is_added());
    assert!(handle.add_fn(Notify::None, || ()).is_ok());
    assert!(handle.cancel_match::<Arc<Other>, 0>(|_| true).is_none());
    assert!(handle.add(Arc::new(Other { work: TaskWork::new() }), Notify::None).is_added());
    assert!(handle.cancel_match::<Arc<Other>, 0>(|_| true).is_some());
    assert_eq!(task::run(), 2);
}

#[test]
fn a_match_that_panics_leaves_the_list_as_it_was() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    for job in jobs(&log, 3) {
        assert!(handle.add(job, Notify::None).is_added());
    }
    let panics =
        || handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 1 && panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 2).is_some());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0, 1]);
}

#[test]
fn a_thread_that_ends_runs_what_it_has_and_gives_back_what_comes_later() {
    let _watchdog = watchdog();
    let log = Log::new();
    let jobs = jobs(&log, 3);
    let (first, gate) = (jobs[0].clone(), Gate::new());
    let (send, receive): (_, Receiver<TaskHandle>) = channel();
    let open = gate.clone();
    let thread = std::thread::spawn(move || {
        let handle = TaskHandle::current();
        assert!(handle.add(first, Notify::None).is_added());
        send.send(handle).unwrap();
        open.wait();
    });
    let handle = receive.recv().unwrap();
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    gate.open();
    within("the thread ends", move || thread.join().unwrap());
    assert_eq!(log.events(), [0, 1]);
    assert!(
        matches!(handle.add(jobs[2].clone(), Notify::Signal), Added::Exited(job) if job.number == 2)
    );
    assert!(!jobs[2].work.is_pending());
    assert!(handle.cancel(&jobs[2].work).is_none());
    let events = log.clone();
    let Err(task::ExitedError(function)) = handle.add_fn(Notify::None, move || log.push(9)) else {
        panic!("the thread is gone")
    };
    function();
    assert_eq!(events.events(), [0, 1, 9]);
}

#[test]
fn an_item_that_panics_ends_neither_its_thread_nor_those_behind_it() {
    let _watchdog = watchdog();
    let (log, handle, before) = (Log::new(), TaskHandle::current(), uwork::panics());
    assert!(handle.add_fn(Notify::None, || panic!("on purpose")).is_ok());
    assert!(handle.add(jobs(&log, 1).remove(0), Notify::None).is_added());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0]);
    assert!(uwork::panics() > before);
}

#[test]
fn items_that_panic_end_waits_as_others_do() {
    let _watchdog = watchdog();
    for (name, target) in targets() {
        for _ in 0..2 {
            let (send, receive) = channel();
            assert!(target.handle.add_fn(Notify::Signal, || panic!("on purpose")).is_ok());
            assert!(target.handle.add_fn(Notify::Signal, move || send.send(()).unwrap()).is_ok());
            assert_eq!(receive.recv_timeout(support::WAIT_MAX), Ok(()), "{name}");
        }
        target.end();
    }
}

// Catches: a read that returns for an item that does not exist any more.
#[test]
fn a_read_goes_on_where_the_item_was_taken_back() {
    let _watchdog = watchdog();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"xy").unwrap();
    let handle = TaskHandle::current();
    let job = jobs(&Log::new(), 1).remove(0);
    for _ in 0..2 {
        assert!(handle.add(job.clone(), Notify::Signal).is_added());
        assert!(handle.cancel(&job.work).is_some());
        assert_eq!(task::read(&reader, &mut [0; 1]).unwrap(), 1);
    }
}

#[test]
fn a_read_of_the_programs_own_ends_for_a_registered_thread() {
    let _watchdog = watchdog();
    let (reader, _writer) = std::io::pipe().unwrap();
    let (send, receive) = channel();
    let mut send = Some(send);
    let target = Target::new(Delivery::Auto, move || {
        if let Some(send) = send.take() {
            // SAFETY: no arguments; cannot fail.
            send.send(unsafe { libc::gettid() }).unwrap();
        }
        let mut byte = [0_u8; 1];
        // SAFETY: the buffer is live and of the length given.
        let bytes = unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
        let error = std::io::Error::last_os_error();
        assert_eq!((bytes, error.kind()), (-1, std::io::ErrorKind::Interrupted));
        task::safe_point();
    });
    let syscall = format!("/proc/self/task/{}/syscall", receive.recv().unwrap());
    let read = format!("{} ", libc::SYS_read);
    // A signal that comes before a plain call does not end it.
    let until_it_sleeps = || {
        until("it sleeps in the read", || {
            std::fs::read_to_string(&syscall).is_ok_and(|now| now.starts_with(&read))
        });
    };
    let ran = Arc::new(AtomicU32::new(0));
    for round in 1..=200 {
        until_it_sleeps();
        let runs = ran.clone();
        let run = move || _ = runs.fetch_add(1, Ordering::Relaxed);
        assert!(target.handle.add_fn(Notify::Signal, run).is_ok());
        until("the item has run", || ran.load(Ordering::Relaxed) == round);
    }
    until_it_sleeps();
    target.end();
}
