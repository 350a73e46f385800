//! A consumer: jobs of streams become items of a queue. The protocol is in the README.

mod admit;
mod alone;
mod commands;
mod committer;
mod delivered;
mod failures;
mod group;
mod limits;
mod link;
mod memory;
mod metrics;
mod outcome;
mod pause;
mod reader;
mod room;
mod run;
mod schedule;
mod sent;
mod shared;
mod suspects;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::counters::Counters;
use crate::fault::{Error, ErrorKind, Fault};
use crate::handler::Handlers;
use crate::process::{self, Process};
use crate::report::Reporter;
use crate::safety;
use crate::server::Server;
use crate::stat::{ConsumerStat, consumers, groups};
use crate::wire::{HURRIED_REPLY_MAX, Wire};
use limits::Running;
use link::Link;
use outcome::End;
pub(crate) use pause::{STARTED_AFTER, Trial};
use shared::Shared;
pub(crate) use shared::lock;
use uwork::foreign::ThreadHandle;

/// A server that is not ready within this time fails the start.
const START_MAX: Duration = Duration::from_secs(10);
/// The time for the last reads of a stop. A read that takes longer has a server that hangs.
const READ_MAX: Duration = Duration::from_secs(1);
/// The time for the last exchange with the servers at a stop.
const COMMIT_MAX: Duration = Duration::from_secs(5);

/// A wait that lasts longer than this is reported.
const QUIET: Duration = Duration::from_millis(500);
/// The interval between two reports of a wait.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Jobs that such a report names.
const NAMED_MAX: usize = 3;

