//! Effects: one command or script with the acknowledgement, whole or not at all, and never twice.

use std::sync::Arc;

use uwork_bridge::{Bridge, Handlers, Producer, Push, Reply, Results};

use crate::support::count::{Count, LONG, Since, config, config_never_late};
use crate::support::patience::until;
use crate::support::proxy::Proxy;
use crate::support::server::{Redis, add_wide, server_at};

/// Runs one job with a reply until the job is done or dead, and returns the reported lines.
fn run(
    redis: &Redis,
    results: Results,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> Count {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new("job").id("7")).unwrap();
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(move |_| Ok(reply()));
    let mut config = config(redis.server(), "jobs");
    config.results = results;
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    until("the job has ended", || bridge.counters().done + bridge.counters().dead == 1);
    bridge.stop(LONG);
    lines.assert_nothing_refused();
    lines
}

#[test]
fn a_second_effect_is_refused_and_the_first_is_not_run() {
    let Some(redis) = Redis::start("a_second_effect_is_refused", &[]) else { return };
    redis.ask("SET text hello");
    let reply =
        || Reply::done().effect(["INCRBY", "balance", "100"]).effect(["INCRBY", "text", "1"]);
    run(&redis, Results::Dropped, reply)
        .wait_line("after 1 attempt(s): a job has 2 effects: allowed is 1, a command or a script");
    assert_eq!(redis.number("EXISTS balance"), 0);
}

#[test]
fn a_result_is_not_left_behind_by_an_effect_that_fails() {
    let Some(redis) = Redis::start("a_result_is_not_left_behind", &[]) else { return };
    redis.ask("SET text hello");
    for results in [Results::Stream(100), Results::Key(LONG)] {
        redis.ask("DEL {jobs}:id:7");
        run(&redis, results, || Reply::result("r").effect(["INCRBY", "text", "1"]))
            .wait_line("after 3 attempt(s): an effect failed: INCRBY: ERR value is not an integer");
        assert_eq!(redis.number("XLEN {jobs}:results"), 0);
        assert_eq!(redis.number("EXISTS {jobs}:result:7"), 0);
    }
}

/// Runs a job whose reply is refused for a while, until `mend` has made its place.
fn refused_for_a_while(
    redis: &Redis,
    results: Results,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
    (words, mend): (&str, &str),
) {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new("job").id("7")).unwrap();
    let (runs, lines) = (Count::default(), Count::default());
    let count = runs.clone();
    let handlers = Handlers::new().otherwise(move |_| {
        count.add("run");
        Ok(reply())
    });
    let at = format!("redis://worker:secret@127.0.0.1:{}", redis.port());
    let mut config = config(server_at(&at), "jobs");
    config.results = results;
    let since = Since::now();
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    lines.wait_line(words);
    until("it was refused a few times", || bridge.counters().faults >= 3);
    assert_eq!(redis.number("EXISTS balance"), 0);
    redis.ask(mend);
    until("the job is done", || bridge.counters().done == 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.dead, counters.retries, counters.duplicates, runs.sum()), (0, 0, 0, 1));
    since.assert_no_hot_loop(counters.faults);
    let refused = lines.lines().iter().filter(|line| line.contains(words)).count();
    assert_eq!(refused, 1, "{:#?}", lines.lines());
    assert_eq!(redis.number("GET balance"), 100);
    assert_eq!(redis.number("XLEN {jobs}:dead") + redis.pending("jobs"), 0);
}

const PAY: [&str; 3] = ["INCRBY", "balance", "100"];

