//! Masters that die, hang, or get another address: work goes on at the server that has their place,
//! and no job is lost.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::{self, JoinHandle};

use uwork_bridge::{Bridge, Config, Producer, Push, Server, Stat};

use crate::support::address::Address;
use crate::support::cluster::{Cluster, text};
use crate::support::count::{Count, LONG, Since, config};
use crate::support::patience::until;
use crate::support::proxy::{Proxy, Trouble};
use crate::support::server::{Redis, server_at};

/// Enough that each node of a cluster has some.
const SHARDS: u32 = 8;
/// Jobs of one push.
const BATCH: usize = 10;
/// Jobs that are pushed and have not run, at most.
const AHEAD: usize = 200;

/// Producers that push jobs with ids until they are stopped. A push that fails is repeated.
struct Producers {
    threads: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// What the servers have accepted.
    pushed: Arc<Mutex<BTreeSet<String>>>,
    /// Held by a push that is on its way.
    pushing: Arc<RwLock<()>>,
}

impl Producers {
    fn start(servers: &[Vec<Server>], shards: u32, count: &Count) -> Producers {
        let (is_over, pushed, pushing) = (Arc::default(), Arc::default(), Arc::default());
        let producer = |(nth, servers): (usize, &Vec<Server>)| {
            let mut producer = Producer::new(servers.clone(), "jobs", shards).unwrap();
            let (is_over, pushed, pushing): (
                Arc<AtomicBool>,
                Arc<Mutex<BTreeSet<_>>>,
                Arc<RwLock<()>>,
            ) = (Arc::clone(&is_over), Arc::clone(&pushed), Arc::clone(&pushing));
            let count = count.clone();
            thread::spawn(move || {
                for batch in 0.. {
                    let job = |job| format!("{nth}-{batch}-{job}");
                    let names: Vec<String> = (0..BATCH).map(job).collect();
                    let job = |name: &String| Push::new(name.as_str()).id(name);
                    until("the jobs are pushed", || {
                        let _pushing = pushing.read().unwrap();
                        producer.push_all(names.iter().map(job).collect()).is_ok()
                    });
                    let all = {
                        let mut pushed = pushed.lock().unwrap();
                        pushed.extend(names);
                        pushed.len()
                    };
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    count.wait_distinct(all.saturating_sub(AHEAD));
                }
            })
        };
        let threads = servers.iter().enumerate().map(producer).collect();
        Producers { threads, is_over, pushed, pushing }
    }

    /// The jobs that the servers have accepted, in the end.
    fn stop(self) -> BTreeSet<String> {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut self.pushed.lock().unwrap())
    }
}

fn settings(servers: Vec<Server>, shards: u32) -> Config {
    let mut config = config(servers[0].clone(), "jobs");
    config.servers = servers;
    config.shards = shards;
    // A consumer that finds no server for longer than its heartbeat looks dead. That is no attempt,
    // and so the default number of them suffices.
    config.attempts_max = Config::new(config.servers[0].clone(), "jobs").attempts_max;
    config
}

/// Ends a master while no push is on its way and its replica has all data: what only the master has
/// would be lost with it, with any client.
fn fell(cluster: &mut Cluster, nth: usize, kill: bool, producers: &Producers) {
    let pushing = producers.pushing.write().unwrap();
    until("the replica has all data", || {
        let offset = |node: usize, name: &str| {
            let info = text(cluster.nodes[node].ask("INFO replication"));
            info.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
        };
        let of_replica = offset(cluster.partner(nth), "slave_repl_offset:");
        // The consumers' writes go on.
        let [now, then] = [of_replica, offset(nth, "master_repl_offset:")]
            .map(|offset| offset.trim().parse::<u64>().unwrap());
        now >= then
    });
    match kill {
        true => cluster.nodes[nth].kill(),
        false => cluster.nodes[nth].pause(),
    }
    drop(pushing);
}

