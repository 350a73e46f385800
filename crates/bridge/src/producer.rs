//! The producer: adds jobs to a stream.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::config::{SHARDS_MAX, placed};
use crate::fault::{Error, ErrorKind, Fault};
use crate::job::EntryId;
use crate::keys::{Keys, refusal_of, shard_of};
use crate::process::{self, Process};
use crate::safety::{self, Findings};
use crate::scripts::{SCRIPTS, call, ms};
use crate::server::Server;
use crate::wire::Wire;

/// The bytes of a job. The largest string of a Redis server has 512 MiB, and a longer one ends the
/// connection without an answer: a delayed job is one string with all its fields.
pub(crate) const JOB_MAX: usize = (512 << 20) - (1 << 20);
/// The bytes of a handler's name, an id and a key.
const NAME_MAX: usize = 64 << 10;
/// The first byte of a mark that names the shard of its job.
const ROUTE: u8 = b'>';
/// Jobs of one exchange.
const BATCH_MAX: usize = 1_000;
/// Bytes of payloads of one exchange.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// A job to push.
///
/// ```
/// use std::time::Duration;
/// use uwork_bridge::Push;
/// let push = Push::new("payload").handler("mail").id("order-7").delay(Duration::from_secs(60));
/// # drop(push);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    payload: Vec<u8>,
    handler: Option<String>,
    id: Option<String>,
    key: Option<String>,
    delay: Duration,
}

impl Push {
    /// A job with a payload.
    pub fn new(payload: impl Into<Vec<u8>>) -> Push {
        let payload = payload.into();
        Push { payload, handler: None, id: None, key: None, delay: Duration::ZERO }
    }

    /// A job with a payload in JSON.
    ///
    /// # Errors
    /// The value has no form in JSON.
    pub fn json(value: &impl serde::Serialize) -> Result<Push, Error> {
        let payload = serde_json::to_vec(value);
        Ok(Push::new(payload.map_err(|error| Error::config(error.to_string()))?))
    }

    /// The name of the handler.
    #[must_use]
    pub fn handler(self, name: impl Into<String>) -> Push {
        Push { handler: Some(name.into()), ..self }
    }

    /// The id, which is not empty. A second job with this id is not added within the producer's window.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Push {
        Push { id: Some(id.into()), ..self }
    }

    /// The key that chooses the shard. Without it the id does, and without both a random number. A
    /// second job of an id goes to the shard of the first, whatever its key.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Push {
        Push { key: Some(key.into()), ..self }
    }

    /// The delay before the job becomes ready, by the server's clock.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Push {
        Push { delay, ..self }
    }

    /// Refuses what no server takes, before anything is sent.
    fn check(&self) -> Result<(), Error> {
        let names = [("handler's name", &self.handler), ("id", &self.id), ("key", &self.key)];
        for (what, text) in names {
            let bytes = text.as_ref().map_or(0, String::len);
            if bytes > NAME_MAX {
                let text = format!("the {what} has {bytes} bytes: allowed are {NAME_MAX}");
                return Err(Error::config(text));
            }
        }
        if self.id.as_ref().is_some_and(String::is_empty) {
            // As of a variable that is not set: all jobs after the first would be duplicates.
            return Err(Error::config("the id is empty"));
        }
        let bytes = self.payload.len();
        if bytes > JOB_MAX {
            return Err(Error::config(format!(
                "a payload has {bytes} bytes: allowed are {JOB_MAX}; store it elsewhere, and push \
                 its name"
            )));
        }
        Ok(())
    }
}

/// What became of a pushed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the stream, with this number.
    Added(String),
    /// It will be in the stream after its delay.
    Delayed,
    /// A job with its id was pushed within the window.
    Duplicate,
}

/// Adds jobs to a stream, or to the shards of a stream. One thread uses it at a time. In a forked
/// child it makes connections of its own.
pub struct Producer {
    wires: Vec<Wire>,
    /// That of the connections.
    process: Process,
    shards: Vec<Keys>,
    window: Duration,
}

