//! The processes of the consumers: started, killed, stopped, cut off.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use super::super::child;
use super::super::group::Group;
use super::super::proxy::Proxy;
use super::consumer::Task;
use super::jobs::{Jobs, Kind, Side};
use super::oracle::{Cause, Run, Victim};
use super::records;
use super::schedule::Hit;
use super::servers::Log;
use super::time::now_us;
use crate::UserError;

/// Four of each side.
pub(super) const CONSUMERS: usize = 8;
const LOOK_EVERY: Duration = Duration::from_millis(10);

struct Consumer {
    child: Child,
    /// The number of its process.
    nth: usize,
    /// Since when, and until when.
    stopped: Option<(u64, Instant)>,
    seen_us: u64,
}

pub(super) struct Consumers {
    all: Vec<Consumer>,
    folder: PathBuf,
    tasks: Vec<Task>,
    log: Log,
}

impl Consumers {
    pub(super) fn start(
        folder: &Path,
        jobs: Jobs,
        proxies: &[Proxy],
        cluster: &[String],
        log: Log,
    ) -> Result<Consumers, UserError> {
        let task = |(consumer, proxy): (usize, &Proxy)| Task {
            consumer,
            urls: match Side::of_consumer(consumer) {
                Side::Plain => vec![proxy.url()],
                Side::Cluster => cluster.to_vec(),
            },
            record: PathBuf::new(),
            jobs,
        };
        let tasks = proxies[..CONSUMERS].iter().enumerate().map(task).collect();
        let mut consumers = Consumers { all: Vec::new(), folder: folder.to_owned(), tasks, log };
        for of in 0..CONSUMERS {
            let child = consumers.process(of, 0)?;
            let consumer = Consumer { child, nth: 0, stopped: None, seen_us: now_us() };
            consumers.all.push(consumer);
        }
        Ok(consumers)
    }

    fn process(&self, of: usize, nth: usize) -> Result<Child, UserError> {
        let record = records::path(&self.folder, of, nth);
        child::start_torture(Task { record, ..self.tasks[of].clone() })
    }

    /// Waits, continues stopped consumers when it is time, and starts those again that died by a
    /// poisonous job.
    pub(super) fn wait_until(&mut self, until: Instant) -> Result<(), UserError> {
        loop {
            for of in 0..CONSUMERS {
                if self.all[of].stopped.is_some_and(|(_, until)| until <= Instant::now()) {
                    self.resume(of);
                }
                self.look_for_death(of)?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }

    pub(super) fn strike(
        &mut self,
        hit: Hit,
        proxies: &[Proxy],
        nodes: &[Proxy],
    ) -> Result<(), UserError> {
        match hit {
            Hit::Kill(of) => {
                // A poisonous job may have been first.
                self.look_for_death(of)?;
                let stopped = self.all[of].stopped.take();
                let from = stopped.map_or_else(now_us, |(since, _)| since);
                child::kill(&mut self.all[of].child);
                self.log.note(Cause::Kill, Victim::Consumer(of), from, now_us());
                self.start_again(of)
            }
            Hit::Stop(of, time) => {
                self.all[of].stopped = Some((now_us(), Instant::now() + time));
                Group::of(self.all[of].child.id()).pause();
                Ok(())
            }
            Hit::Cut(of, part) if of == CONSUMERS || Side::of_consumer(of) == Side::Plain => {
                proxies[of].cut(part);
                Ok(())
            }
            Hit::Cut(_, part) | Hit::CutNodes(part) => {
                nodes.iter().for_each(|proxy| proxy.cut(part));
                Ok(())
            }
        }
    }

    /// Whether one is stopped now.
    pub(super) fn has_stopped(&self) -> bool {
        self.all.iter().any(|consumer| consumer.stopped.is_some())
    }

    fn resume(&mut self, of: usize) {
        if let Some((from, _)) = self.all[of].stopped.take() {
            Group::of(self.all[of].child.id()).resume();
            self.log.note(Cause::Stop, Victim::Consumer(of), from, now_us());
        }
    }

    fn start_again(&mut self, of: usize) -> Result<(), UserError> {
        self.all[of].nth += 1;
        self.all[of].child = self.process(of, self.all[of].nth)?;
        Ok(())
    }

    /// A consumer dies by a poisonous job, or it has a fault.
    fn look_for_death(&mut self, of: usize) -> Result<(), UserError> {
        let consumer = &mut self.all[of];
        let status = consumer.child.try_wait();
        let status = status.map_err(|error| UserError(format!("a consumer: {error}")))?;
        let (before, now) = (consumer.seen_us, now_us());
        consumer.seen_us = now;
        let (Some(status), nth) = (status, consumer.nth) else { return Ok(()) };
        let (runs, _) = records::read(&self.folder, of, nth)?;
        let is_poison = |run: &Run| self.tasks[of].jobs.kind(run.job) == Kind::Poison;
        if status.signal() != Some(libc::SIGKILL) || !runs.iter().any(is_poison) {
            return Err(UserError(format!("torture: consumer {of} has ended: {status}")));
        }
        self.log.note(Cause::Poison, Victim::Consumer(of), before, now);
        self.start_again(of)
    }

    /// Kills all, and returns their runs.
    pub(super) fn end(mut self) -> Result<Vec<Run>, UserError> {
        let mut all = Vec::new();
        for of in 0..CONSUMERS {
            child::kill(&mut self.all[of].child);
            for nth in 0..=self.all[of].nth {
                let (runs, stalls) = records::read(&self.folder, of, nth)?;
                all.extend(runs);
                for stall in stalls {
                    self.log.note(stall.cause, stall.victim, stall.from_us, stall.to_us);
                }
            }
        }
        Ok(all)
    }
}
