//! Consumers beside each other: those that are idle are live, and those that die leave their jobs.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use uwork_bridge::{Bridge, Exec, Handlers, Producer, Push, Reply, Results};

use crate::support::count::{Count, LONG, config, config_never_late};
use crate::support::owned::Owned;
use crate::support::patience::until;
use crate::support::server::{Redis, server_at};

/// The address for the consumer process of a test.
const CONSUMER: &str = "UWORK_TEST_DOOMED";
/// How many runs of its job have begun before.
const RUNS_BEFORE: &str = "UWORK_TEST_RUNS_BEFORE";
/// The units of the server's delivery counter, as the README describes it.
const BEGUN: u64 = 1_000_000;
const LONELY: u64 = 100_000;
const ALONE: u64 = 10_000_000_000_000;

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
        let says = "1 other consumer(s) have the name \"twin\"";
        lines.lines().iter().any(|line| line.contains(says))
    });
    first.stop(LONG);
}

#[test]
fn jobs_of_a_dead_consumer_and_those_handed_back_run_before_the_backlog_of_a_full_one() {
    const BACKLOG: usize = 50;
    let Some(redis) = Redis::start("jobs_of_a_dead_consumer", &[]) else { return };
    push(&redis, ["running".to_owned()]);
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "ghost");
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
    // From then on it takes jobs over.
    until("it has taken over the first job", || !order.lock().unwrap().is_empty());
    push(&redis, ["ahead".to_owned()]);
    // It has held one job ahead of the one that runs, until that lasted.
    until("it has handed one back", || {
        let counters = live.counters();
        (counters.handed_back, counters.held) == (1, 1)
    });
    push(&redis, ["dead".to_owned()]);
    // A consumer that dies at once has it: the full one does not read.
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    assert_eq!(redis.pending("jobs"), 3);
    redis.forget_signs_of_life("jobs", "ghost");
    push(&redis, (0..BACKLOG).map(|n| n.to_string()));
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..3], ["running", "ahead", "dead"], "{order:?}");
    assert_eq!(live.stop(LONG).counters.reclaimed, 2);
}

#[test]
fn jobs_that_wait_behind_runs_that_hang_go_to_an_idle_consumer_and_to_no_full_one() {
    let Some(redis) = Redis::start("jobs_that_wait_behind_runs", &[]) else { return };
    let (gate, runs) = (Count::default(), Count::default());
    let start = || {
        let (opened, runs) = (gate.clone(), runs.clone());
        let handlers = Handlers::new().otherwise(move |job| {
            let name = String::from_utf8_lossy(job.payload()).into_owned();
            runs.add(format!("{name} {}", job.attempt()));
            if name == "hangs" {
                opened.wait_for("open", 1);
            }
            Ok(Reply::done())
        });
        let mut config = config_never_late(redis.server(), "jobs");
        config.max_active = 1;
        Bridge::start(config, handlers, |_| {}).unwrap()
    };
    let full = [start(), start()];
    push(&redis, ["hangs", "hangs"].map(str::to_owned));
    runs.wait_for("hangs 1", 2);
    push(&redis, ["a", "b", "c"].map(str::to_owned));
    let handed_back = || full.each_ref().map(|of| of.counters().handed_back);
    until("the jobs are handed back", || {
        full.iter().all(|of| of.counters().held == 1) && handed_back().iter().all(|&of| of > 0)
    });
    let (before, looks) = (handed_back(), redis.calls("evalsha"));
    until("both have looked for work many times", || redis.calls("evalsha") > looks + 60);
    assert_eq!((handed_back(), runs.sum()), (before, 2), "a full consumer takes none");
    let idle = start();
    for name in ["a 1", "b 1", "c 1"] {
        runs.wait_for(name, 1);
    }
    until("only the runs that hang are left", || redis.number("XLEN jobs") == 2);
    idle.stop(LONG);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    let duplicates = full.map(|of| of.stop(LONG).counters.duplicates);
    assert_eq!((duplicates, runs.sum()), ([0, 0], 5));
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
    until("it has taken over what the bound holds", || bridge.counters().held >= 10);
    assert_eq!(bridge.counters().held, 10);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.reclaimed, 100);
}