#[test]
fn a_place_of_results_that_is_refused_holds_its_jobs_with_a_line_and_buries_none() {
    let Some(redis) = Redis::start("a_place_of_results_that_is_refused", &[]) else { return };
    redis.ask("ACL SETUSER worker on >secret ~* +@all");
    redis.ask("SET {jobs}:results text");
    let reply = || Reply::result("r").effect(PAY);
    let of_type = ("XADD: WRONGTYPE", "DEL {jobs}:results");
    refused_for_a_while(&redis, Results::Stream(9), reply, of_type);
    assert_eq!(redis.number("XLEN {jobs}:results"), 1);
    // Of each right that the results need, only the key of the results is refused.
    for results in [Results::Stream(9), Results::Key(LONG)] {
        redis.ask("FLUSHALL");
        redis.ask("ACL SETUSER worker on >secret resetkeys ~jobs ~{jobs}:stats ~{jobs}:delayed");
        redis.ask("ACL SETUSER worker ~{jobs}:dead ~{jobs}:guard ~balance");
        let words = "; docs/bridge.md has the ACL rules";
        refused_for_a_while(&redis, results, reply, (words, "ACL SETUSER worker ~*"));
    }
}

#[test]
fn a_right_that_an_effect_lacks_holds_its_jobs_with_a_line_and_buries_none() {
    let Some(redis) = Redis::start("a_right_that_an_effect_lacks", &[]) else { return };
    redis.ask("ACL SETUSER worker on >secret ~* +@all");
    let text = "if redis.call('GET', KEYS[1]) == 'no' then return end \
                redis.call('INCRBY', KEYS[1], ARGV[1])";
    let script = move || Reply::result("r").effect(["EVAL", text, "1", "balance", "100"]);
    let command = || Reply::result("r").effect(PAY);
    let replies: [Box<dyn Fn() -> Reply + Send + Sync>; 2] = [Box::new(command), Box::new(script)];
    for reply in replies {
        redis.ask("FLUSHALL");
        redis.ask("ACL SETUSER worker -incrby");
        let words = "; docs/bridge.md has the ACL rules";
        refused_for_a_while(
            &redis,
            Results::Key(LONG),
            reply,
            (words, "ACL SETUSER worker +incrby"),
        );
        assert_eq!(redis.number("EXISTS {jobs}:result:7"), 1);
    }
}

#[test]
fn a_script_that_lacks_a_right_after_its_first_write_repeats_nothing() {
    let Some(redis) = Redis::start("a_script_that_lacks_a_right_after", &[]) else { return };
    redis.ask("ACL SETUSER worker on >secret ~* +@all -incrby");
    let text = "redis.call('SET', KEYS[1], 1) redis.call('INCRBY', KEYS[2], 1)";
    let reply = || Reply::done().effect(["EVAL", text, "2", "seen", "balance"]);
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    producer.push(Push::new("job")).unwrap();
    let lines = Count::default();
    let at = format!("redis://worker:secret@127.0.0.1:{}", redis.port());
    let handlers = Handlers::new().otherwise(move |_| Ok(reply()));
    let bridge = Bridge::start(config(server_at(&at), "jobs"), handlers, lines.reports()).unwrap();
    lines.wait_line(" after 1 attempt(s): an effect failed: EVAL: ");
    bridge.stop(LONG);
    assert_eq!((redis.number("GET seen"), redis.number("EXISTS balance")), (1, 0));
}

#[test]
fn the_first_effect_that_fails_is_a_line_like_any_first_failure_of_its_handler() {
    let Some(redis) = Redis::start("the_first_effect_that_fails_is_a_line", &[]) else { return };
    redis.ask("SET text hello");
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    let job = |n: u32| Push::new("job").id(format!("pay-{n}")).handler("pay");
    producer.push_all((0..5).map(job).collect()).unwrap();
    let lines = Count::default();
    let reply = |_: &uwork_bridge::Job| Ok(Reply::done().effect(["INCRBY", "text", "1"]));
    let handlers = Handlers::new().add("pay", reply);
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    until("all are dead letters", || bridge.counters().dead == 5);
    bridge.stop(LONG);
    let first = " of pay has failed in attempt 1 of 3: an effect failed: INCRBY: ERR value is not";
    let lines = lines.lines();
    assert_eq!(lines.iter().filter(|line| line.contains(" has failed in attempt ")).count(), 1);
    assert_eq!(lines.iter().filter(|line| line.contains(first)).count(), 1, "{lines:#?}");
}

