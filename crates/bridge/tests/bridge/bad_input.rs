//! Bad input: one clear line, a retry or a dead letter, never a lost job or a hot loop.

use std::time::Duration;

use uwork_bridge::{
    Bridge, Config, DeadLetters, ErrorKind, Failure, Handlers, Producer, Push, Reply, Results,
    Server,
};

use crate::support::address::Address;
use crate::support::count::{Count, LONG, Since, config, config_never_late};
use crate::support::patience::until;
use crate::support::server::{Redis, add_wide, server_at};

fn push(redis: &Redis, push: Push) {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(push).unwrap();
}

fn refusal(config: Config) -> (ErrorKind, String) {
    let error = Bridge::start(config, Count::default().handlers(), |_| {}).unwrap_err();
    assert!(!error.to_string().contains('\n'));
    (error.kind(), error.to_string())
}

#[test]
fn payloads_that_the_handler_does_not_take_become_dead_letters_at_once() {
    let Some(redis) = Redis::start("payloads_that_the_handler_does_not_take", &[]) else { return };
    push(&redis, Push::new("{]").handler("typed"));
    push(&redis, Push::new("").handler("typed"));
    push(&redis, Push::new("7").handler("unknown"));
    redis.ask("XADD jobs * color red");
    let lines = Count::default();
    let handlers = Handlers::new().typed("typed", |_: u64, _| Ok::<(), Failure>(()));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    until("all jobs are dead letters", || bridge.counters().dead == 4);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.retries), (0, 2), "only the unknown name is tried again");
    lines.wait_line("after 1 attempt(s): the payload is not valid: ");
    lines.wait_line("the payload is not valid: EOF while parsing");
    lines.wait_line("after 3 attempt(s): no handler is named \"unknown\"; this consumer has typed");
    lines.wait_line("the entry has no field \"p\"");
    assert_eq!(redis.number("XLEN {jobs}:dead"), 4);
}

#[test]
fn a_payload_of_64_mib_and_an_empty_one_are_jobs_like_others() {
    let Some(redis) = Redis::start("a_payload_of_64_mib", &[]) else { return };
    push(&redis, Push::new(vec![b'x'; 64 << 20]));
    push(&redis, Push::new(""));
    let count = Count::default();
    let sizes = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        sizes.add(job.payload().len().to_string());
        if job.attempt() == 1 { Err(Failure::again("once more")) } else { Ok(Reply::done()) }
    });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, |_| {}).unwrap();
    count.wait_for(&(64 << 20).to_string(), 2);
    count.wait_for("0", 2);
    assert_eq!(bridge.stop(LONG).counters.done, 2);
}

// Catches: a dead letter or a retry that is counted and does not exist.
#[test]
fn an_entry_that_another_program_deletes_is_one_line_and_no_dead_letter() {
    let Some(redis) = Redis::start("an_entry_that_another_program_deletes", &[]) else { return };
    for (heartbeat, attempts_max) in [(LONG, 1), (LONG, 3), (Duration::from_millis(600), 1)] {
        push(&redis, Push::new("x"));
        let (runs, gate, lines) = (Count::default(), Count::default(), Count::default());
        let (began, open) = (runs.clone(), gate.clone());
        let handlers = Handlers::new().otherwise(move |_| {
            began.add("run");
            uwork::blocking(|| open.wait_for("open", 1));
            Err(Failure::again("it fails"))
        });
        let mut settings = config(redis.server(), "jobs");
        (settings.heartbeat, settings.attempts_max) = (heartbeat, attempts_max);
        let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
        runs.wait_for("run", 1);
        redis.ask("XTRIM jobs MAXLEN 0");
        if heartbeat != LONG {
            lines.wait_line("another program has deleted ");
        }
        gate.add("open");
        until("the run has ended", || bridge.counters().lost == 1);
        let counters = bridge.stop(LONG).counters;
        assert_eq!((counters.done, counters.dead, counters.retries), (0, 0, 0));
        let said = lines.lines();
        let gone = said.iter().filter(|line| line.contains("another program has deleted ")).count();
        assert_eq!((gone, runs.of("run")), (1, 1), "{said:#?}");
        assert!(!said.iter().any(|line| line.contains(" attempt(s)")), "{said:#?}");
        assert_eq!(redis.number("XLEN {jobs}:dead") + redis.number("ZCARD {jobs}:delayed"), 0);
    }
}

