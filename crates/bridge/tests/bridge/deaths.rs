//! Jobs whose consumers have died, and jobs whose consumers only looked dead: which of them are buried,
//! and what a last attempt costs the others.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use uwork_bridge::{Bridge, Handlers, Producer, Push, Reply};

use crate::support::clock::Clock;
use crate::support::cluster::text;
use crate::support::count::{Count, LONG, Since, config, config_never_late};
use crate::support::owned::Owned;
use crate::support::patience::until;
use crate::support::proxy::Proxy;
use crate::support::server::{Redis, server_at};

/// The address for the consumer process of a test.
const CONSUMER: &str = "UWORK_TEST_STOPPED";
/// The units of the server's delivery counter, as the README describes it.
const BEGUN: u64 = 1_000_000;
const LONELY: u64 = 100_000;
const FLAGS: u64 = 10_000_000_000_000;
const ALONE: u64 = 1;
const OWN: u64 = 2;
const LIVES: u64 = 4;
const DAY_MS: u32 = 24 * 3_600 * 1_000;
/// The configuration of the tests has three attempts: the next is the last one. Those before were
/// alone: the third death proves that the job kills its consumers.
const BEFORE_LAST: u64 = 2 * BEGUN + 2 * LONELY + 2;

fn push(redis: &Redis, payloads: &[&str]) {
    let pushes = payloads.iter().map(|payload| Push::new(*payload)).collect();
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push_all(pushes).unwrap();
}

/// Adds jobs that a consumer has which is dead, with this counter: in one step, so that no other
/// consumer fetches them.
fn orphans(redis: &Redis, payloads: &[&str], counter: u64) {
    const ADD: &str = "
        redis.pcall('XGROUP', 'CREATE', 'jobs', 'uwork', '0', 'MKSTREAM')
        for i = 3, #ARGV do
          local id = redis.call('XADD', 'jobs', '*', 'p', ARGV[i])
          redis.call('XREADGROUP', 'GROUP', 'uwork', 'ghost', 'STREAMS', 'jobs', '>')
          redis.call('XCLAIM', 'jobs', 'uwork', 'ghost', 0, id, 'IDLE', ARGV[1],
            'RETRYCOUNT', ARGV[2], 'JUSTID')
        end";
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let mut add = redis::cmd("EVAL");
    add.arg(ADD).arg(0).arg(DAY_MS).arg(counter).arg(payloads);
    add.exec(&mut connection).unwrap();
}

/// The same for one job with more fields, before the first consumer starts.
fn orphan(redis: &Redis, payload: &str, fields: usize, counter: u64) {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    redis.ask("XGROUP CREATE jobs uwork 0 MKSTREAM");
    let mut add = redis::cmd("XADD");
    add.arg("jobs").arg("*").arg("p").arg(payload);
    (0..fields).for_each(|_| {
        add.arg("f").arg("v");
    });
    let id: String = add.query(&mut connection).unwrap();
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.ask(&format!("XCLAIM jobs uwork ghost 0 {id} IDLE {DAY_MS} RETRYCOUNT {counter} JUSTID"));
}

/// The owner, the idle time and the counter of the only pending entry; None if there is none.
fn pending(redis: &Redis) -> Option<(String, i64, u64)> {
    let redis::Value::Array(rows) = redis.ask("XPENDING jobs uwork - + 9") else { panic!() };
    let redis::Value::Array(row) = rows.first()? else { panic!() };
    let [_, redis::Value::BulkString(owner), redis::Value::Int(idle), redis::Value::Int(of)] =
        &row[..]
    else {
        panic!("{row:?}")
    };
    Some((String::from_utf8_lossy(owner).into_owned(), *idle, of.cast_unsigned()))
}

fn runs_alone(redis: &Redis) -> bool {
    pending(redis).is_some_and(|(_, _, of)| (of / FLAGS) & ALONE != 0 && of % FLAGS / BEGUN == 3)
}

