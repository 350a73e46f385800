//! The servers of a torture, and the blows that they take: a plain one with a log and a clock that
//! steps, and a cluster whose masters die.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};

use super::super::cluster::{self, MASTERS, until};
use super::super::proxy::Proxy;
use super::super::server::Redis;
use super::clock::Clock;
use super::jobs::{SIDES, Side};
use super::oracle::{Cause, Disturbance, Victim};
use super::schedule::Blow;
use super::time::now_us;
use crate::UserError;

/// The limit of a question to a server that may be dead or stopped.
const ASK_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After a step of the clock the jobs of all consumers look abandoned until their next heartbeat, at a
/// third of 10 s.
const BEAT_US: u64 = 4_000_000;

/// The disturbances so far.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Disturbance>>>);

impl Log {
    pub(super) fn note(&self, cause: Cause, victim: Victim, from_us: u64, to_us: u64) {
        let disturbance = Disturbance { cause, victim, from_us, to_us };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(disturbance);
    }

    pub(super) fn all(&self) -> Vec<Disturbance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct Servers {
    plain: Redis,
    clock: Option<Clock>,
    nodes: Vec<Redis>,
    /// The two nodes that have the jobs.
    pair: [usize; 2],
    /// Which of them is the master, and when it last said so.
    master: usize,
    seen_us: [u64; 2],
    log: Log,
}

impl Servers {
    pub(super) fn start(clock: Option<Clock>, log: Log) -> Result<Servers, UserError> {
        let plain = Redis::start_preloaded(clock.as_ref().map(Clock::library))?;
        let nodes = cluster::start(true)?;
        let master = cluster::master_of_jobs(&nodes)?;
        let pair = [master, master + MASTERS];
        Ok(Servers { plain, clock, nodes, pair, master: 0, seen_us: [now_us(); 2], log })
    }

    pub(super) fn plain_port(&self) -> u16 {
        self.plain.port()
    }

    pub(super) fn plain_url(&self) -> String {
        self.plain.url()
    }

    /// The proxies of the masters of the beginning.
    pub(super) fn cluster_urls(&self) -> Vec<String> {
        self.nodes[..MASTERS].iter().filter_map(Redis::proxy).map(Proxy::url).collect()
    }

    /// The proxies of the two nodes that have the jobs.
    pub(super) fn pair_proxies(&self) -> Vec<Proxy> {
        self.pair.iter().filter_map(|&nth| self.nodes[nth].proxy().cloned()).collect()
    }

    /// The two nodes that have the jobs, without their proxies.
    pub(super) fn pair_urls(&self) -> Vec<String> {
        self.pair.map(|nth| self.nodes[nth].url()).into()
    }

    /// Strikes when it is time, then catches the clock up, and watches the servers until the end.
    pub(super) fn torment(
        mut self,
        begun: Instant,
        time: Duration,
        blows: &[(Duration, Blow)],
        is_over: &AtomicBool,
        is_quiet: &AtomicBool,
    ) -> Result<(), UserError> {
        for &(at, blow) in blows {
            while begun.elapsed() < at {
                self.watch();
                thread::sleep(LOOK_EVERY);
            }
            self.strike(blow)?;
        }
        while begun.elapsed() < time {
            self.watch();
            thread::sleep(LOOK_EVERY);
        }
        if let Some(clock) = &mut self.clock {
            clock.catch_up()?;
            let now = now_us();
            self.log.note(Cause::Step, Victim::Side(Side::Plain), now, now + BEAT_US);
        }
        is_quiet.store(true, Ordering::Relaxed);
        while !is_over.load(Ordering::Relaxed) {
            self.watch();
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn strike(&mut self, blow: Blow) -> Result<(), UserError> {
        let from = now_us();
        let (cause, side) = match blow {
            Blow::Restart => {
                self.plain.restart()?;
                // It has loaded its log.
                self.plain.connect()?;
                (Cause::Restart, Side::Plain)
            }
            Blow::Step(by_s) => {
                let Some(clock) = &mut self.clock else { return Ok(()) };
                clock.step(by_s)?;
                self.log.note(Cause::Step, Victim::Side(Side::Plain), from, from + BEAT_US);
                return Ok(());
            }
            Blow::KillMaster | Blow::StopMaster => {
                self.fail_over(blow)?;
                (Cause::Failover, Side::Cluster)
            }
        };
        let now = now_us();
        self.seen_us = [now; 2];
        self.log.note(cause, Victim::Side(side), from, now);
        Ok(())
    }

    /// The replica takes the master's place, and the master becomes its replica.
    fn fail_over(&mut self, blow: Blow) -> Result<(), UserError> {
        let (old, new) = (self.pair[self.master], self.pair[1 - self.master]);
        if blow == Blow::KillMaster {
            self.nodes[old].kill();
        } else {
            self.nodes[old].pause();
        }
        let url = self.nodes[new].url();
        until("the replica takes over", || {
            let connection = try_connect(&url);
            Ok(connection
                .is_some_and(|mut of| asked::<String>(&mut of, "SET {jobs}:probe 1").is_some()))
        })?;
        if blow == Blow::KillMaster {
            self.nodes[old].restart()?;
        } else {
            self.nodes[old].resume();
        }
        self.master = 1 - self.master;
        let url = self.nodes[old].url();
        until("the old master is a replica with all data", || {
            let info =
                try_connect(&url).and_then(|mut of| asked::<String>(&mut of, "INFO replication"));
            Ok(info.is_some_and(|info| {
                info.contains("role:slave") && info.contains("master_link_status:up")
            }))
        })
    }

    /// Notes what the machine did by itself: a server that does not answer, a replica that takes over.
    fn watch(&mut self) {
        let urls = [self.plain.url(), self.nodes[self.pair[self.master]].url()];
        for (nth, url) in urls.iter().enumerate() {
            let side = SIDES[nth];
            let role =
                try_connect(url).and_then(|mut of| asked::<String>(&mut of, "INFO replication"));
            let (before, now) = (self.seen_us[nth], now_us());
            let is_master = role.as_ref().is_some_and(|info| info.contains("role:master"));
            if role.is_some() && !is_master {
                self.master = 1 - self.master;
                self.log.note(Cause::OwnFailover, Victim::Side(side), before, now);
            } else if !is_master || now - before > 1_000_000 {
                self.log.note(Cause::Stall, Victim::Side(side), before, now);
            }
            if role.is_some() {
                self.seen_us[nth] = now;
            }
        }
    }
}

/// A connection, unless the server is dead or stopped.
pub(super) fn try_connect(url: &str) -> Option<Connection> {
    let client = redis::Client::open(url).ok()?;
    let connection = client.get_connection_with_timeout(ASK_MAX).ok()?;
    // WAIT takes up to a second by itself.
    connection.set_read_timeout(Some(2 * ASK_MAX)).ok()?;
    Some(connection)
}

/// The reply, unless it is an error or the server is stopped.
pub(super) fn asked<T: FromRedisValue>(connection: &mut Connection, words: &str) -> Option<T> {
    cluster::ask(connection, words).ok()
}
