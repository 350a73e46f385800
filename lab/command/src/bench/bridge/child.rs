//! The bridge's own processes: a producer, a consumer, and the consumer of the torture.

use std::time::{Duration, Instant};

use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Server};

use crate::UserError;

/// Jobs of one exchange.
const BATCH: usize = 1_000;

/// The task of a child process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    pub(super) role: Role,
    pub(super) case: String,
    pub(super) url: String,
    pub(super) jobs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Role {
    Push,
    Work,
    /// Counts each run of each job on the server.
    Count,
    /// The bare consumers.
    BareSync,
    BareAsync,
}

pub(super) fn run(order: &Order) -> Result<(), UserError> {
    let fail = |error: uwork_bridge::Error| UserError(error.to_string());
    let server = Server::new(&order.url).map_err(fail)?;
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
    let handlers = if order.role == Role::Count {
        config.attempts_max = 1_000_000;
        config.heartbeat = Duration::from_secs(2);
        counting(&order.url)?
    } else {
        if order.case == "sleep" {
            config.max_active = 256;
        }
        handlers(&order.case)
    };
    let is_quiet = order.role == Role::Count;
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

/// A handler that counts the runs of each job in the hash `ran`.
fn counting(url: &str) -> Result<Handlers, UserError> {
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
        Ok(Reply::done())
    }))
}
