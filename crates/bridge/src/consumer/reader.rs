//! The reader of a shard: fetches entries while the consumer has room for them.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::delivered::Delivered;
use super::group::make_groups;
use super::link::Link;
use super::memory::Share;
use crate::fault::{Fault, Remedy};
use crate::job::EntryId;
use crate::policy::Reads;
use crate::report::pause;
use crate::resp::{Head, Replies, malformed};
use crate::scripts::ms;
use crate::wire::{MayGo, Wire};

/// How long a read waits on the server, and at most delays a stop.
pub(super) const BLOCK: Duration = Duration::from_millis(500);
/// Every how many reads one begins with the last stream.
const LAST_FIRST: u64 = 16;
/// The delay before another look at a server that has not answered one, or is refused.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Entries of this consumer that are looked through after a fault.
const ORPHANS_MAX: usize = 10_000;
/// Those that are asked for in one exchange at most.
const ORPHANS_AT_ONCE: usize = 50;

/// The thread of the reader.
pub(super) fn run(link: &Arc<Link>, mut wire: Wire) {
    let faults = link.shared.faults.of_thread();
    let (mut reads, mut sizes) = (0, Reads::default());
    let mut connects = wire.connects();
    // Where the server was asked last whether it may forget jobs.
    let (mut looked_on, is_strict) = (wire.connects(), link.shared.config.strict);
    let look_every = link.shared.config.look_every;
    let mut next_look = Instant::now() + look_every;
    let mut has_answered = true;
    while !link.shared.is_stopping() {
        if Instant::now() >= next_look || (link.refusal.is_doubted() && has_answered) {
            let doubts = link.refusal.doubts();
            let looked = super::look(link, &mut wire, false);
            match &looked {
                Ok(forgets) => {
                    let shared = &link.shared;
                    let refuses = *forgets && shared.config.strict;
                    link.refusal.set(refuses, &doubts, &link.streams[0].0, &shared.reporter);
                }
                Err(fault) if link.refusal.is_on() => _ = faults.failed(fault),
                // It is met again, and reported, by the next read.
                Err(_) => {}
            }
            has_answered = looked.is_ok();
            if has_answered {
                looked_on = wire.connects();
            }
            let is_done = has_answered && !link.refusal.is_on();
            next_look = Instant::now() + if is_done { look_every } else { LOOK_AGAIN };
            continue;
        }
        if link.refusal.is_on() {
            pause(next_look.saturating_duration_since(Instant::now()), || {
                link.shared.is_stopping()
            });
            continue;
        }
        let room = link.shared.wait_for_room(link, BLOCK);
        if room == 0 {
            continue;
        }
        reads += 1;
        // A connection may be made anew for a command: then the server is another one, perhaps.
        let may_go = |_: usize, on: u64| !is_strict || on == looked_on;
        let is_in_reply = Cell::new(false);
        let outcome = if connects != wire.connects() || link.must_seek_orphans() {
            let at_once = sizes.count(ORPHANS_AT_ONCE);
            let found = seek_orphans(link, &mut wire, at_once, &is_in_reply, &may_go);
            match &found {
                Ok(()) if may_go(0, wire.connects()) => {
                    connects = wire.connects();
                    // It may lead to another server.
                    next_look = Instant::now();
                }
                _ => link.seek_orphans(),
            }
            found
        } else {
            let asked = sizes.count(room);
            let refused = link.shared.memory.refused();
            read(link, &mut wire, asked, reads, &is_in_reply, &may_go).map(|came| {
                sizes.read(asked, came, link.shared.memory.refused() == refused);
            })
        };
        if !may_go(0, wire.connects()) {
            link.doubt();
        }
        match outcome {
            Ok(()) => faults.succeeded(&wire.name()),
            // The end of its time is no fault of the server.
            Err(_) if link.reading.are_over() => return,
            Err(fault) => {
                link.doubt();
                link.shared.tally.faults(1);
                if is_in_reply.get() {
                    sizes.was_cut();
                }
                let delay = faults.failed(&fault);
                if fault.remedy == Remedy::MakeGroup && make_groups(link, &mut wire).is_ok() {
                    continue;
                }
                pause(delay, || link.shared.is_stopping());
            }
        }
    }
}

