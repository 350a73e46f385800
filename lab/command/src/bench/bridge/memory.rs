//! The memory of a consumer whose commands run 512 at a time (`cat`), for several mixes of payloads:
//! its peak, and that beyond the largest payload.

use std::thread;
use std::time::Instant;

use uwork_bridge::{Producer, Push};

use super::backlog::peak_kib;
use super::child::{self, Role};
use super::peers::Peer;
use super::server::Redis;
use super::{LOOK_EVERY, STALL_MAX, server_at, uwork};
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;

/// The jobs at once of the consumer.
pub(super) const MAX_ACTIVE: u32 = 512;
/// The mix whose results are kept, as much of each as by default.
pub(super) const RESULTS: &str = "results";

/// Jobs of two bytes, and then jobs of another size.
struct Mix {
    name: &'static str,
    small: usize,
    large: usize,
    bytes: usize,
}

const MIXES: [Mix; 5] = [
    Mix { name: "2-bytes", small: 2_000, large: 0, bytes: 2 },
    Mix { name: "100-of-4-MiB", small: 300, large: 100, bytes: 4 << 20 },
    Mix { name: "2000-of-256-KiB", small: 0, large: 2_000, bytes: 256 << 10 },
    Mix { name: "4-of-64-MiB", small: 300, large: 4, bytes: 64 << 20 },
    Mix { name: RESULTS, small: 0, large: 2_000, bytes: 64 << 10 },
];

const PEAK: Metric = Metric { name: "peak_mb", unit: "MB", title: "peak, MB", decimals: 1 };
const BEYOND: Metric =
    Metric { name: "beyond_payload_mb", unit: "MB", title: "beyond a payload, MB", decimals: 1 };

/// One sample for each mix; each has fewer jobs in a quick run.
pub(super) fn group(quick: bool) -> Group<Measured> {
    let parts = if quick { 20 } else { 1 };
    let contestant = |mix: &'static Mix| uwork("memory", mix.name, move |_| measure(mix, parts));
    Group {
        title: format!("bridge: memory  ({MAX_ACTIVE} at a time)"),
        contestants: MIXES.iter().map(contestant).collect(),
        samples: 1,
        ratio_to: RatioTo::Nothing,
    }
}

fn measure(mix: &Mix, parts: usize) -> Result<Measured, UserError> {
    let fail = |error: uwork_bridge::Error| UserError(error.to_string());
    let peer = Peer::named("uwork").ok_or_else(|| UserError("no runner uwork".to_owned()))?;
    let redis = Redis::start(false)?;
    let mut connection = redis.connect()?;
    let mut producer = Producer::new(vec![server_at(&redis.url())?], "jobs", 1).map_err(fail)?;
    for (count, bytes) in [(mix.small, 2), (mix.large, mix.bytes)] {
        for _ in 0..count.div_ceil(parts) {
            producer.push(Push::new(vec![b'x'; bytes])).map_err(fail)?;
        }
    }
    let mut consumer = child::start(Role::Memory, mix.name, &redis.url())?;
    let begun = Instant::now();
    let mut left = peer.left(&mut connection)?;
    while left > 0 && begun.elapsed() < STALL_MAX {
        thread::sleep(LOOK_EVERY);
        left = peer.left(&mut connection)?;
    }
    let peak = peak_kib(consumer.id());
    child::kill(&mut consumer);
    match peak {
        Some(kib) if left == 0 => {
            let peak = (kib * 1_024) as f64;
            let values = [(PEAK, peak), (BEYOND, peak - mix.bytes as f64)];
            Ok(Measured::new(values.map(|(metric, bytes)| (metric, bytes / 1e6)).into()))
        }
        _ => Err(UserError(format!("memory: {left} jobs are left"))),
    }
}