#[test]
fn a_key_of_another_type_fails_the_start_and_a_later_one_is_reported_once() {
    let Some(redis) = Redis::start("a_key_of_another_type_fails", &[]) else { return };
    redis.ask("SET jobs text");
    let (kind, line) = refusal(config(redis.server(), "jobs"));
    assert_eq!(kind, ErrorKind::Refused);
    assert!(line.contains("WRONGTYPE") && line.contains("another name"), "{line}");
    redis.ask("DEL jobs");
    let lines = Count::default();
    let count = Count::default();
    let reports = lines.reports();
    let since = Since::now();
    let bridge = Bridge::start(config(redis.server(), "jobs"), count.handlers(), reports).unwrap();
    redis.ask("SET jobs text");
    until("all purposes have met it, some often", || bridge.counters().faults >= 20);
    redis.ask("DEL jobs");
    // The group is made again, from the first entry on.
    push(&redis, Push::new("after"));
    count.wait_for("after", 1);
    since.assert_no_hot_loop(bridge.stop(LONG).counters.faults);
    assert_reported_once(&lines);
}

/// A key of another type was one line, and its end at most another.
fn assert_reported_once(lines: &Count) {
    let lines = lines.lines();
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert!(count("WRONGTYPE") == 1 && count("works again") <= 1, "{lines:#?}");
}

#[test]
fn delayed_jobs_of_another_type_are_reported_once_while_other_jobs_run() {
    let Some(redis) = Redis::start("delayed_jobs_of_another_type", &[]) else { return };
    redis.ask("SET {jobs}:delayed text");
    let (count, lines) = (Count::default(), Count::default());
    let handlers = count.handlers().add("fails", |_| Err(Failure::again("once more")));
    let since = Since::now();
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    // Its retry is refused, and it waits here.
    push(&redis, Push::new("fails").handler("fails"));
    let mut pushed = 0;
    until("promotions and the retry were refused often", || {
        push(&redis, Push::new(pushed.to_string()));
        count.wait_for(&pushed.to_string(), 1);
        pushed += 1;
        bridge.counters().faults >= 10
    });
    assert_reported_once(&lines);
    since.assert_no_hot_loop(bridge.counters().faults);
    redis.ask("DEL {jobs}:delayed");
    lines.wait_line(" after 3 attempt(s): once more");
    lines.wait_line("works again");
    assert_eq!(bridge.stop(LONG).counters.done, pushed);
    assert_reported_once(&lines);
}

#[test]
fn a_missing_group_is_created_and_misses_no_job() {
    let Some(redis) = Redis::start("a_missing_group_is_created", &[]) else { return };
    push(&redis, Push::new("before"));
    let (count, lines) = (Count::default(), Count::default());
    let reports = lines.reports();
    let bridge = Bridge::start(config(redis.server(), "jobs"), count.handlers(), reports).unwrap();
    count.wait_for("before", 1);
    redis.ask("XGROUP DESTROY jobs uwork");
    push(&redis, Push::new("after"));
    count.wait_for("after", 1);
    lines.wait_line("NOGROUP");
    bridge.stop(LONG);
    assert_eq!(redis.pending("jobs"), 0);
}