/// A handler that records its job, and waits for `open` if the job's payload is `gated`.
fn gated(count: &Count) -> Handlers {
    let count = count.clone();
    Handlers::new().otherwise(move |job| {
        let payload = String::from_utf8_lossy(job.payload()).into_owned();
        if payload.starts_with("gated") {
            count.add(format!("{payload} begun"));
            count.wait_for("open", 1);
        }
        count.add(payload);
        Ok(Reply::done())
    })
}

#[test]
fn a_job_that_runs_alone_outlives_clocks_that_jump() {
    let Some(clock) = Clock::start("a_job_that_runs_alone_outlives_clocks") else { return };
    let redis = &clock.redis;
    orphans(redis, &["gated"], BEFORE_LAST);
    let count = Count::default();
    let owner = Bridge::start(config(redis.server(), "jobs"), gated(&count), |_| {}).unwrap();
    until("it runs alone", || runs_alone(redis));
    let other = Count::default();
    let beside =
        Bridge::start(config(redis.server(), "jobs"), other.handlers(), other.reports()).unwrap();
    for hour in 1..6_u32 {
        clock.jump(Duration::from_secs(3_600) * hour);
        until("its owner keeps it alive", || {
            pending(redis).is_none_or(|(_, idle, _)| idle < 600_000)
        });
    }
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    let dead = owner.stop(LONG).counters.dead + beside.stop(LONG).counters.dead;
    assert_eq!((dead, redis.number("XLEN {jobs}:dead")), (0, 0), "{:?}", other.lines());
    assert_eq!(count.of("gated"), 1);
}

#[test]
fn a_job_that_runs_alone_outlives_connections_that_are_cut() {
    let Some(redis) = Redis::start("a_job_that_runs_alone_outlives_cuts", &[]) else { return };
    orphans(&redis, &["gated"], BEFORE_LAST);
    let (count, other) = (Count::default(), Count::default());
    let proxy = Proxy::to(redis.port());
    let cut_off = config(server_at(&proxy.url()), "jobs");
    let owner = Bridge::start(cut_off, gated(&count), |_| {}).unwrap();
    until("it runs alone", || runs_alone(&redis));
    let name = owner.consumer().to_owned();
    let beside =
        Bridge::start(config(redis.server(), "jobs"), other.handlers(), other.reports()).unwrap();
    for _ in 0..5 {
        redis.forget_signs_of_life("jobs", &name);
        proxy.cut();
        until("its owner keeps it alive", || {
            pending(&redis).is_none_or(|(_, idle, _)| idle < 600_000)
        });
    }
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    let dead = owner.stop(LONG).counters.dead + beside.stop(LONG).counters.dead;
    assert_eq!((dead, redis.number("XLEN {jobs}:dead")), (0, 0), "{:?}", other.lines());
    assert_eq!(count.of("gated"), 1);
}

#[test]
fn a_job_whose_consumer_is_stopped_is_buried_only_when_that_consumer_is_dead() {
    if let Ok(url) = std::env::var(CONSUMER) {
        let handlers = Handlers::new().otherwise(|_| {
            loop {
                std::thread::park();
            }
        });
        let _bridge = Bridge::start(config(server_at(&url), "jobs"), handlers, |_| {}).unwrap();
        loop {
            std::thread::park();
        }
    }
    let Some(redis) = Redis::start("a_job_whose_consumer_is_stopped", &[]) else { return };
    orphans(&redis, &["alone"], BEFORE_LAST);
    let test = "deaths::a_job_whose_consumer_is_stopped_is_buried_only_when_that_consumer_is_dead";
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", test, "--nocapture"]).env(CONSUMER, redis.url());
    let mut owner = Owned::spawn(owner.stdout(Stdio::null()));
    until("it runs alone", || runs_alone(&redis));
    kill_process(Pid::from_child(&owner), Signal::STOP).unwrap();
    let (count, lines) = (Count::default(), Count::default());
    let config = config(redis.server(), "jobs");
    let bridge = Bridge::start(config, count.handlers(), lines.reports()).unwrap();
    until("its connections were looked for several times", || {
        let redis::Value::BulkString(info) = redis.ask("INFO commandstats") else { panic!() };
        let info = String::from_utf8_lossy(&info);
        let calls = info.split_once("cmdstat_client|list:calls=").map_or("0", |(_, rest)| rest);
        calls.split(',').next().unwrap().parse::<u64>().unwrap() >= 3
    });
    assert_eq!((redis.number("XLEN {jobs}:dead"), redis.number("XLEN jobs")), (0, 1));
    owner.kill();
    lines.wait_line(" after 3 attempt(s): its consumer died each time");
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.done, count.sum()), (1, 0, 0), "it does not run again");
}

