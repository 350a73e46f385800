//! The bridge's own processes: a producer, a consumer, and the consumers of the cases that compare
//! nothing.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use uwork_bridge::{Bridge, Config, Exec, Handlers, Job, Producer, Push, Reply, Results};

use super::takeover::{HEARTBEAT, LONG, MAX_ACTIVE, WATCHED};
use super::torture::Task;
use super::{group, memory, patience, server_at};
use crate::UserError;
use crate::bench::measured::again;

/// What `uwork bridge run` keeps of the output of a command.
const OUTPUT_MAX: usize = 64 << 10;
/// Jobs of one exchange.
const BATCH: usize = 1_000;

/// The task of a child process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    pub(super) role: Role,
    pub(super) case: String,
    pub(super) url: String,
    pub(super) jobs: usize,
    pub(super) patience: u32,
    /// For [`Role::Torture`].
    pub(super) task: Option<Task>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Role {
    Push,
    Work,
    /// Records each run of each job.
    Torture,
    /// Runs the job that is watched until it is killed, and others for a time.
    Takeover,
    /// Runs a command for each job.
    Memory,
    /// The bare consumers.
    BareSync,
    BareAsync,
}

/// Starts a consumer that says nothing.
pub(super) fn start(role: Role, case: &str, url: &str) -> Result<Child, UserError> {
    start_with(role, case, url, None)
}

/// Starts a consumer of the torture.
pub(super) fn start_torture(task: Task) -> Result<Child, UserError> {
    start_with(Role::Torture, "", "", Some(task))
}

fn start_with(role: Role, case: &str, url: &str, task: Option<Task>) -> Result<Child, UserError> {
    let (case, url, patience) = (case.to_owned(), url.to_owned(), patience());
    let mut command = again("bridge", &Order { role, case, url, jobs: 0, patience, task })?;
    group::lead(&mut command);
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    started.map_err(|error| UserError(format!("a consumer: {error}")))
}

/// Kills a consumer.
pub(super) fn kill(consumer: &mut Child) {
    // Fails only if it has ended.
    let _ = consumer.kill();
    let _ = consumer.wait();
}

pub(super) fn run(order: &Order) -> Result<(), UserError> {
    let fail = |error: uwork_bridge::Error| UserError(error.to_string());
    if let Some(task) = &order.task {
        return super::torture::run(task);
    }
    let server = server_at(&order.url)?;
    if order.role == Role::Push {
        let mut producer = Producer::new(vec![server], "jobs", 1).map_err(fail)?;
        for _ in 0..order.jobs.div_ceil(BATCH) {
            let jobs = (0..BATCH).map(|_| Push::new("{}")).collect();
            producer.push_all(jobs).map_err(fail)?;
        }
        return Ok(());
    }
    match order.role {
        Role::BareSync => return super::bare::run_sync(&order.url),
        Role::BareAsync => return super::bare::run_async(&order.url),
        _ => {}
    }
    let mut config = Config::new(server, "jobs");
    let handlers = match order.role {
        Role::Takeover => {
            config.heartbeat = HEARTBEAT;
            config.max_active = MAX_ACTIVE;
            counting(&order.url, |job| match job.payload() == WATCHED.as_bytes() {
                // It may return without a reason.
                true => loop {
                    std::thread::park();
                },
                false => std::thread::sleep(LONG),
            })?
        }
        Role::Memory => {
            config.max_active = memory::MAX_ACTIVE;
            if order.case == memory::RESULTS {
                config.results = Results::Stream(10);
            }
            let cat = Exec::new(vec!["cat".into()], OUTPUT_MAX).map_err(fail)?;
            Handlers::new().otherwise_exec(cat)
        }
        _ => {
            if order.case == "sleep" {
                config.max_active = 256;
            }
            handlers(&order.case)
        }
    };
    let is_quiet = order.role == Role::Takeover;
    let report = move |line: &str| {
        if !is_quiet {
            eprintln!("{line}");
        }
    };
    let _bridge = Bridge::start(config, handlers, report).map_err(fail)?;
    loop {
        std::thread::park();
    }
}

fn handlers(case: &str) -> Handlers {
    match case {
        "compute" => Handlers::new().otherwise(|_| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {}
            Ok(Reply::done())
        }),
        "sleep" => Handlers::new().otherwise(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Ok(Reply::done())
        }),
        _ => Handlers::new().otherwise(|_| Ok(Reply::done())),
    }
}

/// A handler that counts the runs of each job in the hash `ran`, and then works.
fn counting(url: &str, work: impl Fn(&Job) + Send + Sync + 'static) -> Result<Handlers, UserError> {
    let client = redis::Client::open(url).map_err(|error| UserError(error.to_string()))?;
    let connections = std::sync::Mutex::new(Vec::new());
    Ok(Handlers::new().otherwise(move |job| {
        let kept =
            connections.lock().ok().and_then(|mut kept: std::sync::MutexGuard<Vec<_>>| kept.pop());
        let mut connection = match kept {
            Some(connection) => connection,
            None => client.get_connection()?,
        };
        let name = String::from_utf8_lossy(job.payload()).into_owned();
        redis::cmd("HINCRBY").arg("ran").arg(name).arg(1).exec(&mut connection)?;
        if let Ok(mut kept) = connections.lock() {
            kept.push(connection);
        }
        work(job);
        Ok(Reply::done())
    }))
}
