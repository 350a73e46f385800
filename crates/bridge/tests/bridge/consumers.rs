//! Consumers beside each other: those that are idle are live, and those that die leave their jobs.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use uwork_bridge::{Bridge, Handlers, Producer, Push, Reply};

use crate::support::count::{Count, LONG, config, config_never_late};
use crate::support::owned::Owned;
use crate::support::patience::until;
use crate::support::server::{Redis, server_at};

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
    until("it has been idle for longer than its heartbeat", || now_ms() > begun + 1_000);
    // A heartbeat may be late on a busy machine; a consumer that counts as idle is idle for ever.
    until("a second consumer meets it", || {
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
    push(&redis, ["running", "ahead"].map(str::to_owned));
    let gate = Count::default();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (sink, opened) = (order.clone(), gate.clone());
    // Each job is recorded, and waits until the test opens the gate.
    let handlers = Handlers::new().otherwise(move |job| {
        sink.lock().unwrap().push(String::from_utf8_lossy(job.payload()).into_owned());
        opened.wait_for("open", 1);
        Ok(Reply::done())
    });
    let mut config = config_never_late(redis.server(), "jobs");
    // A run is recorded before the next one begins.
    config.max_active = 1;
    let live = Bridge::start(config, handlers, |_| {}).unwrap();
    // It holds one job ahead of the one that runs.
    until("it is full", || live.counters().held == 2);
    push(&redis, ["dead".to_owned()]);
    // A consumer that dies at once has it: the full one does not read.
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    assert_eq!(redis.pending("jobs"), 3);
    redis.forget_signs_of_life("jobs", "ghost");
    push(&redis, (0..BACKLOG).map(|n| n.to_string()));
    until("the job is taken over although no job ends", || live.counters().held == 3);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    let order = order.lock().unwrap().clone();
    let dead = order.iter().position(|name| name == "dead").unwrap();
    // The job that ran and the one ahead came before it, and one that was read when it was queued.
    assert!(dead <= 3, "{order:?}");
    assert_eq!(live.stop(LONG).counters.reclaimed, 1);
}

#[test]
fn a_takeover_ends_at_the_bound_of_payload_bytes() {
    const BYTES: usize = 100_000;
    let Some(redis) = Redis::start("a_takeover_ends_at_the_bound", &[]) else { return };
    push(&redis, (0..100).map(|_| "x".repeat(BYTES)));
    // A consumer that has died has all of them.
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "");
    let gate = Count::default();
    let opened = gate.clone();
    let handlers = Handlers::new().otherwise(move |_| {
        opened.wait_for("open", 1);
        Ok(Reply::done())
    });
    let mut config = config_never_late(redis.server(), "jobs");
    (config.max_active, config.payload_bytes_max) = (50, 10 * BYTES);
    let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
    until("it has taken over twice what its window holds", || bridge.counters().held >= 20);
    // The first takeover knew no size, and would have brought 32 jobs.
    assert_eq!(bridge.counters().held, 20);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
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
        let server = server_at(&url);
        let _bridge = Bridge::start(config_never_late(server, "jobs"), handlers, |_| {}).unwrap();
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
        let mut doomed = Command::new(std::env::current_exe().unwrap());
        doomed.args(["--exact", test, "--nocapture"]).env(CONSUMER, redis.url());
        let mut doomed = Owned::spawn(doomed.stdout(Stdio::null()));
        until("the job has killed its consumer", || doomed.ended().is_some());
        let status = doomed.ended().unwrap();
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
        redis.forget_signs_of_life("jobs", "");
    }
    let (count, lines) = (Count::default(), Count::default());
    let reports = lines.reports();
    let config = config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(config, count.handlers(), reports).unwrap();
    lines.wait_line(
        "is a dead letter after 3 attempt(s): its consumer died or was cut off in each attempt",
    );
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.reclaimed, count.sum()), (1, 1, 0), "it does not run here");
    let letter = redis.first("{jobs}:dead");
    assert!(letter.contains("p=kills n=3 e=its consumer died"), "{letter}");
}
