//! Torture: jobs are pushed and run with the default settings while consumers are killed and stopped,
//! connections to both servers are cut in the middle of a reply, a server is killed and starts again on its log, its
//! clock steps by minutes, and the masters of a cluster die.
//!
//! The settings are the defaults (5 attempts, heartbeat 10 s). The servers are a plain one with
//! `appendfsync always`, and a cluster of three masters with a replica each; each has four consumers.
//! Twice a second a consumer is killed or stopped beyond its heartbeat, or connections to one of the servers are
//! cut. Every 20 s one of four follows, each every 80 s: a master is killed, the server's clock jumps by minutes,
//! a master is stopped, the server restarts. 2 to 10 poisonous jobs kill their consumer. `--seed` repeats the
//! schedule.
//!
//! Three of four jobs have an effect, an `HINCRBY` of their number; of 16 jobs, one has a script with two of them,
//! and two have a result.
//!
//! Each consumer records the begin and the end of each run in a file, and the torture records each
//! disturbance. An [oracle](oracle.rs) judges what became of the jobs from that: lost jobs, dead letters of
//! innocent jobs, poisonous jobs that are not buried, wrong effects and results, and runs that no disturbance
//! explains end it with exit status 1. A letter of an innocent job is [explained](deaths.rs), and has a line,
//! if each of its runs met a death of its consumer, and the last three ones were alone. The file `faults` in
//! the folder of records has each fault and all disturbances.

mod clock;
mod consumer;
mod consumers;
mod deaths;
mod jobs;
mod oracle;
mod producer;
mod records;
mod report;
mod schedule;
mod servers;
pub(super) mod time;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uwork_bridge::{Producer, Push, Stat, placed};

use self::clock::Clock;
use self::consumer::{EFFECTS, SECOND};
pub(super) use self::consumer::{Task, run};
use self::consumers::{CONSUMERS, Consumers};
use self::jobs::{Jobs, Side, Trace};
use self::oracle::{Cause, DIED, Evidence, Letter, SLACK_US, Victim};
use self::producer::Pushing;
pub(super) use self::report::Said;
use self::schedule::Schedule;
use self::servers::{Log, Servers, asked, try_connect};
use self::time::{from_unix_ms, now_us};
use super::proxy::Proxy;
use super::uwork;
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;

/// What is left at the end of the time is finished within this time, or it is lost.
const REST_MAX: Duration = Duration::from_secs(1_800);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The jobs of the planted faults: all on the plain server, and of no special kind.
const PLANTED_LOST: u64 = 30;
const PLANTED_TWICE: u64 = 32;
const PLANTED_DEAD: u64 = 34;
const PLANTED_EFFECT: u64 = 40;
const PLANTED_NO_EFFECT: u64 = 42;

/// What is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) time: Duration,
    pub(super) jobs: u64,
    pub(super) seed: u32,
    /// A job is dropped, one runs twice, one is buried, one has its effect twice and one has none, to
    /// test the oracle.
    pub(super) has_faults: bool,
}

/// One torture.
pub(super) fn group(wanted: Wanted, said: &Rc<RefCell<Said>>) -> Group<Measured> {
    let said = said.clone();
    let Wanted { time, jobs, seed, .. } = wanted;
    // Before the progress line, so that a torture that is killed can be repeated.
    eprintln!("torture: seed {seed}");
    if !clock::has_compiler() {
        eprintln!("torture: no C compiler (cc), so the server's clock does not step");
    }
    Group {
        title: format!("bridge: torture of {} s, {jobs} jobs, seed {seed}", time.as_secs()),
        contestants: vec![uwork("torture", "", move |_| {
            let folder = folder()?;
            let evidence = torture(wanted, &folder)?;
            let verdict = evidence.judge();
            *said.borrow_mut() = report::said(wanted.seed, &evidence, &verdict, &folder)?;
            Ok(Measured::new(report::figures(wanted.seed, &evidence, &verdict)))
        })],
        samples: 1,
        ratio_to: RatioTo::Nothing,
    }
}

