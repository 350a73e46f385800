//! Delayed jobs: members of any kind and size, and what the server does with them.

use std::time::Duration;

use uwork_bridge::{Bridge, Failure, Handlers, Producer, Push, Reply};

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