/// A running consumer. Dropping it is a stop with a limit of a second; see [`Bridge::stop`].
///
/// A job that must run alone runs alone among the jobs of its consumer: another `Bridge` of the process
/// may run jobs beside it, of which one that kills the process ends it too.
///
/// It runs in the process that has started it. A forked child has a copy without threads, of which it
/// may read the name and the counters; see [`Bridge::is_of_parent`].
pub struct Bridge {
    process: Process,
    shared: Arc<Shared>,
    links: Vec<Arc<Link>>,
    readers: Vec<ThreadHandle>,
    /// Disconnected when all readers have ended.
    reading: Receiver<()>,
    committers: Vec<ThreadHandle>,
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
    /// queue has the name `bridge` and a number, and is part of the attribute tree. `report` gets a
    /// line for each fault that begins or ends, for each reason why a server may forget jobs, for
    /// each dead letter, for takeovers, and for what a start or a stop waits for; it must not block.
    ///
    /// # Errors
    /// The configuration is not valid, a server refuses it, or is not ready within 10 s, or the
    /// multiple that [`Server::patience`] says. With [`Config::strict`] a server may forget jobs.
    pub fn start(
        mut config: Config,
        handlers: Handlers,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Bridge, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        config.check()?;
        if handlers.is_empty() {
            return Err(Error::config("there is no handler: at least one is needed"));
        }
        let name = format!("bridge-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let builder = uwork::Queue::builder(name).max_active(config.max_active).sysfs();
        let queue = builder
            .affinity_scope(handlers.scope())
            .build()
            .map_err(|error| Error::config(error.to_string()))?;
        // Processes in containers may have one number.
        let unique = process::unique() as u32;
        let consumer = format!("{}:{}:{unique:08x}", config.name, std::process::id());
        let named = config.servers.into_iter().map(|server| server.of_consumer(&consumer));
        config.servers = named.collect();
        let placed = config.placed();
        let reporter = Reporter::new(report);
        let shared = Arc::new(Shared::new(config, handlers, queue, consumer, reporter));
        metrics::show(&shared);
        let mut ready = Vec::new();
        let waiting = Waiting::new(&shared.reporter);
        for (server, streams) in placed {
            let link = Link::new(shared.clone(), &streams);
            let wire = first_contact(&link, server.clone(), &waiting)?;
            let commit = Wire::new(server).ending_with(link.closing.clone());
            ready.push((link, wire, commit));
        }
        drop(waiting);
        let (until_end, reading) = mpsc::channel();
        let (links, readers, committers) = (Vec::new(), Vec::new(), Vec::new());
        let process = Process::current();
        let mut bridge = Bridge { process, shared, links, readers, reading, committers };
        for (link, read, commit) in ready {
            bridge.links.push(link.clone());
            let (reader, committer) = (link.clone(), link);
            let committer = spawn("bridge/commit", move || committer::run(committer, commit))?;
            bridge.committers.push(committer);
            let until_end = until_end.clone();
            let reader = spawn("bridge/read", move || {
                reader::run(&reader, read);
                drop(until_end);
            });
            bridge.readers.push(reader?);
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

    /// Whether the consumer runs in the parent of this forked process: this is a copy, which runs no
    /// job, and whose drop does nothing. The child may start a consumer of its own.
    pub fn is_of_parent(&self) -> bool {
        self.process.is_parent()
    }

    /// The counters so far. In a forked child: those of the fork, without held jobs.
    pub fn counters(&self) -> Counters {
        // A thread of the parent may have had the lock at the fork.
        let held = if self.is_of_parent() { 0 } else { self.shared.held() };
        self.shared.tally.read(held as u64)
    }

    /// Ends the consumer: stops fetching, hands back jobs that have not begun, waits for running ones
    /// up to `limit`, kills the commands among the rest and hands their jobs back, acknowledges, and
    /// leaves the groups. It takes at most 6 seconds longer than `limit`, or 12 if a server does not
    /// answer, or answers slowly, or the multiple of these times that [`Server::patience`] says. An
    /// entry that still arrives after `limit` is left to other consumers.
    ///
    /// # Panics
    /// In a forked child of the process that has started the consumer.
    pub fn stop(mut self, limit: Duration) -> Stopped {
        assert!(
            !self.is_of_parent(),
            "the consumer runs in the parent of this forked process, which alone can stop it"
        );
        self.end(limit)
    }

    /// Waits until nothing is held, and says for what it waits.
    fn wait_for_runs(&self, limit: Duration) {
        let begun = Instant::now();
        let mut quiet = QUIET;
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if self.shared.wait_until_empty(quiet.min(left)) || left <= quiet {
                return;
            }
            quiet = SAY_EVERY;
            let left = limit.saturating_sub(begun.elapsed());
            let running: Vec<Running> =
                self.links.iter().flat_map(|link| link.running(0)).collect();
            self.shared.reporter.say(&waits(&running, self.shared.held(), left));
        }
    }

    fn end(&mut self, limit: Duration) -> Stopped {
        self.shared.begin_stop();
        // No message arrives: it waits for the end of all readers.
        let limit_of = |of: Duration| {
            let servers = self.shared.config.servers.iter();
            servers.map(|server| server.limit(of)).max().unwrap_or(of)
        };
        let (read_max, commit_max) = (limit_of(READ_MAX), limit_of(COMMIT_MAX));
        let _ = self.reading.recv_timeout(read_max);
        for link in &self.links {
            link.settle(|ticket| ticket.settle_unstarted(), || End::HandBack);
        }
        self.wait_for_runs(limit);
        self.shared.seal();
        // What still arrives is not admitted any more.
        self.links.iter().for_each(|link| link.reading.set(Instant::now()));
        let running = |link: &Arc<Link>| link.settle(|ticket| ticket.settle(), || End::HandBack);
        let abandoned = self.links.iter().map(running).sum();
        if !self.shared.wait_until_empty(QUIET.min(commit_max)) {
            let count = self.shared.held();
            self.shared.reporter.say(&format!(
                "the stop waits for a server to take the outcomes of {count} job(s), up to {} s",
                commit_max.as_secs()
            ));
            self.shared.wait_until_empty(commit_max.saturating_sub(QUIET));
        }
        let ends_by = Instant::now() + limit_of(HURRIED_REPLY_MAX);
        self.links.iter().for_each(|link| link.close(ends_by));
        // A thread that has panicked has ended too.
        self.committers.drain(..).for_each(ThreadHandle::join);
        self.readers.drain(..).for_each(ThreadHandle::join);
        let uncommitted = self.shared.held();
        Stopped { counters: self.counters(), abandoned, uncommitted }
    }
}

/// The line of a stop that waits for runs, or with none for outcomes. A part of a second is left, too.
fn waits(running: &[Running], held: usize, left: Duration) -> String {
    let left = left.as_millis().div_ceil(1_000);
    let name = |of: &Running| format!("{} for {} s", of.name, of.ms / 1_000);
    let named: Vec<String> = running.iter().take(NAMED_MAX).map(name).collect();
    let more = if running.len() > NAMED_MAX { ", ..." } else { "" };
    match running.len() {
        0 => format!(
            "the stop waits for a server to take the outcomes of {held} job(s), up to {left} s"
        ),
        count => format!(
            "the stop waits for {count} running job(s), up to {left} s: {}{more}",
            named.join(", ")
        ),
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if self.is_of_parent() {
            // The threads do not exist, their locks may be taken, and a new thread of this process may
            // have the stack that a handle names.
            std::mem::forget(self.shared.clone());
            std::mem::forget(std::mem::take(&mut self.links));
            std::mem::forget(std::mem::take(&mut self.readers));
            std::mem::forget(std::mem::take(&mut self.committers));
            std::mem::forget(std::mem::replace(&mut self.reading, mpsc::channel().1));
        } else if !self.committers.is_empty() {
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
fn first_contact(link: &Link, server: Server, waiting: &Waiting) -> Result<Wire, Error> {
    let start_max = server.limit(START_MAX);
    let (name, seconds) = (server.name(), start_max.as_secs());
    waiting.begin(format!("{name}: waiting for the server, up to {seconds} s"));
    let mut wire = Wire::new(server).ending_with(link.reading.clone());
    let faults = link.shared.faults.of_thread();
    let deadline = Instant::now() + start_max;
    loop {
        let greeted = look(link, &mut wire, link.shared.config.strict)
            .and_then(|_| group::make_groups(link, &mut wire))
            .and_then(|()| greet_namesakes(link, &mut wire))
            .and_then(|()| greet_groups(link, &mut wire));
        match greeted {
            Ok(()) => break,
            Err(fault) => {
                let kind = fault.error.kind();
                let passes = matches!(kind, ErrorKind::Unreachable | ErrorKind::Busy);
                if !passes || Instant::now() >= deadline {
                    return Err(fault.error);
                }
                let delay = faults.failed(&fault);
                waiting.say();
                thread::sleep(delay);
            }
        }
    }
    faults.succeeded(&wire.name());
    Ok(wire)
}

/// Reports what makes the server forget jobs, and returns whether it does. With `strict` that is a fault.
fn look(link: &Link, wire: &mut Wire, strict: bool) -> Result<bool, Fault> {
    let Some((stream, _)) = link.streams.first() else { return Ok(false) };
    let found = safety::look(wire, redis::cmd("XLEN").arg(&**stream).clone())?;
    let address = wire.name();
    if strict && !found.lines.is_empty() {
        return Err(safety::refusal(&address, &found.lines));
    }
    let lines = link.shared.findings.learn(&address, found.lines);
    lines.iter().for_each(|line| link.shared.reporter.say(line));
    Ok(found.forgets)
}

/// Says that a start waits for a server: after a failure, or when the server has not answered for
/// some time.
struct Waiting {
    line: Arc<Mutex<Option<String>>>,
    reporter: Reporter,
    /// Dropped, it ends the thread.
    _end: mpsc::Sender<()>,
}

impl Waiting {
    fn new(reporter: &Reporter) -> Waiting {
        let (end, ended) = mpsc::channel();
        let waiting = Waiting { line: Arc::default(), reporter: reporter.clone(), _end: end };
        let (line, reporter) = (waiting.line.clone(), reporter.clone());
        // A server that answers within the time has no line, and neither has a start without a thread.
        let watch = move || {
            let mut before = None;
            while ended.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                let mut line = lock(&line);
                if line.is_some() && *line == before {
                    line.take().inspect(|line| reporter.say(line));
                }
                before.clone_from(&line);
            }
        };
        drop(spawn("bridge/start", watch));
        waiting
    }

    /// The next server is asked.
    fn begin(&self, line: String) {
        *lock(&self.line) = Some(line);
    }

    /// Says it once for each server.
    fn say(&self) {
        if let Some(line) = lock(&self.line).take() {
            self.reporter.say(&line);
        }
    }
}

/// Reports live consumers with the same name. They are no fault: the names on the server differ.
fn greet_namesakes(link: &Link, wire: &mut Wire) -> Result<(), Fault> {
    let shared = &link.shared;
    let Some((stream, _)) = link.streams.first() else { return Ok(()) };
    let mut command = redis::cmd("XINFO");
    let command = command.arg("CONSUMERS").arg(&**stream).arg(&shared.config.group).clone();
    let consumers = consumers(&wire.ask_one(command)?);
    let prefix = format!("{}:", shared.config.name);
    let is_namesake = |other: &&ConsumerStat| {
        let is_live = other.idle < shared.config.heartbeat;
        is_live && other.name != shared.consumer && other.name.starts_with(&prefix)
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

/// Reports other groups of streams: each job runs once in each group.
fn greet_groups(link: &Link, wire: &mut Wire) -> Result<(), Fault> {
    let config = &link.shared.config;
    for (stream, _) in link.streams.iter().filter(|_| !config.keep) {
        let mut command = redis::cmd("XINFO");
        let reply = wire.ask_one(command.arg("GROUPS").arg(&**stream).clone())?;
        if let Some(other) = groups(&reply).into_iter().find(|name| *name != config.group) {
            link.shared.reporter.say(&format!(
                "{stream}: the group {other:?} reads it too: each group runs each job, and an entry is \
                 deleted when all groups have acknowledged it"
            ));
        }
    }
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<ThreadHandle, Error> {
    let spawned = uwork::foreign::start_thread(name, run);
    spawned.map_err(|error| Error::new(ErrorKind::Refused, format!("no thread: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::SLICE;
    use crate::wire::{CONNECT_MAX, HURRIED_CONNECT_MAX, REPLY_MAX};

    /// The bounds in the documentation of `Bridge::stop`, beyond its limit: with a server that
    /// answers, and with one that hangs.
    const STOP_MAX: Duration = Duration::from_secs(6);
    const HUNG_STOP_MAX: Duration = Duration::from_secs(12);

    // Catches: a thread that takes the program's signals.
    #[test]
    fn the_thread_that_says_that_a_start_waits_blocks_the_signals_of_the_program() {
        const SIGUSR1: u32 = 10;
        let (tell, told) = mpsc::channel();
        let reporter = Reporter::new(move |_| {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
            let is_own = status.starts_with("Name:\tbridge/start");
            let _ = tell.send((is_own, blocked >> (SIGUSR1 - 1) & 1));
        });
        let waiting = Waiting::new(&reporter);
        waiting.begin("the server has not answered".to_owned());
        assert_eq!(told.recv(), Ok((true, 1)));
    }

    #[test]
    fn a_stop_that_waits_for_a_part_of_a_second_does_not_say_that_no_time_is_left() {
        let ticket = crate::job::Ticket::new();
        let running = Running { name: "order-8".to_owned(), ms: 1_500, attempt: 1, ticket };
        let line = waits(&[running], 1, Duration::from_millis(500));
        assert_eq!(line, "the stop waits for 1 running job(s), up to 1 s: order-8 for 1 s");
        let line = waits(&[], 2, Duration::from_millis(2_001));
        assert!(line.ends_with(" the outcomes of 2 job(s), up to 3 s"), "{line}");
    }

    #[test]
    fn the_waits_of_a_stop_are_within_its_documented_bounds() {
        let until_closing = READ_MAX + COMMIT_MAX;
        assert!(until_closing <= STOP_MAX);
        // A read, or an exchange of the committer, that began when the stop did.
        assert!(reader::BLOCK + REPLY_MAX <= HUNG_STOP_MAX);
        // The last exchanges of the committer, and the wait in which it meets the end of its time: a
        // reply that arrives slowly ends with it.
        assert!(until_closing + HURRIED_REPLY_MAX + SLICE <= HUNG_STOP_MAX);
        // A read ends with the runs in any case.
        assert!(READ_MAX + SLICE <= STOP_MAX);
        // Each of them has that time in all. A new connection leaves a part of it for the reply: the
        // lookup of a name and the connection have its limit together, and the greeting once more.
        assert!(2 * CONNECT_MAX <= REPLY_MAX && 2 * HURRIED_CONNECT_MAX <= HURRIED_REPLY_MAX);
    }
}
