//! Periodic tasks: what `uwork-lab bench power` starts with each runner that is not uwork.
//!
//! Each task runs at its planned times, which are one period apart. A runner never runs a task
//! early; if it is late it runs at once, and the later plan stays. Nothing ends: the process does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use std::{future, ptr, thread};

use async_executor::Executor;
use futures_lite::StreamExt;

/// The runners in this crate.
pub const RUNNERS: [&str; 4] = ["tokio", "async-io", "timerfd", "threads"];

/// A periodic task.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The first planned time.
    pub first: Instant,
    /// The time between two planned times.
    pub period: Duration,
}

/// Runs the task of this number.
pub type Run = fn(usize);

/// Starts the tasks with this runner; pools have `workers` threads. False if it is unknown.
///
/// # Errors
/// The system refuses a thread or a descriptor.
pub fn start(
    runner: &str,
    workers: usize,
    tasks: &'static [Task],
    run: Run,
) -> std::io::Result<bool> {
    match runner {
        "tokio" => tokio(workers, tasks, run)?,
        "async-io" => async_io(workers, tasks, run)?,
        "timerfd" => timerfd(tasks, run)?,
        "threads" => threads(tasks, run)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Tokio's intervals on its multi-threaded runtime.
fn tokio(workers: usize, tasks: &'static [Task], run: Run) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_time()
        .build()?;
    for (number, task) in tasks.iter().enumerate() {
        runtime.spawn(async move {
            let mut interval = tokio::time::interval_at(task.first.into(), task.period);
            loop {
                interval.tick().await;
                run(number);
            }
        });
    }
    // The process ends before the runtime does.
    std::mem::forget(runtime);
    Ok(())
}

/// The timers of async-io, in tasks of async-executor.
fn async_io(workers: usize, tasks: &'static [Task], run: Run) -> std::io::Result<()> {
    let executor: &'static Executor<'static> = Box::leak(Box::new(Executor::new()));
    for (number, task) in tasks.iter().enumerate() {
        let run_it = async move {
            let mut timer = async_io::Timer::interval_at(task.first, task.period);
            while timer.next().await.is_some() {
                run(number);
            }
        };
        executor.spawn(run_it).detach();
    }
    for _ in 0..workers {
        let serve = move || async_io::block_on(executor.run(future::pending::<()>()));
        thread::Builder::new().name("async-io".to_owned()).spawn(serve)?;
    }
    Ok(())
}

/// One thread that waits with epoll for a timerfd, which is set to the first planned time of all.
fn timerfd(tasks: &'static [Task], run: Run) -> std::io::Result<()> {
    // SAFETY: no pointers.
    let (timer, epoll) = unsafe {
        (
            descriptor(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK))?,
            descriptor(libc::epoll_create1(0))?,
        )
    };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the event is live.
    descriptor(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, timer, &raw mut event) })?;
    let mut planned: BinaryHeap<_> =
        tasks.iter().enumerate().map(|(number, task)| Reverse((task.first, number))).collect();
    thread::Builder::new().name("timerfd".to_owned()).spawn(move || {
        loop {
            while let Some(&Reverse((at, number))) = planned.peek()
                && at <= Instant::now()
            {
                planned.pop();
                run(number);
                planned.push(Reverse((at + tasks[number].period, number)));
            }
            let wait = planned.peek().map_or(Duration::ZERO, |Reverse((at, _))| {
                at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1))
            });
            wait_for(epoll, timer, wait);
        }
    })?;
    Ok(())
}

fn descriptor(result: RawFd) -> std::io::Result<RawFd> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

/// Sleeps in epoll until the timer has expired. A duration of zero is no limit.
fn wait_for(epoll: RawFd, timer: RawFd, wait: Duration) {
    let value = libc::timespec {
        tv_sec: wait.as_secs() as libc::time_t,
        tv_nsec: wait.subsec_nanos().into(),
    };
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = libc::itimerspec { it_interval: never, it_value: value };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: the structures are live; the old setting is not asked for. Setting the timer also
    // clears its earlier expiry.
    unsafe {
        libc::timerfd_settime(timer, 0, &raw const setting, ptr::null_mut());
        libc::epoll_wait(epoll, &raw mut event, 1, -1);
    }
}

/// A thread for each task.
fn threads(tasks: &'static [Task], run: Run) -> std::io::Result<()> {
    for (number, task) in tasks.iter().enumerate() {
        thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let mut at = task.first;
            loop {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                run(number);
                at += task.period;
            }
        })?;
    }
    Ok(())
}
