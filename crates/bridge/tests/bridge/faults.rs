//! Consumers that die, connections that are cut, a server that restarts: no job is lost, and
//! duplicates only where a fault was.

use std::process::{Command, Stdio};
use std::time::Duration;

use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Server, Stat};

use crate::support::clock::Clock;
use crate::support::count::{Count, LONG, config, config_never_late};
use crate::support::owned::Owned;
use crate::support::patience::{received, until};
use crate::support::proxy::{Checkpoint, Proxy};
use crate::support::server::{Redis, server_at};

/// The address for the consumer process of these tests.
const CONSUMER: &str = "UWORK_TEST_CONSUMER";

/// The promise is that the default number of attempts suffices.
fn with_default_attempts(server: Server) -> Config {
    let mut config = config(server.clone(), "jobs");
    config.attempts_max = Config::new(server, "jobs").attempts_max;
    config
}

fn push(server: Server, jobs: usize) {
    let pushes = (0..jobs).map(|n| Push::new(n.to_string())).collect();
    Producer::new(vec![server], "jobs", 1).unwrap().push_all(pushes).unwrap();
}

/// The number of jobs that ran, and of runs beyond the first of each, by the server's count.
fn ran(redis: &Redis, jobs: usize) -> (usize, i64) {
    let redis::Value::Array(counts) = redis.ask("HVALS ran") else { panic!() };
    let runs: i64 = counts
        .iter()
        .map(|count| match count {
            redis::Value::BulkString(text) => {
                std::str::from_utf8(text).unwrap().parse::<i64>().unwrap()
            }
            _ => panic!(),
        })
        .sum();
    (counts.len(), runs - jobs as i64)
}

/// A consumer in a process of its own: this test binary, with this test alone.
fn consumer_process(url: &str) -> Owned {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::jobs_of_consumers_killed_at_random_all_run", "--nocapture"]);
    Owned::spawn(command.env(CONSUMER, url).stdout(Stdio::null()))
}

/// Runs jobs, each of which counts itself on the server, until the process is killed.
fn consume(url: &str) -> ! {
    let server = server_at(url);
    let client = redis::Client::open(url).unwrap();
    let handlers = Handlers::new().otherwise(move |job| {
        let mut connection = client.get_connection()?;
        let name = String::from_utf8_lossy(job.payload()).into_owned();
        redis::cmd("HINCRBY").arg("ran").arg(name).arg(1).exec(&mut connection)?;
        Ok(Reply::done())
    });
    let config = with_default_attempts(server);
    let _bridge = Bridge::start(config, handlers, |_| {}).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn jobs_of_consumers_killed_at_random_all_run() {
    if let Ok(url) = std::env::var(CONSUMER) {
        consume(&url);
    }
    const JOBS: usize = 4_000;
    let Some(redis) = Redis::start("jobs_of_consumers_killed_at_random", &[]) else { return };
    push(redis.server(), JOBS);
    let mut consumers = [consumer_process(&redis.url()), consumer_process(&redis.url())];
    let (mut kills, mut random) = (0, 7_u64);
    while redis.number("HLEN ran") < JOBS as i64 {
        // At a random number of finished jobs, so that the kill finds some in each state.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let goal = redis.number("HLEN ran") + 50 + (random >> 33) as i64 % 700;
        until("more jobs have run", || redis.number("HLEN ran") >= goal.min(JOBS as i64));
        let victim = &mut consumers[kills % 2];
        assert!(victim.ended().is_none(), "a consumer has ended by itself");
        victim.kill();
        kills += 1;
        *victim = consumer_process(&redis.url());
    }
    // What the last victims held is taken over after the heartbeat.
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    consumers.iter_mut().for_each(Owned::kill);
    let (distinct, duplicates) = ran(&redis, JOBS);
    // A consumer is also taken for dead if a busy machine delays its heartbeats.
    let reclaimed = redis.number("HGET {jobs}:stats reclaimed");
    println!("{kills} kills, {reclaimed} takeovers, {duplicates} duplicates");
    assert_eq!(distinct, JOBS, "lost jobs");
    assert!(duplicates <= reclaimed, "{duplicates} duplicates, {reclaimed} takeovers");
    assert_eq!((redis.pending("jobs"), redis.number("XLEN {jobs}:dead")), (0, 0));
}

#[test]
fn cut_connections_lose_no_job() {
    const JOBS: usize = 5_000;
    let Some(redis) = Redis::start("cut_connections_lose_no_job", &[]) else { return };
    push(redis.server(), JOBS);
    let proxy = Proxy::to(redis.port());
    let count = Count::default();
    let server = server_at(&proxy.url());
    let config = with_default_attempts(server);
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    let mut cuts = 0;
    while bridge.counters().done < JOBS as u64 && count.distinct() < JOBS {
        let seen = bridge.counters().faults;
        proxy.cut();
        cuts += 1;
        let goal = (count.distinct() + 300).min(JOBS);
        count.wait_distinct(goal);
        until("the cut is noticed", || bridge.counters().faults > seen || count.distinct() == JOBS);
    }
    count.wait_distinct(JOBS);
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    let stopped = bridge.stop(LONG);
    println!("{cuts} cuts, {} runs of {JOBS}", count.sum());
    assert_eq!(count.distinct(), JOBS);
    // The consumer lives: it knows what it has run, and a cut makes it run nothing again.
    assert_eq!((count.sum(), stopped.counters.dead), (JOBS as u64, 0));
    assert_eq!(stopped.counters.duplicates, 0, "a completion that was sent again is no second run");
    assert_eq!(redis.number("HGET {jobs}:stats duplicates"), 0);
}

#[test]
fn a_server_that_restarts_with_its_log_loses_no_job() {
    const JOBS: usize = 3_000;
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut redis) = Redis::start("a_server_that_restarts", &flags) else { return };
    push(redis.server(), JOBS);
    let count = Count::default();
    let config = with_default_attempts(redis.server());
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    for restart in 1..=4 {
        count.wait_distinct(JOBS * restart / 5);
        redis.restart();
    }
    count.wait_distinct(JOBS);
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
    assert_eq!((count.distinct(), redis.pending("jobs")), (JOBS, 0));
    assert_eq!(count.sum(), JOBS as u64, "the consumer lives: nothing runs twice");
    let stat = Stat::read(redis.server(), "jobs", "uwork").unwrap();
    assert_eq!((stat.lag, stat.done), (0, JOBS as u64), "the lag outlives the server's count");
}

