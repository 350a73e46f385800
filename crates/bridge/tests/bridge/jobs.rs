//! The life of jobs without faults: pushed, run, retried, buried, delayed, compared by id.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork_bridge::{
    Bridge, Config, ErrorKind, Failure, Handlers, Producer, Push, Pushed, Reply, Results, Stat,
};

use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::server::{Redis, server_at};

fn producer(redis: &Redis, stream: &str) -> Producer {
    Producer::new(vec![redis.server()], stream, 1).unwrap()
}

fn start(config: Config, handlers: Handlers) -> Bridge {
    Bridge::start(config, handlers, |line| println!("{line}")).unwrap()
}

#[test]
fn each_job_runs_once_and_leaves_nothing_behind() {
    let Some(redis) = Redis::start("each_job_runs_once", &[]) else { return };
    let pushes = (0..20_000).map(|n| Push::new(n.to_string())).collect();
    producer(&redis, "jobs").push_all(pushes).unwrap();
    let (count, lines) = (Count::default(), Count::default());
    let reports = lines.reports();
    let bridge = Bridge::start(config(redis.server(), "jobs"), count.handlers(), reports).unwrap();
    let stat = Stat::read(redis.server(), "jobs", "uwork").unwrap();
    assert_eq!((stat.consumers.len(), &*stat.consumers[0].name), (1, bridge.consumer()));
    count.wait_distinct(20_000);
    let shown = uwork::control::answer("metrics");
    let of_consumer = format!("uwork_bridge_consumer_held{{consumer=\"{}\"}} ", bridge.consumer());
    assert!(shown.contains(&of_consumer) && shown.ends_with("# EOF\n"), "{shown}");
    let stopped = bridge.stop(LONG);
    assert_eq!((count.sum(), stopped.counters.done), (20_000, 20_000));
    assert_eq!((stopped.abandoned, stopped.uncommitted), (0, 0));
    lines.assert_nothing_refused();
    assert_eq!((redis.number("XLEN jobs"), redis.pending("jobs")), (0, 0));
    assert_eq!(redis.number("HGET {jobs}:stats done"), 20_000);
    let redis::Value::Array(consumers) = redis.ask("XINFO CONSUMERS jobs uwork") else { panic!() };
    assert!(consumers.is_empty(), "the consumer has left the group");
}

#[test]
fn a_job_is_acknowledged_when_it_has_completed_and_not_before() {
    let Some(redis) = Redis::start("a_job_is_acknowledged_when_it_has_completed", &[]) else {
        return;
    };
    producer(&redis, "jobs").push(Push::new("slow")).unwrap();
    let gate = Arc::new(Mutex::new(()));
    let (held, begun) = (gate.lock().unwrap(), Count::default());
    let (entered, inner) = (begun.clone(), gate.clone());
    let handlers = Handlers::new().otherwise(move |_| {
        entered.add("begun");
        drop(inner.lock().unwrap());
        Ok(Reply::done())
    });
    let bridge = start(config(redis.server(), "jobs"), handlers);
    begun.wait_for("begun", 1);
    assert_eq!((redis.pending("jobs"), bridge.counters().held), (1, 1));
    drop(held);
    assert_eq!(bridge.stop(LONG).counters.done, 1);
    assert_eq!(redis.pending("jobs"), 0);
}

