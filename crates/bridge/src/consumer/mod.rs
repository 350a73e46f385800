//! A consumer: jobs of streams become items of a queue. The protocol is in the README.

mod commands;
mod committer;
mod group;
mod limits;
mod link;
mod reader;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::Value;

use crate::config::Config;
use crate::counters::{Counters, to_openmetrics};
use crate::fault::{Error, ErrorKind, Fault};
use crate::handler::Handlers;
use crate::report::{Faults, Reporter};
use crate::server::Server;
use crate::wire::Wire;
use link::{End, Link, Shared, lock};

/// A server that is not ready within this time fails the start.
const START_MAX: Duration = Duration::from_secs(10);
/// The time for the last exchange with the servers at a stop.
const COMMIT_MAX: Duration = Duration::from_secs(5);

/// A running consumer. Dropping it stops it within a second and hands back what runs; see
/// [`Bridge::stop`].
pub struct Bridge {
    shared: Arc<Shared>,
    links: Vec<Arc<Link>>,
    readers: Vec<JoinHandle<()>>,
    committers: Vec<JoinHandle<()>>,
}

/// How a consumer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The counters at the end.
    pub counters: Counters,
    /// Runs that had not ended within the limit. Their jobs were handed back, so they run again.
    pub abandoned: usize,
    /// Jobs whose fate no server has heard of: other consumers take them over after the heartbeat.
    pub uncommitted: usize,
}

impl Bridge {
    /// Starts a consumer: connects, creates the groups that do not exist, and begins to fetch. Its
    /// queue has the name `bridge` and a number. `report` gets a line for each fault that begins or
    /// ends, and for each dead letter; it must not block.
    ///
    /// # Errors
    /// The configuration is not valid, a server refuses it, or is not ready within 10 s.
    pub fn start(
        config: Config,
        handlers: Handlers,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Bridge, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        config.check()?;
        if handlers.is_empty() {
            return Err(Error::config("there is no handler: at least one is needed"));
        }
        let name = format!("bridge-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let builder = uwork::Queue::builder(name).max_active(config.max_active);
        let queue = builder.build().map_err(|error| Error::config(error.to_string()))?;
        let consumer = format!("{}:{}:{:08x}", config.name, std::process::id(), fastrand::u32(..));
        let placed = config.placed();
        let reporter = Reporter::new(report);
        let shared = Arc::new(Shared::new(config, handlers, queue, consumer, reporter));
        show(&shared);
        let mut ready = Vec::new();
        for (server, streams) in placed {
            let link = Link::new(shared.clone(), &streams);
            let wire = first_contact(&link, server.clone())?;
            ready.push((link, wire, Wire::new(server)));
        }
        let mut bridge =
            Bridge { shared, links: Vec::new(), readers: Vec::new(), committers: Vec::new() };
        for (link, reading, committing) in ready {
            bridge.links.push(link.clone());
            let (reader, committer) = (link.clone(), link);
            let committer = spawn("bridge/commit", move || committer::run(committer, committing))?;
            bridge.committers.push(committer);
            bridge.readers.push(spawn("bridge/read", move || reader::run(&reader, reading))?);
        }
        Ok(bridge)
    }

    /// The name of this consumer on the server: the configured one, made unique.
    pub fn consumer(&self) -> &str {
        &self.shared.consumer
    }

    /// The queue that runs the jobs, for its attributes.
    pub fn queue(&self) -> &uwork::Queue {
        &self.shared.queue
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.shared.tally.read(self.shared.held() as u64)
    }

    /// Ends the consumer: stops fetching, hands back jobs that have not begun, waits for running ones
    /// up to `limit`, hands back the rest, acknowledges, and leaves the groups. It takes at most 6
    /// seconds longer than `limit`, or 15 if a server does not answer.
    pub fn stop(mut self, limit: Duration) -> Stopped {
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> Stopped {
        self.shared.begin_stop();
        // A thread that has panicked has ended too.
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
        for link in &self.links {
            link.settle(|ticket| ticket.settle_unstarted(), || End::HandBack);
        }
        self.shared.wait_until_empty(limit);
        let running = |link: &Arc<Link>| link.settle(|ticket| ticket.settle(), || End::HandBack);
        let abandoned = self.links.iter().map(running).sum();
        self.shared.wait_until_empty(COMMIT_MAX);
        self.links.iter().for_each(|link| link.close());
        self.committers.drain(..).for_each(|committer| drop(committer.join()));
        let uncommitted = self.shared.held();
        Stopped { counters: self.counters(), abandoned, uncommitted }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if !self.committers.is_empty() {
            self.end(Duration::from_secs(1));
        }
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("consumer", &self.consumer()).finish_non_exhaustive()
    }
}

/// A connection whose groups exist. Faults that pass by themselves get 10 s to do so.
fn first_contact(link: &Link, server: Server) -> Result<Wire, Error> {
    let mut wire = Wire::new(server);
    let faults = Faults::new(link.shared.reporter.clone());
    let deadline = Instant::now() + START_MAX;
    loop {
        match group::make_groups(link, &mut wire).and_then(|()| greet_namesakes(link, &mut wire)) {
            Ok(()) => break,
            Err(Fault { error, .. }) => {
                let passes = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy);
                if !passes || Instant::now() >= deadline {
                    return Err(error);
                }
                thread::sleep(faults.failed(&error));
            }
        }
    }
    faults.succeeded(&wire.name());
    Ok(wire)
}

/// Reports live consumers with the same name. They are no fault: the names on the server differ.
fn greet_namesakes(link: &Link, wire: &mut Wire) -> Result<(), Fault> {
    let shared = &link.shared;
    let Some((stream, _)) = link.streams.first() else { return Ok(()) };
    let mut command = redis::cmd("XINFO");
    let command = command.arg("CONSUMERS").arg(&**stream).arg(&shared.config.group).clone();
    let Value::Array(consumers) = wire.ask_one(command)? else { return Ok(()) };
    let heartbeat_ms = shared.config.heartbeat.as_millis() as i64;
    let prefix = format!("{}:", shared.config.name);
    let is_namesake = |consumer: &&Value| {
        let Value::Array(facts) = consumer else { return false };
        let [_, Value::BulkString(name), _, _, _, Value::Int(idle_ms), ..] = &facts[..] else {
            return false;
        };
        name.starts_with(prefix.as_bytes()) && *idle_ms < heartbeat_ms
    };
    let count = consumers.iter().filter(is_namesake).count();
    if count > 0 && shared.config.name != "uwork" {
        let name = &shared.config.name;
        shared.reporter.say(&format!(
            "{stream}: {count} other consumer(s) have the name {name:?}; each keeps its own jobs"
        ));
    }
    Ok(())
}

/// Shows the consumer's counters in the process's control socket.
fn show(shared: &Arc<Shared>) {
    static LIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
    fn metrics() -> String {
        let live: Vec<Arc<Shared>> = lock(&LIVE).iter().filter_map(Weak::upgrade).collect();
        let of = |shared: &Arc<Shared>| {
            (shared.consumer.clone(), shared.tally.read(shared.held() as u64))
        };
        if live.is_empty() {
            return String::new();
        }
        to_openmetrics(&live.iter().map(of).collect::<Vec<_>>())
    }
    let mut live = lock(&LIVE);
    live.retain(|known| known.strong_count() > 0);
    live.push(Arc::downgrade(shared));
    drop(live);
    uwork::control::add_metrics(metrics);
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|error| Error::new(ErrorKind::Refused, format!("no thread: {error}")))
}