#[test]
fn masters_that_are_killed_or_stopped_in_turn_lose_no_job() {
    let Some(mut cluster) = Cluster::start("masters_that_are_killed", true) else { return };
    let count = Count::default();
    // Each knows one node, which dies in one of the rounds.
    let consumers: Vec<Bridge> = [0, 1]
        .map(|seed| {
            let config = settings(cluster.servers(&[seed]), SHARDS);
            Bridge::start(config, count.handlers(), |_| {}).unwrap()
        })
        .into();
    let seeds = [cluster.servers(&[1]), cluster.servers(&[2, 0])];
    let producers = Producers::start(&seeds, SHARDS, &count);
    for round in 0..6 {
        let ran = count.distinct();
        count.wait_distinct(ran + AHEAD);
        let master = match round {
            0..3 => round,
            // Those that have taken over.
            _ => cluster.partner(round - 3),
        };
        let kill = round % 2 == 0;
        fell(&mut cluster, master, kill, &producers);
        cluster.promote(cluster.partner(master));
        let pushed = producers.pushed.lock().unwrap().len();
        // More than were pushed and more than can be pushed to the other masters alone.
        count.wait_distinct(pushed + AHEAD);
        // A push that still waits for the stopped master would be accepted by it, and lost when it
        // becomes a replica.
        let pushing = producers.pushing.write().unwrap();
        match kill {
            true => cluster.nodes[master].restart(),
            false => cluster.nodes[master].resume(),
        }
        cluster.wait_for_replica(master);
        drop(pushing);
    }
    let pushed = producers.stop();
    until("all jobs have run", || pushed.iter().all(|job| count.of(job) > 0));
    let dead = consumers.into_iter().map(|bridge| bridge.stop(LONG).counters.dead).sum::<u64>();
    assert_eq!((count.distinct(), dead), (pushed.len(), 0));
    let left = uwork_bridge::placed(&cluster.servers(&[3]), "jobs", SHARDS)
        .into_iter()
        .map(|(server, shard)| Stat::read(server, &shard, "uwork").unwrap())
        .map(|stat| stat.lag + stat.in_flight + stat.delayed + stat.dead_letters)
        .sum::<u64>();
    assert_eq!(left, 0);
}

#[test]
fn one_seed_of_a_cluster_that_lives_suffices_for_all_who_ask() {
    let Some(cluster) = Cluster::start("one_seed_of_a_cluster", false) else { return };
    let dead = Address::reserve().unwrap();
    let dead = server_at(&format!("redis://{}", dead.socket()));
    let servers = vec![dead.clone(), dead, cluster.nodes[2].server()];
    let count = Count::default();
    let config = settings(servers.clone(), SHARDS);
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    let mut producer = Producer::new(servers.clone(), "jobs", SHARDS).unwrap();
    let jobs = (0..100).map(|n| Push::new(n.to_string()).key(n.to_string())).collect();
    producer.push_all(jobs).unwrap();
    count.wait_distinct(100);
    bridge.stop(LONG);
    let stats = uwork_bridge::placed(&servers, "jobs", SHARDS);
    let done =
        |(server, shard): (Server, String)| Stat::read(server, &shard, "uwork").unwrap().done;
    assert_eq!(stats.into_iter().map(done).sum::<u64>(), 100);
}

/// A master and its replica.
fn pair(name: &str) -> Option<[Redis; 2]> {
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let (master, replica) = (Redis::start(name, &at_once)?, Redis::start(name, &at_once)?);
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    until("the replica is connected", || {
        text(replica.ask("INFO replication")).contains("master_link_status:up")
    });
    Some([master, replica])
}

fn push(server: Server, name: &str) {
    let mut producer = Producer::new(vec![server], "jobs", 1).unwrap();
    until("the job is pushed", || producer.push(Push::new(name).id(name)).is_ok());
}

/// Waits until the replica has a job, and ends the master.
fn fell_first(pair: &mut [Redis; 2], kill: bool) {
    push(pair[0].server(), "before");
    until("the replica has it", || pair[1].number("EXISTS {jobs}:id:before") == 1);
    match kill {
        true => pair[0].kill(),
        false => pair[0].pause(),
    }
}

#[test]
fn an_address_that_leads_to_another_server_is_followed_from_one_that_died_or_hangs() {
    // `is_cut`: the connections are made anew while the address still leads to the server that hangs.
    for (kill, is_cut) in [(true, false), (false, false), (false, true)] {
        let Some(mut pair) = pair("an_address_that_leads_to_another") else { return };
        // A name of the domain name system, or the address of a proxy.
        let address = Proxy::to(pair[0].port());
        let count = Count::default();
        let config = settings(vec![server_at(&address.url())], 1);
        let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
        let mut producer = Producer::new(vec![server_at(&address.url())], "jobs", 1).unwrap();
        producer.push(Push::new("first")).unwrap();
        count.wait_for("first", 1);
        fell_first(&mut pair, kill);
        pair[1].ask("REPLICAOF NO ONE");
        if is_cut {
            let before = address.made();
            address.cut();
            until("both threads connect anew", || address.made() >= before + 2);
        }
        // Connections that exist stay where they are.
        address.lead_to(pair[1].port());
        until("a job is pushed", || producer.push(Push::new("second").id("second")).is_ok());
        count.wait_for("second", 1);
        count.wait_for("before", 1);
        assert_eq!(bridge.stop(LONG).counters.dead, 0);
    }
}

#[test]
fn more_servers_than_shards_are_one_master_and_its_replicas() {
    for kill in [true, false] {
        let Some(mut pair) = pair("more_servers_than_shards") else { return };
        let servers = || pair.iter().map(Redis::server).collect::<Vec<_>>();
        let count = Count::default();
        let bridge = Bridge::start(settings(servers(), 1), count.handlers(), |_| {}).unwrap();
        let mut producer = Producer::new(servers(), "jobs", 1).unwrap();
        producer.push(Push::new("first")).unwrap();
        count.wait_for("first", 1);
        fell_first(&mut pair, kill);
        pair[1].ask("REPLICAOF NO ONE");
        until("a job is pushed", || producer.push(Push::new("second").id("second")).is_ok());
        count.wait_for("second", 1);
        count.wait_for("before", 1);
        assert_eq!(bridge.stop(LONG).counters.dead, 0);
    }
}

