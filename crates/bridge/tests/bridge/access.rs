//! The rules of the server's access list that docs/bridge.md names: they suffice.

use std::time::Duration;

use uwork_bridge::{Bridge, DeadLetters, ErrorKind, Failure, Handlers, HeldJob, Producer, Push};
use uwork_bridge::{Reply, Results, Stat};

use crate::support::count::{Count, LONG, config, config_never_late};
use crate::support::owned::Folder;
use crate::support::patience::until;
use crate::support::server::{Redis, server_at};

const GUIDE: &str = include_str!("../../../../docs/bridge.md");

/// The file of users in the guide, but the test's own user keeps its rights.
fn users() -> String {
    let lines = GUIDE.lines().filter(|line| line.starts_with("user "));
    let lines: Vec<&str> = lines.filter(|&line| line != "user default off").collect();
    assert_eq!(lines.len(), 3, "the guide has rules for an administrator and two users");
    format!("user default on nopass ~* &* +@all\n{}\n", lines.join("\n"))
}

/// The rules of a user in the guide, behind its name.
pub(crate) fn rules(user: &str) -> &'static str {
    let rules = GUIDE.lines().find_map(|line| line.strip_prefix(&format!("user {user} ")));
    rules.expect("the guide has this user")
}

/// The rules in a row of the guide's table.
fn row(name: &str) -> &'static str {
    let line = GUIDE.lines().find(|line| line.starts_with(&format!("| {name}")));
    line.expect("the guide has this row").rsplit('`').nth(1).unwrap()
}

#[test]
fn the_documented_rules_suffice_for_a_consumer_and_a_producer() {
    let folder = Folder::new();
    let file = folder.file("users.acl");
    std::fs::write(&file, users()).unwrap();
    let flags = ["--aclfile", &file];
    let Some(redis) = Redis::start("the_documented_rules_suffice", &flags) else { return };
    let at = |user: &str| server_at(&format!("redis://{user}:secret@127.0.0.1:{}", redis.port()));
    let mut producer = Producer::new(vec![at("producer")], "jobs", 1).unwrap();
    assert_eq!(producer.look().unwrap(), [""; 0]);
    let redis::Value::Array(denied) = redis.ask("ACL LOG") else { panic!() };
    assert!(denied.is_empty(), "{denied:?}");
    producer.push(Push::new("now")).unwrap();
    producer.push(Push::new("later").id("7").delay(Duration::from_millis(1))).unwrap();
    producer.push(Push::new("fails")).unwrap();
    let (count, lines) = (Count::default(), Count::default());
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(String::from_utf8_lossy(job.payload()));
        if job.payload() == b"fails" { Err(Failure::again("no")) } else { Ok(Reply::result("r")) }
    });
    let mut settings = config(at("consumer"), "jobs");
    settings.results = Results::Key(LONG);
    let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
    count.wait_for("now", 1);
    count.wait_for("later", 1);
    lines.wait_line(" after 3 attempt(s): no");
    let stopped = bridge.stop(LONG);
    assert_eq!(stopped.counters.done, 2);
    lines.assert_nothing_refused();
    let stat = Stat::read(at("consumer"), "jobs", "uwork").unwrap();
    assert_eq!((stat.done, stat.dead_letters, stat.lag), (2, 1, 0));
    assert!(HeldJob::read(at("consumer"), "jobs", "uwork", 10).unwrap().is_empty());
    let mut letters = DeadLetters::new(at("consumer"), "jobs");
    assert_eq!(letters.page(None, 10, 10).unwrap().len(), 1);
    let settled = [letters.replay_all().unwrap().settled, letters.remove_all().unwrap().settled];
    assert_eq!((settled, redis.number("XLEN jobs")), ([1, 0], 1));
    redis.ask("DEL jobs");
    let push = |stream: &str, shards: u32| {
        let producer = Producer::new(vec![at("producer")], stream, shards);
        producer.unwrap().push(Push::new("x").id("x")).map_err(|error| error.kind())
    };
    assert_eq!(push("high", 1).unwrap_err(), ErrorKind::Denied);
    assert_eq!(push("jobs", 4).unwrap_err(), ErrorKind::Denied);
    let rows = [row("shards"), row("a second stream"), row("effects")].join(" ");
    redis.ask(&format!("ACL SETUSER producer {rows}"));
    redis.ask(&format!("ACL SETUSER consumer {rows}"));
    push("jobs", 4).unwrap();
    push("high", 1).unwrap();
    for (streams, shards) in [(&["jobs"][..], 4), (&["high", "jobs"], 1)] {
        let mut settings = config(at("consumer"), "jobs");
        settings.streams = streams.iter().map(|&stream| stream.to_owned()).collect();
        settings.shards = shards;
        let effect = |_: &uwork_bridge::Job| Ok(Reply::done().effect(["INCRBY", "balance:7", "1"]));
        let handlers = Handlers::new().otherwise(effect);
        let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
        until("the job is done", || bridge.counters().done == 1);
        bridge.stop(LONG);
    }
    lines.assert_nothing_refused();
    assert_eq!(redis.number("GET balance:7"), 2);
}

