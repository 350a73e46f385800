//! Several groups on one stream: each runs each job once, and an entry lives until all have it done.

use std::time::Duration;

use uwork_bridge::{
    Backoff, Bridge, Config, DeadLetters, Failure, Handlers, Producer, Push, Reply,
};

use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::server::Redis;

const JOBS: usize = 50;

fn of_group(redis: &Redis, group: &str) -> Config {
    let mut config = config(redis.server(), "jobs");
    config.group = group.to_owned();
    config
}

fn push(redis: &Redis, jobs: usize) {
    let pushes = (0..jobs).map(|n| Push::new(n.to_string())).collect();
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push_all(pushes).unwrap();
}

#[test]
fn each_group_runs_each_job_one_group_after_the_other() {
    let Some(redis) = Redis::start("each_group_runs_each_job", &[]) else { return };
    redis.ask("XGROUP CREATE jobs audit 0 MKSTREAM");
    push(&redis, JOBS);
    for (group, left) in [("mail", JOBS), ("audit", 0)] {
        let count = Count::default();
        let bridge = Bridge::start(of_group(&redis, group), count.handlers(), |_| {}).unwrap();
        count.wait_distinct(JOBS);
        assert_eq!(bridge.stop(LONG).counters.done, JOBS as u64);
        assert_eq!((count.sum(), redis.number("XLEN jobs")), (JOBS as u64, left as i64), "{group}");
    }
}

#[test]
fn retries_and_dead_letters_belong_to_the_group_that_failed() {
    let Some(redis) = Redis::start("retries_and_dead_letters_belong", &[]) else { return };
    redis.ask("XGROUP CREATE jobs audit 0 MKSTREAM");
    redis.ask("XGROUP CREATE jobs mail 0");
    push(&redis, JOBS);
    let (mail, audit) = (Count::default(), Count::default());
    let runs = mail.clone();
    let fails = Handlers::new().otherwise(move |job| {
        let payload = String::from_utf8_lossy(job.payload());
        runs.add(format!("{payload} {}", job.attempt()));
        match (job.attempt(), payload.ends_with('7')) {
            (1, _) | (_, true) => Err(Failure::again("once more")),
            _ => Ok(Reply::done()),
        }
    });
    let effect = audit.clone();
    let works = Handlers::new().otherwise(move |job| {
        effect.add(String::from_utf8_lossy(job.payload()));
        Ok(Reply::done().effect(["INCRBY", "balance", "1"]))
    });
    let mail_bridge = Bridge::start(of_group(&redis, "mail"), fails, |_| {}).unwrap();
    let audit_bridge = Bridge::start(of_group(&redis, "audit"), works, |_| {}).unwrap();
    // Of five jobs all three attempts fail, of the others one.
    mail.wait_distinct(2 * JOBS + JOBS / 10);
    audit.wait_distinct(JOBS);
    until("the stream is empty", || {
        redis.number("XLEN jobs") + redis.number("ZCARD {jobs}:delayed") == 0
    });
    let (mail_done, audit_done) =
        (mail_bridge.stop(LONG).counters, audit_bridge.stop(LONG).counters);
    assert_eq!((mail_done.done, mail_done.dead), ((JOBS - JOBS / 10) as u64, (JOBS / 10) as u64));
    assert_eq!((audit_done.done, audit_done.dead), (JOBS as u64, 0));
    assert_eq!((audit.sum(), redis.number("GET balance")), (JOBS as u64, JOBS as i64));
    assert!(redis.first("{jobs}:dead").contains("g=mail"));
}

#[test]
fn entries_that_a_foreign_program_acknowledges_last_are_deleted_by_the_next_end_of_a_consumer() {
    let Some(redis) = Redis::start("entries_that_a_foreign_program", &[]) else { return };
    redis.ask("XGROUP CREATE jobs foreign 0 MKSTREAM");
    push(&redis, JOBS);
    redis.ask("XREADGROUP GROUP foreign one COUNT 20 STREAMS jobs >");
    let run = || {
        let count = Count::default();
        let bridge = Bridge::start(of_group(&redis, "mail"), count.handlers(), |_| {}).unwrap();
        until("the group has none left", || {
            let redis::Value::Array(about) = redis.ask("XPENDING jobs mail") else { panic!() };
            about[0] == redis::Value::Int(0)
                && redis.number("HGET {jobs}:stats done") == JOBS as i64
        });
        bridge.stop(Duration::ZERO);
    };
    run();
    assert_eq!(redis.number("XLEN jobs"), JOBS as i64, "twenty are pending there, thirty unread");
    redis.ask("XREADGROUP GROUP foreign one STREAMS jobs >");
    let redis::Value::Array(rows) = redis.ask("XPENDING jobs foreign - + 100") else { panic!() };
    for (nth, row) in rows.iter().enumerate() {
        let redis::Value::Array(row) = row else { panic!() };
        let redis::Value::BulkString(id) = &row[0] else { panic!() };
        if nth != 10 {
            redis.ask(&format!("XACK jobs foreign {}", String::from_utf8_lossy(id)));
        }
    }
    run();
    assert_eq!(redis.number("XLEN jobs"), JOBS as i64 - 10, "the eleventh is pending there");
}

