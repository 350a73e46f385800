//! What the consumers of a group hold, as the server knows it.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::dead::read as read_entry;
use crate::fault::{Error, Fault, Remedy};
use crate::policy::Deliveries;
use crate::scripts::{SCRIPTS, call};
use crate::server::Server;
use crate::stat::{ConsumerStat, QUARANTINE, consumers};
use crate::wire::Wire;

/// Bytes of an id or a handler's name that are kept.
const VALUE_MAX: usize = 200;

/// A job that a consumer holds: it runs, or waits in the consumer's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldJob {
    /// The number of its entry.
    pub entry: String,
    /// The producer's id, if it gave one; the first 200 bytes.
    pub id: Option<String>,
    /// The handler, if the producer named one; the first 200 bytes.
    pub handler: Option<String>,
    /// The time since the entry was added to the stream, by the server's clock. The consumer holds it
    /// for at most this time.
    pub age: Duration,
    /// The time since its consumer has given a sign of life for it.
    pub idle: Duration,
    /// How often it was delivered, hand-backs not counted.
    pub deliveries: u64,
    /// The runs that have begun and of which no end is known: that of this consumer, once it has
    /// lasted for a moment, and those of consumers that have died.
    pub begun: u32,
    /// The attempts that have failed.
    pub attempts: u32,
}

impl HeldJob {
    /// Asks a server for the consumers of a group and the oldest jobs that each holds, at most `max`.
    /// A stream or group that does not exist has none.
    ///
    /// # Errors
    /// The server does not answer or refuses, or the key is not a stream.
    pub fn read(
        server: Server,
        stream: &str,
        group: &str,
        max: usize,
    ) -> Result<Vec<(ConsumerStat, Vec<HeldJob>)>, Error> {
        let mut wire = Wire::new(server);
        let mut of_group = redis::cmd("XINFO");
        of_group.arg("CONSUMERS").arg(stream).arg(group);
        let found = ask(&mut wire, &[of_group])?;
        for reply in &found {
            // A group or a stream that does not exist is an error reply too.
            let fault = Fault::in_reply(reply, &wire.name());
            let exists = |fault: &Fault| {
                fault.remedy != Remedy::MakeGroup
                    && !fault.error.to_string().contains("no such key")
            };
            if let Some(fault) = fault.filter(exists) {
                return Err(fault.error);
            }
        }
        let found = found.first().map(consumers).unwrap_or_default();
        found
            .into_iter()
            .map(|consumer| {
                let jobs = match consumer.pending {
                    0 => Vec::new(),
                    _ => held(&mut wire, stream, group, &consumer.name, max)?,
                };
                Ok((consumer, jobs))
            })
            .collect()
    }
}

/// The oldest jobs of a consumer.
fn held(
    wire: &mut Wire,
    stream: &str,
    group: &str,
    consumer: &str,
    max: usize,
) -> Result<Vec<HeldJob>, Error> {
    let mut pending = redis::cmd("XPENDING");
    pending.arg(stream).arg(group).arg("-").arg("+").arg(max).arg(consumer);
    let reply = ask(wire, &[pending])?.pop().unwrap_or_default();
    let Value::Array(rows) = reply else { return Ok(Vec::new()) };
    let mut places = Vec::new();
    for row in &rows {
        let Value::Array(row) = row else { continue };
        let [Value::BulkString(entry), _, Value::Int(idle_ms), Value::Int(deliveries)] = &row[..]
        else {
            continue;
        };
        let entry = String::from_utf8_lossy(entry).into_owned();
        let idle = Duration::from_millis(idle_ms.unsigned_abs());
        // In quarantine this number is no count.
        let deliveries = if consumer == QUARANTINE { 0 } else { deliveries.unsigned_abs() };
        places.push((entry, idle, Deliveries::read(deliveries)));
    }
    let about = |(entry, ..): &(String, Duration, Deliveries)| {
        let mut command = call(&SCRIPTS.letters, &[stream]);
        command.arg(entry).arg(entry).arg(1).arg(1).arg(VALUE_MAX);
        command
    };
    let commands: Vec<Cmd> = places.iter().map(about).collect();
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let replies = ask(wire, &commands)?;
    let job = |(reply, (entry, idle, deliveries)): (Value, (String, Duration, Deliveries))| {
        let fields = entry_of(reply);
        HeldJob {
            entry,
            idle,
            deliveries: deliveries.deliveries,
            begun: deliveries.begun,
            // An entry may end between the two questions.
            age: fields.as_ref().map_or(Duration::ZERO, |fields| fields.age),
            attempts: fields
                .as_ref()
                .map_or(0, |of| if of.entry.is_some() { of.attempts } else { 0 }),
            handler: fields.as_ref().and_then(|fields| fields.handler.clone()),
            id: fields.and_then(|fields| fields.id),
        }
    };
    Ok(replies.into_iter().zip(places).map(job).collect())
}

fn entry_of(reply: Value) -> Option<crate::dead::DeadLetter> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Int(now_ms), Value::Array(mut list)] = <[Value; 2]>::try_from(parts).ok()? else {
        return None;
    };
    read_entry(list.pop()?, now_ms.cast_unsigned())
}

fn ask(wire: &mut Wire, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
    wire.ask(commands).map_err(|fault| fault.error)
}
