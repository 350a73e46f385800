//! Timers that are due at one moment: what `uwork-lab bench guest` arms with each runner that is not
//! uwork. Nothing ends: the process does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::thread;
use std::time::Instant;

/// The runners in this crate. `thread` is one thread with a binary heap: what the work itself takes.
pub const RUNNERS: [&str; 2] = ["thread", "tokio"];

/// Runs the timer of this number.
pub type Run = fn(usize);

/// Arms timers for `moment`, each of which calls `run` once; a pool has `workers` threads. False if
/// the runner is unknown.
///
/// # Errors
/// The system refuses a thread.
pub fn start(
    runner: &str,
    workers: usize,
    timers: usize,
    moment: Instant,
    run: Run,
) -> std::io::Result<bool> {
    match runner {
        "thread" => thread(timers, moment, run)?,
        "tokio" => tokio(workers, timers, moment, run)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn thread(timers: usize, moment: Instant, run: Run) -> std::io::Result<()> {
    let mut armed: BinaryHeap<_> = (0..timers).map(|number| Reverse((moment, number))).collect();
    thread::Builder::new().name("thread".to_owned()).spawn(move || {
        while let Some(&Reverse((at, number))) = armed.peek() {
            let now = Instant::now();
            if now < at {
                thread::sleep(at - now);
                continue;
            }
            armed.pop();
            run(number);
        }
    })?;
    Ok(())
}

/// A task with a sleep for each timer, on tokio's multi-threaded runtime.
fn tokio(workers: usize, timers: usize, moment: Instant, run: Run) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_time()
        .build()?;
    for number in 0..timers {
        runtime.spawn(async move {
            tokio::time::sleep_until(moment.into()).await;
            run(number);
        });
    }
    // The process ends before the runtime does.
    std::mem::forget(runtime);
    Ok(())
}
