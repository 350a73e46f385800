//! A stop returns, whatever the server does, and reports the jobs that it has left behind.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use redis::Value;
use uwork_bridge::{
    Bridge, Config, Error, Failure, Handlers, Producer, Push, Reply, Server, Stat, Stopped,
};

use crate::support::count::{Count, LONG, Since, config, config_never_late};
use crate::support::patience::{until, within};
use crate::support::proxy::Proxy;
use crate::support::server::Redis;

fn push(redis: &Redis) {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new("job")).unwrap();
}

/// Stops a consumer without waiting for runs. A stop that does not return fails the test.
fn stop(bridge: Bridge) -> Stopped {
    within("the stop", move || bridge.stop(Duration::ZERO))
}

/// Starts a consumer with the limits of a server that answers in time. On a busy machine it does not
/// always.
fn started_with_short_limits(
    redis: &Redis,
    start: impl Fn(Config) -> Result<Bridge, Error>,
) -> Bridge {
    let mut bridge = None;
    until("a consumer starts", || {
        bridge = start(config(redis.server().patience(1), "jobs")).ok();
        bridge.is_some()
    });
    bridge.expect("it has started")
}

#[test]
fn a_stop_returns_although_the_server_refuses_the_outcomes() {
    let Some(redis) = Redis::start("a_stop_returns_although", &[]) else { return };
    push(&redis);
    // To create the group takes memory, and nothing else that a start does.
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("CONFIG SET maxmemory 1");
    let (count, lines, since) = (Count::default(), Count::default(), Since::now());
    let bridge = started_with_short_limits(&redis, |config| {
        let handlers = Handlers::new().otherwise(|_| Err(Failure::again("once more")));
        Bridge::start(config, handlers, lines.reports())
    });
    lines.wait_line("OOM");
    let stopped = stop(bridge);
    assert_eq!((stopped.uncommitted, stopped.abandoned), (1, 0));
    since.assert_no_hot_loop(stopped.counters.faults);
    redis.ask("CONFIG SET maxmemory 0");
    redis.forget_signs_of_life("jobs", "");
    let other = config_never_late(redis.server(), "jobs");
    let other = Bridge::start(other, count.handlers(), |_| {}).unwrap();
    count.wait_for("job", 1);
    assert_eq!(other.stop(LONG).counters.reclaimed, 1);
}

#[test]
fn a_stop_returns_although_the_server_hangs() {
    let Some(redis) = Redis::start("a_stop_returns_although_the_server_hangs", &[]) else { return };
    push(&redis);
    let (count, gate) = (Count::default(), Count::default());
    let bridge = started_with_short_limits(&redis, |config| {
        let (runs, open) = (count.clone(), gate.clone());
        let handlers = Handlers::new().otherwise(move |_| {
            runs.add("begun");
            open.wait_for("open", 1);
            Ok(Reply::done())
        });
        Bridge::start(config, handlers, |_| {})
    });
    count.wait_for("begun", 1);
    redis.pause();
    gate.add("open");
    // The bounds are checked as constants: `the_waits_of_a_stop_are_within_its_documented_bounds`.
    let stopped = stop(bridge);
    assert_eq!(stopped.uncommitted, 1);
    redis.resume();
    // The server may now read the acknowledgement that it has got; otherwise the job runs again.
    let other = Bridge::start(config(redis.server(), "jobs"), count.handlers(), |_| {}).unwrap();
    until("the stream is empty", || redis.number("XLEN jobs") == 0);
    other.stop(LONG);
}

/// What waits, is in flight, is alive, and is known, and the consumers with what they have.
type Seen = ([u64; 4], Vec<(String, u64)>);

fn seen(redis: &Redis) -> Seen {
    let stat = Stat::read(redis.server(), "jobs", "uwork").unwrap();
    let counts = [stat.lag, stat.in_flight, stat.consumers_alive(LONG), stat.consumers_known()];
    (counts, stat.consumers.into_iter().map(|of| (of.name, of.pending)).collect())
}

#[test]
fn a_consumer_that_has_stopped_is_gone_at_once_and_its_jobs_wait_for_others() {
    let Some(mut redis) = Redis::start("a_consumer_that_has_stopped_is_gone", &[]) else { return };
    (0..3).for_each(|_| push(&redis));
    let begun = Count::default();
    let handlers = || {
        let runs = begun.clone();
        Handlers::new().otherwise(move |job| {
            runs.add(format!("attempt {}", job.attempt()));
            until("the job is abandoned", || job.is_abandoned());
            Ok(Reply::done())
        })
    };
    let start = || {
        let mut config = config_never_late(redis.server(), "jobs");
        config.max_active = 3;
        Bridge::start(config, handlers(), |_| {}).unwrap()
    };
    let bridge = start();
    begun.wait_for("attempt 1", 3);
    let held = vec![(bridge.consumer().to_owned(), 3)];
    assert_eq!(seen(&redis), ([0, 3, 1, 1], held));
    assert_eq!(stop(bridge).abandoned, 3);
    let waiting = ([3, 0, 0, 0], vec![("released".to_owned(), 3)]);
    assert_eq!(seen(&redis), waiting);
    // Another takes them over, and hands them back in its turn. These runs were no attempts.
    let other = start();
    begun.wait_for("attempt 1", 6);
    let held = [("released".to_owned(), 0), (other.consumer().to_owned(), 3)];
    let (counts, mut consumers) = seen(&redis);
    consumers.sort();
    assert_eq!((counts, &consumers[..]), ([0, 3, 1, 1], &held[..]));
    stop(other);
    assert_eq!(seen(&redis), waiting);
    redis.restart();
    assert_eq!(seen(&redis), waiting, "a server that has started shows no consumer alive");
}

