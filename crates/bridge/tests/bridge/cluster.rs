//! Shards in a cluster of three nodes: each is found at its node, from any address.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork_bridge::{Bridge, Failure, Handlers, Producer, Push, Reply, Stat};

use crate::access::rules;
use crate::support::cluster::Cluster;
use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::server::server_at;

const SHARDS: u32 = 8;
const KEYS: usize = 40;
const JOBS: usize = 400;

#[test]
fn shards_of_a_cluster_are_found_from_any_node_and_a_key_stays_in_its_shard() {
    let Some(cluster) = Cluster::start("shards_of_a_cluster", false) else { return };
    let nodes = &cluster.nodes;
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
    for node in nodes {
        assert!(node.number("DBSIZE") > 0, "a node has no shard");
    }
    let done = uwork_bridge::placed(&[nodes[2].server()], "jobs", SHARDS)
        .into_iter()
        .map(|(server, shard)| Stat::read(server, &shard, "uwork").unwrap().done)
        .sum::<u64>();
    assert_eq!(done, JOBS as u64);
}

#[test]
fn a_producer_with_the_documented_rights_looks_at_the_master_of_its_stream_from_any_node() {
    let name = "a_producer_with_the_documented_rights";
    let Some(cluster) = Cluster::start(name, true) else { return };
    for node in &cluster.nodes {
        node.ask(&format!("ACL SETUSER producer {}", rules("producer")));
    }
    for node in &cluster.nodes {
        let server = server_at(&format!("redis://producer:secret@127.0.0.1:{}", node.port()));
        let mut producer = Producer::new(vec![server], "jobs", 1).unwrap();
        assert_eq!(producer.look().unwrap(), [""; 0]);
        producer.push(Push::new("job")).unwrap();
    }
}

#[test]
fn an_effect_has_the_tag_of_its_stream_or_fails_with_this_advice() {
    let name = "an_effect_has_the_tag_of_its_stream";
    let Some(cluster) = Cluster::start(name, false) else { return };
    let mut producer = Producer::new(vec![cluster.nodes[0].server()], "jobs", 1).unwrap();
    let node_of = |key: &str| {
        let slot = cluster.nodes[0].number(&format!("CLUSTER KEYSLOT {key}"));
        // The first slots of the second and the third node.
        [5_461, 10_923].iter().filter(|&&first| slot >= first).count()
    };
    let other = (0..).map(|n| format!("balance:{n}")).find(|key| node_of(key) != node_of("jobs"));
    let other = other.unwrap();
    for (key, is_done) in [("balance:{jobs}:7", true), (&*other, false)] {
        for is_script in [false, true] {
            producer.push(Push::new("job")).unwrap();
            let (lines, key) = (Count::default(), key.to_owned());
            let handlers = Handlers::new().otherwise(move |_| {
                let script = ["EVAL", "redis.call('INCRBY', KEYS[1], 100)", "1", key.as_str()];
                let command = ["INCRBY", key.as_str(), "100"];
                let words = if is_script { &script[..] } else { &command };
                Ok(Reply::done().effect(words.iter().copied()))
            });
            let config = config(cluster.nodes[1].server(), "jobs");
            let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
            until("the job has ended", || bridge.counters().done + bridge.counters().dead == 1);
            assert_eq!(bridge.stop(LONG).counters.done, u64::from(is_done), "{:?}", lines.lines());
            if !is_done {
                lines.wait_line("have the tag of its stream, as balance:{jobs}:7");
            }
        }
    }
}