#[test]
fn a_job_that_was_buried_while_its_consumer_was_cut_off_runs_again() {
    for (ends_meanwhile, fields) in [(false, 0), (true, 0), (false, 50_001)] {
        buried_and_ready_again(ends_meanwhile, fields);
    }
}

/// `ends_meanwhile`: the run ends while its consumer is cut off. `fields`: those that the entry has
/// beside the payload. With too many of them to be moved it is in quarantine.
fn buried_and_ready_again(ends_meanwhile: bool, fields: usize) {
    let Some(redis) = Redis::start("a_job_that_was_buried_while_its_consumer", &[]) else { return };
    orphan(&redis, "gated", fields, BEFORE_LAST);
    let (count, lines) = (Count::default(), Count::default());
    let proxy = Proxy::to(redis.port());
    let cut_off = config(server_at(&proxy.url()), "jobs");
    let cut_off = Bridge::start(cut_off, gated(&count), lines.reports()).unwrap();
    until("it runs alone", || runs_alone(&redis));
    count.wait_for("gated begun", 1);
    proxy.close();
    let other = Count::default();
    let live = config(redis.server(), "jobs");
    let live = Bridge::start(live, other.handlers(), other.reports()).unwrap();
    other.wait_line("its consumer died each time");
    assert_eq!(redis.number("XLEN {jobs}:dead"), 1);
    if ends_meanwhile {
        count.add("open");
        count.wait_for("gated", 1);
    }
    proxy.open();
    lines.wait_line("is no dead letter any more, and runs again");
    assert_eq!(redis.number("XLEN {jobs}:dead"), 0);
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    until("the late outcome is answered", || cut_off.counters().held == 0);
    cut_off.stop(LONG);
    live.stop(LONG);
    let runs = count.of("gated") + other.of("gated");
    // An entry in quarantine is the same one afterwards: the first run may complete it.
    assert!(runs == 2 || (fields > 0 && runs == 1), "{runs}");
}

// The server has recorded the begin of a run, and the consumer does not know it: for the server the run
// is an attempt, here it never begins.
#[test]
fn a_job_that_was_buried_for_a_begin_without_an_answer_runs_again() {
    let Some(redis) = Redis::start("a_job_that_was_buried_for_a_begin", &[]) else { return };
    let (count, lines) = (Count::default(), Count::default());
    let proxy = Proxy::to(redis.port());
    let cut_off = config(server_at(&proxy.url()), "jobs");
    let cut_off = Bridge::start(cut_off, gated(&count), lines.reports()).unwrap();
    proxy.hold_replies();
    orphans(&redis, &["gated"], BEFORE_LAST);
    until("its begin is recorded", || {
        // Those that came before a look without the record do not answer it.
        let before = proxy.replies();
        let is_recorded = runs_alone(&redis);
        if !is_recorded {
            proxy.pass_replies(before);
        }
        is_recorded
    });
    proxy.close();
    let other = Count::default();
    let live = config(redis.server(), "jobs");
    let live = Bridge::start(live, other.handlers(), other.reports()).unwrap();
    other.wait_line("its consumer died each time");
    proxy.open();
    lines.wait_line("is no dead letter any more, and runs again");
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    cut_off.stop(LONG);
    live.stop(LONG);
    assert_eq!(redis.number("XLEN {jobs}:dead"), 0);
    assert_eq!(count.of("gated") + other.of("gated"), 1);
}