#[test]
fn a_consumer_with_a_run_that_it_has_not_handed_back_stays_behind_with_the_job() {
    let Some(redis) = Redis::start("a_consumer_with_a_run_that_it", &[]) else { return };
    push(&redis);
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    let count = Count::default();
    let config = config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    let (entry, consumer) = (redis.entry("jobs"), bridge.consumer().to_owned());
    // The run is recorded as its owner's, which knows nothing of it.
    let counter = "RETRYCOUNT 20000001000001";
    redis.ask(&format!("XCLAIM jobs uwork {consumer} 0 {entry} {counter} JUSTID"));
    stop(bridge);
    let (counts, consumers) = seen(&redis);
    assert!(counts[..2] == [0, 1] && consumers.contains(&(consumer, 1)), "{consumers:?}");
    assert_eq!((deliveries(&redis), count.sum()), (20_000_001_000_001, 0));
}

/// The deliveries of the only pending entry.
fn deliveries(redis: &Redis) -> i64 {
    let Value::Array(rows) = redis.ask("XPENDING jobs uwork - + 10") else { panic!() };
    let [Value::Array(row)] = &rows[..] else { panic!("{rows:?}") };
    let Value::Int(deliveries) = row[3] else { panic!() };
    deliveries
}

#[test]
fn a_hand_back_that_is_sent_again_after_a_cut_takes_one_delivery_back() {
    let Some(redis) = Redis::start("a_hand_back_that_is_sent_again", &[]) else { return };
    push(&redis);
    // A consumer that has died has the job.
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "");
    let mut monitor = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    monitor.send_packed_command(&redis::cmd("MONITOR").get_packed_command()).unwrap();
    let begun = Count::default();
    let runs = begun.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add("begun");
        until("the job is abandoned", || job.is_abandoned());
        Ok(Reply::done())
    });
    let config = config_never_late(redis.server(), "jobs");
    let handed_back_ms = (config.heartbeat.as_millis() + 1).to_string();
    let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
    let consumer = bridge.consumer().to_owned();
    begun.wait_for("begun", 1);
    // The begin of its run is recorded too, as its owner's.
    assert_eq!(deliveries(&redis), 20_000_001_000_002);
    assert_eq!((stop(bridge).abandoned, deliveries(&redis)), (1, 1));
    // An argument is the heartbeat and a millisecond.
    let sent = loop {
        let Value::SimpleString(line) = monitor.recv_response().unwrap() else { continue };
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        if words.first() == Some(&"EVALSHA") && words.contains(&&*handed_back_ms) {
            break words.join(" ");
        }
    };
    assert!(sent.contains(&consumer), "{sent}");
    redis.ask(&sent);
    assert_eq!(deliveries(&redis), 1);
}

// Catches: a read that goes on while anything arrives.
#[test]
fn a_stop_returns_although_a_payload_arrives_without_end() {
    const PIECES_EVERY: Duration = Duration::from_millis(100);
    let name = "a_stop_returns_although_a_payload_arrives";
    let Some(redis) = Redis::start(name, &[]) else { return };
    let (proxy, runs) = (Proxy::to(redis.port()), Count::default());
    let count = runs.clone();
    let handlers = move || {
        let count = count.clone();
        Handlers::new().otherwise(move |_| {
            count.add("run");
            Ok(Reply::done())
        })
    };
    let bridge = started_with_short_limits(&redis, |mut config| {
        config.servers = vec![Server::new(&proxy.url()).unwrap().patience(1)];
        config.heartbeat = LONG;
        Bridge::start(config, handlers(), |_| {})
    });
    proxy.hold_replies();
    let mut passed = proxy.replies();
    let payload = vec![b'x'; 32 << 20];
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new(payload)).unwrap();
    until("it is delivered", || {
        // The answer to a read that found nothing may be held: without it there is no further read.
        let older = proxy.replies();
        let is_delivered = redis.pending("jobs") == 1;
        if !is_delivered {
            passed = older;
            proxy.pass_replies(passed);
        }
        is_delivered
    });
    let (end, ended) = channel::<()>();
    // Pieces of 4 KiB: the payload needs a quarter of an hour.
    let drip = std::thread::spawn(move || {
        while ended.recv_timeout(PIECES_EVERY) == Err(RecvTimeoutError::Timeout) {
            passed += 1;
            proxy.pass_replies(passed);
        }
        proxy.close();
    });
    let stopped = stop(bridge);
    assert_eq!((stopped.abandoned, stopped.uncommitted, runs.sum()), (0, 0, 0));
    drop(end);
    drip.join().unwrap();
    // What it never received has been handed back as well: nothing waits for the heartbeat.
    let other = config_never_late(redis.server(), "jobs");
    let other = Bridge::start(other, handlers(), |_| {}).unwrap();
    runs.wait_for("run", 1);
    assert_eq!(other.stop(LONG).counters.done, 1);
}