/// A folder for records, which is left where a fault was found.
fn folder() -> Result<PathBuf, UserError> {
    let name = format!("uwork-bench-torture-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let made = fs::create_dir_all(&folder);
    made.map(|()| folder).map_err(|error| UserError(format!("records: {error}")))
}

/// What runs.
struct Torture {
    wanted: Wanted,
    begun: Instant,
    schedule: Schedule,
    log: Log,
    /// To the plain server: one for each consumer, of which those of the cluster use none, and the last
    /// for the producer.
    proxies: Vec<Proxy>,
    /// Those of the nodes of the cluster that have the jobs.
    nodes: Vec<Proxy>,
    /// The addresses of each side.
    sides: [Vec<String>; 2],
    /// The nodes of the cluster that have the jobs.
    pair: Vec<String>,
    consumers: Consumers,
    producers: Vec<JoinHandle<Result<(), UserError>>>,
    tormentor: JoinHandle<Result<(), UserError>>,
    /// All blows are over.
    is_quiet: Arc<AtomicBool>,
    /// The servers may end.
    is_over: Arc<AtomicBool>,
}

fn torture(wanted: Wanted, folder: &Path) -> Result<Evidence, UserError> {
    let mut torture = Torture::start(wanted, folder)?;
    torture.disturb()?;
    torture.rest()?;
    torture.end()
}

impl Torture {
    fn start(wanted: Wanted, folder: &Path) -> Result<Torture, UserError> {
        let clock = if clock::has_compiler() { Some(Clock::build(folder)?) } else { None };
        let log = Log::default();
        let servers = Servers::start(clock, log.clone())?;
        let sides = [vec![servers.plain_url()], servers.cluster_urls()];
        let (pair, nodes) = (servers.pair_urls(), servers.pair_proxies());
        let proxies = (0..=CONSUMERS).map(|_| Proxy::to(servers.plain_port()));
        let proxies = proxies.collect::<Result<Vec<_>, _>>()?;
        let jobs = Jobs { count: wanted.jobs };
        let consumers = Consumers::start(folder, jobs, &proxies, &sides[1], log.clone())?;
        let schedule = Schedule::new(wanted.seed, wanted.time, CONSUMERS);
        let (begun, time) = (Instant::now(), wanted.time);
        let (is_quiet, is_over): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let (quiet, over, blows) = (is_quiet.clone(), is_over.clone(), schedule.blows.clone());
        let tormentor = thread::spawn(move || servers.torment(begun, time, &blows, &over, &quiet));
        let pushing = |side, urls: &[String], pair: Vec<String>| {
            let pushing = Pushing {
                servers: consumer::servers(urls)?,
                side,
                pair,
                jobs,
                left_out: wanted.has_faults.then_some(PLANTED_LOST),
                time,
                time_max: time + REST_MAX,
            };
            Ok::<_, UserError>(thread::spawn(move || pushing.run()))
        };
        let producers = vec![
            pushing(Side::Plain, &[proxies[CONSUMERS].url()], Vec::new())?,
            pushing(Side::Cluster, &sides[1], pair.clone())?,
        ];
        Ok(Torture {
            wanted,
            begun,
            schedule,
            log,
            proxies,
            nodes,
            sides,
            pair,
            consumers,
            producers,
            tormentor,
            is_quiet,
            is_over,
        })
    }

    fn disturb(&mut self) -> Result<(), UserError> {
        for &(at, hit) in &self.schedule.hits {
            self.consumers.wait_until(self.begun + at)?;
            self.consumers.strike(hit, &self.proxies, &self.nodes)?;
        }
        self.consumers.wait_until(self.begun + self.wanted.time)
    }

    /// Waits until all jobs are pushed, and none is left.
    fn rest(&mut self) -> Result<(), UserError> {
        self.wait_while(|of| {
            let is_pushed = of.producers.iter().all(JoinHandle::is_finished);
            Ok(!(is_pushed && of.is_quiet.load(Ordering::Relaxed)))
        })?;
        for producer in self.producers.drain(..) {
            producer.join().map_err(|_| UserError("a producer has panicked".to_owned()))??;
        }
        self.wait_while(|of| Ok(of.consumers.has_stopped() || !of.is_drained()?))?;
        if self.wanted.has_faults {
            self.plant()?;
            self.wait_while(|of| Ok(!of.is_drained()?))?;
        }
        Ok(())
    }

    fn wait_while(
        &mut self,
        mut goes_on: impl FnMut(&Torture) -> Result<bool, UserError>,
    ) -> Result<(), UserError> {
        let late = self.begun + self.wanted.time + REST_MAX;
        while goes_on(self)? && Instant::now() < late && !self.tormentor.is_finished() {
            self.consumers.wait_until(Instant::now() + LOOK_EVERY)?;
        }
        Ok(())
    }

    fn is_drained(&self) -> Result<bool, UserError> {
        for urls in &self.sides {
            for (server, stream) in placed(&consumer::servers(urls)?, "jobs", 1) {
                // A server may be too busy for an answer.
                let Ok(stat) = Stat::read(server, &stream, "uwork") else { return Ok(false) };
                if stat.lag + stat.in_flight + stat.delayed > 0 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Plants what the oracle must find: a run too many, an innocent dead letter, an effect too many
    /// and one that is missing, when no disturbance can explain them. Another job was not pushed.
    fn plant(&mut self) -> Result<(), UserError> {
        let last = self.log.all().iter().map(|of| of.to_us).max().unwrap_or(0);
        self.wait_while(|_| Ok(now_us() < last + 2 * SLACK_US))?;
        let fail = |error: uwork_bridge::Error| UserError(error.to_string());
        let servers = consumer::servers(&self.sides[0])?;
        let mut producer = Producer::new(servers, "jobs", 1).map_err(fail)?;
        producer.push_all(vec![Push::new(PLANTED_TWICE.to_string()); 2]).map_err(fail)?;
        let planted = redis::pipe()
            .cmd("XADD")
            .arg("{jobs}:dead")
            .arg(&["*", "p", &PLANTED_DEAD.to_string(), "n", "5", "e", DIED])
            .cmd("HINCRBY")
            .arg(EFFECTS)
            .arg(&[PLANTED_EFFECT, 1])
            .cmd("HDEL")
            .arg(EFFECTS)
            .arg(PLANTED_NO_EFFECT)
            .exec(&mut try_connect(&self.sides[0][0]).ok_or_else(unanswered)?);
        planted.map_err(|error| UserError(error.to_string()))
    }

    fn end(self) -> Result<Evidence, UserError> {
        let (mut of_all, mut effects) = (Vec::new(), Vec::new());
        for (side, urls) in [(Side::Plain, &self.sides[0][..1]), (Side::Cluster, &self.pair)] {
            of_all.extend(letters(urls, side)?);
            for (trace, hash) in [(Trace::First, EFFECTS), (Trace::Second, SECOND)] {
                effects.push((side, trace, found(urls, &format!("HGETALL {hash}"))?));
            }
            effects.push((side, Trace::Result, results(urls)?));
        }
        let runs = self.consumers.end()?;
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.tormentor.join();
        ended.map_err(|_| UserError("the torture of the servers has panicked".to_owned()))??;
        for (side, proxies) in [(Side::Plain, &self.proxies), (Side::Cluster, &self.nodes)] {
            for cut in proxies.iter().flat_map(Proxy::made) {
                let of = cut.client.as_deref().and_then(consumer::number);
                let victim = of.map_or(Victim::Other, Victim::Consumer);
                self.log.note(Cause::Cut(side), victim, cut.at_us, cut.at_us);
            }
        }
        let (jobs, disturbances) = (Jobs { count: self.wanted.jobs }, self.log.all());
        Ok(Evidence { jobs, runs, letters: of_all, effects, disturbances })
    }
}

fn unanswered() -> UserError {
    UserError("torture: a server does not answer".to_owned())
}

/// The reply of the server that has the jobs. The other node of a cluster answers MOVED.
fn found<T: redis::FromRedisValue>(urls: &[String], words: &str) -> Result<T, UserError> {
    urls.iter().find_map(|url| asked(&mut try_connect(url)?, words)).ok_or_else(unanswered)
}

type Fields = HashMap<String, String>;

/// How often each job is in the stream of results.
fn results(urls: &[String]) -> Result<HashMap<u64, u64>, UserError> {
    let found: Vec<(String, Fields)> = found(urls, "XRANGE {jobs}:results - +")?;
    let mut counts = HashMap::new();
    for (_, fields) in found {
        // The oracle meets a number that no job has.
        let job = fields.get("r").and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        *counts.entry(job).or_default() += 1;
    }
    Ok(counts)
}

/// The dead letters of the server that has the jobs.
fn letters(urls: &[String], side: Side) -> Result<Vec<Letter>, UserError> {
    let found: Vec<(String, Fields)> = found(urls, "XRANGE {jobs}:dead - +")?;
    let written_us = |number: &str| from_unix_ms(number.split('-').next()?.parse().ok()?);
    let letter = |(number, mut fields): (String, Fields)| Letter {
        job: fields.get("p").and_then(|text| text.parse().ok()),
        error: fields.remove("e").unwrap_or_default(),
        at_us: (side == Side::Cluster).then(|| written_us(&number)).flatten(),
    };
    Ok(found.into_iter().map(letter).collect())
}