/// Its machine hangs when the first connection is made, so nothing is known of it.
#[test]
fn a_server_that_says_nothing_from_the_start_is_left_for_a_master() {
    let Some(redis) = Redis::start("a_server_that_says_nothing", &[]) else { return };
    // The system takes the connections, and no server answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = server_at(&format!("redis://{}", silent.local_addr().unwrap()));
    for servers in [[silent.clone(), redis.server()], [redis.server(), silent]] {
        let count = Count::default();
        let bridge =
            Bridge::start(settings(servers.to_vec(), 1), count.handlers(), |_| {}).unwrap();
        let mut producer = Producer::new(servers.to_vec(), "jobs", 1).unwrap();
        producer.push(Push::new("job")).unwrap();
        count.wait_for("job", 1);
        bridge.stop(LONG);
    }
}

/// It answers the question whether its address leads elsewhere and the first connection at once.
#[test]
fn a_server_that_is_slow_to_greet_is_not_taken_for_another() {
    let Some(redis) = Redis::start("a_server_that_is_slow_to_greet", &[]) else { return };
    let address = Proxy::to(redis.port());
    address.hold_replies();
    let server = server_at(&address.url());
    let pushing = std::thread::spawn(move || {
        let mut producer = Producer::new(vec![server], "jobs", 1).unwrap();
        producer.push(Push::new("job")).map(drop)
    });
    until("the question is asked", || address.made() >= 2);
    address.pass_replies(u64::MAX);
    pushing.join().unwrap().unwrap();
}

#[test]
fn a_replica_leads_to_its_master() {
    let Some(pair) = pair("a_replica_leads_to_its_master") else { return };
    let count = Count::default();
    let config = settings(vec![pair[1].server()], 1);
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    push(pair[1].server(), "job");
    count.wait_for("job", 1);
    assert_eq!(Stat::read(pair[1].server(), "jobs", "uwork").unwrap().lag, 0);
    bridge.stop(LONG);
}

#[test]
fn a_master_that_becomes_a_replica_leads_to_its_successor() {
    let Some(pair) = pair("a_master_that_becomes_a_replica") else { return };
    let count = Count::default();
    let config = settings(vec![pair[0].server()], 1);
    let bridge = Bridge::start(config, count.handlers(), |_| {}).unwrap();
    let mut producer = Producer::new(vec![pair[0].server()], "jobs", 1).unwrap();
    producer.push(Push::new("first")).unwrap();
    count.wait_for("first", 1);
    until("the replica knows that it is done", || pair[1].number("HGET {jobs}:stats done") == 1);
    push(pair[0].server(), "before");
    until("the replica has it", || pair[1].number("EXISTS {jobs}:id:before") == 1);
    // Both live, and the consumer waits on the old one for jobs.
    pair[1].ask("REPLICAOF NO ONE");
    pair[0].ask(&format!("REPLICAOF 127.0.0.1 {}", pair[1].port()));
    until("a job is pushed", || producer.push(Push::new("second").id("second")).is_ok());
    count.wait_for("second", 1);
    count.wait_for("before", 1);
    // The end of the job may be known to the old master alone. The consumer runs it again then.
    until("the new master has no job left", || pair[1].number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.dead, 0);
}

#[test]
fn nodes_that_refer_to_each_other_are_asked_again_with_pauses() {
    let Some(redis) = Redis::start("nodes_that_refer_to_each_other", &[]) else { return };
    let nowhere = Address::reserve().unwrap();
    for to in ["itself", "each other", "nowhere"] {
        let trouble = Trouble::new(redis.port(), "-MOVED 3999 127.0.0.1:1");
        // The other node says the same as this one.
        let other = Proxy::to(trouble.port());
        let target = match to {
            "itself" => trouble.port(),
            "each other" => other.port(),
            _ => nowhere.port(),
        };
        trouble.answer(&format!("-MOVED 3999 127.0.0.1:{target}"));
        let (count, since) = (Count::default(), Since::now());
        let config = settings(vec![server_at(&trouble.url())], 1);
        let lines = Count::default();
        let (handlers, reports) = (count.handlers(), lines.reports());
        let start = thread::spawn(move || Bridge::start(config, handlers, reports).unwrap());
        lines.wait_line("127.0.0.1");
        trouble.end();
        push(redis.server(), to);
        count.wait_for(to, 1);
        let faults = start.join().unwrap().stop(LONG).counters.faults;
        since.assert_no_hot_loop(faults);
    }
}