#[test]
fn a_failed_job_is_tried_again_with_its_error_and_buried_after_the_last_attempt() {
    let Some(redis) = Redis::start("a_failed_job_is_tried_again", &[]) else { return };
    let mut producer = producer(&redis, "jobs");
    producer.push(Push::new("x").handler("heals").id("a")).unwrap();
    producer.push(Push::new("y").handler("fails").id("b")).unwrap();
    let (seen, lines) = (Count::default(), Count::default());
    let (heals, fails) = (seen.clone(), seen.clone());
    let handlers = Handlers::new()
        .add("heals", move |job| {
            heals.add(format!("heals {} {:?}", job.attempt(), job.last_error()));
            if job.attempt() < 3 { Err(Failure::again("not yet")) } else { Ok(Reply::done()) }
        })
        .add("fails", move |job| {
            fails.add(format!("fails {}", job.attempt()));
            panic!("always")
        });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    seen.wait_for("heals 3 Some(\"not yet\")", 1);
    let line = lines.wait_line("dead letter");
    assert!(line.ends_with(" after 3 attempt(s): the handler panicked: always"));
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.retries, counters.dead), (1, 4, 1));
    assert_eq!((seen.distinct(), seen.sum()), (6, 6));
    let letter = redis.first("{jobs}:dead");
    assert!(letter.contains("p=y ") && letter.contains("h=fails") && letter.contains("i=b"));
    assert!(letter.contains("n=3 e=the handler panicked: always o="), "{letter}");
    assert_eq!(redis.number("XLEN jobs") + redis.number("ZCARD {jobs}:delayed"), 0);
}

#[test]
fn an_id_is_accepted_once_within_the_window_and_delays_pass_by_the_servers_clock() {
    let Some(redis) = Redis::start("an_id_is_accepted_once", &[]) else { return };
    let mut producer = producer(&redis, "jobs").window(LONG);
    let push = || Push::new("once").id("7");
    assert!(matches!(producer.push(push()).unwrap(), Pushed::Added(_)));
    assert_eq!(producer.push(push()).unwrap(), Pushed::Duplicate);
    let soon = Push::new("soon").delay(Duration::from_millis(150));
    let pushed = producer.push_all(vec![soon.clone(), soon]).unwrap();
    assert_eq!(pushed, [Pushed::Delayed, Pushed::Delayed], "equal jobs are two jobs");
    let late = Push::new("late").id("8").delay(Duration::from_secs(3_600));
    assert_eq!(producer.push(late.clone()).unwrap(), Pushed::Delayed);
    assert_eq!(producer.push(late).unwrap(), Pushed::Duplicate);
    let count = Count::default();
    let bridge = start(config(redis.server(), "jobs"), count.handlers());
    count.wait_for("soon", 2);
    bridge.stop(LONG);
    assert_eq!((count.of("once"), count.of("soon"), count.of("late")), (1, 2, 0));
    assert_eq!(redis.number("ZCARD {jobs}:delayed"), 1);
}