#[test]
fn a_missing_or_wrong_password_fails_the_start_in_one_line() {
    let Some(redis) = Redis::start("a_missing_or_wrong_password", &["--requirepass", "right"])
    else {
        return;
    };
    let at = |user: &str| server_at(&format!("redis://{user}127.0.0.1:{}", redis.port()));
    let (kind, line) = refusal(config(at(""), "jobs"));
    assert_eq!(kind, ErrorKind::Denied);
    assert!(line.contains("NOAUTH") && line.contains("PASSWORD"), "{line}");
    let (kind, line) = refusal(config(at(":wrong@"), "jobs"));
    assert_eq!(kind, ErrorKind::Denied, "{line}");
    assert!(!line.contains("wrong@"), "{line}");
    let bridge = Bridge::start(config(at(":right@"), "jobs"), Count::default().handlers(), |_| {});
    bridge.unwrap().stop(LONG);
}

#[test]
fn a_password_that_changes_later_is_reported_and_loses_no_job() {
    let Some(redis) = Redis::start("a_password_that_changes_later", &[]) else { return };
    redis.ask("ACL SETUSER worker on >right allcommands allkeys");
    let server = format!("redis://worker:right@127.0.0.1:{}", redis.port());
    let config = config(server_at(&server), "jobs");
    let (count, lines, since) = (Count::default(), Count::default(), Since::now());
    let bridge = Bridge::start(config, count.handlers(), lines.reports()).unwrap();
    push(&redis, Push::new("before"));
    count.wait_for("before", 1);
    redis.ask("ACL SETUSER worker resetpass >other");
    redis.ask("CLIENT KILL USER worker");
    push(&redis, Push::new("after"));
    let line = lines.wait_line("check user and password");
    assert!(!line.contains("right"), "{line}");
    redis.ask("ACL SETUSER worker resetpass >right");
    count.wait_for("after", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead, count.sum()), (2, 0, 2));
    since.assert_no_hot_loop(counters.faults);
}

#[test]
fn a_server_without_memory_delays_retries_and_loses_none() {
    let Some(redis) = Redis::start("a_server_without_memory", &[]) else { return };
    let (count, lines) = (Count::default(), Count::default());
    for n in 0..20 {
        push(&redis, Push::new(n.to_string()));
    }
    // To create the group takes memory, and nothing else that a start does.
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("CONFIG SET maxmemory 1");
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(format!("{} {}", String::from_utf8_lossy(job.payload()), job.attempt()));
        if job.attempt() == 1 { Err(Failure::again("once more")) } else { Ok(Reply::result("r")) }
    });
    let mut config = config(redis.server(), "jobs");
    config.results = Results::Key(LONG);
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    lines.wait_line("OOM");
    assert_eq!(bridge.counters().done, 0);
    redis.ask("CONFIG SET maxmemory 0");
    count.wait_distinct(40);
    let stopped = bridge.stop(LONG);
    assert_eq!((stopped.counters.done, stopped.counters.dead), (20, 0));
    assert_eq!(count.sum(), 40, "each attempt ran once");
}

#[test]
fn a_handler_that_hangs_fails_at_its_limit_and_its_late_outcome_is_ignored() {
    let Some(redis) = Redis::start("a_handler_that_hangs", &[]) else { return };
    push(&redis, Push::new("hangs"));
    let (count, lines) = (Count::default(), Count::default());
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(format!("run {}", job.attempt()));
        until("the job is abandoned", || job.is_abandoned());
        runs.add("abandoned");
        Ok(Reply::done())
    });
    let mut config = config(redis.server(), "jobs");
    config.limit = Some(Duration::from_millis(100));
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    count.wait_for("abandoned", 3);
    lines.wait_line("after 3 attempt(s): the time limit of 100ms is over");
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.retries, counters.dead), (0, 2, 1));
    assert_eq!(redis.number("XLEN {jobs}:dead"), 1);
}

