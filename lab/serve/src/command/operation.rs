//! Operations on one key, executed under the lock of the key's owner. A command consists of one or
//! more operations.

use std::time::{SystemTime, UNIX_EPOCH};

use super::check::{SHOWN_MAX, cut};
use crate::buffer::Buffer;
use crate::keyspace::{AddError, Condition, Expiry, Keyspace, OutOfMemory};
use crate::resp::reply::{self, Version};
use crate::resp::{Args, number};

/// One operation on one key. Its arguments are the command's arguments from the key on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Set,
    Incr,
    /// As `Incr`, with the summand as an argument.
    Incrby,
    Expire,
    Ttl,
    /// One key and value of `MSET`.
    Put,
    /// One key of `DEL`.
    Remove,
    /// One key of `EXISTS`.
    Contains,
    /// Removes all keys of the thread; has no key. Its caller clears the keyspace, and frees the
    /// removed keys without the lock.
    Clear,
    /// Returns the bare value, which `DIGEST` then hashes.
    Fetch,
}

impl Operation {
    /// Whether it writes a reply. Other operations only count towards the reply of their command.
    pub(crate) fn has_reply(self) -> bool {
        !matches!(self, Self::Put | Self::Remove | Self::Contains | Self::Clear)
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its reply is written.
    Replied,
    /// Whether it counts towards the command's reply.
    Counted(bool),
    /// There was no memory for it, and nothing was written.
    OutOfMemory,
}

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";
pub(crate) const OVERFLOW: &str = "ERR increment or decrement would overflow";
const INCOMPATIBLE: &[u8] = b" options at the same time are not compatible";
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The environment of an operation: the keys, the time and the reply buffer.
pub(crate) struct Place<'a> {
    pub(crate) keys: &'a mut Keyspace,
    pub(crate) now: u64,
    pub(crate) version: Version,
}

impl Place<'_> {
    /// Executes the operation, and writes its reply if it has a reply.
    #[inline]
    pub(crate) fn perform(
        &mut self,
        operation: Operation,
        hash: u64,
        args: Args<'_>,
        reply: &mut Buffer,
    ) -> Outcome {
        let (key, now, version) = (args.at(0), self.now, self.version);
        let out = &mut reply.bytes;
        match operation {
            Operation::Get => match self.keys.get(hash, key, now) {
                Some(value) => bulk(reply, value),
                None => reply::null(out, version),
            },
            Operation::Set => self.set(hash, args, out),
            Operation::Incr => self.add((hash, key), 1, out),
            Operation::Incrby => match number::parse(args.at(1)) {
                Some(summand) => self.add((hash, key), summand, out),
                None => reply::error(out, NOT_A_NUMBER),
            },
            Operation::Expire => self.expire((hash, key), args.from(1), out),
            Operation::Ttl => reply::integer(out, self.ttl(hash, key)),
            Operation::Put => {
                let expiry = Expiry::Never;
                let set = self.keys.set((hash, key), args.at(1), expiry, Condition::Always, now);
                return match set {
                    Ok(_) => Outcome::Counted(true),
                    Err(OutOfMemory) => Outcome::OutOfMemory,
                };
            }
            Operation::Remove => return Outcome::Counted(self.keys.remove(hash, key, now)),
            Operation::Contains => {
                return Outcome::Counted(self.keys.get(hash, key, now).is_some());
            }
            Operation::Fetch => match self.keys.get(hash, key, now) {
                Some(value) if reply.append(value).is_err() => return Outcome::OutOfMemory,
                Some(_) => {}
                None => return Outcome::Counted(false),
            },
            Operation::Clear => unreachable!("its caller clears the keyspace"),
        }
        Outcome::Replied
    }

    fn set(&mut self, hash: u64, args: Args<'_>, out: &mut Vec<u8>) {
        let SetOptions { expiry, condition } = match SetOptions::parse(args.from(2), self.now) {
            Ok(options) => options,
            Err(wrong) => return reply::error(out, wrong),
        };
        match self.keys.set((hash, args.at(0)), args.at(1), expiry, condition, self.now) {
            Ok(true) => reply::simple(out, "OK"),
            Ok(false) => reply::null(out, self.version),
            Err(OutOfMemory) => reply::error(out, OUT_OF_MEMORY),
        }
    }

    fn add(&mut self, key: (u64, &[u8]), summand: i64, out: &mut Vec<u8>) {
        match self.keys.add(key, summand, self.now) {
            Ok(sum) => reply::integer(out, sum),
            Err(AddError::NotANumber) => reply::error(out, NOT_A_NUMBER),
            Err(AddError::Overflow) => reply::error(out, OVERFLOW),
            Err(AddError::OutOfMemory) => reply::error(out, OUT_OF_MEMORY),
        }
    }

    fn expire(&mut self, (hash, key): (u64, &[u8]), args: Args<'_>, out: &mut Vec<u8>) {
        let (options, now) = (ExpireOptions::parse(args.from(1)), self.now);
        let options = match options {
            Ok(options) => options,
            Err(wrong) => return reply::error_of(out, &wrong),
        };
        let Some(seconds) = number::parse(args.at(0)) else {
            return reply::error(out, NOT_A_NUMBER);
        };
        let time = match seconds {
            1.. => deadline(seconds, 1000, now),
            // Not in the future: time 0 is before every `now`, so the key is removed below.
            _ => seconds.checked_mul(1000).map(|_| 0),
        };
        let Some(time) = time else { return reply::error(out, invalid_expire("expire")) };
        let before = self.keys.expiry(hash, key, now);
        let changes = before.is_some_and(|before| options.allow(before, time));
        if changes && time == 0 {
            self.keys.remove(hash, key, now);
        } else if changes {
            self.keys.set_expiry((hash, key), Expiry::At(time), now);
        }
        reply::integer(out, i64::from(changes));
    }

    /// The remaining seconds, rounded; -1 if the key does not expire, -2 if it does not exist.
    fn ttl(&mut self, hash: u64, key: &[u8]) -> i64 {
        match self.keys.expiry(hash, key, self.now) {
            None => -2,
            Some(Expiry::Never) => -1,
            // A deadline is less than 2^63 ms away (`deadline`).
            Some(Expiry::At(time)) => ((time - self.now + 500) / 1000) as i64,
        }
    }
}