#[test]
fn a_long_job_keeps_its_owner_beyond_the_heartbeat() {
    let Some(clock) = Clock::start("a_long_job_keeps_its_owner") else { return };
    let redis = &clock.redis;
    push(redis.server(), 1);
    let (count, gate) = (Count::default(), Count::default());
    let (runs, end) = (count.clone(), gate.clone());
    let handlers = Handlers::new().otherwise(move |_| {
        runs.add("begun");
        end.wait_for("end", 1);
        Ok(Reply::done())
    });
    // By the server's clock, which only this test moves, no heartbeat is late.
    let mut stopped = clock.stop();
    let owner = Bridge::start(config(redis.server(), "jobs"), handlers, |_| {}).unwrap();
    count.wait_for("begun", 1);
    let other = Bridge::start(config(redis.server(), "jobs"), count.handlers(), |_| {}).unwrap();
    let step = config(redis.server(), "jobs").heartbeat * 2 / 3;
    for _ in 0..5 {
        stopped.advance(step);
        until("a heartbeat has reset the job's idle time", || idle_ms(redis) == 0);
    }
    gate.add("end");
    until("the job is done", || owner.counters().done == 1);
    drop(stopped);
    owner.stop(LONG);
    assert_eq!(other.stop(LONG).counters.reclaimed, 0);
    assert_eq!(count.sum(), 1);
}

#[test]
fn a_takeover_that_an_outage_delays_leaves_running_jobs_to_their_consumers() {
    let Some(clock) = Clock::start("a_takeover_that_an_outage_delays") else { return };
    let redis = &clock.redis;
    let proxy = Proxy::to(redis.port());
    // A takeover alone has this number.
    let point = Checkpoint::to(redis.port(), b"\r\n4194304\r\n");
    push(redis.server(), 1);
    let (count, gate) = (Count::default(), Count::default());
    let (runs, end) = (count.clone(), gate.clone());
    let handlers = Handlers::new().otherwise(move |_| {
        runs.add("begun");
        end.wait_for("end", 1);
        Ok(Reply::done())
    });
    // Only this test moves the server's clock.
    let mut stopped = clock.stop();
    let owner = config(server_at(&proxy.url()), "jobs");
    let owner = Bridge::start(owner, handlers, |_| {}).unwrap();
    count.wait_for("begun", 1);
    redis.wait_until_recorded("jobs");
    point.arm();
    let other = config(server_at(&point.url()), "jobs");
    let other = Bridge::start(other, count.handlers(), |_| {}).unwrap();
    let go_on = received("a takeover is on its way", &point.reached);
    // The server is away for an hour, and reads this takeover first.
    proxy.close();
    stopped.advance(Duration::from_secs(3_600));
    point.arm();
    go_on.send(()).unwrap();
    let go_on = received("the next takeover is on its way", &point.reached);
    let taken = other.counters().reclaimed;
    proxy.open();
    if taken == 0 {
        until("a heartbeat has reset the job's idle time", || idle_ms(redis) == 0);
    }
    go_on.send(()).unwrap();
    gate.add("end");
    until("the job is done", || redis.number("XLEN jobs") == 0);
    drop(stopped);
    // Blocked reads end by the clock.
    clock.jump(Duration::from_secs(2 * 3_600));
    owner.stop(LONG);
    assert_eq!((taken, other.stop(LONG).counters.reclaimed, count.sum()), (0, 0, 1));
}

