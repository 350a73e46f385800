//! Dead letters: a replay or a removal is one step, and a page needs little memory.

use std::time::Duration;

use uwork_bridge::{
    Bridge, DeadLetters, ErrorKind, Failure, Handlers, HeldJob, Producer, Push, Pushed, Reply,
    Server, Stat,
};

use crate::support::address::Address;
use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::server::{Redis, add_wide, server_at};

fn letters(redis: &Redis) -> DeadLetters {
    DeadLetters::new(redis.server(), "jobs")
}

fn push(redis: &Redis, push: Push) -> Pushed {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(push).unwrap()
}

/// Runs all jobs of the stream with a handler that fails, until so many are dead.
fn bury(redis: &Redis, count: u64) {
    let handlers = Handlers::new().otherwise(|_| Err(Failure::again("it is broken")));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, |_| {}).unwrap();
    until("the jobs are dead", || bridge.counters().dead == count);
    bridge.stop(LONG);
}

#[test]
fn a_letter_has_its_reason_and_its_first_entry_and_a_replay_begins_anew() {
    let Some(redis) = Redis::start("a_letter_has_its_reason", &[]) else { return };
    let job = Push::new("payload").handler("mail").id("7").key("k");
    let Pushed::Added(first) = push(&redis, job) else { panic!("it is new") };
    bury(&redis, 1);
    let mut letters = letters(&redis);
    let page = letters.page(None, 10, 4).unwrap();
    let [letter] = &page[..] else { panic!("{page:?}") };
    assert_eq!((letter.attempts, &*letter.error), (3, "it i"));
    assert_eq!(letter.entry.as_deref(), Some(&*first));
    let names = [&letter.handler, &letter.id, &letter.key].map(|name| name.as_deref());
    assert_eq!(names, [Some("mail"), Some("7"), Some("k")]);
    assert_eq!((&*letter.payload, letter.payload_bytes), (&b"payl"[..], 7), "the page cuts values");
    let whole = letters.get(&letter.number).unwrap().unwrap();
    assert_eq!((&*whole.payload, &*whole.error), (&b"payload"[..], "it is broken"));
    assert!(letters.replay(&letter.number).unwrap());
    assert!(!letters.replay(&letter.number).unwrap(), "it is gone");
    let entry = redis.first("jobs");
    let mut fields: Vec<&str> = entry.split(' ').collect();
    fields.sort_unstable();
    assert_eq!(fields, ["h=mail", "i=7", "k=k", "p=payload"]);
    assert_eq!((redis.number("XLEN jobs"), letters.count().unwrap()), (1, 0));
    let (count, seen) = (Count::default(), Count::default());
    let (runs, attempts) = (count.clone(), seen.clone());
    let handlers = Handlers::new().otherwise(move |job| {
        attempts.add(job.attempt().to_string());
        runs.add("run");
        Ok(Reply::done())
    });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, |_| {}).unwrap();
    count.wait_for("run", 1);
    bridge.stop(LONG);
    assert_eq!(seen.of("1"), 1, "{:?}", seen.lines());
}

#[test]
fn the_line_of_a_consumer_names_the_job_and_the_letter_that_commands_take() {
    let Some(redis) = Redis::start("the_line_of_a_consumer_names", &[]) else { return };
    push(&redis, Push::new("fails").id("order-7"));
    push(&redis, Push::new("writes").id("order-8"));
    // It has no id, and stays in quarantine.
    add_wide(&redis, "fails");
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|job| match job.payload() {
        b"writes" => {
            let script = "redis.call('SET', KEYS[1], '1') error('no')";
            Ok(Reply::done().effect(["EVAL", script, "1", "{jobs}:effect"]))
        }
        _ => Err(Failure::dead("it is broken")),
    });
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    until("the jobs are dead", || bridge.counters().dead == 3);
    bridge.stop(LONG);
    let page = letters(&redis).page(None, 10, 100).unwrap();
    assert_eq!(page.len(), 3);
    for letter in page {
        let job = letter.id.or(letter.entry).unwrap();
        let words = format!("jobs: {job} is the dead letter {} after 1 attempt(s)", letter.number);
        assert!(
            lines.lines().iter().any(|line| line.starts_with(&words)),
            "{words}: {:?}",
            lines.lines()
        );
    }
}

