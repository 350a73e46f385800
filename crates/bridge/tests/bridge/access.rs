//! The rules of the server's access list that docs/bridge.md names: they suffice.

use std::time::Duration;

use uwork_bridge::{
    Bridge, ErrorKind, Failure, Handlers, Producer, Push, Reply, Results, Server, Stat,
};

use crate::support::count::{Count, config};
use crate::support::server::Redis;

/// The rules in the guide for users.
fn documented(of: &str) -> String {
    let guide = include_str!("../../../../docs/bridge.md");
    let line = guide.lines().find(|line| line.contains(&format!("ACL SETUSER {of} ")));
    let line = line.expect("the guide has rules for this user").trim();
    line.replace("redis-cli ", "").replace('\'', "")
}

#[test]
fn the_documented_rules_suffice_for_a_consumer_and_a_producer() {
    let Some(redis) = Redis::start("the_documented_rules_suffice", &[]) else { return };
    redis.ask(&documented("consumer"));
    redis.ask(&documented("producer"));
    let at = |user: &str| {
        Server::new(&format!("redis://{user}:secret@127.0.0.1:{}", redis.port())).unwrap()
    };
    let mut producer = Producer::new(vec![at("producer")], "jobs", 1).unwrap();
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
    settings.results = Results::Key(Duration::from_secs(60));
    let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
    count.wait_for("now", 1);
    count.wait_for("later", 1);
    lines.wait_line("dead letter after 3 attempt(s): no");
    let stopped = bridge.stop(Duration::from_secs(60));
    assert_eq!((stopped.counters.done, stopped.counters.faults), (2, 0));
    let stat = Stat::read(at("consumer"), "jobs", "uwork").unwrap();
    assert_eq!((stat.done, stat.dead_letters, stat.lag), (2, 1, 0));
    let other = Producer::new(vec![at("producer")], "other", 1).unwrap().push(Push::new("x"));
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Denied);
}