impl Producer {
    /// A producer for a stream in `shards` parts, dealt out to the servers as
    /// [`Config`](crate::Config) does. It connects at the first push.
    ///
    /// # Errors
    /// No server, no name or one that is nothing but a `{tag}`, or not 1 to [`SHARDS_MAX`] shards.
    pub fn new(
        servers: Vec<Server>,
        stream: impl AsRef<str>,
        shards: u32,
    ) -> Result<Producer, Error> {
        if servers.is_empty() || stream.as_ref().is_empty() {
            return Err(Error::config("at least one server and a stream are needed"));
        }
        if let Some(refusal) = refusal_of(stream.as_ref(), shards) {
            return Err(Error::config(refusal));
        }
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(Error::config(format!("{shards} shards: allowed are 1 to {SHARDS_MAX}")));
        }
        let placed = placed(&servers, stream.as_ref(), shards);
        let shards = placed.iter().map(|(_, name)| Keys::of(name)).collect();
        Ok(Producer {
            // A connection for each shard: in a cluster each may lead to another node.
            wires: placed.into_iter().map(|(server, _)| Wire::new(server)).collect(),
            process: Process::current(),
            shards,
            window: Duration::from_secs(3_600),
        })
    }

    /// The time in which a second job of an id is not added; an hour if not set. Zero: ids are not
    /// compared.
    #[must_use]
    pub fn window(self, window: Duration) -> Producer {
        Producer { window, ..self }
    }

    /// Asks each server whether it keeps jobs, and returns a line for each reason why it may forget
    /// them: it evicts keys, has no append-only file, is a replica, or does not tell. A program that
    /// cannot do with such a server ends there.
    ///
    /// # Errors
    /// A server does not answer or refuses.
    pub fn look(&mut self) -> Result<Vec<String>, Error> {
        self.leave_parents_connections();
        let findings = Findings::default();
        let mut lines = Vec::new();
        for (keys, wire) in self.shards.iter().zip(&mut self.wires) {
            let toward = redis::cmd("EXISTS").arg(&keys.delayed).clone();
            let found = safety::look(wire, toward).map_err(|fault| fault.error)?;
            lines.extend(findings.learn(&wire.name(), found.lines));
        }
        Ok(lines)
    }

    /// Adds a job.
    ///
    /// # Errors
    /// As [`Producer::push_all`].
    pub fn push(&mut self, push: Push) -> Result<Pushed, Error> {
        self.push_all(vec![push])?.pop().ok_or_else(|| Error::config("nothing was pushed"))
    }

    /// Adds jobs, in order within each shard, except second jobs of ids whose first ones are elsewhere.
    ///
    /// # Errors
    /// A job is larger than 511 MiB, which servers do not take, or a handler's name, an id or a key
    /// than 64 KiB, or an id is empty: then no job was added. The server refuses, or the connection
    /// was cut: then some of the jobs may have been added, at least [`Error::pushed`]. Jobs with ids
    /// may be pushed again: within the window each is added once.
    pub fn push_all(&mut self, pushes: Vec<Push>) -> Result<Vec<Pushed>, Error> {
        pushes.iter().try_for_each(Push::check)?;
        self.leave_parents_connections();
        let mut outcomes = vec![None; pushes.len()];
        let mut by_shard = vec![Vec::new(); self.shards.len()];
        let mut by_home = vec![Vec::new(); self.shards.len()];
        for (nth, push) in pushes.iter().enumerate() {
            match self.home(push) {
                Some(home) if home != self.shard(push) => by_home[home].push(nth),
                _ => by_shard[self.shard(push)].push(nth),
            }
        }
        for (home, routed) in by_home.into_iter().enumerate() {
            for part in routed.chunks(BATCH_MAX) {
                let route = |&nth: &usize| self.route(home, &pushes[nth]);
                let routes: Vec<Cmd> = part.iter().map(route).collect();
                let replies = self.exchange(home, &routes)?;
                if let Some(error) = replies.iter().find_map(|reply| self.refused(home, reply)) {
                    return Err(error);
                }
                for (&nth, reply) in part.iter().zip(replies) {
                    match reply {
                        Value::Nil => by_shard[self.shard(&pushes[nth])].push(nth),
                        mark => match self.routed(&mark) {
                            Some(shard) => by_shard[shard].push(nth),
                            None => outcomes[nth] = Some(Pushed::Duplicate),
                        },
                    }
                }
            }
        }
        by_shard.iter_mut().for_each(|numbers| numbers.sort_unstable());
        // A job whose id has its mark elsewhere is pushed there. In the last round each route counts as
        // one that leads nowhere, and is replaced: so routes that lead to each other end here.
        let shards = self.shards.len();
        for shards in [shards, shards, 0] {
            let mut elsewhere = vec![Vec::new(); self.shards.len()];
            for (shard, numbers) in by_shard.into_iter().enumerate() {
                for part in batches(&pushes, &numbers) {
                    let command = |&nth: &usize| self.command(shard, shards, &pushes[nth]);
                    let commands: Vec<Cmd> = part.iter().map(command).collect();
                    let replies = self.exchange(shard, &commands);
                    let replies = replies.map_err(|error| error.after(added(&outcomes)))?;
                    let mut refused = None;
                    for (&nth, reply) in part.iter().zip(replies) {
                        match (self.refused(shard, &reply), self.routed(&reply)) {
                            (Some(error), _) => refused = refused.or(Some(error)),
                            (None, Some(other)) => elsewhere[other].push(nth),
                            (None, None) => outcomes[nth] = Some(self.pushed(shard, &reply)?),
                        }
                    }
                    if let Some(error) = refused {
                        return Err(error.after(added(&outcomes)));
                    }
                }
            }
            by_shard = elsewhere;
            by_shard.iter_mut().for_each(|numbers| numbers.sort_unstable());
        }
        let decided: Option<Vec<Pushed>> = outcomes.into_iter().collect();
        decided.ok_or_else(|| self.unknown(0))
    }

    /// In a forked child: connects anew.
    fn leave_parents_connections(&mut self) {
        if self.process.is_parent()
            && let Some(nodes) = self.wires.first().map(Wire::nodes_of_child)
        {
            self.wires.iter_mut().for_each(|wire| wire.leave_parents(nodes.clone()));
            self.process = Process::current();
        }
    }

    fn shard(&self, push: &Push) -> usize {
        // It fits: there are at most `SHARDS_MAX`.
        let shards = self.shards.len() as u32;
        match push.key.as_ref().or(push.id.as_ref()) {
            Some(key) => shard_of(key, shards) as usize,
            None => fastrand::usize(..self.shards.len()),
        }
    }

    /// The shard that knows where the job of an id is.
    fn home(&self, push: &Push) -> Option<usize> {
        let id = push.id.as_ref().filter(|_| ms(self.window) > 0)?;
        Some(shard_of(id, self.shards.len() as u32) as usize)
    }

    /// Asks the home of an id for the shard of its job, and names one if it knows none.
    fn route(&self, home: usize, push: &Push) -> Cmd {
        let id = push.id.as_deref().unwrap_or_default();
        route(&self.shards[home], id, self.shard(push), self.shards.len(), self.window)
    }

    /// The shard that a mark names.
    fn routed(&self, reply: &Value) -> Option<usize> {
        let Value::BulkString(mark) = reply else { return None };
        let shard = std::str::from_utf8(mark.strip_prefix(&[ROUTE])?).ok()?.parse().ok()?;
        (shard < self.shards.len()).then_some(shard)
    }

    /// A push to a shard, which follows routes to the first `shards`.
    fn command(&self, shard: usize, shards: usize, push: &Push) -> Cmd {
        let keys = &self.shards[shard];
        let window_ms = match &push.id {
            Some(_) => ms(self.window),
            None => 0,
        };
        let delay_ms = ms(push.delay);
        let mut command = if window_ms == 0 && delay_ms == 0 {
            let mut command = redis::cmd("XADD");
            command.arg(&keys.stream).arg("*");
            command
        } else {
            let mark = keys.id(push.id.as_deref().unwrap_or_default());
            let mut command = call(&SCRIPTS.push, &[&keys.stream, &keys.delayed, &mark]);
            // Two delayed jobs with equal fields are two members of the set.
            let unique = format!("{:032x}", process::unique());
            command.arg(window_ms).arg(delay_ms).arg(unique).arg(shards);
            command
        };
        command.arg("p").arg(&push.payload[..]);
        for (name, value) in [("h", &push.handler), ("i", &push.id), ("k", &push.key)] {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        }
        command
    }

    fn exchange(&mut self, shard: usize, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
        self.wires[shard].ask(commands).map_err(|fault| fault.error)
    }

    fn refused(&self, shard: usize, reply: &Value) -> Option<Error> {
        Fault::in_reply(reply, &self.wires[shard].name()).map(|fault| fault.error)
    }

    fn pushed(&self, shard: usize, reply: &Value) -> Result<Pushed, Error> {
        match reply {
            Value::BulkString(word) if word == b"delayed" => Ok(Pushed::Delayed),
            Value::BulkString(entry) if EntryId::parse(entry).is_some() => {
                Ok(Pushed::Added(String::from_utf8_lossy(entry).into_owned()))
            }
            Value::Nil => Ok(Pushed::Duplicate),
            _ => Err(self.unknown(shard)),
        }
    }

    fn unknown(&self, shard: usize) -> Error {
        let text = format!("{}: an unknown reply", self.wires[shard].name());
        Error::new(ErrorKind::Refused, text)
    }
}