#[test]
fn a_script_makes_several_changes_and_one_that_fails_repeats_nothing() {
    let Some(redis) = Redis::start("a_script_makes_several_changes", &[]) else { return };
    redis.ask("SET text hello");
    let pay = |second: &'static str| {
        let text = "redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], 1)";
        move || Reply::done().effect(["eval", text, "2", "balance", second, "100"])
    };
    run(&redis, Results::Dropped, pay("count"));
    assert_eq!((redis.number("GET balance"), redis.number("GET count")), (100, 1));
    redis.ask("DEL {jobs}:id:7");
    run(&redis, Results::Dropped, pay("text"))
        .wait_line("after 1 attempt(s): an effect failed: EVAL: ERR value is not an integer");
    assert_eq!(redis.number("GET balance"), 200, "its first half once, and not at each attempt");
    for (words, text) in [
        (["EVAL", "return", "2", "key"], "an effect is EVAL, a text, the number of keys"),
        (["EVAL", "return", "-1", "key"], "an effect is EVAL, a text, the number of keys"),
        (["EVAL", "no lua", "1", "key"], "an effect failed: EVAL: effect:1: '=' expected"),
    ] {
        redis.ask("DEL {jobs}:id:7");
        let words = words.to_vec();
        run(&redis, Results::Dropped, move || Reply::done().effect(words.clone())).wait_line(text);
    }
}

#[test]
fn an_effect_whose_job_cannot_be_acknowledged_waits_and_happens_once() {
    let Some(redis) = Redis::start("an_effect_whose_job_cannot_be", &[]) else { return };
    for right in ["xack", "xdel"] {
        redis.ask("FLUSHALL");
        redis.ask("ACL SETUSER worker on >secret ~* +@all");
        redis.ask(&format!("ACL SETUSER worker -{right}"));
        let at = format!("redis://worker:secret@127.0.0.1:{}", redis.port());
        let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
        producer.push(Push::new("job")).unwrap();
        let handlers =
            Handlers::new().otherwise(|_| Ok(Reply::done().effect(["INCRBY", "balance", "100"])));
        let bridge = Bridge::start(config(server_at(&at), "jobs"), handlers, |_| {}).unwrap();
        until("it was refused a few times", || bridge.counters().faults >= 3);
        assert_eq!(redis.number("EXISTS balance"), 0);
        redis.ask(&format!("ACL SETUSER worker +{right}"));
        until("the job is done", || bridge.counters().done == 1);
        bridge.stop(LONG);
        assert_eq!(redis.number("GET balance"), 100, "without {right}");
    }
}

#[test]
fn a_script_does_not_begin_on_a_server_without_memory() {
    let Some(redis) = Redis::start("a_script_does_not_begin", &[]) else { return };
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    producer.push(Push::new("job")).unwrap();
    redis.ask("RPUSH list 1 2 3");
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("CONFIG SET maxmemory 1");
    let handlers = Handlers::new().otherwise(|_| {
        // A server without memory grants the first, and refuses the second.
        let text = "redis.call('LPOP', KEYS[1]) redis.call('SET', KEYS[2], 1)";
        Ok(Reply::done().effect(["EVAL", text, "2", "list", "seen"]))
    });
    let lines = Count::default();
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    lines.wait_line("OOM");
    until("it was tried a few times", || bridge.counters().faults >= 3);
    assert_eq!(redis.number("LLEN list"), 3);
    redis.ask("CONFIG SET maxmemory 0");
    until("the job is done", || bridge.counters().done == 1);
    bridge.stop(LONG);
    assert_eq!(redis.number("LLEN list"), 2);
}

/// Writes, and then fails.
fn script_that_fails_after_a_write() -> Reply {
    let text = "redis.call('INCRBY', KEYS[1], 100) redis.call('NO_SUCH_COMMAND')";
    Reply::done().effect(["EVAL", text, "1", "balance"])
}

