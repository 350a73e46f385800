//! Delayed jobs: members of any kind and size, and what the server does with them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redis::Value;
use uwork_bridge::{Bridge, Failure, Handlers, Producer, Push, Pushed, Reply};

use crate::support::cluster::text;
use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::server::Redis;

fn push(redis: &Redis, push: Push) {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(push).unwrap();
}

#[test]
fn a_foreign_member_among_the_delayed_jobs_is_a_dead_letter() {
    let Some(redis) = Redis::start("a_foreign_member_among_the_delayed", &[]) else { return };
    redis.ask("ZADD {jobs}:delayed 0 foreign");
    push(&redis, Push::new("job").delay(Duration::from_millis(1)));
    let (count, lines) = (Count::default(), Count::default());
    let reports = lines.reports();
    let bridge = Bridge::start(config(redis.server(), "jobs"), count.handlers(), reports).unwrap();
    count.wait_for("job", 1);
    bridge.stop(LONG);
    lines.assert_nothing_refused();
    lines.wait_line("jobs: 1 delayed member(s) that are no jobs of uwork are dead letters");
    let letter = redis.first("{jobs}:dead");
    assert_eq!(letter, "p=foreign e=it is not a delayed job of uwork");
    assert_eq!(redis.number("ZCARD {jobs}:delayed"), 0);
}

#[test]
fn a_foreign_member_that_no_stream_takes_delays_no_other() {
    let Some(redis) = Redis::start("a_foreign_member_that_no_stream_takes", &[]) else { return };
    redis.ask("SET {jobs}:dead text");
    redis.ask("ZADD {jobs}:delayed 0 foreign");
    let (count, lines) = (Count::default(), Count::default());
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(format!("{} {}", String::from_utf8_lossy(job.payload()), job.attempt()));
        if job.attempt() == 1 { Err(Failure::again("once more")) } else { Ok(Reply::done()) }
    });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    push(&redis, Push::new("delayed").delay(Duration::from_millis(1)));
    count.wait_for("delayed 2", 1);
    let line = lines.wait_line("neither the stream nor the dead letters take 1 delayed member(s)");
    assert!(line.contains("in a minute: WRONGTYPE"), "{line}");
    redis.ask("DEL {jobs}:dead");
    // The minute is over.
    redis.ask("ZADD {jobs}:delayed 0 foreign");
    until("it is a dead letter", || bridge.counters().dead == 1);
    assert_eq!(bridge.stop(LONG).counters.done, 1);
    lines.assert_nothing_refused();
    assert_eq!(redis.number("ZCARD {jobs}:delayed"), 0);
}

#[test]
fn large_delayed_jobs_that_are_due_together_are_moved_a_few_at_a_time() {
    const JOBS: usize = 24;
    const JOB: u64 = 8 << 20;
    // The buffers of an append-only file would be measured, too.
    let Some(redis) = Redis::start("large_delayed_jobs", &["--appendonly", "no"]) else { return };
    let memory = |name: &str| {
        let info = text(redis.ask("INFO memory"));
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.trim().parse::<u64>().unwrap()
    };
    let add = "local job = {ARGV[1], {'p', ARGV[1] .. string.rep('x', ARGV[2])}}
        redis.call('ZADD', KEYS[1], 0, cmsgpack.pack(job))";
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    for nth in 0..JOBS {
        let mut eval = redis::cmd("EVAL");
        eval.arg(add).arg(1).arg("{jobs}:delayed").arg(nth).arg(JOB).exec(&mut connection).unwrap();
    }
    let before = memory("used_memory:");
    assert!(before > JOBS as u64 * JOB, "{before}");
    let count = Count::default();
    let runs = count.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        runs.add(String::from_utf8_lossy(&job.payload()[..2]));
        Ok(Reply::done())
    });
    let mut settings = config(redis.server(), "jobs");
    // A read brings two entries at most.
    settings.max_active = 1;
    let bridge = Bridge::start(settings, handlers, |_| {}).unwrap();
    count.wait_distinct(JOBS);
    bridge.stop(LONG);
    let more = memory("used_memory_peak:") - before;
    assert!(more < 12 * JOB, "{} MiB more", more >> 20);
}

/// Runs `f` in a forked child. Fails if it panics there.
fn in_child(f: impl FnOnce()) {
    // SAFETY: the child runs `f`, which uses the bridge alone, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: numbers only. The child ends with the test.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let is_right = catch_unwind(AssertUnwindSafe(f)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_right)) }
    }
    let mut status = -1;
    // SAFETY: the status is live.
    until("the child has ended", || unsafe {
        libc::waitpid(child, &raw mut status, libc::WNOHANG) == child
    });
    assert_eq!(status, 0);
}

// Catches: random numbers of the process, which its forked children repeat.
#[test]
fn equal_delayed_jobs_of_forked_children_are_several_jobs() {
    let Some(redis) = Redis::start("equal_delayed_jobs_of_forked_children", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    let mut push = || {
        let pushed = producer.push(Push::new("job").delay(LONG)).unwrap();
        assert_eq!(pushed, Pushed::Delayed);
    };
    push();
    in_child(&mut push);
    in_child(&mut push);
    push();
    assert_eq!(redis.number("ZCARD {jobs}:delayed"), 4);
}

#[test]
fn a_delayed_job_that_would_replace_another_is_refused() {
    let Some(redis) = Redis::start("a_delayed_job_that_would_replace", &[]) else { return };
    redis.ask("CONFIG SET slowlog-log-slower-than 0");
    push(&redis, Push::new("job").id("7").delay(Duration::from_secs(777)));
    redis.ask("DEL {jobs}:id:7");
    let Value::Array(calls) = redis.ask("SLOWLOG GET 128") else { panic!() };
    let words = |call: Value| match call {
        Value::Array(call) => match call.into_iter().nth(3) {
            Some(Value::Array(words)) => words.into_iter().map(text).collect::<Vec<String>>(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let is_push = |words: &Vec<String>| words.iter().any(|word| word == "777000");
    let sent = calls.into_iter().map(words).find(is_push).unwrap();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let said = redis::cmd(&sent[0]).arg(&sent[1..]).query::<Value>(&mut connection).unwrap_err();
    assert!(said.to_string().contains("a delayed job with this number exists already"), "{said}");
    assert_eq!(redis.number("ZCARD {jobs}:delayed") + redis.number("EXISTS {jobs}:id:7"), 1);
}
