//! Consumers beside each other: those that are idle are live, and those that die leave their jobs.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Server};

use crate::support::count::{Count, config};
use crate::support::proxy::Proxy;
use crate::support::server::Redis;
use crate::support::until::wait_until;

const LONG: Duration = Duration::from_secs(60);
/// The address for the consumer process of a test.
const CONSUMER: &str = "UWORK_TEST_DOOMED";

fn push(redis: &Redis, payloads: impl IntoIterator<Item = String>) {
    let pushes = payloads.into_iter().map(Push::new).collect();
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push_all(pushes).unwrap();
}

#[test]
fn a_consumer_without_jobs_stays_alive_for_the_others() {
    let Some(redis) = Redis::start("a_consumer_without_jobs", &[]) else { return };
    let named = || {
        let mut config = config(redis.server(), "jobs");
        config.name = "twin".to_owned();
        config.heartbeat = Duration::from_millis(200);
        config
    };
    let lines = Count::default();
    let first = Bridge::start(named(), lines.handlers(), |_| {}).unwrap();
    let now_ms = || {
        let redis::Value::Array(parts) = redis.ask("TIME") else { panic!() };
        let part = |nth: usize| {
            let redis::Value::BulkString(text) = &parts[nth] else { panic!() };
            std::str::from_utf8(text).unwrap().parse::<u64>().unwrap()
        };
        part(0) * 1_000 + part(1) / 1_000
    };
    let begun = now_ms();
    wait_until("it has been idle for longer than its heartbeat", || now_ms() > begun + 1_000);
    // A heartbeat may be late on a busy machine; a consumer that counts as idle is idle for ever.
    wait_until("a second consumer meets it", || {
        let second = Bridge::start(named(), lines.handlers(), lines.reports()).unwrap();
        second.stop(LONG);
        lines.distinct() > 0
    });
    lines.wait_line("1 other consumer(s) have the name \"twin\"");
    first.stop(LONG);
}

#[test]
fn jobs_of_a_dead_consumer_are_taken_over_by_a_full_one_and_run_before_its_backlog() {
    const BACKLOG: usize = 50;
    let Some(redis) = Redis::start("jobs_of_a_dead_consumer", &[]) else { return };
    push(&redis, ["dead 0", "dead 1"].map(str::to_owned));
    let (begun, gate) = (Count::default(), Count::default());
    // Each job is recorded, and waits until the test opens its gate.
    let handlers = |sink: Arc<Mutex<Vec<String>>>, opens: &'static str| {
        let (begun, gate) = (begun.clone(), gate.clone());
        Handlers::new().otherwise(move |job| {
            let name = String::from_utf8_lossy(job.payload()).into_owned();
            sink.lock().unwrap().push(name.clone());
            begun.add(name);
            gate.wait_for(opens, 1);
            Ok(Reply::done())
        })
    };
    let two_at_once = |server: Server| -> Config {
        let mut config = config(server, "jobs");
        config.max_active = 2;
        config
    };
    let proxy = Proxy::to(redis.port());
    let server = Server::new(&proxy.url()).unwrap();
    let unseen = Arc::default();
    let dead = Bridge::start(two_at_once(server), handlers(unseen, "dead"), |_| {}).unwrap();
    begun.wait_distinct(2);
    push(&redis, (0..BACKLOG).map(|n| n.to_string()));
    // It holds one job ahead of those that run.
    wait_until("it is full", || dead.counters().held == 3);
    let order = Arc::new(Mutex::new(Vec::new()));
    let live = two_at_once(redis.server());
    let live = Bridge::start(live, handlers(order.clone(), "live"), |_| {}).unwrap();
    wait_until("the other is full", || live.counters().held == 3);
    proxy.close();
    wait_until("its jobs are taken over although no job ends", || live.counters().held == 5);
    gate.add("live");
    wait_until("all jobs are done", || redis.number("XLEN jobs") == 0);
    let order = order.lock().unwrap().clone();
    let last = order.iter().rposition(|name| name.starts_with("dead")).unwrap();
    // Two that ran and one ahead came before them.
    assert!(last < 3 + 3, "{order:?}");
    assert_eq!(live.stop(LONG).counters.reclaimed, 3);
    gate.add("dead");
    proxy.open();
    dead.stop(LONG);
}

#[test]
fn a_takeover_ends_at_the_bound_of_payload_bytes() {
    const BYTES: usize = 100_000;
    let Some(redis) = Redis::start("a_takeover_ends_at_the_bound", &[]) else { return };
    push(&redis, (0..100).map(|_| "x".repeat(BYTES)));
    // A consumer that has died has all of them.
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    let gate = Count::default();
    let opened = gate.clone();
    let handlers = Handlers::new().otherwise(move |_| {
        opened.wait_for("open", 1);
        Ok(Reply::done())
    });
    let mut config = config(redis.server(), "jobs");
    (config.max_active, config.payload_bytes_max) = (50, 10 * BYTES);
    let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
    wait_until("it has taken over twice what its window holds", || bridge.counters().held >= 20);
    // The first takeover knew no size, and would have brought 32 jobs.
    assert_eq!(bridge.counters().held, 20);
    gate.add("open");
    wait_until("all jobs are done", || redis.number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.reclaimed, 100);
}

#[test]
fn another_group_on_the_stream_is_reported_unless_entries_are_kept() {
    let Some(redis) = Redis::start("another_group_on_the_stream", &[]) else { return };
    redis.ask("XGROUP CREATE jobs audit 0 MKSTREAM");
    for keep in [false, true] {
        let lines = Count::default();
        let mut config = config(redis.server(), "jobs");
        config.keep = keep;
        Bridge::start(config, lines.handlers(), lines.reports()).unwrap().stop(LONG);
        let warnings = lines.lines().iter().filter(|line| line.contains("\"audit\"")).count();
        assert_eq!(warnings, usize::from(!keep));
    }
}

#[test]
fn a_job_that_kills_its_consumers_is_a_dead_letter_after_the_last_attempt() {
    if let Ok(url) = std::env::var(CONSUMER) {
        let handlers = Handlers::new().otherwise(|_| std::process::abort());
        let server = Server::new(&url).unwrap();
        let _bridge = Bridge::start(config(server, "jobs"), handlers, |_| {}).unwrap();
        loop {
            std::thread::park();
        }
    }
    let Some(redis) = Redis::start("a_job_that_kills_its_consumers", &[]) else { return };
    push(&redis, ["kills".to_owned()]);
    // The configuration of the tests has three attempts.
    for _ in 0..3 {
        let test =
            "consumers::a_job_that_kills_its_consumers_is_a_dead_letter_after_the_last_attempt";
        let mut doomed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CONSUMER, redis.url())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the job has killed its consumer", || doomed.try_wait().unwrap().is_some());
    }
    let (count, lines) = (Count::default(), Count::default());
    let reports = lines.reports();
    let bridge = Bridge::start(config(redis.server(), "jobs"), count.handlers(), reports).unwrap();
    lines.wait_line(
        "is a dead letter after 3 attempt(s): its consumer died or was cut off in each attempt",
    );
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.reclaimed, count.sum()), (1, 1, 0), "it does not run here");
    let letter = redis.first("{jobs}:dead");
    assert!(letter.contains("p=kills n=3 e=its consumer died"), "{letter}");
}