// Catches: a burial in an exchange of its own, which the server refuses while the script may run again.
#[test]
fn a_script_that_fails_writes_once_although_its_burial_is_refused() {
    let Some(redis) = Redis::start("a_script_that_fails_writes_once_although", &[]) else { return };
    redis.ask("SET {jobs}:dead text");
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(Push::new("job")).unwrap();
    let lines = Count::default();
    let handlers = Handlers::new().otherwise(|_| Ok(script_that_fails_after_a_write()));
    let bridge = Bridge::start(config(redis.server(), "jobs"), handlers, lines.reports()).unwrap();
    lines.wait_line("WRONGTYPE");
    until("it was refused a few times", || bridge.counters().faults >= 3);
    assert_eq!(redis.number("EXISTS balance"), 0, "it has not begun");
    redis.ask("DEL {jobs}:dead");
    until("it is a dead letter", || redis.number("XLEN {jobs}:dead") == 1);
    assert_eq!(bridge.stop(LONG).counters.dead, 1);
    assert_eq!((redis.number("GET balance"), redis.number("XLEN jobs")), (100, 0));
    assert_eq!(redis.number("HGET {jobs}:stats dead"), 1);
    let line = "after 1 attempt(s): an effect failed: EVAL: ERR Unknown Redis command";
    lines.wait_line(line);
    assert!(redis.first("{jobs}:dead").contains("e=an effect failed: EVAL: ERR Unknown Redis"));
}

// Catches: a burial that the consumer takes for a job that is done, since another call has buried it.
#[test]
fn a_script_that_fails_has_its_line_although_the_answer_was_lost() {
    let Some(redis) = Redis::start("a_script_that_fails_has_its_line", &[]) else { return };
    for is_wide in [false, true] {
        redis.ask("FLUSHALL");
        if is_wide {
            add_wide(&redis, "job");
        } else {
            redis.ask("XADD jobs * p job");
        }
        let (lines, proxy) = (Count::default(), Arc::new(Proxy::to(redis.port())));
        let held = proxy.clone();
        let handlers = Handlers::new().otherwise(move |_| {
            held.hold_replies();
            Ok(script_that_fails_after_a_write())
        });
        let config = config_never_late(server_at(&proxy.url()), "jobs");
        let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
        until("it is a dead letter", || {
            // Answers that are older than a look that finds no letter are not that of the burial.
            let older = proxy.replies();
            let is_dead = redis.number("XLEN {jobs}:dead") == 1;
            if !is_dead {
                proxy.pass_replies(older);
            }
            is_dead
        });
        proxy.close();
        proxy.open();
        lines.wait_line(" after 1 attempt(s)");
        let counters = bridge.stop(LONG).counters;
        assert_eq!((counters.dead, counters.done, counters.duplicates), (1, 0, 0));
        let dead = lines.lines().iter().filter(|line| line.contains("is the dead letter")).count();
        assert_eq!((dead, redis.number("GET balance")), (1, 100), "{:#?}", lines.lines());
        assert_eq!(redis.number("HGET {jobs}:stats dead"), 1);
    }
}

// Catches: a search through the dead letters for each outcome that is sent again.
#[test]
fn a_command_that_is_sent_again_reads_no_letter() {
    let Some(redis) = Redis::start("a_command_that_is_sent_again", &[]) else { return };
    redis.ask("XADD jobs * p job");
    let proxy = Arc::new(Proxy::to(redis.port()));
    let held = proxy.clone();
    let handlers = Handlers::new().otherwise(move |_| {
        held.hold_replies();
        Ok(Reply::done().effect(PAY))
    });
    let config = config_never_late(server_at(&proxy.url()), "jobs");
    let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
    until("its effect has happened", || {
        // Answers that are older than a look that finds no effect are not that of the effect.
        let older = proxy.replies();
        let has_happened = redis.number("EXISTS balance") == 1;
        if !has_happened {
            proxy.pass_replies(older);
        }
        has_happened
    });
    proxy.close();
    proxy.open();
    until("its outcome is answered", || bridge.counters().done == 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead, counters.duplicates), (1, 0, 0));
    assert_eq!((redis.number("GET balance"), redis.calls("xrevrange")), (100, 0));
}

