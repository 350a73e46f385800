//! How long after the death of a cluster's master the next job begins. Three masters and a replica
//! each; the consumer knows only the master that dies, and has a backlog of jobs. `killed`: by
//! SIGKILL; `stopped`: by SIGSTOP, which sends no reset. The server's own failover is measured by a
//! plain client that tries to write at the replica.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};
use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Server};

use super::server::Redis;
use super::{STALL_MAX, uwork};
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;

const MASTERS: usize = 3;
/// The last slot of each master.
const LAST_SLOTS: [u16; MASTERS] = [5_460, 10_922, 16_383];
/// The time after which nodes hold a silent one for dead.
const NODE_TIMEOUT_MS: u32 = 2_000;
/// Jobs of the backlog, and the time of each: enough for the whole failover.
const BACKLOG: usize = 10_000;
const JOB: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

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
    let mut nodes = cluster()?;
    let slot: u16 = ask(&mut nodes[0].connect()?, "CLUSTER KEYSLOT jobs")?;
    let master = LAST_SLOTS.iter().position(|&last| slot <= last).unwrap_or(0);
    let server = Server::new(&nodes[master].url()).map_err(fail)?;
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1).map_err(fail)?;
    producer.push_all(vec![Push::new("{}"); BACKLOG]).map_err(fail)?;
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

/// The masters, and then their replicas.
fn cluster() -> Result<Vec<Redis>, UserError> {
    let nodes = (0..2 * MASTERS).map(|_| Redis::start_node(NODE_TIMEOUT_MS));
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    let mut connections = nodes.iter().map(Redis::connect).collect::<Result<Vec<_>, _>>()?;
    let mut first = 0;
    for (nth, connection) in connections.iter_mut().enumerate() {
        tell(connection, &format!("CLUSTER SET-CONFIG-EPOCH {}", nth + 1))?;
        if let Some(last) = LAST_SLOTS.get(nth) {
            tell(connection, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            first = last + 1;
        }
        let (port, bus) = (nodes[0].port(), nodes[0].bus_port());
        tell(connection, &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))?;
    }
    for connection in &mut connections {
        until("the cluster is ready", || {
            let info: String = ask(connection, "CLUSTER INFO")?;
            let known = format!("cluster_known_nodes:{}\r", nodes.len());
            Ok(info.contains("cluster_state:ok") && info.contains(&known))
        })?;
    }
    for nth in 0..MASTERS {
        let master: String = ask(&mut connections[nth], "CLUSTER MYID")?;
        let replica = &mut connections[MASTERS + nth];
        tell(replica, &format!("CLUSTER REPLICATE {master}"))?;
        until("the replica has all data", || {
            let info: String = ask(replica, "INFO replication")?;
            Ok(info.contains("master_link_status:up"))
        })?;
    }
    // Each node knows all replicas: without it, the masters do not vote for one.
    for connection in &mut connections {
        until("all nodes know the replicas", || {
            let list: String = ask(connection, "CLUSTER NODES")?;
            Ok(list.matches("slave").count() == MASTERS)
        })?;
    }
    Ok(nodes)
}

fn ask<T: FromRedisValue>(connection: &mut Connection, words: &str) -> Result<T, UserError> {
    let mut command = redis::Cmd::new();
    words.split(' ').for_each(|word| {
        command.arg(word);
    });
    command.query(connection).map_err(|error| UserError(format!("redis-server: {words}: {error}")))
}

fn tell(connection: &mut Connection, words: &str) -> Result<(), UserError> {
    ask::<redis::Value>(connection, words).map(drop)
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool, UserError>) -> Result<(), UserError> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > STALL_MAX {
            return Err(UserError(format!("failover: waited in vain until {what}")));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
