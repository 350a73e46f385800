//! How long after the death of a cluster's master the next job begins. Three masters and a replica
//! each; the consumer knows only the master that dies, and has a backlog of jobs. `killed`: by
//! SIGKILL; `stopped`: by SIGSTOP, which sends no reset. The server's own failover is measured by a
//! plain client that tries to write at the replica.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Server};

use super::cluster::{self, MASTERS, NODE_TIMEOUT_MS, ask, until};
use super::uwork;
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;

/// Jobs of the backlog, and the time of each: enough for the whole failover.
const BACKLOG: usize = 10_000;
const JOB: Duration = Duration::from_millis(10);

const FAILOVER: Metric =
    Metric { name: "failover_s", unit: "s", title: "the server's failover, s", decimals: 2 };
const AFTER: Metric =
    Metric { name: "job_after_s", unit: "s", title: "the next job after, s", decimals: 2 };
const BEYOND: Metric =
    Metric { name: "beyond_failover_s", unit: "s", title: "beyond the failover, s", decimals: 2 };

/// Both variants, with so many deaths each.
pub(super) fn group(deaths: usize) -> Group<Measured> {
    let contestant =
        |variant: &'static str| uwork("failover", variant, move |_| failover(variant == "killed"));
    Group {
        title: format!(
            "bridge: failover  ({deaths} death(s), cluster-node-timeout {NODE_TIMEOUT_MS} ms)"
        ),
        contestants: ["killed", "stopped"].map(contestant).into(),
        samples: deaths,
        ratio_to: RatioTo::Nothing,
    }
}

fn failover(is_kill: bool) -> Result<Measured, UserError> {
    let fail = |error: uwork_bridge::Error| UserError(error.to_string());
    let mut nodes = cluster::start(false)?;
    let master = cluster::master_of_jobs(&nodes)?;
    let server = Server::new(&nodes[master].url()).map_err(fail)?;
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1).map_err(fail)?;
    producer.push_all(vec![Push::new("{}"); BACKLOG]).map_err(fail)?;
    // A master sends a replica nothing until its first acknowledgement, up to a second after the link
    // is up. What the replica has not received is lost with the master.
    let mut pushed = nodes[master].connect()?;
    ask::<String>(&mut pushed, "SET {jobs}:probe 0")?;
    until("the replica has the backlog", || Ok(ask::<usize>(&mut pushed, "WAIT 1 100")? > 0))?;
    let begins = Arc::new(Mutex::new(Vec::new()));
    let begun = begins.clone();
    let handlers = Handlers::new().otherwise(move |_| {
        begun.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        thread::sleep(JOB);
        Ok(Reply::done())
    });
    let mut config = Config::new(server, "jobs");
    config.max_active = 1;
    let next_after = |time: Instant| {
        let begins = begins.lock().unwrap_or_else(PoisonError::into_inner);
        begins.iter().copied().find(|&begin| begin > time)
    };
    let bridge = Bridge::start(config, handlers, |_| {}).map_err(fail)?;
    let started = Instant::now();
    until("the consumer runs jobs", || Ok(next_after(started).is_some()))?;
    let mut replica = nodes[MASTERS + master].connect()?;
    let died = Instant::now();
    if is_kill {
        nodes[master].kill()
    } else {
        nodes[master].pause()
    }
    until("the replica takes over", || {
        Ok(ask::<String>(&mut replica, "SET {jobs}:probe 1").is_ok())
    })?;
    let taken_over = Instant::now();
    until("the next job begins", || Ok(next_after(taken_over).is_some()))?;
    let next = next_after(taken_over).unwrap_or(taken_over);
    drop(bridge);
    let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
    Ok(Measured::new(vec![
        (FAILOVER, seconds(died, taken_over)),
        (AFTER, seconds(died, next)),
        (BEYOND, seconds(taken_over, next)),
    ]))
}