#[test]
fn a_push_that_is_refused_leaves_no_mark_of_its_id() {
    let Some(redis) = Redis::start("a_push_that_is_refused_leaves_no_mark", &[]) else { return };
    let mut producer = producer(&redis, "jobs");
    let now = || Push::new("now").id("7");
    let later = || Push::new("later").id("8").delay(LONG);
    redis.ask("SET jobs text");
    redis.ask("SET {jobs}:delayed text");
    assert_eq!(producer.push(now()).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(producer.push(later()).unwrap_err().kind(), ErrorKind::Refused);
    redis.ask("DEL jobs {jobs}:delayed");
    assert!(matches!(producer.push(now()).unwrap(), Pushed::Added(_)));
    assert_eq!(producer.push(later()).unwrap(), Pushed::Delayed);
    assert_eq!(producer.push(now()).unwrap(), Pushed::Duplicate);
}

#[test]
fn a_push_that_a_server_without_memory_refuses_leaves_no_mark_of_its_id() {
    let Some(redis) = Redis::start("a_push_that_a_server_without_memory", &[]) else { return };
    let mut producer = producer(&redis, "jobs");
    let now = || Push::new("now").id("7");
    let later = || Push::new("later").id("8").delay(LONG);
    redis.ask("CONFIG SET maxmemory 1");
    for push in [now(), later()] {
        let refused = producer.push(push).unwrap_err();
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
    assert_eq!(redis.number("EXISTS {jobs}:id:7 {jobs}:id:8 jobs {jobs}:delayed"), 0);
    redis.ask("CONFIG SET maxmemory 0");
    assert!(matches!(producer.push(now()).unwrap(), Pushed::Added(_)));
    assert_eq!(producer.push(later()).unwrap(), Pushed::Delayed);
    for push in [now(), later()] {
        assert_eq!(producer.push(push).unwrap(), Pushed::Duplicate);
    }
}

#[test]
fn a_push_that_is_refused_behind_a_route_succeeds_once() {
    let Some(redis) = Redis::start("a_push_that_is_refused_behind_a_route", &[]) else { return };
    const SHARDS: u32 = 4;
    let mut producer = Producer::new(vec![redis.server()], "jobs", SHARDS).unwrap();
    let pushes = || (0..20).map(|n| Push::new("job").id(n.to_string()).key(format!("key {n}")));
    let streams = (0..SHARDS).map(|shard| format!("jobs.{{{shard}}}"));
    streams.clone().for_each(|stream| drop(redis.ask(&format!("SET {stream} text"))));
    for push in pushes() {
        assert_eq!(producer.push(push).unwrap_err().kind(), ErrorKind::Refused);
    }
    streams.for_each(|stream| drop(redis.ask(&format!("DEL {stream}"))));
    for push in pushes() {
        assert!(matches!(producer.push(push.clone()).unwrap(), Pushed::Added(_)));
        assert_eq!(producer.push(push).unwrap(), Pushed::Duplicate);
    }
}

#[test]
fn a_push_without_a_right_changes_nothing_and_succeeds_once_with_it() {
    let Some(redis) = Redis::start("a_push_without_a_right", &[]) else { return };
    redis.ask("ACL SETUSER producer on >secret ~* +@all");
    let at = format!("redis://producer:secret@127.0.0.1:{}", redis.port());
    let now = |right: &str| Push::new("now").id(right);
    let later = |right: &str| Push::new("later").id(format!("{right} later")).delay(LONG);
    for (right, stops_now, stops_later) in [
        ("xadd", true, false),
        ("zadd", false, true),
        ("set", true, true),
        ("time", false, true),
        ("evalsha", true, true),
    ] {
        redis.ask("FLUSHALL");
        let mut producer = Producer::new(vec![server_at(&at)], "jobs", 1).unwrap();
        producer.push(Push::new("connects")).unwrap();
        redis.ask(&format!("ACL SETUSER producer -{right}"));
        for (push, stops) in [(now(right), stops_now), (later(right), stops_later)] {
            let pushed = producer.push(push);
            assert_eq!(pushed.is_err(), stops, "{right}: {pushed:?}");
        }
        let added = 1 + i64::from(!stops_now) + i64::from(!stops_later);
        let count = || redis.number("XLEN jobs") + redis.number("ZCARD {jobs}:delayed");
        assert_eq!(count(), added, "without {right}");
        redis.ask(&format!("ACL SETUSER producer +{right}"));
        for (push, stops) in [(now(right), stops_now), (later(right), stops_later)] {
            assert_eq!(producer.push(push.clone()).unwrap() == Pushed::Duplicate, !stops);
            assert_eq!(producer.push(push).unwrap(), Pushed::Duplicate, "{right}");
        }
        assert_eq!(count(), 3, "with {right} again");
    }
}

#[test]
fn an_id_is_accepted_once_whatever_its_keys_and_a_key_chooses_the_shard_of_new_ids() {
    let Some(redis) = Redis::start("an_id_is_accepted_once_whatever_its_keys", &[]) else { return };
    const SHARDS: u32 = 4;
    let mut producer = Producer::new(vec![redis.server()], "jobs", SHARDS).unwrap();
    let keys = [None, Some("a"), Some("b"), Some("c"), Some("d"), Some("e"), Some("f")];
    let push = |id: usize, key: &Option<&str>| {
        let push = Push::new("job").id(id.to_string());
        let push = if id % 2 == 1 { push.delay(LONG) } else { push };
        key.iter().fold(push, |push, key| push.key(*key))
    };
    let added = || {
        let of = |shard: u32| {
            let stream = redis.number(&format!("XLEN jobs.{{{shard}}}"));
            stream + redis.number(&format!("ZCARD jobs.{{{shard}}}:delayed"))
        };
        (0..SHARDS).map(of).collect::<Vec<i64>>()
    };
    for id in 0..28 {
        let before = added();
        // Each id begins with another key, and all keys follow, alone and in one batch.
        let pushed = producer.push(push(id, &keys[id % 7])).unwrap();
        assert_ne!(pushed, Pushed::Duplicate);
        let after = added();
        assert_eq!(after.iter().sum::<i64>(), before.iter().sum::<i64>() + 1);
        for key in &keys {
            assert_eq!(producer.push(push(id, key)).unwrap(), Pushed::Duplicate, "{id} {key:?}");
        }
        let batch = keys.iter().map(|key| push(id, key)).collect();
        assert_eq!(producer.push_all(batch).unwrap(), vec![Pushed::Duplicate; keys.len()]);
        assert_eq!(added(), after, "id {id}");
    }
    // In a batch the first one of an id is added, and its key chooses the shard.
    let before = added();
    let batch = (0..100).map(|id| Push::new("job").id(format!("batch {}", id / 2)).key("a"));
    let pushed = producer.push_all(batch.collect()).unwrap();
    assert_eq!(pushed.iter().filter(|&pushed| *pushed == Pushed::Duplicate).count(), 50);
    let changed = added().iter().zip(before).filter(|(after, before)| **after != *before).count();
    assert_eq!(changed, 1, "one key, one shard");
}

/// The keys that match, one of a shard each: the shard and the key.
fn keys_of(redis: &Redis, id: &str) -> Vec<(u32, String)> {
    (0..16)
        .map(|shard| (shard, format!("jobs.{{{shard}}}:id:{id}")))
        .filter(|(_, key)| redis.number(&format!("EXISTS {key}")) == 1)
        .collect()
}

/// A job whose id has its route and its mark in two shards: these, the first being the route's.
fn routed(redis: &Redis, producer: &mut Producer, nth: usize) -> (Push, (u32, String), u32) {
    for other in 0..100 {
        let id = format!("{nth}.{other}");
        let push = Push::new("job").id(&*id).key(nth.to_string());
        assert!(matches!(producer.push(push.clone()).unwrap(), Pushed::Added(_)));
        let is_route = |(_, key): &(u32, String)| {
            let redis::Value::BulkString(mark) = redis.ask(&format!("GET {key}")) else { panic!() };
            mark.starts_with(b">")
        };
        let (routes, marks): (Vec<_>, Vec<_>) = keys_of(redis, &id).into_iter().partition(is_route);
        if let ([route], [(shard, _)]) = (&routes[..], &marks[..]) {
            return (push, route.clone(), *shard);
        }
    }
    panic!("all ids have the shard of their keys");
}

#[test]
fn a_route_outlives_the_mark_of_each_job_that_followed_it() {
    let Some(redis) = Redis::start("a_route_outlives_the_mark", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 4).unwrap().window(LONG);
    for nth in 0..8 {
        let (push, (_, route), shard) = routed(&redis, &mut producer, nth);
        let id = route.rsplit(':').next().unwrap().to_owned();
        let mark = format!("jobs.{{{shard}}}:id:{id}");
        // The window of the first job is over, and the route is about to end.
        redis.ask(&format!("DEL {mark}"));
        redis.ask(&format!("PEXPIRE {route} 1000000"));
        // With its key it asks for the route, and without one it is pushed to the route's shard.
        let second = if nth % 2 == 0 { push } else { Push::new("job").id(&*id) };
        assert!(matches!(producer.push(second).unwrap(), Pushed::Added(_)));
        let [route, mark] = [&route, &mark].map(|key| redis.number(&format!("PTTL {key}")));
        assert!(route > mark && mark > 1_000_000, "{route} {mark}");
    }
}

#[test]
fn routes_to_shards_that_exist_no_more_are_replaced_and_no_push_is_lost() {
    let Some(redis) = Redis::start("routes_to_shards_that_exist_no_more", &[]) else { return };
    let mut many = Producer::new(vec![redis.server()], "jobs", 16).unwrap();
    let mut few = Producer::new(vec![redis.server()], "jobs", 4).unwrap();
    let jobs = || (0..4).map(|n| redis.number(&format!("XLEN jobs.{{{n}}}"))).sum::<i64>();
    let (mut replaced, mut nth) = (0, 0);
    while replaced < 8 {
        nth += 1;
        let (push, (home, route), shard) = routed(&redis, &mut many, nth);
        if home >= 4 || shard < 4 {
            continue;
        }
        replaced += 1;
        let id = route.rsplit(':').next().unwrap().to_owned();
        // The id's home is the same for both.
        let second = if replaced % 2 == 0 { push.clone() } else { Push::new("job").id(&*id) };
        let before = jobs();
        match few.push(second.clone()).unwrap() {
            Pushed::Added(entry) => assert!(!entry.starts_with('>'), "{entry}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(jobs(), before + 1);
        for push in [second, push] {
            assert_eq!(few.push(push).unwrap(), Pushed::Duplicate, "and its mark stands");
        }
        assert_eq!(jobs(), before + 1);
    }
}

#[test]
fn routes_that_lead_to_each_other_end_with_a_job() {
    let Some(redis) = Redis::start("routes_that_lead_to_each_other", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 4).unwrap();
    let jobs = || (0..4).map(|n| redis.number(&format!("XLEN jobs.{{{n}}}"))).sum::<i64>();
    let keys = ["a", "b", "c", "d", "e", "f"];
    for (nth, key) in keys.iter().enumerate() {
        // Left behind by producers that died before they pushed, at other numbers of shards.
        for shard in 0..4 {
            redis.ask(&format!("SET jobs.{{{shard}}}:id:{nth} >{}", (shard + 1) % 4));
        }
        let push = || Push::new("job").id(nth.to_string()).key(*key);
        assert!(matches!(producer.push(push()).unwrap(), Pushed::Added(_)), "{key}");
        assert_eq!(jobs(), nth as i64 + 1);
    }
}

#[test]
fn typed_payloads_and_results_reach_a_key_or_a_stream() {
    let Some(redis) = Redis::start("typed_payloads_and_results", &[]) else { return };
    let square = || Handlers::new().typed("square", |n: u64, _| Ok::<u64, Failure>(n * n));
    for (results, id) in [(Results::Key(LONG), "k"), (Results::Stream(100), "s")] {
        let push = Push::json(&7).unwrap().handler("square").id(id);
        producer(&redis, "jobs").push(push).unwrap();
        let mut config = config(redis.server(), "jobs");
        config.results = results;
        let bridge = start(config, square());
        until("the job is done", || bridge.counters().done > 0);
        bridge.stop(LONG);
    }
    assert_eq!(redis.number("GET {jobs}:result:k"), 49);
    assert!(redis.number("PTTL {jobs}:result:k") > 0);
    assert_eq!(redis.first("{jobs}:results"), "i=s r=49");
}

#[test]
fn an_earlier_stream_goes_first_and_a_later_one_advances() {
    let Some(redis) = Redis::start("an_earlier_stream_goes_first", &[]) else { return };
    for stream in ["low", "high"] {
        let pushes = (0..300).map(|_| Push::new(stream)).collect();
        producer(&redis, stream).push_all(pushes).unwrap();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let sink = order.clone();
    let handlers = Handlers::new().otherwise(move |job| {
        sink.lock().unwrap().push(job.stream() == "high");
        Ok(Reply::done())
    });
    let mut config = config(redis.server(), "high");
    config.streams.push("low".to_owned());
    config.max_active = 1;
    let bridge = start(config, handlers);
    until("all jobs are done", || bridge.counters().done == 600);
    bridge.stop(LONG);
    let order = order.lock().unwrap();
    let mean = |high: bool| {
        let at = order.iter().enumerate().filter(|(_, is_high)| **is_high == high);
        at.map(|(nth, _)| nth).sum::<usize>() / 300
    };
    assert!(mean(true) < mean(false), "{} {}", mean(true), mean(false));
}

#[test]
fn shards_are_served_by_one_consumer_each_key_in_its_place() {
    let Some(redis) = Redis::start("shards_are_served_by_one_consumer", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 4).unwrap();
    let pushes = (0..400).map(|n| Push::new(n.to_string()).key(format!("user:{n}"))).collect();
    producer.push_all(pushes).unwrap();
    let lengths = (0..4).map(|n| redis.number(&format!("XLEN jobs.{{{n}}}")));
    let lengths: Vec<i64> = lengths.collect();
    assert!(lengths.iter().all(|&length| length > 50) && lengths.iter().sum::<i64>() == 400);
    let count = Count::default();
    let mut config = config(redis.server(), "jobs");
    config.shards = 4;
    let bridge = start(config, count.handlers());
    count.wait_distinct(400);
    assert_eq!(bridge.stop(LONG).counters.done, 400);
    assert_eq!(count.sum(), 400);
}

#[test]
fn a_stop_hands_back_what_has_not_begun_and_what_does_not_end() {
    let Some(redis) = Redis::start("a_stop_hands_back", &[]) else { return };
    let pushes = (0..8).map(|n| Push::new(n.to_string())).collect();
    producer(&redis, "jobs").push_all(pushes).unwrap();
    let gate = Arc::new(Mutex::new(()));
    let (held, begun) = (gate.lock().unwrap(), Count::default());
    let (entered, inner) = (begun.clone(), gate.clone());
    let handlers = Handlers::new().otherwise(move |_| {
        entered.add("begun");
        drop(inner.lock().unwrap());
        Ok(Reply::done())
    });
    let mut slow = config(redis.server(), "jobs");
    slow.max_active = 2;
    let bridge = start(slow, handlers);
    begun.wait_for("begun", 2);
    let stopped = bridge.stop(Duration::ZERO);
    assert_eq!((stopped.abandoned, stopped.uncommitted, stopped.counters.done), (2, 0, 0));
    assert_eq!(redis.number("XLEN jobs"), 8, "all jobs are still in the stream");
    let count = Count::default();
    let bridge = start(config(redis.server(), "jobs"), count.handlers());
    count.wait_distinct(8);
    let stopped = bridge.stop(LONG);
    assert_eq!((stopped.counters.done, stopped.counters.dead), (8, 0));
    drop(held);
}

#[test]
fn jobs_of_one_push_are_in_order_in_their_shard_wherever_their_ids_are() {
    let Some(redis) = Redis::start("jobs_of_one_push_are_in_order", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 3).unwrap();
    // The key chooses the shard. Of the ids each third belongs there.
    let push = |n: u32| {
        let push = Push::new("job").key("key");
        if n.is_multiple_of(2) { push.id(format!("id {n}")) } else { push }
    };
    let pushed = producer.push_all((0..60).map(push).collect()).unwrap();
    let number = |pushed: &Pushed| {
        let Pushed::Added(entry) = pushed else { panic!("{pushed:?}") };
        let (ms, nth) = entry.split_once('-').unwrap();
        (ms.parse::<u64>().unwrap(), nth.parse::<u64>().unwrap())
    };
    assert!(pushed.is_sorted_by_key(number), "{pushed:?}");
}