/// Reads up to `room` entries: of the first stream that has any, or of the first to get one. Returns
/// their number. After an error it is known whether a part of a reply had arrived.
fn read(
    link: &Arc<Link>,
    wire: &mut Wire,
    room: usize,
    reads: u64,
    is_in_reply: &Cell<bool>,
    may_go: &MayGo<'_>,
) -> Result<usize, Fault> {
    let count = link.streams.len();
    let mut left = room;
    if count > 1 {
        for nth in 0..count {
            let stream = if reads.is_multiple_of(LAST_FIRST) { count - 1 - nth } else { nth };
            let of = command(link, &[stream], left, None);
            let fetched = fetch(link, wire, of, Duration::ZERO, is_in_reply, may_go)?;
            left = left.saturating_sub(fetched);
            if left == 0 {
                return Ok(room);
            }
        }
        if left < room {
            return Ok(room - left);
        }
    }
    let all: Vec<usize> = (0..count).collect();
    let blocking = command(link, &all, room.div_ceil(count), Some(BLOCK));
    let begun = Instant::now();
    let fetched = fetch(link, wire, blocking, BLOCK, is_in_reply, may_go)?;
    let waited = begun.elapsed();
    if fetched == 0 && waited < BLOCK / 2 && may_go(0, wire.connects()) {
        // The server has not waited, and would be asked without a pause.
        pause(BLOCK.saturating_sub(waited), || link.shared.is_stopping());
    }
    Ok(fetched)
}

/// Sends a command to read entries, admits those that it delivers, and returns their number.
fn fetch(
    link: &Arc<Link>,
    wire: &mut Wire,
    of: Cmd,
    block: Duration,
    is_in_reply: &Cell<bool>,
    may_go: &MayGo<'_>,
) -> Result<usize, Fault> {
    let mut count = 0;
    let mut replies =
        wire.ask_bound(&[of], block, may_go, &mut |_, replies| match replies.head()? {
            Head::Whole(value @ (Value::Nil | Value::ServerError(_))) => Ok(value),
            Head::Array(streams) => {
                is_in_reply.set(true);
                for _ in 0..streams {
                    count += receive(link, replies)?;
                }
                is_in_reply.set(false);
                Ok(Value::Nil)
            }
            _ => Err(malformed("no streams")),
        })?;
    let reply = replies.pop().unwrap_or_default();
    Fault::in_reply(&reply, &wire.name()).map_or(Ok(count), Err)
}

/// Admits the entries of a stream: its name and they are the next values.
fn receive(link: &Arc<Link>, replies: &mut Replies<'_>) -> io::Result<usize> {
    let _name_and_entries = replies.array()?;
    let Value::BulkString(name) = replies.value()? else {
        return Err(malformed("the name of a stream"));
    };
    let stream = link.streams.iter().position(|(known, _)| known.as_bytes() == name);
    let delivered = match stream {
        Some(stream) => Delivered::kept_alive(link, stream),
        None => Delivered::new(&link.shared, Share::Reader),
    };
    let count = replies.array()?;
    delivered.read(replies, count, 1, |found| {
        if let Some(stream) = stream {
            link.admit(stream, found);
        }
    })?;
    Ok(count)
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

/// Admits entries that the server has delivered to this consumer in a reply that was lost. Entries
/// that look idle are left to RECLAIM: this consumer may have handed them back, and any other may
/// take them over at once. The others may end meanwhile too: their runs begin when the server says
/// that this consumer owns them.
fn seek_orphans(
    link: &Arc<Link>,
    wire: &mut Wire,
    at_once: usize,
    is_in_reply: &Cell<bool>,
    may_go: &MayGo<'_>,
) -> Result<(), Fault> {
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
        for orphans in orphans.chunks(at_once) {
            if link.shared.is_stopping() {
                return Ok(());
            }
            let range = |(id, _): &(EntryId, u64)| {
                let id = id.to_string();
                redis::cmd("XRANGE").arg(&**name).arg(&id).arg(&id).clone()
            };
            let ranges: Vec<Cmd> = orphans.iter().map(range).collect();
            wire.ask_bound(&ranges, Duration::ZERO, may_go, &mut |nth, replies| {
                let deliveries = orphans[nth].1;
                let count = match replies.head()? {
                    Head::Array(count) => count,
                    Head::Whole(value) => return Ok(value),
                    other => return replies.skip(other).map(|()| Value::Nil),
                };
                let mut delivered = Delivered::kept_alive(link, stream);
                delivered.are_orphans = true;
                is_in_reply.set(true);
                delivered.read(replies, count, deliveries, |found| link.admit(stream, found))?;
                is_in_reply.set(false);
                Ok(Value::Nil)
            })?;
        }
    }
    Ok(())
}