/// The idle time of the only pending entry.
fn idle_ms(redis: &Redis) -> i64 {
    let redis::Value::Array(rows) = redis.ask("XPENDING jobs uwork - + 10") else { panic!() };
    let [redis::Value::Array(row)] = &rows[..] else { panic!("{rows:?}") };
    let redis::Value::Int(idle) = row[2] else { panic!() };
    idle
}

#[test]
fn a_reader_that_connects_again_leaves_what_was_handed_back_to_a_takeover() {
    let Some(redis) = Redis::start("a_reader_that_connects_again_leaves", &[]) else { return };
    let proxy = Proxy::to(redis.port());
    let count = Count::default();
    let server = server_at(&proxy.url());
    let config = config_never_late(server, "jobs");
    let handed_back_ms = config.heartbeat.as_millis() + 1;
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    let consumer = bridge.consumer().to_owned();
    proxy.close();
    until("the server has closed its connections", || {
        let redis::Value::BulkString(list) = redis.ask("CLIENT LIST") else { panic!() };
        String::from_utf8_lossy(&list).lines().count() == 1
    });
    push(redis.server(), 1);
    redis.ask(&format!("XREADGROUP GROUP uwork {consumer} STREAMS jobs >"));
    let entry = redis.entry("jobs");
    // As HAND_BACK leaves it: idle for the heartbeat and a millisecond.
    let idle = format!("IDLE {handed_back_ms}");
    redis.ask(&format!("XCLAIM jobs uwork {consumer} 0 {entry} {idle} RETRYCOUNT 0 JUSTID"));
    proxy.open();
    count.wait_for("0", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.reclaimed), (1, 0), "it was this consumer's own");
}

#[test]
fn a_reader_that_connects_again_does_not_run_what_has_ended_meanwhile() {
    let Some(redis) = Redis::start("a_reader_that_connects_again_does_not_run", &[]) else {
        return;
    };
    // The command that reads an entry, and not the text of a script. The reader sends one for each entry
    // that it may have lost.
    let point = Checkpoint::to(redis.port(), b"$6\r\nXRANGE\r\n");
    let count = Count::default();
    let mut config = config_never_late(server_at(&point.url()), "jobs");
    (config.keep, config.max_active) = (true, 1);
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    // Delivered to this consumer in a reply that it does not get, in one step.
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let deliver = "local id = redis.call('XADD', 'jobs', '*', 'p', 'ended')
        redis.call('XREADGROUP', 'GROUP', 'uwork', ARGV[1], 'STREAMS', 'jobs', '>')
        return id";
    let deliver = redis::cmd("EVAL").arg(deliver).arg(0).arg(bridge.consumer()).clone();
    let id: String = deliver.query(&mut connection).unwrap();
    point.arm();
    redis.ask("CLIENT KILL TYPE normal");
    let go_on = received("the reader asks for the entry", &point.reached);
    assert_eq!(redis.number(&format!("XACK jobs uwork {id}")), 1);
    go_on.send(()).unwrap();
    push(redis.server(), 1);
    count.wait_for("0", 1);
    bridge.stop(LONG);
    assert_eq!((count.of("ended"), count.sum()), (0, 1));
}

#[test]
fn effects_of_a_job_that_runs_twice_happen_once() {
    let Some(redis) = Redis::start("effects_of_a_job_that_runs_twice", &[]) else { return };
    push(redis.server(), 1);
    let count = Count::default();
    let (entered, gate) = (count.clone(), count.clone());
    let pay = || Ok(Reply::done().effect(["INCRBY", "balance", "100"]));
    // The first consumer stops to give heartbeats while its handler runs: it is cut off.
    let proxy = Proxy::to(redis.port());
    let stalled = Handlers::new().otherwise(move |_| {
        entered.add("begun");
        gate.wait_for("paid", 1);
        pay()
    });
    let first = server_at(&proxy.url());
    let first = Bridge::start(config_never_late(first, "jobs"), stalled, |_| {}).unwrap();
    count.wait_for("begun", 1);
    redis.wait_until_recorded("jobs");
    proxy.close();
    redis.forget_signs_of_life("jobs", "");
    let second = Handlers::new().otherwise(move |_| pay());
    let live = config_never_late(redis.server(), "jobs");
    let second = Bridge::start(live, second, |_| {}).unwrap();
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    count.add("paid");
    proxy.open();
    until("the late outcome is answered", || first.counters().held == 0);
    first.stop(LONG);
    assert_eq!(second.stop(LONG).counters.reclaimed, 1);
    assert_eq!(redis.number("HGET {jobs}:stats duplicates"), 1, "the job that ran twice");
    assert_eq!(redis.number("GET balance"), 100);
}