#[test]
fn a_consumer_whose_handlers_all_hang_leaves_the_jobs_to_the_others() {
    let Some(redis) = Redis::start("a_consumer_whose_handlers_all_hang", &[]) else { return };
    for payload in ["hangs", "hangs", "1", "2", "3"] {
        push(&redis, Push::new(payload));
    }
    let (count, lines) = (Count::default(), Count::default());
    let (runs, gate) = (count.clone(), lines.clone());
    let handlers = Handlers::new().otherwise(move |job| {
        if job.payload() == b"hangs" {
            gate.wait_for("open", 1);
        } else {
            runs.add(format!("first {}", String::from_utf8_lossy(job.payload())));
        }
        Ok(Reply::done())
    });
    let mut stuck = config_never_late(redis.server(), "jobs");
    (stuck.max_active, stuck.attempts_max) = (2, 1);
    stuck.limit = Some(Duration::from_millis(100));
    let first = Bridge::start(stuck, handlers, lines.reports()).unwrap();
    lines.wait_line("all 2 permits belong to runs beyond their time limit");
    let second = config_never_late(redis.server(), "jobs");
    let second = Bridge::start(second, count.handlers(), |_| {}).unwrap();
    for payload in ["1", "2", "3"] {
        count.wait_for(payload, 1);
    }
    assert_eq!(second.stop(LONG).counters.done, 3);
    // A permit that comes back is used again.
    lines.add("open");
    push(&redis, Push::new("4"));
    count.wait_for("first 4", 1);
    let counters = first.stop(LONG).counters;
    // On a busy machine the last job may exceed the time limit too.
    assert!(counters.dead >= 2 && counters.done + counters.dead == 3, "{counters:?}");
    assert_eq!((redis.number("XLEN jobs"), redis.pending("jobs")), (0, 0));
}

/// A panic's payload that panics when it is dropped.
struct Twice;

impl Drop for Twice {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_whose_payload_panics_fails_the_attempt_and_leaves_no_job_without_outcome() {
    let Some(redis) = Redis::start("a_panic_whose_payload_panics", &[]) else { return };
    push(&redis, Push::new("panics"));
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|_| std::panic::panic_any(Twice));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    lines.wait_line(" after 3 attempt(s): the handler panicked");
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.retries, counters.dead, counters.held), (2, 1, 0));
    assert_eq!(redis.pending("jobs"), 0);
}

#[test]
fn two_consumers_with_one_name_share_the_jobs_and_say_so() {
    let Some(redis) = Redis::start("two_consumers_with_one_name", &[]) else { return };
    let (count, lines) = (Count::default(), Count::default());
    let named = || {
        let mut config = config(redis.server(), "jobs");
        config.name = "twin".to_owned();
        config.heartbeat = LONG;
        config
    };
    let first = Bridge::start(named(), count.handlers(), |_| {}).unwrap();
    let second = Bridge::start(named(), count.handlers(), lines.reports()).unwrap();
    lines.wait_line("1 other consumer(s) have the name \"twin\"");
    assert_ne!(first.consumer(), second.consumer());
    for n in 0..500 {
        push(&redis, Push::new(n.to_string()));
    }
    count.wait_distinct(500);
    let done = first.stop(LONG).counters.done + second.stop(LONG).counters.done;
    assert_eq!((done, count.sum()), (500, 500));
}

#[test]
fn an_effect_that_fails_fails_the_attempt() {
    let Some(redis) = Redis::start("an_effect_that_fails", &[]) else { return };
    redis.ask("SET text hello");
    push(&redis, Push::new("bad"));
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|_| Ok(Reply::done().effect(["INCRBY", "text", "1"])));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    let line = lines.wait_line(" after 3 attempt(s): an effect failed: INCRBY");
    assert!(line.contains("not an integer"), "{line}");
    bridge.stop(LONG);
}

#[test]
fn an_effect_that_no_server_can_run_makes_a_dead_letter() {
    let Some(redis) = Redis::start("an_effect_that_no_server_can_run", &[]) else { return };
    push(&redis, Push::new("0"));
    push(&redis, Push::new("9000"));
    push(&redis, Push::new("1000"));
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|job| {
        let words: usize = String::from_utf8_lossy(job.payload()).parse()?;
        let set = ["SADD", "set"].into_iter().map(str::to_owned);
        let members = (2..words.max(2)).map(|n| n.to_string());
        Ok(Reply::done().effect(set.chain(members).take(words)))
    });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    lines.wait_line("after 1 attempt(s): an effect has 0 words: allowed are 1 to 7000");
    lines.wait_line("after 1 attempt(s): an effect has 9000 words");
    until("the job with 1000 words is done", || bridge.counters().done == 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.held), (2, 0));
    lines.assert_nothing_refused();
    assert_eq!(redis.number("SCARD set"), 998);
}

