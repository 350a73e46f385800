//! A process of a consumer: one side with the default settings, and a handler that records its runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use uwork_bridge::{Bridge, Config, ErrorKind, Failure, Handlers, Job, Reply, Results, Server};

use super::super::server_at;
use super::jobs::{Jobs, Kind, Trace};
use super::oracle::End;
use super::records::Recorder;
use crate::UserError;

/// The hash of a server that counts the effects of each job.
pub(super) const EFFECTS: &str = "{jobs}:effects";
/// The same for the second change of a script.
pub(super) const SECOND: &str = "{jobs}:second";
/// Makes both changes.
const SCRIPT: &str = "redis.call('HINCRBY', KEYS[1], ARGV[1], 1) \
                      redis.call('HINCRBY', KEYS[2], ARGV[1], 1)";
/// The name of a consumer, before its number.
const NAME: &str = "torture-";
/// No result is trimmed.
const RESULTS_MAX: u64 = 1_000_000_000;

/// What a process needs to know.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct Task {
    /// The number of the consumer.
    pub(super) consumer: usize,
    /// The addresses of its side.
    pub(super) urls: Vec<String>,
    pub(super) record: PathBuf,
    pub(super) jobs: Jobs,
}

/// The number of the consumer whose connections have this name. The bridge makes it unique.
pub(super) fn number(client: &str) -> Option<usize> {
    client.strip_prefix(NAME)?.split(':').next()?.parse().ok()
}

/// The servers at these addresses.
pub(super) fn servers(urls: &[String]) -> Result<Vec<Server>, UserError> {
    urls.iter().map(|url| server_at(url)).collect()
}

/// Runs jobs until it is killed.
pub(in super::super) fn run(task: &Task) -> Result<(), UserError> {
    let recorder = Arc::new(Recorder::create(&task.record)?);
    recorder.watch_stalls()?;
    let _bridge = start(task, &recorder)?;
    loop {
        thread::park();
    }
}

fn start(task: &Task, recorder: &Arc<Recorder>) -> Result<Bridge, UserError> {
    let (servers, jobs) = (servers(&task.urls)?, task.jobs);
    loop {
        let mut config = Config::new(servers[0].clone(), "jobs");
        config.name = format!("{NAME}{}", task.consumer);
        config.servers = servers.clone();
        config.results = Results::Stream(RESULTS_MAX);
        let recorder = recorder.clone();
        let handlers = Handlers::new().otherwise(move |job| work(job, &recorder, jobs));
        match Bridge::start(config, handlers, |_| {}) {
            // The server may be down for a moment, by the torture.
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy) => {
                thread::sleep(Duration::from_millis(50));
            }
            other => return other.map_err(|error| UserError(error.to_string())),
        }
    }
}

fn work(job: &Job, recorder: &Recorder, jobs: Jobs) -> Result<Reply, Failure> {
    let number = std::str::from_utf8(job.payload()).ok().and_then(|text| text.parse().ok());
    // The oracle meets a number that no job has.
    let number = number.unwrap_or(u64::MAX);
    recorder.begin(number);
    match jobs.kind(number) {
        Kind::Poison => {
            // SAFETY: the call has no preconditions.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        Kind::Fails(times) if job.attempt() <= times => {
            recorder.end(number, End::Failed);
            return Err(Failure::again("a planned failure"));
        }
        Kind::Plain(time) if !time.is_zero() => thread::sleep(time),
        _ => {}
    }
    recorder.end(number, End::Done);
    let of = number.to_string();
    let done = match Jobs::has(number, Trace::Result) {
        true => Reply::result(of.clone()),
        false => Reply::done(),
    };
    Ok(match (Jobs::has(number, Trace::First), Jobs::has(number, Trace::Second)) {
        (_, true) => done.effect(["EVAL", SCRIPT, "2", EFFECTS, SECOND, of.as_str()]),
        (true, false) => done.effect(["HINCRBY", EFFECTS, of.as_str(), "1"]),
        (false, false) => done,
    })
}
