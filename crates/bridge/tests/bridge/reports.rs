//! What a consumer says at once: a first failure, a takeover, for what a start and a stop wait.

use uwork_bridge::{Bridge, Failure, Handlers, Producer, Push, Reply};

use crate::support::count::{Count, LONG, config, config_never_late};
use crate::support::patience::until;
use crate::support::proxy::Trouble;
use crate::support::server::{Redis, server_at};

fn push(redis: &Redis, jobs: impl IntoIterator<Item = Push>) {
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    producer.push_all(jobs.into_iter().collect()).unwrap();
}

/// How many lines have these words.
fn count_of(lines: &Count, words: &str) -> usize {
    lines.lines().iter().filter(|line| line.contains(words)).count()
}

#[test]
fn the_first_failure_of_each_handler_is_reported_and_no_other() {
    let Some(redis) = Redis::start("the_first_failure_of_each_handler", &[]) else { return };
    let handlers = ["mail", "pay"];
    push(&redis, (0..10).map(|n| Push::new("x").id(n.to_string()).handler(handlers[n % 2])));
    let lines = Count::default();
    let fails = Handlers::new().otherwise(|_| Err(Failure::again("no\x1b[31m address\nat all")));
    let bridge = Bridge::start(config(redis.server(), "jobs"), fails, lines.reports()).unwrap();
    until("all jobs are dead", || bridge.counters().dead == 10);
    bridge.stop(LONG);
    for handler in handlers {
        let words = format!("of {handler} has failed in attempt");
        let line = lines.wait_line(&words);
        assert!(line.ends_with(r" of 3: no\u{1b}[31m address"), "{line}");
        assert_eq!(count_of(&lines, &words), 1, "{:?}", lines.lines());
    }
    assert_eq!(count_of(&lines, " after 3 attempt(s)"), 10);
}

#[test]
fn a_takeover_is_reported() {
    let Some(redis) = Redis::start("a_takeover_is_reported", &[]) else { return };
    push(&redis, [Push::new("a"), Push::new("b")]);
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "ghost");
    let (count, lines) = (Count::default(), Count::default());
    let settings = config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(settings, count.handlers(), lines.reports()).unwrap();
    lines.wait_line("jobs: took over 2 job(s) of consumers that have died");
    count.wait_distinct(2);
    bridge.stop(LONG);
    assert_eq!(count_of(&lines, "took over"), 1);
}

#[test]
fn lines_about_takeovers_count_the_jobs_of_all_looks() {
    let Some(redis) = Redis::start("lines_about_takeovers_count", &[]) else { return };
    push(&redis, (0..8).map(|nth| Push::new(nth.to_string())));
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "ghost");
    let (count, lines) = (Count::default(), Count::default());
    let mut settings = config_never_late(redis.server(), "jobs");
    // A look takes what the consumer has room for.
    settings.max_active = 1;
    let bridge = Bridge::start(settings, count.handlers(), lines.reports()).unwrap();
    count.wait_distinct(8);
    assert_eq!(bridge.stop(LONG).counters.reclaimed, 8);
    let said = |line: &String| -> Option<u64> {
        line.strip_prefix("jobs: took over ")?.split(' ').next()?.parse().ok()
    };
    let said: u64 = lines.lines().iter().filter_map(said).sum();
    assert_eq!(said, 8, "{:?}", lines.lines());
}

#[test]
fn a_start_says_that_it_waits_for_a_server_that_is_not_ready_or_does_not_answer() {
    let Some(redis) = Redis::start("a_start_says_that_it_waits", &[]) else { return };
    let trouble = Trouble::new(redis.port(), "-LOADING Redis is loading the dataset in memory");
    let start = |url: &str| {
        let (count, lines) = (Count::default(), Count::default());
        let settings = config(server_at(url), "jobs");
        let (handlers, reports) = (count.handlers(), lines.reports());
        let start = std::thread::spawn(move || Bridge::start(settings, handlers, reports).unwrap());
        // The tests multiply 10 s by 360.
        lines.wait_line(": waiting for the server, up to 3600 s");
        (start, lines)
    };
    let (loading, lines) = start(&trouble.url());
    trouble.end();
    loading.join().unwrap().stop(LONG);
    assert_eq!(count_of(&lines, "waiting for the server"), 1, "{:?}", lines.lines());
    redis.pause();
    let (hanging, _) = start(&redis.url());
    redis.resume();
    hanging.join().unwrap().stop(LONG);
}

#[test]
fn a_stop_says_for_which_jobs_it_waits() {
    let Some(redis) = Redis::start("a_stop_says_for_which_jobs", &[]) else { return };
    push(&redis, [Push::new("x").id("seven")]);
    let (lines, gate, begun) = (Count::default(), Count::default(), Count::default());
    let (opened, runs) = (gate.clone(), begun.clone());
    let handlers = Handlers::new().otherwise(move |_| {
        runs.add("begun");
        opened.wait_for("open", 1);
        Ok(Reply::done())
    });
    let settings = config_never_late(redis.server(), "jobs");
    let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
    begun.wait_for("begun", 1);
    let stop = std::thread::spawn(move || bridge.stop(LONG));
    let line = lines.wait_line("the stop waits for 1 running job(s), up to ");
    assert!(line.contains(" s: jobs: ") && line.contains(" (id seven) for "), "{line}");
    gate.add("open");
    let stopped = stop.join().unwrap();
    assert_eq!((stopped.counters.done, stopped.abandoned), (1, 0));
}