/// Names a shard for an id at its home, unless that has a mark. A mark lives for a window after its job
/// was added, and the route to it, which each push renews, for longer.
pub(crate) fn route(home: &Keys, id: &str, shard: usize, shards: usize, window: Duration) -> Cmd {
    let mut command = call(&SCRIPTS.route, &[home.id(id)]);
    command.arg(format!("{}{shard}", ROUTE as char));
    command.arg(ms(window).saturating_mul(2)).arg(shards);
    command
}

/// How many jobs are in the streams, or will be.
fn added(outcomes: &[Option<Pushed>]) -> usize {
    let is_added = |of: &&Option<Pushed>| matches!(of, Some(Pushed::Added(_) | Pushed::Delayed));
    outcomes.iter().filter(is_added).count()
}

/// The numbers of jobs of each exchange.
fn batches<'a>(pushes: &[Push], mut numbers: &'a [usize]) -> Vec<&'a [usize]> {
    let mut parts = Vec::new();
    while !numbers.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        while count < numbers.len().min(BATCH_MAX) && bytes < BATCH_BYTES_MAX {
            bytes += pushes[numbers[count]].payload.len();
            count += 1;
        }
        let (part, rest) = numbers.split_at(count);
        parts.push(part);
        numbers = rest;
    }
    parts
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_shards_out_of_range_is_refused_with_the_allowed_ones() {
        for shards in [0, SHARDS_MAX + 1] {
            let server = Server::new("redis://127.0.0.1:1").unwrap();
            let error = Producer::new(vec![server], "jobs", shards).unwrap_err();
            assert!(error.to_string().contains("allowed are 1 to 4096"), "{error}");
        }
    }

    #[test]
    fn a_job_beyond_the_servers_limit_or_with_an_empty_id_is_refused_before_anything_is_sent() {
        // Port 1 has no listener.
        let server = Server::new("redis://127.0.0.1:1").unwrap();
        let mut producer = Producer::new(vec![server], "jobs", 1).unwrap();
        let error = producer.push(Push::new(vec![0; JOB_MAX + 1])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("535822337 bytes: allowed are 535822336"), "{error}");
        let error = producer.push(Push::new("x").id("")).unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, "the id is empty"));
        let long = "x".repeat(NAME_MAX + 1);
        for push in [Push::new("").id(&*long), Push::new("").key(&*long)] {
            let error = producer.push(push).unwrap_err().to_string();
            assert!(error.contains("65537 bytes: allowed are 65536"), "{error}");
        }
    }
}