#[test]
fn entries_that_only_a_destroyed_group_needed_are_deleted_unless_entries_are_kept() {
    let Some(redis) = Redis::start("entries_that_only_a_destroyed_group", &[]) else { return };
    redis.ask("XGROUP CREATE jobs mail 0 MKSTREAM");
    let run = |keep, jobs| {
        let count = Count::default();
        let mut settings = of_group(&redis, "audit");
        settings.keep = keep;
        let bridge = Bridge::start(settings, count.handlers(), |_| {}).unwrap();
        push(&redis, jobs);
        count.wait_distinct(jobs);
        bridge.stop(LONG);
        redis.number("XLEN jobs")
    };
    assert_eq!(run(false, JOBS), JOBS as i64, "the other group has none done");
    redis.ask("XGROUP DESTROY jobs mail");
    assert_eq!(run(true, 2), JOBS as i64 + 2);
    assert_eq!(run(false, 1), 0);
}

#[test]
fn fields_of_other_programs_are_no_retries() {
    let Some(redis) = Redis::start("fields_of_other_programs", &[]) else { return };
    redis.ask("XGROUP CREATE jobs uwork 0 MKSTREAM");
    redis.ask("XGROUP CREATE jobs audit 0");
    redis.ask("XADD jobs * p group g gold");
    redis.ask("XADD jobs * p attempts n 7 e why");
    redis.ask("XADD jobs * p first n 7 g audit o gold");
    let (count, runs) = (Count::default(), Count::default());
    let seen = runs.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        let payload = String::from_utf8_lossy(job.payload()).into_owned();
        seen.add(format!("{payload} {} {:?}", job.attempt(), job.last_error()));
        if job.attempt() == 1 { Err(Failure::again("once more")) } else { Ok(Reply::done()) }
    });
    let audit = Bridge::start(of_group(&redis, "audit"), count.handlers(), |_| {}).unwrap();
    let bridge = Bridge::start(of_group(&redis, "uwork"), handlers, |_| {}).unwrap();
    for payload in ["group", "attempts", "first"] {
        runs.wait_for(&format!("{payload} 1 None"), 1);
        runs.wait_for(&format!("{payload} 2 Some(\"once more\")"), 1);
        count.wait_for(payload, 1);
    }
    until("each group has all done", || redis.number("XLEN jobs") == 0);
    assert_eq!((bridge.stop(LONG).counters.dead, audit.stop(LONG).counters.done), (0, 3));
    assert_eq!((runs.sum(), count.sum()), (6, 3), "retries belong to the group that failed");
}

#[test]
fn retries_and_replays_of_a_group_that_was_destroyed_run_in_the_others() {
    let Some(redis) = Redis::start("retries_and_replays_of_a_group", &[]) else { return };
    for group in ["audit", "mail", "late"] {
        redis.ask(&format!("XGROUP CREATE jobs {group} 0 MKSTREAM"));
    }
    push(&redis, 2);
    let mut settings = of_group(&redis, "mail");
    settings.backoff = Backoff { first: LONG, max: LONG };
    let fails = Handlers::new().otherwise(|job| match job.payload() {
        b"0" => Err(Failure::dead("no")),
        _ => Err(Failure::again("later")),
    });
    let bridge = Bridge::start(settings, fails, |_| {}).unwrap();
    until("one job is delayed and one is dead", || {
        redis.number("ZCARD {jobs}:delayed") + redis.number("XLEN {jobs}:dead") == 2
    });
    bridge.stop(LONG);
    let audit = Count::default();
    let bridge = Bridge::start(of_group(&redis, "audit"), audit.handlers(), |_| {}).unwrap();
    audit.wait_distinct(2);
    redis.ask("XGROUP DESTROY jobs mail");
    DeadLetters::new(redis.server(), "jobs").replay_all().unwrap();
    let redis::Value::Array(members) = redis.ask("ZRANGE {jobs}:delayed 0 -1") else { panic!() };
    let [redis::Value::BulkString(member)] = &members[..] else { panic!("{members:?}") };
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    redis::cmd("ZADD").arg("{jobs}:delayed").arg(1).arg(member).exec(&mut connection).unwrap();
    for payload in ["0", "1"] {
        audit.wait_for(payload, 2);
    }
    let late = Count::default();
    let other = Bridge::start(of_group(&redis, "late"), late.handlers(), |_| {}).unwrap();
    for payload in ["0", "1"] {
        late.wait_for(payload, 2);
    }
    until("each group has all done", || redis.number("XLEN jobs") == 0);
    assert_eq!((bridge.stop(LONG).counters.done, other.stop(LONG).counters.done), (4, 4));
    assert_eq!((audit.sum(), late.sum()), (4, 4), "once each, and once as a retry");
}
