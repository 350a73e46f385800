//! The reader of a shard: fetches entries while the consumer has room for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::group::make_groups;
use super::link::Link;
use crate::fault::{Fault, Remedy};
use crate::job::{Entry, EntryId, Fields};
use crate::policy::Deliveries;
use crate::report::pause;
use crate::safety::LOOK_EVERY;
use crate::scripts::ms;
use crate::wire::Wire;

/// How long a read waits on the server. A stop takes so long at most.
pub(super) const BLOCK: Duration = Duration::from_millis(500);
/// One read in so many begins with the last stream.
const LAST_FIRST: u64 = 16;
/// Entries of one read.
const READ_MAX: usize = 1_000;
/// The delay before another look at a server that has not answered one.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Entries of this consumer that are looked through after a fault.
const ORPHANS_MAX: usize = 10_000;

/// The thread of the reader.
pub(super) fn run(link: &Arc<Link>, mut wire: Wire) {
    let faults = link.shared.faults.of_thread();
    let mut reads = 0;
    let mut connects = wire.connects();
    let mut next_look = Instant::now() + LOOK_EVERY;
    while !link.shared.is_stopping() {
        if Instant::now() >= next_look {
            // A fault is met again, and reported, by the next read.
            let looked = super::look(link, &mut wire, false);
            let wait = if looked.is_ok() { LOOK_EVERY } else { LOOK_AGAIN };
            next_look = Instant::now() + wait;
            continue;
        }
        let room = link.shared.wait_for_room(BLOCK);
        if room == 0 {
            continue;
        }
        reads += 1;
        let outcome = if connects != wire.connects() || link.must_seek_orphans() {
            let found = seek_orphans(link, &mut wire);
            match &found {
                Ok(()) => {
                    connects = wire.connects();
                    // It may lead to another server.
                    next_look = Instant::now();
                }
                Err(_) => link.seek_orphans(),
            }
            found
        } else {
            read(link, &mut wire, room.min(READ_MAX), reads)
        };
        match outcome {
            Ok(()) => faults.succeeded(&wire.name()),
            Err(fault) => {
                link.shared.tally.faults(1);
                let delay = faults.failed(&fault);
                if fault.remedy == Remedy::MakeGroup && make_groups(link, &mut wire).is_ok() {
                    continue;
                }
                pause(delay, || link.shared.is_stopping());
            }
        }
    }
}

/// Reads up to `room` entries: of the first stream that has any, or of the first to get one.
fn read(link: &Arc<Link>, wire: &mut Wire, room: usize, reads: u64) -> Result<(), Fault> {
    let count = link.streams.len();
    let mut left = room;
    if count > 1 {
        for nth in 0..count {
            let stream = if reads.is_multiple_of(LAST_FIRST) { count - 1 - nth } else { nth };
            let reply = wire.ask_one(command(link, &[stream], left, None))?;
            left = left.saturating_sub(admit(link, reply));
            if left == 0 {
                return Ok(());
            }
        }
        if left < room {
            return Ok(());
        }
    }
    let all: Vec<usize> = (0..count).collect();
    let blocking = command(link, &all, room.div_ceil(count), Some(BLOCK));
    let mut replies = wire.ask_blocking(&[blocking], BLOCK)?;
    let reply = replies.pop().unwrap_or_default();
    if let Some(fault) = Fault::in_reply(&reply, &wire.name()) {
        return Err(fault);
    }
    admit(link, reply);
    Ok(())
}

fn command(link: &Link, streams: &[usize], count: usize, block: Option<Duration>) -> Cmd {
    let mut command = redis::cmd("XREADGROUP");
    command.arg("GROUP").arg(&link.shared.config.group).arg(&link.shared.consumer);
    command.arg("COUNT").arg(count);
    if let Some(block) = block {
        command.arg("BLOCK").arg(block.as_millis() as u64);
    }
    command.arg("STREAMS");
    streams.iter().for_each(|&stream| {
        command.arg(&*link.streams[stream].0);
    });
    streams.iter().for_each(|_| {
        command.arg(">");
    });
    command
}

