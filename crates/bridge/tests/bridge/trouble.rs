//! Servers in trouble: what they refuse is waited for, one line says so, and no job is lost.

use std::time::{Duration, Instant};

use uwork_bridge::{Bridge, DeadLetters, HeldJob, Producer, Push};

use crate::support::address::Address;
use crate::support::count::{Count, LONG, Since, config};
use crate::support::patience::until;
use crate::support::proxy::{Proxy, Trouble};
use crate::support::server::{Redis, server_at};

fn push(redis: &Redis, push: Push) {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(push).unwrap();
}

/// Pushes jobs with the numbers of a range.
fn push_range(redis: &Redis, range: std::ops::Range<usize>) {
    let pushes = range.map(|n| Push::new(n.to_string())).collect();
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push_all(pushes).unwrap();
}

#[test]
fn replies_of_a_server_in_trouble_are_waited_for() {
    for reply in [
        "-LOADING Redis is loading the dataset in memory",
        "-READONLY You can't write against a read only replica.",
        "-CLUSTERDOWN The cluster is down",
        "-MASTERDOWN Link with MASTER is down",
        "-TRYAGAIN Multiple keys request during rehashing of slot",
        "-OOM command not allowed when used memory > 'maxmemory'.",
        "-ASK 3999 127.0.0.1:1",
    ] {
        let name = "replies_of_a_server_in_trouble";
        let Some(redis) = Redis::start(name, &[]) else { return };
        push(&redis, Push::new("job"));
        // All answers are this one until the consumer has reported it.
        let trouble = Trouble::new(redis.port(), reply);
        let (count, lines) = (Count::default(), Count::default());
        let server = server_at(&trouble.url());
        let (config, handlers) = (config(server, "jobs"), count.handlers());
        let reports = lines.reports();
        let start = std::thread::spawn(move || Bridge::start(config, handlers, reports).unwrap());
        lines.wait_line(reply[1..].split(' ').next().unwrap());
        trouble.end();
        count.wait_for("job", 1);
        assert_eq!(start.join().unwrap().stop(LONG).counters.done, 1, "{reply}");
    }
}

// Catches: a push that fails for a connection whose end had arrived before.
#[test]
fn a_push_after_the_server_has_closed_its_connection_goes_on_a_new_one() {
    let Some(mut redis) = Redis::start("a_push_after_the_server", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    producer.push(Push::new("first")).unwrap();
    redis.ask("CLIENT KILL TYPE normal SKIPME yes");
    producer.push(Push::new("second")).unwrap();
    redis.restart();
    redis.ask("DEL jobs");
    producer.push(Push::new("third")).unwrap();
    assert_eq!(redis.number("XLEN jobs"), 1);
}

#[test]
fn a_moved_stream_is_followed_to_its_node() {
    let Some(redis) = Redis::start("a_moved_stream_is_followed", &[]) else { return };
    push(&redis, Push::new("job"));
    let moved = format!("-MOVED 3999 127.0.0.1:{}", redis.port());
    let trouble = Trouble::new(redis.port(), &moved);
    let count = Count::default();
    let server = server_at(&trouble.url());
    let bridge = Bridge::start(config(server.clone(), "jobs"), count.handlers(), |_| {}).unwrap();
    count.wait_for("job", 1);
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1).unwrap();
    producer.push(Push::new("second")).unwrap();
    count.wait_for("second", 1);
    assert_eq!(DeadLetters::new(server.clone(), "jobs").count().unwrap(), 0);
    assert_eq!(HeldJob::read(server, "jobs", "uwork", 1).unwrap().len(), 1, "the consumer");
    bridge.stop(LONG);
}

#[test]
fn a_node_that_dies_after_a_move_is_left_for_the_configured_one() {
    let Some(redis) = Redis::start("a_node_that_dies_after_a_move", &[]) else { return };
    let node = Proxy::to(redis.port());
    let moved = format!("-MOVED 3999 {}", node.url().trim_start_matches("redis://"));
    let trouble = Trouble::new(redis.port(), &moved);
    let (count, lines, since) = (Count::default(), Count::default(), Since::now());
    let server = server_at(&trouble.url());
    let reports = lines.reports();
    let bridge = Bridge::start(config(server, "jobs"), count.handlers(), reports).unwrap();
    push(&redis, Push::new("there"));
    count.wait_for("there", 1);
    // The slots are the configured node's again.
    trouble.end();
    node.close();
    push(&redis, Push::new("back"));
    count.wait_for("back", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, count.sum()), (2, 2));
    since.assert_no_hot_loop(counters.faults);
}

