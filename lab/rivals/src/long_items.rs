//! Items that block, some at a time: what `uwork-lab bench guest` runs with each runner that is not
//! uwork. Nothing ends: the process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The runners in this crate: plain threads, blocking tasks of tokio's, and rayon with as many threads
/// as may block.
pub const RUNNERS: [&str; 3] = ["threads", "tokio", "rayon"];

/// Runs the item of this number.
pub type Run = fn(usize);

/// Runs items 0 to `count`, at most `at_once` at a time. Returns before they have run. False if the
/// runner is unknown.
///
/// # Errors
/// The system refuses a thread.
pub fn start(runner: &str, at_once: usize, count: usize, run: Run) -> std::io::Result<bool> {
    match runner {
        "threads" => threads(at_once, count, run)?,
        "tokio" => tokio(at_once, count, run)?,
        "rayon" => rayon(at_once, count, run)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn threads(at_once: usize, count: usize, run: Run) -> std::io::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..at_once {
        let next = next.clone();
        let body = move || {
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    number if number < count => run(number),
                    _ => return,
                }
            }
        };
        thread::Builder::new().name("threads".to_owned()).spawn(body)?;
    }
    Ok(())
}

fn tokio(at_once: usize, count: usize, run: Run) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(thread::available_parallelism().map_or(1, usize::from))
        .max_blocking_threads(at_once)
        .build()?;
    for number in 0..count {
        drop(runtime.spawn_blocking(move || run(number)));
    }
    std::mem::forget(runtime);
    Ok(())
}

fn rayon(at_once: usize, count: usize, run: Run) -> std::io::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(at_once).build();
    let pool = pool.map_err(std::io::Error::other)?;
    for number in 0..count {
        pool.spawn_fifo(move || run(number));
    }
    std::mem::forget(pool);
    Ok(())
}
