//! Servers that forget jobs: reported once, and again when that changes; refused where the program
//! says so.

use std::time::Duration;

use uwork_bridge::{Bridge, Config, Error, ErrorKind, Producer};

use crate::support::count::{Count, LONG, config};
use crate::support::patience::until;
use crate::support::proxy::Proxy;
use crate::support::server::{Redis, server_at};

/// How often the server has answered XLEN, which a look at it begins with.
fn looks(redis: &Redis) -> u64 {
    redis.calls("xlen")
}

#[test]
fn a_strict_consumer_fetches_nothing_while_its_server_forgets() {
    let name = "a_strict_consumer_fetches_nothing";
    let Some(redis) = Redis::start(name, &[]) else { return };
    let address = Proxy::to(redis.port());
    let (count, lines) = (Count::default(), Count::default());
    let mut settings = config(server_at(&address.url()), "jobs");
    settings.strict = true;
    let bridge = Bridge::start(settings, count.handlers(), lines.reports()).unwrap();
    redis.ask("CONFIG SET appendonly no");
    // A new connection looks at once.
    address.cut();
    lines.wait_line("jobs: no job is fetched until its server forgets none (strict)");
    redis.ask("XADD jobs * p orphan");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "ghost");
    redis.ask("XADD jobs * p new");
    let before = looks(&redis);
    until("the consumer has looked twice more", || looks(&redis) >= before + 2);
    assert_eq!((redis.number("XLEN jobs"), count.sum()), (2, 0));
    redis.ask("CONFIG SET appendonly yes");
    lines.wait_line("jobs: jobs are fetched again");
    count.wait_for("new", 1);
    count.wait_for("orphan", 1);
    bridge.stop(LONG);
}

fn strict(config: Config) -> Result<Bridge, Error> {
    let mut config = config;
    config.strict = true;
    Bridge::start(config, Count::default().handlers(), |_| {})
}

#[test]
fn a_server_that_forgets_jobs_is_reported_once_and_when_that_changes() {
    let name = "a_server_that_forgets_jobs_is_reported";
    let Some(redis) = Redis::start(name, &["--appendonly", "no"]) else { return };
    let address = Proxy::to(redis.port());
    let lines = Count::default();
    let mut settings = config(server_at(&address.url()), "jobs");
    settings.shards = 2;
    let handlers = Count::default().handlers();
    let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
    let log = lines.wait_line("no append-only file");
    redis.ask("CONFIG SET maxmemory-policy allkeys-lru");
    // A new connection may lead to another server, so it looks at once.
    address.cut();
    let note =
        lines.wait_line("allkeys-lru deletes streams with all their jobs once maxmemory is set");
    redis.ask("CONFIG SET appendonly yes");
    redis.ask("CONFIG SET maxmemory 1gb");
    address.cut();
    let evicts = lines.wait_line("deletes streams with all their jobs when memory runs out");
    let over = lines.wait_line("no longer: no append-only file");
    // Each shard looks.
    until("all connections are new", || address.clients() == 4);
    bridge.stop(LONG);
    for line in [log, note, evicts, over] {
        assert_eq!(lines.of(&line), 1, "{line}");
    }
}

#[test]
fn a_server_that_begins_to_forget_is_found_on_a_connection_that_lasts() {
    let Some(redis) = Redis::start("a_server_that_begins_to_forget_is_found", &[]) else { return };
    let (count, lines) = (Count::default(), Count::default());
    let mut settings = config(redis.server(), "jobs");
    settings.look_every = Duration::from_millis(50);
    let bridge = Bridge::start(settings, count.handlers(), lines.reports()).unwrap();
    redis.ask("CONFIG SET appendonly no");
    let log = lines.wait_line("no append-only file");
    redis.ask("CONFIG SET appendonly yes");
    lines.wait_line("no longer: no append-only file");
    assert_eq!(lines.of(&log), 1);
    assert_eq!(bridge.stop(LONG).counters.faults, 0, "the connections are the first ones");
}

#[test]
fn a_strict_consumer_and_a_strict_producer_start_after_a_failover_to_a_further_address() {
    let name = "a_strict_consumer_and_a_strict_producer_start";
    let Some(replica) = Redis::start(name, &[]) else { return };
    let Some(master) = Redis::start(name, &["--repl-diskless-sync-delay", "0"]) else { return };
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let servers = vec![replica.server(), master.server()];
    let mut settings = config(replica.server(), "jobs");
    settings.servers.clone_from(&servers);
    strict(settings).unwrap().stop(LONG);
    let mut producer = Producer::new(servers, "jobs", 1).unwrap();
    assert_eq!(producer.look().unwrap(), [""; 0]);
}

#[test]
fn a_strict_consumer_and_a_strict_producer_refuse_a_server_that_forgets() {
    let Some(redis) = Redis::start("a_strict_consumer_and_a_strict", &[]) else { return };
    let Some(master) = Redis::start("a_strict_consumer_and_a_strict", &[]) else { return };
    let safe = strict(config(redis.server(), "jobs")).unwrap();
    safe.stop(LONG);
    redis.ask("ACL SETUSER blind on nopass ~* &* +@all -info");
    let blind = format!("redis://blind:x@127.0.0.1:{}", redis.port());
    let replica = format!("REPLICAOF 127.0.0.1 {}", master.port());
    let policy = "CONFIG SET maxmemory-policy allkeys-lru";
    let limit = "CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru";
    let no_policy = "CONFIG SET maxmemory 0 maxmemory-policy noeviction";
    for (change, back, words, url) in [
        ("CONFIG SET appendonly no", "CONFIG SET appendonly yes", "append-only", redis.url()),
        (policy, no_policy, "once maxmemory is set", redis.url()),
        (limit, no_policy, "when memory runs out", redis.url()),
        ("PING", "PING", "docs/bridge.md has the ACL rules", blind),
        (&replica, "REPLICAOF NO ONE", "is a replica; give the address of its master", redis.url()),
    ] {
        redis.ask(change);
        let error = strict(config(server_at(&url), "jobs")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        let mut producer = Producer::new(vec![server_at(&url)], "jobs", 1).unwrap();
        let found = producer.look().unwrap();
        assert!(found.len() == 1 && found[0].contains(words), "{found:?}");
        redis.ask(back);
    }
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    assert!(producer.look().unwrap().is_empty());
}