#[test]
fn a_consumer_that_was_cut_off_and_lives_takes_its_run_from_the_attempts() {
    let Some(redis) = Redis::start("a_consumer_that_was_cut_off_and_lives", &[]) else { return };
    push(&redis, &["gated"]);
    let (first, second) = (Count::default(), Count::default());
    let proxy = Proxy::to(redis.port());
    let cut_off = config(server_at(&proxy.url()), "jobs");
    let cut_off = Bridge::start(cut_off, gated(&first), |_| {}).unwrap();
    until("the server knows of its run", || pending(&redis).is_some_and(|(_, _, of)| of >= BEGUN));
    proxy.close();
    redis.forget_signs_of_life("jobs", "");
    let live = config_never_late(redis.server(), "jobs");
    let live = Bridge::start(live, gated(&second), |_| {}).unwrap();
    second.wait_for("gated begun", 1);
    let begun = |of: u64| of % FLAGS / BEGUN;
    assert!(pending(&redis).is_some_and(|(_, _, of)| begun(of) == 2 && (of / FLAGS) & LIVES == 0));
    proxy.open();
    until("its run is no attempt", || {
        pending(&redis).is_some_and(|(_, _, of)| begun(of) == 1 && (of / FLAGS) & LIVES != 0)
    });
    let (owner, ..) = pending(&redis).unwrap();
    assert_eq!(owner, live.consumer());
    second.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    first.add("open");
    until("the late outcome is answered", || cut_off.counters().held == 0);
    cut_off.stop(LONG);
    live.stop(LONG);
    assert_eq!(redis.number("HGET {jobs}:stats duplicates"), 1, "it ran twice");
}

#[test]
fn a_job_that_must_run_alone_is_left_to_others_by_a_consumer_whose_runs_hang() {
    let Some(redis) = Redis::start("a_job_that_must_run_alone_is_left", &[]) else { return };
    let (here, there, lines) = (Count::default(), Count::default(), Count::default());
    let mut settings = config(redis.server(), "jobs");
    (settings.limit, settings.max_active) = (Some(Duration::from_millis(50)), 4);
    push(&redis, &["gated"]);
    let hung = Bridge::start(settings, gated(&here), lines.reports()).unwrap();
    lines.wait_line("the time limit of 50ms is over");
    orphans(&redis, &["last"], BEFORE_LAST);
    orphans(&redis, &["other"], 1);
    here.wait_for("other", 1);
    assert_eq!(here.of("last"), 0, "a run that hangs could be the reason of a death");
    let other = Bridge::start(config(redis.server(), "jobs"), there.handlers(), |_| {}).unwrap();
    there.wait_for("last", 1);
    until("all are done", || redis.number("XLEN jobs") == 0);
    here.add("open");
    other.stop(LONG);
    hung.stop(LONG);
    assert_eq!(here.of("last"), 0);
}

#[test]
fn a_job_that_must_run_alone_waits_for_long_runs_and_lets_others_pass() {
    let Some(redis) = Redis::start("a_job_that_must_run_alone_waits", &[]) else { return };
    push(&redis, &["gated"]);
    let count = Count::default();
    let mut config = config(redis.server(), "jobs");
    config.max_active = 3;
    let bridge = Bridge::start(config, gated(&count), |_| {}).unwrap();
    count.wait_for("gated begun", 1);
    orphans(&redis, &["last"], BEFORE_LAST);
    // The consumer waits for the long run, hands the job back, and fetches others.
    until("it was handed back", || bridge.counters().handed_back > 0);
    push(&redis, &["a", "b", "c"]);
    count.wait_for("a", 1);
    count.wait_for("b", 1);
    count.wait_for("c", 1);
    assert_eq!((count.of("last"), count.of("gated")), (0, 0));
    count.add("open");
    count.wait_for("last", 1);
    until("all are done", || redis.number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.dead, 0);
}