#[test]
fn a_replay_keeps_the_id_taken_and_a_removal_sets_it_free() {
    let Some(redis) = Redis::start("a_replay_keeps_the_id_taken", &[]) else { return };
    push(&redis, Push::new("one").id("7"));
    bury(&redis, 1);
    // The window of the push is over.
    redis.ask("DEL {jobs}:id:7");
    assert_eq!(letters(&redis).replay_all().unwrap().settled, 1);
    assert_eq!(push(&redis, Push::new("two").id("7")), Pushed::Duplicate);
    bury(&redis, 1);
    assert_eq!(letters(&redis).remove_all().unwrap().settled, 1);
    assert!(matches!(push(&redis, Push::new("three").id("7")), Pushed::Added(_)));
    assert_eq!((redis.number("XLEN jobs"), redis.number("XLEN {jobs}:dead")), (1, 0));
}

#[test]
fn the_id_of_a_replayed_job_is_found_from_each_shard() {
    const SHARDS: u32 = 4;
    let Some(redis) = Redis::start("the_id_of_a_replayed_job_is_found", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", SHARDS).unwrap();
    let ids: Vec<String> = (0..20).map(|n| format!("id {n}")).collect();
    let push = |id: &String, key: &str| Push::new("job").id(id.as_str()).key(key);
    producer.push_all(ids.iter().map(|id| push(id, "a")).collect()).unwrap();
    let mut settings = config(redis.server(), "jobs");
    settings.shards = SHARDS;
    let handlers = Handlers::new().otherwise(|_| Err(Failure::dead("no")));
    let bridge = Bridge::start(settings, handlers, |_| {}).unwrap();
    until("the jobs are dead", || bridge.counters().dead == ids.len() as u64);
    bridge.stop(LONG);
    // The windows of the pushes are over, and the routes.
    for id in &ids {
        for shard in 0..SHARDS {
            let (mut connection, key) = (connection(&redis), format!("jobs.{{{shard}}}:id:{id}"));
            redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
        }
    }
    let all = DeadLetters::of_shards(&[redis.server()], "jobs", SHARDS);
    let replayed: u64 = all.into_iter().map(|mut of| of.replay_all().unwrap().settled).sum();
    assert_eq!(replayed, ids.len() as u64);
    for key in ["b", "c", "d", "e"] {
        for id in &ids {
            assert_eq!(producer.push(push(id, key)).unwrap(), Pushed::Duplicate, "{id} {key}");
        }
    }
}

#[test]
fn a_replay_whose_ids_cannot_be_announced_says_how_many_letters_it_has_settled() {
    const LETTERS: usize = 20;
    let name = "a_replay_whose_ids_cannot_be_announced";
    let Some(redis) = Redis::start(name, &[]) else { return };
    for id in 0..LETTERS {
        redis.ask(&format!("XADD jobs.{{0}}:dead * p job i {id} n 1 e why"));
    }
    // The home of some of the ids is the shard of a server that does not exist.
    let gone = Address::reserve().unwrap();
    let gone = Server::new(&format!("redis://{}", gone.socket())).unwrap();
    let mut shards = DeadLetters::of_shards(&[redis.server(), gone], "jobs", 2);
    let error = shards[0].replay_all().unwrap_err();
    assert_eq!(error.settled().settled, LETTERS as u64);
    let error = error.to_string();
    assert!(error.contains("20 letters were settled, but not all other shards know"), "{error}");
    assert_eq!(redis.number("XLEN jobs.{0}"), LETTERS as i64);
}

fn connection(redis: &Redis) -> redis::Connection {
    redis::Client::open(redis.url()).unwrap().get_connection().unwrap()
}

#[test]
fn a_replay_that_is_refused_leaves_the_letter_and_nothing_else() {
    let Some(redis) = Redis::start("a_replay_that_is_refused", &[]) else { return };
    redis.ask("XADD {jobs}:dead 5-0 p payload i 7 n 3 e why o 1-0");
    for missing in ["xadd", "xdel", "xrange"] {
        redis.ask(&format!("ACL SETUSER poor on >secret ~* +@all -{missing}"));
        let server = server_at(&format!("redis://poor:secret@127.0.0.1:{}", redis.port()));
        let mut letters = DeadLetters::new(server, "jobs");
        let error = letters.replay("5-0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{missing}: {error}");
        assert_eq!((redis.number("XLEN jobs"), redis.number("EXISTS {jobs}:id:7")), (0, 0));
        assert_eq!(redis.number("XLEN {jobs}:dead"), 1, "{missing}");
        redis.ask("ACL DELUSER poor");
    }
    redis.ask("SET jobs text");
    let error = letters(&redis).replay_all().unwrap_err().to_string();
    assert!(error.starts_with("after 0 letters: ") && error.contains("WRONGTYPE"), "{error}");
    assert_eq!(redis.number("XLEN {jobs}:dead"), 1);
    redis.ask("DEL jobs");
    // A server without memory: the letter's place becomes free.
    redis.ask("CONFIG SET maxmemory 1");
    assert!(letters(&redis).replay("5-0").unwrap());
    assert_eq!((redis.number("XLEN jobs"), redis.number("XLEN {jobs}:dead")), (1, 0));
}

#[test]
fn all_letters_are_those_that_exist_now_and_what_is_no_job_stays() {
    const JOBS: u64 = 1_201;
    let Some(redis) = Redis::start("all_letters_are_those", &[]) else { return };
    redis.ask("XADD {jobs}:dead 1-0 what ever");
    redis.ask("XADD {jobs}:dead 2-0 p a n 1 e why");
    let add =
        "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'p', i, 'n', 1, 'e', 'why') end";
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let mut eval = redis::cmd("EVAL");
    eval.arg(add).arg(1).arg("{jobs}:dead").arg(JOBS - 1).exec(&mut connection).unwrap();
    let mut letters = letters(&redis);
    let (mut listed, mut after) = (0, None);
    loop {
        let page = letters.page(after.as_deref(), 1_000, 100).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.number.clone());
        listed += page.len() as u64;
    }
    assert_eq!(listed, JOBS + 1, "each once");
    let settled = letters.replay_all().unwrap();
    assert_eq!((settled.settled, settled.left), (JOBS, 1));
    assert_eq!((redis.number("XLEN jobs"), letters.count().unwrap()), (JOBS as i64, 1));
    assert!(!letters.replay("1-0").unwrap() && letters.remove("1-0").unwrap());
    assert_eq!(letters.replay_all().unwrap().settled, 0);
    let error = letters.get("seven").unwrap_err().to_string();
    assert!(error.contains("\"seven\" is no number of a dead letter"), "{error}");
}

