//! The memory of a consumer beside the backlog of its stream: jobs that do nothing, more and more of
//! them.

use std::process::Stdio;
use std::thread;
use std::time::Instant;

use super::child::Role;
use super::group;
use super::peers::{Peer, folder};
use super::server::Redis;
use super::{LOOK_EVERY, STALL_MAX, uwork};
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;

/// Each backlog is ten times the one before.
const STEPS: u32 = 3;
/// The jobs that a consumer has run when its memory is read.
const DONE: usize = 1_000_000;

const DONE_JOBS: Metric = Metric { name: "done_jobs", unit: "1", title: "jobs done", decimals: 0 };
const PEAK: Metric =
    Metric { name: "peak_kib", unit: "KiB", title: "the consumer's peak, KiB", decimals: 0 };

/// One sample for each backlog; `largest` is the last.
pub(super) fn group(largest: usize) -> Group<Measured> {
    let backlog = |step: u32| {
        let jobs = (largest / 10_usize.pow(step)).max(1);
        uwork("backlog", &jobs.to_string(), move |_| {
            let (done, peak_kib) = peak(jobs)?;
            Ok(Measured::new(vec![(PEAK, peak_kib as f64), (DONE_JOBS, done as f64)]))
        })
    };
    Group {
        title: "bridge: backlog".to_owned(),
        contestants: (0..STEPS).rev().map(backlog).collect(),
        samples: 1,
        ratio_to: RatioTo::Nothing,
    }
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

/// The largest resident set that a process has had.
pub(super) fn peak_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