#[test]
fn a_long_run_is_alone_for_a_time_and_then_others_run_beside_it() {
    let Some(redis) = Redis::start("a_long_run_is_alone_for_a_time", &[]) else { return };
    orphans(&redis, &["gated"], BEFORE_LAST);
    let count = Count::default();
    let mut settings = config(redis.server(), "jobs");
    settings.heartbeat = Duration::from_millis(100);
    let bridge = Bridge::start(settings, gated(&count), |_| {}).unwrap();
    count.wait_for("gated begun", 1);
    push(&redis, &["other"]);
    count.wait_for("other", 1);
    assert_eq!(count.of("gated"), 0);
    assert!(pending(&redis).is_some_and(|(_, _, of)| (of / FLAGS) & ALONE == 0), "it is not alone");
    count.add("open");
    until("all are done", || redis.number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.dead, 0);
}

// Catches: a long job whose consumers are killed from outside is buried for a single death alone.
#[test]
fn two_deaths_alone_are_no_proof_and_a_run_beside_others_ends_the_row() {
    let Some(redis) = Redis::start("two_deaths_alone_are_no_proof", &[]) else { return };
    orphans(&redis, &["gated"], ALONE * FLAGS + 3 * BEGUN + 2 * LONELY + 2);
    let count = Count::default();
    let mut settings = config(redis.server(), "jobs");
    settings.heartbeat = Duration::from_millis(100);
    let bridge = Bridge::start(settings, gated(&count), |_| {}).unwrap();
    count.wait_for("gated begun", 1);
    let lonely = |of: u64| of % BEGUN / LONELY;
    until("others may run beside it", || {
        pending(&redis).is_some_and(|(_, _, of)| (of / FLAGS) & ALONE == 0 && lonely(of) == 0)
    });
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    assert_eq!((bridge.stop(LONG).counters.dead, count.of("gated")), (0, 1));
}

#[test]
fn a_verdict_is_kept_by_the_takeover_that_follows_it() {
    let Some(redis) = Redis::start("a_verdict_is_kept_by_the_takeover", &[]) else { return };
    // A consumer has decided that the owner of the last run is dead, has taken the job over, and has
    // handed it back: it had no memory for it.
    orphans(&redis, &["poison"], ALONE * FLAGS + 3 * BEGUN + 3 * LONELY + 2);
    let (count, lines) = (Count::default(), Count::default());
    let settings = config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(settings, count.handlers(), lines.reports()).unwrap();
    // Without another look at its owner, which takes three heartbeats.
    lines.wait_line(" after 3 attempt(s): its consumer died each time");
    assert_eq!((bridge.stop(LONG).counters.dead, count.sum()), (1, 0));
}

#[test]
fn a_large_suspect_is_not_read_at_each_look() {
    const PAYLOAD: usize = 32 << 20;
    let Some(redis) = Redis::start("a_large_suspect", &[]) else { return };
    let info = |section: &str, name: &str| {
        let info = text(redis.ask(&format!("INFO {section}")));
        let value = info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        value.split(',').next().unwrap().trim().parse::<u64>().unwrap()
    };
    // Its attempts are used up, the last one alone.
    orphan(&redis, &"x".repeat(PAYLOAD), 0, (ALONE + OWN) * FLAGS + 3 * BEGUN + 3 * LONELY + 1);
    let count = Count::default();
    let settings = config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(settings, count.handlers(), |_| {}).unwrap();
    let looks = || info("commandstats", "cmdstat_xpending:calls=");
    let before = looks();
    until("it was looked at", || {
        let of_scripts = info("memory", "used_memory_lua:");
        assert!(of_scripts < PAYLOAD as u64 / 2, "{} MiB", of_scripts >> 20);
        looks() >= before + 10
    });
    assert_eq!((bridge.counters().dead, bridge.stop(LONG).counters.reclaimed), (0, 0));
}