#[test]
fn a_fault_that_all_shards_meet_is_one_line_and_its_end_another() {
    let Some(redis) = Redis::start("a_fault_that_all_shards_meet", &[]) else { return };
    let proxy = Proxy::to(redis.port());
    let (count, lines) = (Count::default(), Count::default());
    let mut settings = config(server_at(&proxy.url()), "jobs");
    settings.shards = 4;
    let bridge = Bridge::start(settings, count.handlers(), lines.reports()).unwrap();
    // Each shard has a reader and a committer.
    until("all threads are connected", || proxy.clients() == 8);
    proxy.close();
    until("all threads have met it", || proxy.clients() == 0 && bridge.counters().faults >= 40);
    proxy.open();
    lines.wait_line("works again");
    assert_eq!(bridge.stop(LONG).counters.dead, 0);
    let lines = lines.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
}

#[test]
fn a_server_that_is_a_replica_for_a_while_loses_no_job() {
    const JOBS: usize = 2_000;
    let Some(redis) = Redis::start("a_server_that_is_a_replica", &[]) else { return };
    push_range(&redis, 0..JOBS);
    // No master answers at this address.
    let nowhere = Address::reserve().unwrap();
    let replica = format!("REPLICAOF 127.0.0.1 {}", nowhere.port());
    let (count, lines, since) = (Count::default(), Count::default(), Since::now());
    let reports = lines.reports();
    let bridge = Bridge::start(config(redis.server(), "jobs"), count.handlers(), reports).unwrap();
    for round in 1..=3 {
        count.wait_distinct(JOBS * round / 4);
        let before = bridge.counters().faults;
        redis.ask(&replica);
        until("the consumer has met the replica", || bridge.counters().faults > before);
        redis.ask("REPLICAOF NO ONE");
    }
    count.wait_distinct(JOBS);
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((count.sum(), counters.dead), (JOBS as u64, 0), "nothing runs twice");
    since.assert_no_hot_loop(counters.faults);
    lines.wait_line("READONLY");
}

#[test]
fn a_server_that_loads_its_file_while_jobs_run_loses_no_job() {
    const JOBS: usize = 1_000;
    let Some(redis) = Redis::start("a_server_that_loads_its_file", &[]) else { return };
    let loading = "-LOADING Redis is loading the dataset in memory";
    let trouble = Trouble::new(redis.port(), loading);
    trouble.end();
    let (count, lines, since) = (Count::default(), Count::default(), Since::now());
    let server = server_at(&trouble.url());
    let reports = lines.reports();
    let bridge = Bridge::start(config(server, "jobs"), count.handlers(), reports).unwrap();
    push_range(&redis, 0..JOBS);
    count.wait_distinct(JOBS / 2);
    trouble.begin();
    push_range(&redis, JOBS..2 * JOBS);
    lines.wait_line("LOADING");
    trouble.end();
    count.wait_distinct(2 * JOBS);
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((count.sum(), counters.dead), (2 * JOBS as u64, 0), "nothing runs twice");
    since.assert_no_hot_loop(counters.faults);
}

// Catches: a reader that asks again at once, since a blocking read was answered at once.
#[test]
fn a_server_that_answers_blocking_reads_at_once_is_asked_with_pauses() {
    const ANSWERS: u64 = 200;
    for answer in ["$-1", "*0", "+OK"] {
        let Some(redis) = Redis::start("a_server_that_answers_blocking", &[]) else { return };
        let trouble = Trouble::new(redis.port(), answer);
        trouble.end();
        let count = Count::default();
        let mut settings = config(server_at(&trouble.url()), "jobs");
        // The committer asks often enough for a short test.
        settings.heartbeat = Duration::from_millis(100);
        let bridge = Bridge::start(settings, count.handlers(), |_| {}).unwrap();
        let begun = Instant::now();
        trouble.begin();
        until("it has answered often", || trouble.answers() >= ANSWERS);
        let (answers, ms) = (trouble.answers(), begun.elapsed().as_millis() as u64);
        // The slower the machine, the fewer.
        assert!(answers <= ANSWERS / 2 + ms / 4, "{answers} answers in {ms} ms: a hot loop");
        trouble.end();
        push(&redis, Push::new("job"));
        count.wait_for("job", 1);
        bridge.stop(LONG);
    }
}