// Catches: the script of a consumer that has lost its job, after which only the owner may bury it.
#[test]
fn a_script_that_fails_in_two_runs_of_a_job_writes_once() {
    let Some(redis) = Redis::start("a_script_that_fails_in_two_runs", &[]) else { return };
    for is_wide in [false, true] {
        redis.ask("FLUSHALL");
        if is_wide {
            add_wide(&redis, "job");
        } else {
            redis.ask("XADD jobs * p job");
        }
        fail_in_two_runs(&redis);
        // An entry in quarantine is pending for ever.
        let left = i64::from(is_wide);
        assert_eq!((redis.number("XLEN jobs"), redis.pending("jobs")), (left, left));
    }
}

fn fail_in_two_runs(redis: &Redis) {
    let (begun, gates) = (Count::default(), Count::default());
    let start = |name: &'static str, server| {
        let (begun, gates) = (begun.clone(), gates.clone());
        let handlers = Handlers::new().otherwise(move |_| {
            begun.add(name);
            gates.wait_for(name, 1);
            Ok(script_that_fails_after_a_write())
        });
        Bridge::start(config_never_late(server, "jobs"), handlers, |_| {}).unwrap()
    };
    let proxy = Proxy::to(redis.port());
    let first = start("first", server_at(&proxy.url()));
    begun.wait_for("first", 1);
    redis.wait_until_recorded("jobs");
    proxy.close();
    redis.forget_signs_of_life("jobs", "");
    let second = start("second", redis.server());
    begun.wait_for("second", 1);
    // The second one owns the entry.
    proxy.open();
    gates.add("first");
    until("it is a dead letter", || redis.number("XLEN {jobs}:dead") == 1);
    gates.add("second");
    assert_eq!(first.stop(LONG).counters.dead, 1);
    assert_eq!(second.stop(LONG).counters.dead, 0);
    assert_eq!((redis.number("GET balance"), redis.number("XLEN {jobs}:dead")), (100, 1));
}

// Catches: an effect that is undone together with results of earlier jobs.
#[test]
fn an_effect_that_fails_leaves_earlier_results_as_they_were() {
    const EARLIER: i64 = 250;
    let Some(redis) = Redis::start("an_effect_that_fails_leaves_earlier", &[]) else { return };
    redis.ask("SET text hello");
    redis.ask("SET {jobs}:result:7 earlier EX 1000");
    (0..EARLIER).for_each(|_| _ = redis.ask("XADD {jobs}:results * i 6 r earlier"));
    let refused = || Reply::result("later").effect(["INCRBY", "text", "1"]);
    for results in [Results::Key(LONG), Results::Stream(1)] {
        redis.ask("DEL {jobs}:id:7");
        run(&redis, results, refused).wait_line("an effect failed: INCRBY");
    }
    assert_eq!(redis.number("STRLEN {jobs}:result:7"), "earlier".len() as i64);
    assert!((1..=1_000).contains(&redis.number("TTL {jobs}:result:7")));
    assert_eq!(redis.number("XLEN {jobs}:results"), EARLIER);
    for results in [Results::Key(LONG), Results::Stream(1)] {
        redis.ask("DEL {jobs}:id:7");
        run(&redis, results, || Reply::result("later").effect(PAY));
    }
    assert_eq!(redis.number("STRLEN {jobs}:result:7"), "later".len() as i64);
    assert!(redis.number("TTL {jobs}:result:7") > 1_000);
    // The server removes whole nodes of a hundred.
    assert!(redis.number("XLEN {jobs}:results") < EARLIER);
}