#[test]
fn an_owner_that_lives_is_heard_until_its_job_is_buried() {
    let Some(redis) = Redis::start("an_owner_that_lives_is_heard", &[]) else { return };
    // It decides that the owner is dead, and cannot bury the job yet.
    redis.ask("ACL SETUSER undertaker on >secret ~jobs ~{jobs}:stats ~{jobs}:delayed +@all");
    orphans(&redis, &["gated"], BEFORE_LAST);
    let (count, other, lines) = (Count::default(), Count::default(), Count::default());
    let proxy = Proxy::to(redis.port());
    let cut_off = Bridge::start(config(server_at(&proxy.url()), "jobs"), gated(&count), |_| {});
    let cut_off = cut_off.unwrap();
    until("it runs alone", || runs_alone(&redis));
    proxy.close();
    let at = server_at(&format!("redis://undertaker:secret@127.0.0.1:{}", redis.port()));
    let live = Bridge::start(config(at, "jobs"), other.handlers(), lines.reports()).unwrap();
    until("the verdict is made", || {
        pending(&redis).is_some_and(|(owner, ..)| owner == live.consumer())
    });
    lines.wait_line("docs/bridge.md has the ACL rules");
    proxy.open();
    until("its owner says that it lives", || {
        pending(&redis).is_some_and(|(_, _, of)| (of / FLAGS) & LIVES != 0 && of % FLAGS < BEGUN)
    });
    redis.ask("ACL SETUSER undertaker ~{jobs}:dead");
    until("it is handed back", || live.counters().handed_back > 0);
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    until("the late outcome is answered", || cut_off.counters().held == 0);
    let dead = cut_off.stop(LONG).counters.dead + live.stop(LONG).counters.dead;
    assert_eq!((dead, redis.number("XLEN {jobs}:dead")), (0, 0));
}

#[test]
fn a_consumer_stops_although_the_server_refuses_its_sign_of_life() {
    let Some(redis) = Redis::start("a_consumer_stops_although", &[]) else { return };
    push(&redis, &["gated"]);
    let (count, lines) = (Count::default(), Count::default());
    let settings = config(redis.server(), "jobs");
    let bridge = Bridge::start(settings, gated(&count), lines.reports()).unwrap();
    until("the server knows of its run", || pending(&redis).is_some_and(|(_, _, of)| of >= BEGUN));
    redis.ask("SET {jobs}:dead text");
    // Its next heartbeat finds no entry: it may have been buried.
    redis.ask("DEL jobs");
    redis.ask("XGROUP CREATE jobs uwork 0 MKSTREAM");
    let since = Since::now();
    lines.wait_line("WRONGTYPE");
    since.assert_no_hot_loop(bridge.counters().faults);
    count.add("open");
    bridge.stop(LONG);
}

#[test]
fn a_sign_of_life_ends_with_the_owner_that_has_learnt_of_it() {
    let Some(redis) = Redis::start("a_sign_of_life_ends_with_the_owner", &[]) else { return };
    // One consumer was spared, and another has died since.
    orphans(&redis, &["gated"], LIVES * FLAGS + BEGUN + 1);
    let count = Count::default();
    let bridge = Bridge::start(config(redis.server(), "jobs"), gated(&count), |_| {}).unwrap();
    count.wait_for("gated begun", 1);
    assert!(
        pending(&redis)
            .is_some_and(|(_, _, of)| { (of / FLAGS) & LIVES == 0 && of % FLAGS / BEGUN == 2 })
    );
    count.add("open");
    until("it is done", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
}