#[test]
fn counters_that_cannot_be_written_stop_no_job_and_bury_none_twice() {
    let Some(redis) = Redis::start("counters_that_cannot_be_written", &[]) else { return };
    redis.ask("SET {jobs}:stats text");
    push(&redis, Push::new("fails"));
    push(&redis, Push::new("works"));
    let count = Count::default();
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(String::from_utf8_lossy(job.payload()));
        if job.payload() == b"fails" { Err(Failure::dead("no")) } else { Ok(Reply::done()) }
    });
    let lines = Count::default();
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    until("both have ended", || {
        let counters = bridge.counters();
        (counters.done, counters.dead) == (1, 1)
    });
    bridge.stop(LONG);
    lines.assert_nothing_refused();
    assert_eq!((count.sum(), redis.number("XLEN {jobs}:dead")), (2, 1));
}

#[test]
fn a_dead_letter_stream_of_another_type_is_named_and_loses_no_letter() {
    let Some(redis) = Redis::start("a_dead_letter_stream_of_another_type", &[]) else { return };
    redis.ask("SET {jobs}:dead text");
    push(&redis, Push::new("fails"));
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|_| Err(Failure::dead("no")));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    lines.wait_line("rename the key of another type: the stream, or its :delayed, :dead");
    redis.ask("DEL {jobs}:dead");
    lines.wait_line(" after 1 attempt(s): no");
    bridge.stop(LONG);
    assert_eq!(redis.number("XLEN {jobs}:dead"), 1);
}

#[test]
fn an_unreachable_server_fails_the_start_in_one_line() {
    // No process can listen at this address.
    let address = Address::reserve().unwrap();
    let server = Server::new(&format!("redis://{}", address.socket())).unwrap();
    let lines = Count::default();
    let bridge = Bridge::start(config(server, "jobs"), lines.handlers(), lines.reports());
    assert_eq!(bridge.unwrap_err().kind(), ErrorKind::Unreachable);
    lines.wait_line(": waiting for the server, up to 10 s");
    assert_eq!(lines.sum(), 2, "and one line for all attempts: {:?}", lines.lines());
}

#[test]
fn an_entry_with_thousands_of_fields_is_a_job_like_others_and_loses_none_of_them() {
    const FIELDS: usize = 9_000;
    let Some(redis) = Redis::start("an_entry_with_thousands_of_fields", &[]) else { return };
    let fields: Vec<String> = (0..FIELDS).map(|n| format!("f{n} {n}")).collect();
    // The payload comes last.
    for payload in ["heals", "dies"] {
        redis.ask(&format!("XADD jobs * {} p {payload}", fields.join(" ")));
    }
    for n in 0..20 {
        push(&redis, Push::new(n.to_string()).delay(Duration::from_millis(n)));
    }
    let (count, lines) = (Count::default(), Count::default());
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        let payload = String::from_utf8_lossy(job.payload());
        runs.add(format!("{payload} {}", job.attempt()));
        match (&*payload, job.attempt()) {
            ("dies", 2) => Err(Failure::dead("no")),
            ("dies", _) | ("heals", 1 | 2) => Err(Failure::again("once more")),
            _ => Ok(Reply::done()),
        }
    });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    count.wait_for("heals 3", 1);
    lines.wait_line(" after 2 attempt(s): no");
    count.wait_distinct(25);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead, count.sum()), (21, 1, 25));
    lines.assert_nothing_refused();
    let letter = redis.first("{jobs}:dead");
    assert!(letter.contains("p=dies ") && letter.contains(" f3499=3499 x="), "{letter}");
    // Packed: each name and each number.
    for n in 3_500..FIELDS {
        assert!(letter.contains(&format!("f{n}")), "{n}");
    }
    assert_eq!(redis.number("XLEN jobs") + redis.number("ZCARD {jobs}:delayed"), 0);
}

