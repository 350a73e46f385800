//! A real cluster: three masters and a replica each, which know each other.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};

use super::STALL_MAX;
use super::server::Redis;
use crate::UserError;

pub(super) const MASTERS: usize = 3;
/// The last slot of each master.
const LAST_SLOTS: [u16; MASTERS] = [5_460, 10_922, 16_383];
/// The time after which nodes hold a silent one for dead.
pub(super) const NODE_TIMEOUT_MS: u32 = 2_000;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The masters, and then their replicas. With proxies, clients and replicas are led through these.
pub(super) fn start(has_proxies: bool) -> Result<Vec<Redis>, UserError> {
    let nodes = (0..2 * MASTERS).map(|_| Redis::start_node(NODE_TIMEOUT_MS, has_proxies));
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

pub(super) fn ask<T: FromRedisValue>(
    connection: &mut Connection,
    words: &str,
) -> Result<T, UserError> {
    let mut command = redis::Cmd::new();
    words.split(' ').for_each(|word| {
        command.arg(word);
    });
    command.query(connection).map_err(|error| UserError(format!("redis-server: {words}: {error}")))
}

fn tell(connection: &mut Connection, words: &str) -> Result<(), UserError> {
    ask::<redis::Value>(connection, words).map(drop)
}

/// The number of the master that has the stream `jobs`, in the beginning.
pub(super) fn master_of_jobs(nodes: &[Redis]) -> Result<usize, UserError> {
    let slot: u16 = ask(&mut nodes[0].connect()?, "CLUSTER KEYSLOT jobs")?;
    Ok(LAST_SLOTS.iter().position(|&last| slot <= last).unwrap_or(0))
}

pub(super) fn until(
    what: &str,
    mut holds: impl FnMut() -> Result<bool, UserError>,
) -> Result<(), UserError> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > STALL_MAX {
            return Err(UserError(format!("waited in vain until {what}")));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
