//! How long after the death of its consumer a job begins elsewhere. The job that is watched runs
//! until its consumer is killed. `idle`: the other consumer has nothing else; `backlog`: it is full
//! of jobs that take 200 ms, and more of them wait.

use std::thread;
use std::time::{Duration, Instant};

use uwork_bridge::{Producer, Push, Stat};

use super::child::{self, Role};
use super::server::Redis;
use super::{STALL_MAX, server_at, uwork};
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;

/// The heartbeat of the consumers.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(2);
/// The jobs at once of each consumer.
pub(super) const MAX_ACTIVE: u32 = 2;
/// The payload of the job that is watched.
pub(super) const WATCHED: &str = "watched";
/// The time of the jobs of the backlog.
pub(super) const LONG: Duration = Duration::from_millis(200);
/// Enough for all samples' time.
const BACKLOG: usize = 10_000;
const LOOK_EVERY: Duration = Duration::from_millis(1);

const AFTER: Metric =
    Metric { name: "takeover_s", unit: "s", title: "begins elsewhere after, s", decimals: 2 };

/// Both variants, with so many kills each.
pub(super) fn group(kills: usize) -> Group<Measured> {
    let contestant = |variant: &'static str| {
        uwork("takeover", variant, move |nth| takeover(nth, variant == "backlog"))
    };
    Group {
        title: format!("bridge: takeover  ({kills} kill(s), a heartbeat of {HEARTBEAT:?})"),
        contestants: ["idle", "backlog"].map(contestant).into(),
        samples: kills,
        ratio_to: RatioTo::Nothing,
    }
}

fn takeover(nth: usize, has_backlog: bool) -> Result<Measured, UserError> {
    let fail = |error: uwork_bridge::Error| UserError(error.to_string());
    let redis = Redis::start(false)?;
    let server = server_at(&redis.url())?;
    let mut connection = redis.connect()?;
    let mut runs = || {
        redis::cmd("HGET")
            .arg("ran")
            .arg(WATCHED)
            .query::<Option<u64>>(&mut connection)
            .map(|runs| runs.unwrap_or(0))
            .map_err(|error| UserError(format!("redis-server: {error}")))
    };
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1).map_err(fail)?;
    producer.push(Push::new(WATCHED)).map_err(fail)?;
    let mut victim = child::start(Role::Takeover, "", &redis.url())?;
    until("the job has begun", || Ok(runs()? >= 1))?;
    if has_backlog {
        producer.push_all(vec![Push::new("{}"); BACKLOG]).map_err(fail)?;
    }
    let mut other = child::start(Role::Takeover, "", &redis.url())?;
    until("the other consumer has begun", || {
        let stat = Stat::read(server.clone(), "jobs", "uwork").map_err(fail)?;
        let busy = stat.consumers.iter().filter(|consumer| consumer.pending > 0).count();
        Ok(stat.consumers.len() == 2 && (!has_backlog || busy == 2))
    })?;
    // Each kill is at another moment between two heartbeats.
    thread::sleep((HEARTBEAT / 3).mul_f64((nth as f64 * 0.618).fract()));
    child::kill(&mut victim);
    let killed = Instant::now();
    let begun = until("the job begins elsewhere", || Ok(runs()? >= 2));
    let after = killed.elapsed();
    child::kill(&mut other);
    begun?;
    Ok(Measured::new(vec![(AFTER, after.as_secs_f64())]))
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool, UserError>) -> Result<(), UserError> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > STALL_MAX {
            return Err(UserError(format!("takeover: waited in vain until {what}")));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