#[test]
fn the_newest_letters_are_kept_and_an_entry_in_quarantine_gets_another_letter() {
    const KEPT: u64 = 5;
    // The server trims whole nodes.
    let flags = ["--stream-node-max-entries", "1"];
    let Some(redis) = Redis::start("the_newest_letters_are_kept", &flags) else { return };
    let wide = add_wide(&redis, "wide");
    let settings = || {
        let mut settings = config(redis.server(), "jobs");
        (settings.dead_max, settings.max_active) = (KEPT, 1);
        settings
    };
    let run = |dead| {
        let handlers = Handlers::new().otherwise(|_| Err(Failure::dead("no")));
        let bridge = Bridge::start(settings(), handlers, |_| {}).unwrap();
        until("the jobs are dead", || bridge.counters().dead == dead);
        bridge.stop(LONG);
    };
    run(1);
    for nth in 0..20 {
        push(&redis, Push::new(nth.to_string()));
    }
    run(20);
    let mut letters = letters(&redis);
    let payloads = |letters: &mut DeadLetters| {
        let page = letters.page(None, 100, 100).unwrap();
        let of = |letter: &uwork_bridge::DeadLetter| match &letter.quarantine {
            Some(entry) => format!("{entry} {}", letter.error),
            None => String::from_utf8_lossy(&letter.payload).into_owned(),
        };
        page.iter().map(of).collect::<Vec<_>>()
    };
    let named = format!("{wide} its letter was removed, and it cannot be moved");
    assert_eq!(payloads(&mut letters), ["15", "16", "17", "18", "19", &named]);
    // By hand.
    redis.ask("DEL {jobs}:dead");
    run(0);
    run(0);
    assert_eq!(payloads(&mut letters), [named], "one letter");
    let held = HeldJob::read(redis.server(), "jobs", "uwork", 10).unwrap();
    let [(_, jobs)] = &held[..] else { panic!("{held:?}") };
    assert_eq!((jobs[0].begun, jobs[0].deliveries), (0, 0));
    assert_eq!(letters.remove_all().unwrap().settled, 1);
    assert_eq!((redis.number("XLEN jobs"), redis.pending("jobs")), (0, 0));
}