#[test]
fn jobs_that_a_consumer_has_handed_back_itself_are_no_takeovers() {
    const BYTES: usize = 100_000;
    let Some(redis) = Redis::start("jobs_that_a_consumer_has_handed_back", &[]) else { return };
    push(&redis, (0..50).map(|_| "x".repeat(BYTES)));
    let (gate, lines) = (Count::default(), Count::default());
    let opened = gate.clone();
    let handlers = Handlers::new().otherwise(move |_| {
        opened.wait_for("open", 1);
        Ok(Reply::done())
    });
    let mut config = config_never_late(redis.server(), "jobs");
    // The first read brings more than there is memory for.
    (config.max_active, config.payload_bytes_max) = (50, 2 * BYTES);
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    until("it has handed some back", || bridge.counters().handed_back > 0);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    let reclaimed = bridge.stop(LONG).counters.reclaimed;
    assert_eq!((reclaimed, redis.number("HGET {jobs}:stats reclaimed")), (0, 0));
    assert!(!lines.lines().iter().any(|line| line.contains("took over")), "{:?}", lines.lines());
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
        let before: u64 = std::env::var(RUNS_BEFORE).unwrap().parse().unwrap();
        let client = redis::Client::open(&*url).unwrap();
        let handlers = Handlers::new().otherwise(move |_| {
            until("the server knows that the run has begun", || {
                let mut connection = client.get_connection().unwrap();
                let mut pending = redis::cmd("XPENDING");
                pending.arg("jobs").arg("uwork").arg("-").arg("+").arg(1);
                let rows: Vec<(String, String, u64, u64)> = pending.query(&mut connection).unwrap();
                rows[0].3 % ALONE / BEGUN > before
            });
            std::process::abort()
        });
        let mut config = config_never_late(server_at(&url), "jobs");
        config.max_active = 1;
        let _bridge = Bridge::start(config, handlers, |_| {}).unwrap();
        loop {
            std::thread::park();
        }
    }
    let Some(redis) = Redis::start("a_job_that_kills_its_consumers", &[]) else { return };
    // The second waits behind the first in each consumer.
    push(&redis, ["kills", "innocent"].map(str::to_owned));
    // The configuration of the tests has three attempts, and two more prove the reason.
    for run in 0..5 {
        let test =
            "consumers::a_job_that_kills_its_consumers_is_a_dead_letter_after_the_last_attempt";
        let mut doomed = Command::new(std::env::current_exe().unwrap());
        doomed.args(["--exact", test, "--nocapture"]).env(CONSUMER, redis.url());
        doomed.env(RUNS_BEFORE, run.to_string());
        let mut doomed = Owned::spawn(doomed.stdout(Stdio::null()));
        until("the job has killed its consumer", || doomed.ended().is_some());
        let status = doomed.ended().unwrap();
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
        redis.forget_signs_of_life("jobs", "");
    }
    let (count, lines) = (Count::default(), Count::default());
    let reports = lines.reports();
    let config = config(redis.server(), "jobs");
    let seen = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        seen.add(format!("{} {}", String::from_utf8_lossy(job.payload()), job.attempt()));
        Ok(Reply::done())
    });
    let bridge = Bridge::start(config, handlers, reports).unwrap();
    lines.wait_line(" after 5 attempt(s): its consumer died each time");
    count.wait_for("innocent 1", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.done, count.sum()), (1, 1, 1), "it does not run here");
    let letter = redis.first("{jobs}:dead");
    assert!(letter.contains("p=kills n=5 e=its consumer died"), "{letter}");
}

#[test]
fn jobs_that_dead_consumers_had_only_fetched_keep_all_their_attempts() {
    const JOBS: usize = 300;
    let Some(redis) = Redis::start("jobs_that_dead_consumers_had_only_fetched", &[]) else {
        return;
    };
    push(&redis, (0..JOBS).map(|n| n.to_string()));
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    for death in 0..40 {
        redis.ask(&format!("XAUTOCLAIM jobs uwork ghost{death} 0 0-0 COUNT {JOBS}"));
    }
    redis.forget_signs_of_life("jobs", "");
    let (attempts, count) = (Count::default(), Count::default());
    let (seen, runs) = (attempts.clone(), count.clone());
    let handlers = Handlers::new().otherwise(move |job| {
        seen.add(job.attempt().to_string());
        runs.add(String::from_utf8_lossy(job.payload()));
        Ok(Reply::done())
    });
    let mut config = config_never_late(redis.server(), "jobs");
    config.attempts_max = 1;
    let bridge = Bridge::start(config, handlers, |line| println!("{line}")).unwrap();
    count.wait_distinct(JOBS);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.duplicates, count.sum()), (0, 0, JOBS as u64));
    assert_eq!(attempts.of("1"), JOBS as u64, "its first run is the first attempt");
}

