//! Torture: jobs are pushed and run while consumers are killed, connections are cut and the server
//! is killed. Each run of each job is counted on the server. A lost job is a failure.
//!
//! The first half of the jobs is pushed at once, and makes a backlog. The rest comes evenly over the
//! time, so that the last kill finds jobs too.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use uwork_bridge::{Producer, Push, Stat};

use super::child::{self, Role};
use super::proxy::Proxy;
use super::server::Redis;
use super::{server_at, uwork};
use crate::UserError;
use crate::bench::contestant::{Group, RatioTo};
use crate::bench::measured::Measured;
use crate::bench::summary::Metric;

const CONSUMERS: usize = 3;
const RESTARTS: u32 = 10;
/// Jobs of one push.
const BATCH: usize = 500;
/// What is left at the end of the time is finished within this time, or it is lost.
const REST_MAX: Duration = Duration::from_secs(1_800);

const fn count(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "1", title, decimals: 0 }
}

const LOST: Metric = count("lost_jobs", "lost");
const EXTRA: Metric = count("extra_runs", "extra runs");
const KILLS: Metric = count("kills", "kills");
const CUTS: Metric = count("cuts", "cuts");
const RESTARTED: Metric = count("restarts", "restarts");
const DEAD: Metric = count("dead_letters", "dead letters");
const RECLAIMED: Metric = count("reclaimed", "taken over");

/// One torture. The cell tells whether a job was lost.
pub(super) fn group(time: Duration, jobs: usize, is_lost: &Rc<Cell<bool>>) -> Group<Measured> {
    let is_lost = is_lost.clone();
    Group {
        title: format!("bridge: torture of {} s, {jobs} jobs", time.as_secs()),
        contestants: vec![uwork("torture", "", move |_| torture(time, jobs, &is_lost))],
        samples: 1,
        ratio_to: RatioTo::Nothing,
    }
}

fn torture(time: Duration, jobs: usize, is_lost: &Cell<bool>) -> Result<Measured, UserError> {
    let mut redis = Redis::start(true)?;
    let proxy = Proxy::to(redis.port())?;
    let urls = [redis.url(), proxy.url()];
    let producer = {
        // Through the proxy: each batch is pushed until it succeeds, and its ids make it once.
        let url = proxy.url();
        thread::spawn(move || push(&url, jobs, time))
    };
    let consumer = |nth: usize| child::start(Role::Count, &urls[nth % urls.len()]);
    let mut consumers = (0..CONSUMERS).map(consumer).collect::<Result<Vec<_>, _>>()?;
    let (begun, mut kills, mut cuts, mut restarts) = (Instant::now(), 0, 0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    // At least one disturbance, also where this thread gets no CPU for the whole time.
    while kills + cuts == 0 || begun.elapsed() < time {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_millis(100 + (random >> 40) % 900));
        let victim = (random >> 33) as usize % CONSUMERS;
        if random >> 62 == 0 {
            proxy.cut();
            cuts += 1;
        } else {
            child::kill(&mut consumers[victim]);
            consumers[victim] = consumer(victim)?;
            kills += 1;
        }
        if restarts < RESTARTS && begun.elapsed() > time * (restarts + 1) / (RESTARTS + 1) {
            redis.restart()?;
            restarts += 1;
        }
    }
    let pushed = producer.join().map_err(|_| UserError("the producer has panicked".to_owned()))?;
    pushed?;
    let rest = Instant::now();
    let stat = loop {
        let server = server_at(&redis.url())?;
        // The server may be loading its log.
        if let Ok(stat) = Stat::read(server, "jobs", "uwork")
            && (stat.lag + stat.in_flight + stat.delayed == 0 || rest.elapsed() > REST_MAX)
        {
            break stat;
        }
        thread::sleep(Duration::from_millis(100));
    };
    consumers.iter_mut().for_each(child::kill);
    let runs: Vec<u64> = redis::cmd("HVALS")
        .arg("ran")
        .query(&mut redis.connect()?)
        .map_err(|error| UserError(error.to_string()))?;
    let (distinct, total) = (runs.len(), runs.iter().sum::<u64>());
    let lost = jobs - distinct.min(jobs);
    is_lost.set(lost > 0);
    let counts = [
        (LOST, lost as u64),
        // Runs beyond the first of each job.
        (EXTRA, total - distinct as u64),
        (KILLS, kills),
        (CUTS, cuts),
        (RESTARTED, u64::from(restarts)),
        (DEAD, stat.dead_letters),
        (RECLAIMED, stat.reclaimed),
    ];
    Ok(Measured::new(counts.map(|(metric, count)| (metric, count as f64)).into()))
}

fn push(url: &str, jobs: usize, time: Duration) -> Result<(), UserError> {
    let fail = |error: uwork_bridge::Error| UserError(error.to_string());
    let server = server_at(url)?;
    let mut producer = Producer::new(vec![server], "jobs", 1).map_err(fail)?;
    let begun = Instant::now();
    for from in (0..jobs).step_by(BATCH) {
        let job = |n: usize| Push::new(n.to_string()).id(n.to_string());
        let batch: Vec<Push> = (from..(from + BATCH).min(jobs)).map(job).collect();
        let share = (from as f64 / jobs as f64 - 0.5).max(0.0) * 2.0;
        thread::sleep(time.mul_f64(share).saturating_sub(begun.elapsed()));
        while let Err(error) = producer.push_all(batch.clone()) {
            if begun.elapsed() > REST_MAX {
                return Err(fail(error));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}