/// Writes a value, if there is memory to send it.
pub(crate) fn bulk(reply: &mut Buffer, value: &[u8]) {
    match reply.make_room(value.len() + reply::AROUND) {
        Ok(()) => reply::bulk(&mut reply.bytes, value),
        Err(OutOfMemory) => reply::error(&mut reply.bytes, OUT_OF_MEMORY),
    }
}

/// Frees cleared keys, on a worker if they are many: that takes long, and no client should wait for
/// it. The caller has released the lock of the keyspace.
pub(crate) fn free_cleared(keys: Keyspace) {
    const FEW: usize = 1_000;
    if keys.len() > FEW {
        // Detached: the handle is dropped, and no thread waits for the item.
        drop(uwork::system::dfl().spawn(move || drop(keys)));
    }
}

fn invalid_expire(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

/// The time `count` units from now, if both it and the matching wall-clock time fit into an `i64`.
/// Redis requires the latter.
fn deadline(count: i64, unit_ms: i64, now: u64) -> Option<u64> {
    let after = count.checked_mul(unit_ms).filter(|&after| after > 0)?;
    if after > i64::MAX / 2 {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        after.checked_add(i64::try_from(clock.as_millis()).ok()?)?;
    }
    let time = after.checked_add(i64::try_from(now).ok()?)?;
    u64::try_from(time).ok()
}

#[derive(Debug)]
struct SetOptions {
    expiry: Expiry,
    condition: Condition,
}

impl SetOptions {
    fn parse(args: Args<'_>, now: u64) -> Result<Self, String> {
        let mut options = Self { expiry: Expiry::Never, condition: Condition::Always };
        // As in Redis, an option may be repeated, and the last occurrence wins.
        let mut time: Option<(i64, &[u8])> = None;
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            let unit_ms = if is("ex") { 1000 } else { 1 };
            let has_other_unit = time.is_some_and(|(unit, _)| unit != unit_ms);
            match options.condition {
                Condition::Always | Condition::Absent if is("nx") => {
                    options.condition = Condition::Absent;
                }
                Condition::Always | Condition::Present if is("xx") => {
                    options.condition = Condition::Present;
                }
                _ if (is("ex") || is("px")) && !has_other_unit => {
                    let count = rest.next().ok_or_else(|| SYNTAX.to_owned())?;
                    time = Some((unit_ms, count));
                }
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        if let Some((unit_ms, count)) = time {
            let count = number::parse(count).ok_or_else(|| NOT_A_NUMBER.to_owned())?;
            let time = deadline(count, unit_ms, now);
            options.expiry = Expiry::At(time.ok_or_else(|| invalid_expire("set"))?);
        }
        Ok(options)
    }
}

/// The condition under which `EXPIRE` changes a key's expiry.
#[derive(Debug, Default)]
struct ExpireOptions {
    /// Only if the key has no expiry: `NX`.
    none: bool,
    /// Only if the key has an expiry: `XX`.
    any: bool,
    /// Only to a later time: `GT`.
    later: bool,
    /// Only to an earlier time: `LT`.
    earlier: bool,
}

impl ExpireOptions {
    /// Parses the options; the error is the text of the reply.
    fn parse(args: Args<'_>) -> Result<Self, [&[u8]; 2]> {
        let mut options = Self::default();
        for option in args.iter() {
            let Self { none, any, later, earlier } = &mut options;
            let flags = [("nx", none), ("xx", any), ("gt", later), ("lt", earlier)];
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            match flags.into_iter().find(|(name, _)| is(name)) {
                Some((_, flag)) => *flag = true,
                None => return Err([b"ERR Unsupported option ", cut(option, SHOWN_MAX)]),
            }
        }
        let Self { none, any, later, earlier } = options;
        match (none && (any || later || earlier), later && earlier) {
            (true, _) => Err([b"ERR NX and XX, GT or LT", INCOMPATIBLE]),
            (_, true) => Err([b"ERR GT and LT", INCOMPATIBLE]),
            _ => Ok(options),
        }
    }

    /// Whether the expiry may change to `time`. `Never` is later than any time.
    fn allow(&self, before: Expiry, time: u64) -> bool {
        match before {
            Expiry::Never => !self.any && !self.later,
            Expiry::At(before) => {
                !self.none && (!self.later || time > before) && (!self.earlier || time < before)
            }
        }
    }
}
