//! The memory of a consumer beside the backlog of its stream: jobs that do nothing, more and more of
//! them.

use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::Instant;

use super::child::Role;
use super::group;
use super::peers::{Peer, folder};
use super::server::Redis;
use super::{LOOK_EVERY, STALL_MAX};
use crate::UserError;

/// Each backlog is ten times the one before.
const STEPS: u32 = 3;
/// The jobs that a consumer has run when its memory is read.
const DONE: usize = 1_000_000;

/// Prints a line for each backlog; `largest` is the last.
pub(super) fn run(largest: usize) -> Result<ExitCode, UserError> {
    println!("bridge: backlog");
    for step in (0..STEPS).rev() {
        let jobs = (largest / 10_usize.pow(step)).max(1);
        let (done, peak_kib) = peak(jobs)?;
        println!("backlog {jobs}, done {done}: the consumer's peak {peak_kib} KiB");
    }
    Ok(ExitCode::SUCCESS)
}

/// How many jobs a consumer has run, and the largest resident set that it has had until then.
fn peak(jobs: usize) -> Result<(usize, u64), UserError> {
    let peer = Peer::named("uwork").ok_or_else(|| UserError("no runner uwork".to_owned()))?;
    let redis = Redis::start(false)?;
    let mut connection = redis.connect()?;
    let fail = |error: std::io::Error| UserError(format!("backlog: {error}"));
    let mut producer = peer.command(&folder(), Role::Push, "noop", &redis.url(), jobs)?;
    let pushed = producer.stdin(Stdio::null()).status().map_err(fail)?;
    let total = peer.left(&mut connection)?;
    if !pushed.success() || total < jobs {
        return Err(UserError(format!("backlog: the producer has pushed {total} jobs")));
    }
    let mut consumer = peer.command(&folder(), Role::Work, "noop", &redis.url(), jobs)?;
    group::lead(&mut consumer);
    let mut consumer = consumer.stdin(Stdio::null()).spawn().map_err(fail)?;
    let (begun, goal) = (Instant::now(), total - total.min(DONE));
    let mut left = total;
    while left > goal && begun.elapsed() < STALL_MAX {
        thread::sleep(LOOK_EVERY);
        left = peer.left(&mut connection)?;
    }
    let peak = peak_kib(consumer.id());
    // Fails only if it has ended.
    let _ = consumer.kill();
    let _ = consumer.wait();
    match peak {
        Some(peak) if left <= goal => Ok((total - left, peak)),
        _ => Err(UserError(format!("backlog: {left} jobs are left after {STALL_MAX:?}"))),
    }
}

fn peak_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
