//! The producer. It pushes each batch until it is known that no server can lose it; the ids make each
//! job once.
//!
//! A cluster may lose what it has answered when a master dies, and that is the producer's loss. So
//! the producer of the cluster asks the master for the marks of the ids, and waits until the replica
//! has all that the master had then.

use std::thread;
use std::time::{Duration, Instant};

use uwork_bridge::{Producer, Push, Server};

use super::jobs::{Jobs, Kind, Side};
use super::servers::{asked, try_connect};
use crate::UserError;

/// Jobs of one push.
const BATCH: usize = 500;
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// Of the jobs with a delay.
const DELAY: Duration = Duration::from_secs(1);

/// What one producer pushes.
pub(super) struct Pushing {
    pub(super) servers: Vec<Server>,
    pub(super) side: Side,
    /// The addresses of the two nodes that have the jobs; none for the plain server.
    pub(super) pair: Vec<String>,
    pub(super) jobs: Jobs,
    /// Counts as pushed, and is not: a planted fault.
    pub(super) left_out: Option<u64>,
    pub(super) time: Duration,
    /// A batch that is not pushed by then fails.
    pub(super) time_max: Duration,
}

impl Pushing {
    /// The first half of the jobs is pushed at once, and makes a backlog. The rest comes evenly over
    /// the time, so that the last disturbance finds jobs too.
    pub(super) fn run(self) -> Result<(), UserError> {
        let fail = |error: uwork_bridge::Error| UserError(error.to_string());
        let mut producer = Producer::new(self.servers.clone(), "jobs", 1).map_err(fail)?;
        let begun = Instant::now();
        let all: Vec<u64> = Jobs::of(self.side, self.jobs.count).collect();
        for batch in all.chunks(BATCH) {
            let numbers: Vec<u64> =
                batch.iter().copied().filter(|&job| Some(job) != self.left_out).collect();
            let pushes: Vec<Push> = numbers.iter().map(|&job| self.push(job)).collect();
            let share = (batch[0] as f64 / self.jobs.count as f64 - 0.5).max(0.0) * 2.0;
            thread::sleep(self.time.mul_f64(share).saturating_sub(begun.elapsed()));
            loop {
                let pushed = producer.push_all(pushes.clone());
                if pushed.is_ok() && self.is_safe(&numbers) {
                    break;
                }
                if begun.elapsed() > self.time_max {
                    pushed.map_err(fail)?;
                    return Err(UserError("the replica does not get the jobs".to_owned()));
                }
                thread::sleep(TRY_AGAIN);
            }
        }
        Ok(())
    }

    fn push(&self, job: u64) -> Push {
        let push = Push::new(job.to_string()).id(job.to_string());
        if self.jobs.kind(job) == Kind::Delayed { push.delay(DELAY) } else { push }
    }

    /// Whether a master and its replica have these jobs. A node that has lost its place has no replica,
    /// so it cannot answer in the place of the master.
    fn is_safe(&self, numbers: &[u64]) -> bool {
        let has = |url: &String| {
            let Some(mut connection) = try_connect(url) else { return false };
            let mut marks = redis::cmd("EXISTS");
            numbers.iter().for_each(|job| {
                marks.arg(format!("{{jobs}}:id:{job}"));
            });
            marks.query(&mut connection).is_ok_and(|count: usize| count == numbers.len())
                && asked::<String>(&mut connection, "SET {jobs}:probe 1").is_some()
                && asked::<u64>(&mut connection, "WAIT 1 1000").is_some_and(|count| count >= 1)
        };
        self.pair.is_empty() || self.pair.iter().any(has)
    }
}