#[test]
fn a_right_that_is_missing_in_a_script_is_named_with_the_place_of_the_rules() {
    let Some(redis) = Redis::start("a_right_that_is_missing_in_a_script", &[]) else { return };
    redis.ask("ACL SETUSER poor on >secret ~* +@all -zadd");
    let at = |user: &str| server_at(&format!("redis://{user}:secret@127.0.0.1:{}", redis.port()));
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new("job")).unwrap();
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|_| Err(Failure::again("once more")));
    let bridge = Bridge::start(config(at("poor"), "jobs"), handlers, lines.reports()).unwrap();
    lines
        .wait_line("the server says: ZADD {jobs}:delayed: ERR The user executing the script can't");
    lines.wait_line("; docs/bridge.md has the ACL rules");
    redis.ask("ACL SETUSER poor +zadd");
    lines.wait_line(" after 3 attempt(s): once more");
    bridge.stop(LONG);
}

/// What becomes of a job while its consumer lacks a right, and then has it.
struct Lack {
    right: &'static str,
    push: Push,
    handler: fn(&uwork_bridge::Job) -> Result<Reply, Failure>,
    /// The jobs that are in the stream, delayed and dead while the right is missing.
    meanwhile: [i64; 3],
    /// The runs of the handler, and the dead letters in the end.
    ends: [u64; 2],
}

#[test]
fn a_right_that_a_script_lacks_leaves_each_job_in_one_place_and_no_run_is_repeated() {
    let Some(redis) = Redis::start("a_right_that_a_script_lacks", &[]) else { return };
    let server = server_at(&format!("redis://worker:secret@127.0.0.1:{}", redis.port()));
    let later = || Push::new("job").delay(Duration::from_millis(1));
    let once = |_: &uwork_bridge::Job| Ok(Reply::done());
    let again = |job: &uwork_bridge::Job| match job.attempt() {
        1 => Err(Failure::again("once more")),
        _ => Ok(Reply::done()),
    };
    let never = |_: &uwork_bridge::Job| Err(Failure::dead("no"));
    let effect = |_: &uwork_bridge::Job| Ok(Reply::done().effect(["INCRBY", "balance:7", "1"]));
    let now = || Push::new("job");
    for Lack { right, push, handler, meanwhile, ends } in [
        Lack { right: "zrem", push: later(), handler: once, meanwhile: [0, 1, 0], ends: [1, 0] },
        Lack { right: "xack", push: now(), handler: again, meanwhile: [1, 0, 0], ends: [2, 0] },
        Lack { right: "xack", push: now(), handler: never, meanwhile: [1, 0, 0], ends: [1, 1] },
        Lack { right: "xack", push: now(), handler: effect, meanwhile: [1, 0, 0], ends: [1, 0] },
        Lack { right: "xack", push: now(), handler: once, meanwhile: [1, 0, 0], ends: [1, 0] },
        Lack { right: "xdel", push: now(), handler: once, meanwhile: [1, 0, 0], ends: [1, 0] },
        Lack { right: "xdel", push: now(), handler: again, meanwhile: [1, 0, 0], ends: [2, 0] },
        Lack { right: "xdel", push: now(), handler: never, meanwhile: [1, 0, 0], ends: [1, 1] },
        Lack { right: "xdel", push: now(), handler: effect, meanwhile: [1, 0, 0], ends: [1, 0] },
        Lack { right: "zadd", push: now(), handler: again, meanwhile: [1, 0, 0], ends: [2, 0] },
        Lack { right: "xadd", push: now(), handler: never, meanwhile: [1, 0, 0], ends: [1, 1] },
    ] {
        redis.ask("FLUSHALL");
        redis.ask("ACL SETUSER worker on >secret ~* +@all");
        redis.ask(&format!("ACL SETUSER worker -{right}"));
        Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(push).unwrap();
        let (runs, lines) = (Count::default(), Count::default());
        let count = runs.clone();
        let handlers = Handlers::new().otherwise(move |job| {
            count.add(job.attempt().to_string());
            handler(job)
        });
        let bridge = Bridge::start(config(server.clone(), "jobs"), handlers, lines.reports());
        let bridge = bridge.unwrap();
        lines.wait_line(&format!("the server says: {} ", right.to_uppercase()));
        until("it was refused a few times", || bridge.counters().faults >= 3);
        let places =
            || ["XLEN jobs", "ZCARD {jobs}:delayed", "XLEN {jobs}:dead"].map(|of| redis.number(of));
        assert_eq!(places(), meanwhile, "without {right}");
        assert_eq!(redis.pending("jobs"), meanwhile[0], "without {right}");
        redis.ask(&format!("ACL SETUSER worker +{right}"));
        until("the job has ended", || bridge.counters().done + bridge.counters().dead == 1);
        let counters = bridge.stop(LONG).counters;
        assert_eq!([runs.sum(), counters.dead], ends, "without {right}");
        assert_eq!((counters.duplicates, counters.lost), (0, 0), "without {right}");
        assert_eq!(places(), [0, 0, counters.dead as i64], "without {right}");
        assert_eq!(redis.pending("jobs"), 0, "without {right}");
    }
}