#[test]
fn what_a_consumer_holds_is_listed_without_its_payload() {
    let Some(redis) = Redis::start("what_a_consumer_holds_is_listed", &[]) else { return };
    assert!(HeldJob::read(redis.server(), "jobs", "uwork", 10).unwrap().is_empty());
    let absent = Stat::read(redis.server(), "jobs", "uwork").unwrap();
    assert!(!absent.exists && !absent.group_exists);
    push(&redis, Push::new("x".repeat(1 << 20)).id("7").handler("mail"));
    let stat = Stat::read(redis.server(), "jobs", "uwork").unwrap();
    assert!(stat.exists && !stat.group_exists);
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XGROUP CREATECONSUMER jobs uwork idle");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "ghost");
    let found = HeldJob::read(redis.server(), "jobs", "uwork", 10).unwrap();
    let of = |name: &str| found.iter().find(|(consumer, _)| consumer.name == name).unwrap();
    assert_eq!((of("idle").0.pending, of("idle").1.len()), (0, 0));
    let [job] = &of("ghost").1[..] else { panic!("{found:?}") };
    assert_eq!((&job.entry, job.deliveries, job.attempts), (&redis.entry("jobs"), 1, 0));
    assert_eq!((job.id.as_deref(), job.handler.as_deref()), (Some("7"), Some("mail")));
    assert!(job.idle >= Duration::from_secs(24 * 3_600));
    redis.ask("SET other text");
    assert!(HeldJob::read(redis.server(), "other", "uwork", 10).is_err());
}

#[test]
fn the_removal_of_a_letter_leaves_the_entry_that_another_group_needs() {
    let Some(redis) = Redis::start("the_removal_of_a_letter_leaves_the_entry", &[]) else { return };
    redis.ask("XGROUP CREATE jobs audit 0 MKSTREAM");
    // Entries of another program: without a payload, and with the fields of a quarantine.
    redis.ask("XADD jobs * color red");
    let entry = redis.entry("jobs");
    redis.ask(&format!("XADD jobs * q {entry} p payload"));
    let handlers = Handlers::new().otherwise(|_| Err(Failure::dead("no")));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, |_| {}).unwrap();
    until("the jobs are dead", || bridge.counters().dead == 2);
    bridge.stop(LONG);
    assert_eq!(redis.number("XLEN jobs"), 2, "the other group has read neither");
    let mut letters = letters(&redis);
    assert!(letters.page(None, 10, 10).unwrap().iter().all(|letter| letter.entry.is_some()));
    assert_eq!(letters.remove_all().unwrap().settled, 2);
    assert_eq!(redis.number("XLEN jobs"), 2);
    let (mut audit, count) = (config(redis.server(), "jobs"), Count::default());
    audit.group = "audit".to_owned();
    let bridge = Bridge::start(audit, count.handlers(), |_| {}).unwrap();
    count.wait_for("payload", 1);
    until("the group has none left", || redis.number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.dead, 1, "the entry without a payload");
}