/// Admits the entries of a reply to XREADGROUP, and returns their number.
fn admit(link: &Arc<Link>, reply: Value) -> usize {
    let Value::Array(streams) = reply else { return 0 };
    let mut count = 0;
    for of_stream in streams {
        let Value::Array(of_stream) = of_stream else { continue };
        let Ok([Value::BulkString(name), Value::Array(list)]) = <[Value; 2]>::try_from(of_stream)
        else {
            continue;
        };
        let Some(stream) = link.streams.iter().position(|(known, _)| known.as_bytes() == name)
        else {
            continue;
        };
        let entries: Vec<Entry> = list.into_iter().filter_map(|entry| first(entry, 1)).collect();
        count += entries.len();
        link.admit(stream, entries);
    }
    count
}

/// An entry from its id and its fields.
fn first(entry: Value, counter: u64) -> Option<Entry> {
    let Value::Array(parts) = entry else { return None };
    let mut parts = parts.into_iter();
    let (Some(Value::BulkString(id)), fields) = (parts.next(), parts.next()) else { return None };
    let fields = match fields {
        Some(Value::Array(list)) => Fields::take(list),
        // The entry was deleted while it was pending.
        _ => return None,
    };
    Some(Entry { id: EntryId::parse(&id)?, of: Deliveries::read(counter), fields })
}

/// Admits entries that the server has delivered to this consumer in a reply that was lost. Entries
/// that look idle are left to RECLAIM: this consumer may have handed them back, and any other may
/// take them over at once.
fn seek_orphans(link: &Arc<Link>, wire: &mut Wire) -> Result<(), Fault> {
    let heartbeat_ms = ms(link.shared.config.heartbeat);
    for (stream, (name, _)) in link.streams.iter().enumerate() {
        // Before the question: an entry that is committed meanwhile is no orphan.
        let known = link.held_of(stream);
        let mut pending = redis::cmd("XPENDING");
        pending.arg(&**name).arg(&link.shared.config.group).arg("-").arg("+").arg(ORPHANS_MAX);
        let reply = wire.ask_one(pending.arg(&link.shared.consumer).clone())?;
        let Value::Array(rows) = reply else { continue };
        let mut orphans = Vec::new();
        for row in rows {
            let Value::Array(row) = row else { continue };
            let [Value::BulkString(id), _, Value::Int(idle_ms), Value::Int(deliveries)] = &row[..]
            else {
                continue;
            };
            if u64::try_from(*idle_ms).is_ok_and(|idle_ms| idle_ms >= heartbeat_ms) {
                continue;
            }
            let Some(id) = EntryId::parse(id) else { continue };
            if !known.contains(&id) && !link.is_held(&(stream, id)) {
                orphans.push((id, deliveries.cast_unsigned()));
            }
        }
        for (id, deliveries) in orphans {
            let mut range = redis::cmd("XRANGE");
            let id = id.to_string();
            let Value::Array(found) = wire.ask_one(range.arg(&**name).arg(&id).arg(&id).clone())?
            else {
                continue;
            };
            let entries: Vec<Entry> =
                found.into_iter().filter_map(|entry| first(entry, deliveries)).collect();
            link.admit(stream, entries);
        }
    }
    Ok(())
}

/// The entries of a reclaim: each with its deliveries.
pub(super) fn reclaimed(list: Vec<Value>) -> Vec<Entry> {
    let entries = list.into_iter().filter_map(|entry| {
        let Value::Array(parts) = entry else { return None };
        let [id, deliveries, fields] = <[Value; 3]>::try_from(parts).ok()?;
        let Value::Int(deliveries) = deliveries else { return None };
        first(Value::Array(vec![id, fields]), deliveries.cast_unsigned())
    });
    entries.collect()
}