// Catches: a refusal that looks like a mark.
#[test]
fn a_job_that_ran_twice_is_not_counted_without_the_right_to_its_mark() {
    let Some(redis) = Redis::start("a_job_that_ran_twice_is_not_counted", &[]) else { return };
    redis.ask("ACL SETUSER worker on >secret +@all ~jobs ~{jobs}:[sd]*");
    redis.ask("XGROUP CREATE jobs uwork 0 MKSTREAM");
    let at = format!("redis://worker:secret@127.0.0.1:{}", redis.port());
    for is_granted in [false, true] {
        redis.ask("XADD jobs * p job");
        redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
        // It has begun, and its consumer has died.
        let id = redis.entry("jobs");
        redis.ask(&format!("XCLAIM jobs uwork ghost 0 {id} RETRYCOUNT 1000001 JUSTID"));
        redis.forget_signs_of_life("jobs", "ghost");
        let count = Count::default();
        let config = config_never_late(server_at(&at), "jobs");
        let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
        until("the job is done", || bridge.counters().done == 1);
        assert_eq!(bridge.stop(LONG).counters.duplicates, u64::from(is_granted));
        let duplicates = redis.number("HGET {jobs}:stats duplicates");
        assert_eq!(duplicates, i64::from(is_granted));
        redis.ask("ACL SETUSER worker ~*");
    }
}

#[test]
fn a_takeover_without_the_right_to_look_takes_nothing() {
    let Some(redis) = Redis::start("a_takeover_without_the_right", &[]) else { return };
    redis.ask("ACL SETUSER worker on >secret ~* +@all");
    redis.ask("XGROUP CREATE jobs uwork 0 MKSTREAM");
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new("job")).unwrap();
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    let at = format!("redis://worker:secret@127.0.0.1:{}", redis.port());
    let (count, lines) = (Count::default(), Count::default());
    let config = config_never_late(server_at(&at), "jobs");
    let bridge = Bridge::start(config, count.handlers(), lines.reports()).unwrap();
    redis.ask("ACL SETUSER worker -xpending");
    redis.forget_signs_of_life("jobs", "ghost");
    lines.wait_line("; docs/bridge.md has the ACL rules");
    until("it was refused a few times", || bridge.counters().faults >= 3);
    let held = HeldJob::read(redis.server(), "jobs", "uwork", 10).unwrap();
    let job = held.iter().find(|(of, _)| of.name == "ghost").map(|(_, jobs)| &jobs[0]).unwrap();
    assert_eq!((job.deliveries, job.begun), (1, 0), "{held:?}");
    redis.ask("ACL SETUSER worker +xpending");
    count.wait_for("job", 1);
    assert_eq!(bridge.stop(LONG).counters.done, 1);
}

// Catches: a refusal that looks like a stream without letters.
#[test]
fn all_letters_are_not_settled_without_the_right_to_find_the_last_one() {
    let Some(redis) = Redis::start("all_letters_are_not_settled", &[]) else { return };
    redis.ask("ACL SETUSER operator on >secret ~* +@all -xinfo");
    redis.ask("XADD {jobs}:dead * p job n 1 e why");
    let at = format!("redis://operator:secret@127.0.0.1:{}", redis.port());
    let mut letters = DeadLetters::new(server_at(&at), "jobs");
    for error in [letters.replay_all().unwrap_err(), letters.remove_all().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("XINFO STREAM"), "{error}");
    }
    redis.ask("ACL SETUSER operator +xinfo");
    assert_eq!(letters.replay_all().unwrap().settled, 1);
    redis.ask("DEL {jobs}:dead");
    assert_eq!(letters.replay_all().unwrap().settled, 0, "there is no letter");
}
