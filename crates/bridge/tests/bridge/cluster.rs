//! Shards in a cluster of three nodes: each is found at its node, from any address.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use uwork_bridge::{Bridge, Failure, Handlers, Producer, Push, Reply, Stat};

use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::server::{RESERVED_PORT, Redis};

const SHARDS: u32 = 8;
const KEYS: usize = 40;
const JOBS: usize = 400;

/// Three nodes with a third of the slots each, which know each other.
fn cluster(name: &str) -> Option<Vec<Redis>> {
    let mut nodes = Vec::new();
    for (epoch, slots) in ["0 5460", "5461 10922", "10923 16383"].into_iter().enumerate() {
        // A node that is slow, on a busy machine, is no dead node.
        let patient = ["--cluster-node-timeout", "3600000"];
        let flags = ["--cluster-enabled", "yes", "--cluster-port", RESERVED_PORT];
        let flags = [&flags[..], &patient].concat();
        let node = Redis::start(name, &flags)?;
        node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", epoch + 1));
        node.ask(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
        nodes.push(node);
    }
    let (first, bus) = (nodes[0].port(), nodes[0].flag("--cluster-port"));
    for node in &nodes[1..] {
        node.ask(&format!("CLUSTER MEET 127.0.0.1 {first} {bus}"));
    }
    for node in &nodes {
        until("the cluster is ready", || info(node).contains("cluster_state:ok"));
    }
    Some(nodes)
}

fn info(node: &Redis) -> String {
    match node.ask("CLUSTER INFO") {
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        Value::VerbatimString { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn shards_of_a_cluster_are_found_from_any_node_and_a_key_stays_in_its_shard() {
    let Some(nodes) = cluster("shards_of_a_cluster") else { return };
    let mut producer = Producer::new(vec![nodes[0].server()], "jobs", SHARDS).unwrap();
    let pushes = (0..JOBS).map(|n| {
        let push = Push::new(n.to_string()).key((n % KEYS).to_string());
        if n % 10 == 3 { push.delay(Duration::from_millis(5)) } else { push }
    });
    producer.push_all(pushes.collect()).unwrap();
    let (count, places) = (Count::default(), Arc::new(Mutex::new(BTreeSet::new())));
    let (runs, seen) = (count.clone(), places.clone());
    let handlers = Handlers::new().otherwise(move |job| {
        let key = job.key().unwrap_or_default().to_owned();
        seen.lock().unwrap().insert((key, job.stream().to_owned()));
        if job.attempt() == 1 && job.payload().ends_with(b"7") {
            return Err(Failure::again("once more"));
        }
        runs.add(String::from_utf8_lossy(job.payload()));
        Ok(Reply::done())
    });
    // The consumer knows another node than the producer.
    let mut settings = config(nodes[1].server(), "jobs");
    settings.shards = SHARDS;
    let bridge = Bridge::start(settings, handlers, |_| {}).unwrap();
    count.wait_distinct(JOBS);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead), (JOBS as u64, 0));
    assert_eq!((counters.retries, count.sum()), (JOBS as u64 / 10, JOBS as u64));
    let places = places.lock().unwrap();
    assert_eq!(places.len(), KEYS, "a key is in one shard: {places:?}");
    for node in &nodes {
        assert!(node.number("DBSIZE") > 0, "a node has no shard");
    }
    let done = uwork_bridge::placed(&[nodes[2].server()], "jobs", SHARDS)
        .into_iter()
        .map(|(server, shard)| Stat::read(server, &shard, "uwork").unwrap().done)
        .sum::<u64>();
    assert_eq!(done, JOBS as u64);
}