#[test]
fn a_last_attempt_after_deaths_runs_alone_and_only_one_that_was_alone_is_given_up() {
    let Some(redis) = Redis::start("a_last_attempt_after_deaths_runs_alone", &[]) else { return };
    push(&redis, ["guilty", "a", "b", "c"].map(str::to_owned));
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    let redis::Value::Array(rows) = redis.ask("XPENDING jobs uwork - + 9") else { panic!() };
    for (nth, row) in rows.iter().enumerate() {
        let redis::Value::Array(row) = row else { panic!() };
        let redis::Value::BulkString(id) = &row[0] else { panic!() };
        let id = String::from_utf8_lossy(id);
        // All were running when three consumers died; of the first one, further ones that ran it only.
        let counter = 3 * BEGUN + 3 + if nth == 0 { ALONE + 3 * LONELY } else { 0 };
        redis.ask(&format!("XCLAIM jobs uwork ghost 0 {id} RETRYCOUNT {counter} JUSTID"));
    }
    redis.forget_signs_of_life("jobs", "");
    push(&redis, (0..200).map(|n| n.to_string()));
    let (count, lines) = (Count::default(), Count::default());
    let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        let name = String::from_utf8_lossy(job.payload()).into_owned();
        let order = std::sync::atomic::Ordering::SeqCst;
        let is_alone = running.fetch_add(1, order) == 0;
        std::thread::yield_now();
        let is_alone = running.fetch_sub(1, order) == 1 && is_alone;
        if ["a", "b", "c"].contains(&&*name) && !is_alone {
            runs.add("not alone");
        }
        runs.add(name);
        Ok(Reply::done())
    });
    let mut config = config(redis.server(), "jobs");
    config.max_active = 8;
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    count.wait_distinct(203);
    lines.wait_line(" after 3 attempt(s): its consumer died each time");
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead, count.sum()), (203, 1, 203));
    assert_eq!((counters.duplicates, count.of("not alone")), (3, 0));
}

// Catches: a mark of an entry, of which a retry is another one.
#[test]
fn a_job_that_ran_twice_is_counted_once_although_its_retries_are_other_entries() {
    let Some(redis) = Redis::start("a_job_that_ran_twice_is_counted_once", &[]) else { return };
    // Without a place for results they are acknowledged together, else each with its result.
    for results in [Results::Dropped, Results::Stream(100)] {
        redis.ask("FLUSHALL");
        redis.ask("XGROUP CREATE jobs uwork 0 MKSTREAM");
        for (id, first) in [("7-0", "5-0"), ("8-0", "5-0"), ("9-0", "6-0"), ("10-0", "none")] {
            redis.ask(&format!("XADD jobs {id} p {id} n 1 e why o {first}"));
        }
        redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
        for id in ["7-0", "8-0", "9-0", "10-0"] {
            let counter = BEGUN + 1;
            redis.ask(&format!("XCLAIM jobs uwork ghost 0 {id} RETRYCOUNT {counter} JUSTID"));
        }
        redis.forget_signs_of_life("jobs", "ghost");
        let mut config = config_never_late(redis.server(), "jobs");
        (config.attempts_max, config.results) = (10, results);
        let handlers = Handlers::new().otherwise(|_| Ok(Reply::result("r")));
        let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
        until("the jobs are done", || bridge.counters().done == 4);
        assert_eq!(bridge.stop(LONG).counters.duplicates, 3, "{results:?}");
        assert_eq!(redis.number("HGET {jobs}:stats duplicates"), 3, "{results:?}");
    }
}

// Catches: a shard whose jobs find each place taken by the reader of another one.
#[test]
fn a_shard_gets_a_place_although_another_has_a_backlog_of_long_runs() {
    const BACKLOG: u64 = 40;
    let Some(redis) = Redis::start("a_shard_gets_a_place", &[]) else { return };
    let push = |stream: &str, payload: &str, jobs: u64| {
        let pushes = (0..jobs).map(|_| Push::new(payload)).collect();
        Producer::new(vec![redis.server()], stream, 1).unwrap().push_all(pushes).unwrap();
    };
    let begun = Count::default();
    let runs = begun.clone();
    // A run of less than a second ends the state in which jobs are handed back.
    let long = Exec::new(["sleep", "1.5"].map(Into::into).to_vec(), 0).unwrap();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(String::from_utf8_lossy(job.payload()));
        long.run(job)
    });
    let mut settings = config(redis.server(), "jobs");
    (settings.shards, settings.max_active) = (2, 2);
    let bridge = Bridge::start(settings, handlers, |_| {}).unwrap();
    push("jobs.{0}", "first", BACKLOG);
    begun.wait_for("first", 2);
    push("jobs.{1}", "second", 1);
    begun.wait_for("second", 1);
    assert!(begun.of("first") < BACKLOG, "it had to wait for the last ones");
    bridge.stop(Duration::ZERO);
}