#[test]
fn an_entry_that_cannot_be_moved_is_in_quarantine_until_it_is_replayed_or_dropped() {
    let Some(redis) = Redis::start("an_entry_that_cannot_be_moved", &[]) else { return };
    redis.ask("XGROUP CREATE jobs audit 0 MKSTREAM");
    redis.ask("XGROUP CREATE jobs uwork 0");
    push(&redis, Push::new("ghost"));
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    let wide = ["retried", "final"].map(|payload| add_wide(&redis, payload));
    for n in 0..20 {
        push(&redis, Push::new(n.to_string()).delay(Duration::from_millis(n)));
    }
    let (count, lines) = (Count::default(), Count::default());
    let is_mended = Count::default();
    let (runs, mended) = (count.clone(), is_mended.clone());
    let handlers = move || {
        let (runs, mended) = (runs.clone(), mended.clone());
        Handlers::new().otherwise(move |job| {
            let payload = String::from_utf8_lossy(job.payload());
            runs.add(format!("{payload} {}", job.attempt()));
            match (&*payload, mended.of("yes")) {
                ("retried", 0) => Err(Failure::again("why")),
                ("final", 0) => Err(Failure::dead("no")),
                _ => Ok(Reply::done()),
            }
        })
    };
    let settings = || config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(settings(), handlers(), lines.reports()).unwrap();
    // Both are dead letters at once, and stop no other job.
    lines.wait_line(", and its entry stays in the stream: why");
    lines.wait_line(", and its entry stays in the stream: no");
    count.wait_distinct(22);
    until("the others are done", || bridge.counters().done == 20);
    assert_eq!((bridge.counters().dead, count.sum()), (2, 22));
    // A takeover that finds them idle takes the job of a dead consumer, and neither of them.
    redis.forget_signs_of_life("jobs", "quarantine");
    redis.forget_signs_of_life("jobs", "ghost");
    count.wait_for("ghost 1", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.reclaimed, count.sum()), (21, 1, 23));
    // The other group completes them, and deletes neither.
    let mut other = settings();
    other.group = "audit".to_owned();
    let audit = Count::default();
    let other = Bridge::start(other, audit.handlers(), |_| {}).unwrap();
    audit.wait_distinct(23);
    until("all are done", || other.counters().done == 23);
    other.stop(LONG);
    assert_eq!(redis.number("XLEN jobs"), 2, "the entries in quarantine");
    let mut letters = DeadLetters::new(redis.server(), "jobs");
    let mut page = letters.page(None, 10, 1_000).unwrap();
    // They ran at once, so either may be the first letter.
    page.sort_by(|one, other| one.error.cmp(&other.error));
    let [last, retried] = &page[..] else { panic!("{page:?}") };
    assert_eq!(retried.error, "why; it has 55001 fields: allowed are 50000");
    assert_eq!(
        [&retried.quarantine, &last.quarantine],
        [&Some(wide[0].clone()), &Some(wide[1].clone())]
    );
    // A replay runs one again, with all its fields and attempts; the other is dropped.
    assert!(letters.replay(&retried.number).unwrap() && letters.remove(&last.number).unwrap());
    assert_eq!((letters.count().unwrap(), redis.number("XLEN jobs")), (0, 1));
    is_mended.add("yes");
    let bridge = Bridge::start(settings(), handlers(), lines.reports()).unwrap();
    count.wait_for("retried 1", 2);
    until("it is done", || bridge.counters().done == 1);
    bridge.stop(LONG);
    assert_eq!((redis.number("XLEN jobs"), redis.pending("jobs")), (0, 0));
    lines.assert_nothing_refused();
}
