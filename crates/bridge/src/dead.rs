//! Dead letters: to look at, to replay, to remove. Each is settled in one step of the server.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::config::placed;
use crate::fault::{Error, ErrorKind, Fault};
use crate::job::{EntryId, Fields};
use crate::keys::{Keys, shard_of};
use crate::process::Process;
use crate::producer::route;
use crate::scripts::{SCRIPTS, call, ms};
use crate::server::Server;
use crate::wire::Wire;

/// Letters that one script looks at, so that the server is not busy for long.
const BATCH_MAX: usize = 500;
/// Bytes of the fields that one script looks at: it ends with the letter that exceeds them.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The longest string of a server.
const VALUE_MAX: usize = 512 << 20;

/// KEYS dead; ARGV from to count bytes_max value_max: letters in the order of their numbers, at most
/// `count`, and no further ones once their fields have `bytes_max` bytes. Values are cut to
/// `value_max` bytes. Returns the server's time, and for each letter its number, the bytes of its
/// payload, and the names and values of its fields.
pub(crate) const LETTERS: &str = r"
local cut = tonumber(ARGV[5])
local known = {p = cut, h = cut, i = cut, k = cut, e = cut, n = 64, o = 64, q = 64, g = cut}
local letters, at, bytes = {}, ARGV[1], 0
while #letters < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) do
  local found = redis.call('XRANGE', KEYS[1], at, ARGV[2], 'COUNT', 1)
  if #found == 0 then break end
  local letter, words = {found[1][1], 0}, found[1][2]
  for i = 1, #words, 2 do
    local name, value = words[i], words[i + 1]
    bytes = bytes + #name + #value
    if name == 'p' then letter[2] = #value end
    if known[name] then
      letter[#letter + 1] = name
      letter[#letter + 1] = value:sub(1, known[name])
    end
  end
  letters[#letters + 1] = letter
  at = '(' .. found[1][1]
end
return {now_ms(), letters}
";

/// KEYS dead stream; ARGV from to count bytes_max marks window_ms is_replay: replays or removes
/// letters in the order of their numbers, at most `count`, and no further ones once their fields have
/// `bytes_max` bytes. A replay adds the job to the stream with no failed attempt; the mark of its id,
/// if it is over, begins again. A removal ends that mark, so that the id may be pushed again. A replay
/// leaves letters where they are that are no jobs.
///
/// A replay of an entry in quarantine lets any consumer take it over, with all attempts left. A removal
/// acknowledges it, and deletes it if no other group needs it.
///
/// `to` is `+` in the first call, and then what that call has returned: the last letter that existed
/// then. Returns how many it has settled, how many it has left, the last it has looked at, `to`, and the
/// ids whose marks it has renewed.
pub(crate) const SETTLE: &str = r"
-- No entry has this number. A right that is missing is met here, before a job has two places.
redis.call('XDEL', KEYS[1], '0-1')
local is_replay = ARGV[7] == '1'
-- Whether a letter names an entry in quarantine. Entries of other programs may have these fields too.
local function is_kept(group, id)
  if not (group and id) then return false end
  needs('XPENDING', KEYS[2], group)
  local is_read, found = pcall(owned, KEYS[2], group, keeper, id)
  return is_read and found
end
local function remove(group, id)
  needs('XACK', KEYS[2], group, id)
  ended(KEYS[2], group, id, '0')
end
local from, to, bytes = ARGV[1], ARGV[2], 0
if to == '+' then
  to = '0-1'
  local about = redis.pcall('XINFO', 'STREAM', KEYS[1])
  if about.err and not about.err:find('no such key', 1, true) then error(about) end
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then to = about[i + 1] end
  end
end
local settled, left, last, ids = 0, 0, '', {}
while settled + left < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) do
  local found = redis.call('XRANGE', KEYS[1], from, to, 'COUNT', 1)
  if #found == 0 then break end
  local words, fields, of = found[1][2], {}, {}
  last = found[1][1]
  for i = 1, #words, 2 do
    local name, value = words[i], words[i + 1]
    bytes = bytes + #name + #value
    of[name] = value
    if not made[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  stay_in_group(fields, of)
  local kept = is_kept(of.g, of.q)
  if is_replay and not kept and not (of.p and of.n and #fields <= words_max + 20) then
    left = left + 1
  else
    if kept and is_replay then
      release(KEYS[2], of.g, of.q)
    elseif kept then
      remove(of.g, of.q)
    elseif is_replay then
      redis.call('XADD', KEYS[2], '*', unpack(fields))
    end
    redis.call('XDEL', KEYS[1], last)
    -- A mark that cannot be written keeps no job from its place.
    if of.i and is_replay and ARGV[6] ~= '0' then
      redis.pcall('SET', ARGV[5] .. of.i, last, 'NX', 'PX', ARGV[6])
      ids[#ids + 1] = of.i
    elseif of.i and not is_replay then
      redis.pcall('SET', ARGV[5] .. of.i, '', 'PXAT', 1)
    end
    settled = settled + 1
  end
  from = '(' .. last
end
return {settled, left, last, to, ids}
";

/// A job that has failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its number in the dead-letter stream.
    pub number: String,
    /// The producer's id, if it gave one.
    pub id: Option<String>,
    /// The handler, if the producer named one.
    pub handler: Option<String>,
    /// The key that chose the shard, if the producer gave one.
    pub key: Option<String>,
    /// The number of its first entry in the stream: a retry adds another.
    pub entry: Option<String>,
    /// The group that has failed, if the stream had others: a replay runs it for this one.
    pub group: Option<String>,
    /// The attempts that have failed.
    pub attempts: u32,
    /// Why: the last error.
    pub error: String,
    /// The entry of the stream that has the job, if that has too many fields to be moved. It is in
    /// quarantine: no consumer runs it. A replay ends that, and a removal removes the entry.
    pub quarantine: Option<String>,
    /// The time since it became a dead letter, by the server's clock.
    pub age: Duration,
    /// The payload. [`DeadLetters::page`] cuts it.
    pub payload: Vec<u8>,
    /// The bytes of the whole payload.
    pub payload_bytes: u64,
}

/// How many letters were settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Replayed or removed.
    pub settled: u64,
    /// Left where they are: a replay moves only jobs, and no letter of more than 7000 words.
    pub left: u64,
}

impl Settled {
    fn and(self, other: Settled) -> Settled {
        Settled { settled: self.settled + other.settled, left: self.left + other.left }
    }
}

/// The dead letters of one stream, or of one shard of a stream ([`DeadLetters::of_shards`]). In a
/// forked child it makes a connection of its own.
///
/// ```no_run
/// # fn main() -> Result<(), uwork_bridge::Error> {
/// use uwork_bridge::{DeadLetters, Server};
/// let mut letters = DeadLetters::new(Server::new("redis://127.0.0.1")?, "jobs");
/// for letter in letters.page(None, 10, 100)? {
///     println!("{}: {}", letter.number, letter.error);
/// }
/// letters.replay_all()?;
/// # Ok(())
/// # }
/// ```
pub struct DeadLetters {
    wire: Wire,
    /// That of the connection.
    process: Process,
    keys: Keys,
    window: Duration,
    /// All shards of the stream, and the number of this one.
    shards: Arc<[(Server, String)]>,
    shard: usize,
}

impl DeadLetters {
    /// The dead letters of a stream. It connects at the first question.
    pub fn new(server: Server, stream: &str) -> DeadLetters {
        DeadLetters::of(&[(server, stream.to_owned())].into(), 0)
    }

    /// The dead letters of each shard of a stream, dealt out to the servers as
    /// [`Config`](crate::Config) does. A replay tells the other shards where the job of an id is.
    pub fn of_shards(servers: &[Server], stream: &str, shards: u32) -> Vec<DeadLetters> {
        let shards: Arc<[(Server, String)]> = placed(servers, stream, shards).into();
        (0..shards.len()).map(|shard| DeadLetters::of(&shards, shard)).collect()
    }

    fn of(shards: &Arc<[(Server, String)]>, shard: usize) -> DeadLetters {
        let (server, stream) = &shards[shard];
        let (wire, keys) = (Wire::new(server.clone()), Keys::of(stream));
        let window = Duration::from_secs(3_600);
        let process = Process::current();
        DeadLetters { wire, process, keys, window, shards: shards.clone(), shard }
    }

    /// The time after a replay in which a second job of the id is not added; an hour if not set. A
    /// mark that is still there keeps its own time.
    #[must_use]
    pub fn window(self, window: Duration) -> DeadLetters {
        DeadLetters { window, ..self }
    }

    /// The stream.
    pub fn stream(&self) -> &str {
        &self.keys.stream
    }

    /// How many there are.
    ///
    /// # Errors
    /// The server does not answer or refuses. This holds for all calls.
    pub fn count(&mut self) -> Result<u64, Error> {
        match self.ask(redis::cmd("XLEN").arg(&self.keys.dead).clone())? {
            Value::Int(count) => Ok(count.cast_unsigned()),
            _ => Err(self.unknown()),
        }
    }

    /// The letters behind number `after`, or the first ones: at most `count`, and fewer where they
    /// are large. The last page is empty. Values are cut to `value_max` bytes, so a page needs little
    /// memory whatever the payloads.
    ///
    /// # Errors
    /// `after` is no number; and see [`DeadLetters::count`].
    pub fn page(
        &mut self,
        after: Option<&str>,
        count: usize,
        value_max: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        let from = match after {
            Some(after) => format!("({}", number(after)?),
            None => "-".to_owned(),
        };
        self.letters(&from, "+", count.min(BATCH_MAX), value_max)
    }

    /// The letter with a number, with its whole payload. None if it does not exist.
    ///
    /// # Errors
    /// It is no number; and see [`DeadLetters::count`].
    pub fn get(&mut self, of: &str) -> Result<Option<DeadLetter>, Error> {
        let number = number(of)?;
        Ok(self.letters(&number, &number, 1, VALUE_MAX)?.pop())
    }

    /// The bytes of the payload of a letter. None if the letter does not exist.
    ///
    /// # Errors
    /// As [`DeadLetters::get`].
    pub fn payload_bytes(&mut self, of: &str) -> Result<Option<u64>, Error> {
        let number = number(of)?;
        Ok(self.letters(&number, &number, 1, 0)?.pop().map(|letter| letter.payload_bytes))
    }

    /// Moves a letter back to the stream, behind the jobs that wait, in one step. Its failed attempts
    /// are forgotten. If the mark of its id is over, it begins again. False if the letter does not
    /// exist, or is no job.
    ///
    /// # Errors
    /// As [`DeadLetters::get`]. After a cut it is unknown whether the job was moved; it is in one
    /// place in any case. [`Error::settled`] counts it if it was moved, and the error is another.
    pub fn replay(&mut self, of: &str) -> Result<bool, Error> {
        self.settle_one(of, true)
    }

    /// Removes a letter, and the mark of its id: the id may be pushed again. False if the letter does
    /// not exist.
    ///
    /// # Errors
    /// As [`DeadLetters::replay`].
    pub fn remove(&mut self, of: &str) -> Result<bool, Error> {
        self.settle_one(of, false)
    }

    /// Replays all letters that exist now. Those that arrive meanwhile stay.
    ///
    /// # Errors
    /// As [`DeadLetters::count`]; [`Error::settled`] has the numbers of the letters before.
    pub fn replay_all(&mut self) -> Result<Settled, Error> {
        self.settle_all(true)
    }

    /// Removes all letters that exist now. Those that arrive meanwhile stay.
    ///
    /// # Errors
    /// As [`DeadLetters::replay_all`].
    pub fn remove_all(&mut self) -> Result<Settled, Error> {
        self.settle_all(false)
    }

    fn letters(
        &mut self,
        from: &str,
        to: &str,
        count: usize,
        value_max: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut command = call(&SCRIPTS.letters, &[&self.keys.dead]);
        command.arg(from).arg(to).arg(count).arg(BATCH_BYTES_MAX).arg(value_max);
        let reply = self.ask(command)?;
        let Value::Array(parts) = reply else { return Err(self.unknown()) };
        let Ok([Value::Int(now_ms), Value::Array(list)]) = <[Value; 2]>::try_from(parts) else {
            return Err(self.unknown());
        };
        Ok(list.into_iter().filter_map(|letter| read(letter, now_ms.cast_unsigned())).collect())
    }

    fn settle_one(&mut self, of: &str, is_replay: bool) -> Result<bool, Error> {
        let number = number(of)?;
        let (part, ..) = self.settle(&number, &number, is_replay)?;
        Ok(part.settled > 0)
    }

    fn settle_all(&mut self, is_replay: bool) -> Result<Settled, Error> {
        let mut all = Settled::default();
        let (mut from, mut to) = ("-".to_owned(), "+".to_owned());
        loop {
            let (part, last, end) = self.settle(&from, &to, is_replay).map_err(|error| {
                let text = format!("after {} letters: {error}", all.settled);
                Error::new(error.kind(), text).after_letters(all.and(error.settled()))
            })?;
            if last.is_empty() {
                return Ok(all);
            }
            all = all.and(part);
            (from, to) = (format!("({last}"), end);
        }
    }

    /// Settles a part of the letters. Returns the last that it has looked at, which is empty if none
    /// are left, and the last of all.
    fn settle(
        &mut self,
        from: &str,
        to: &str,
        is_replay: bool,
    ) -> Result<(Settled, String, String), Error> {
        let mut command = call(&SCRIPTS.settle, &[&self.keys.dead, &self.keys.stream]);
        command.arg(from).arg(to).arg(BATCH_MAX).arg(BATCH_BYTES_MAX);
        command.arg(self.keys.marks()).arg(ms(self.window)).arg(u8::from(is_replay));
        let reply = self.ask(command)?;
        let Value::Array(parts) = &reply else { return Err(self.unknown()) };
        let [Value::Int(settled), Value::Int(left), last, end, Value::Array(ids)] = &parts[..]
        else {
            return Err(self.unknown());
        };
        let (settled, left) = (settled.cast_unsigned(), left.cast_unsigned());
        self.route(ids).map_err(|error| {
            let text = format!(
                "{settled} letters were settled, but not all other shards know where their ids are: \
                 {error}"
            );
            Error::new(error.kind(), text).after_letters(Settled { settled, left })
        })?;
        Ok((Settled { settled, left }, text(last), text(end)))
    }

    /// Makes the homes of replayed ids name this shard, so that a push with another key finds their
    /// marks.
    fn route(&self, ids: &[Value]) -> Result<(), Error> {
        let count = self.shards.len();
        let mut by_home = vec![Vec::new(); count];
        for id in ids.iter().map(text) {
            // It fits: there are at most `SHARDS_MAX`.
            by_home[shard_of(&id, count as u32) as usize].push(id);
        }
        for (home, ids) in by_home.into_iter().enumerate() {
            if home == self.shard || ids.is_empty() {
                continue;
            }
            let (server, stream) = &self.shards[home];
            let keys = Keys::of(stream);
            let command = |id: &String| route(&keys, id, self.shard, count, self.window);
            let commands: Vec<Cmd> = ids.iter().map(command).collect();
            let mut wire = Wire::new(server.clone());
            let replies = wire.ask(&commands).map_err(|fault| fault.error)?;
            let fault = replies.iter().find_map(|reply| Fault::in_reply(reply, &wire.name()));
            fault.map_or(Ok(()), |fault| Err(fault.error))?;
        }
        Ok(())
    }

    fn ask(&mut self, command: Cmd) -> Result<Value, Error> {
        if self.process.is_parent() {
            let nodes = self.wire.nodes_of_child();
            self.wire.leave_parents(nodes);
            self.process = Process::current();
        }
        self.wire.ask_one(command).map_err(|fault| fault.error)
    }

    fn unknown(&self) -> Error {
        Error::new(ErrorKind::Refused, format!("{}: an unknown reply", self.wire.name()))
    }
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").field("stream", &self.keys.stream).finish_non_exhaustive()
    }
}

/// The number of a letter, as the server takes it.
fn number(of: &str) -> Result<String, Error> {
    let number = EntryId::parse(of.as_bytes()).map(|number| number.to_string());
    number.ok_or_else(|| {
        Error::config(format!("{of:?} is no number of a dead letter, as in 1764334000000-0"))
    })
}

/// A letter from its number, the bytes of its payload, and its fields. Entries of the stream itself
/// have the same ones.
pub(crate) fn read(letter: Value, now_ms: u64) -> Option<DeadLetter> {
    let Value::Array(parts) = letter else { return None };
    let mut parts = parts.into_iter();
    let (Some(number), Some(Value::Int(payload_bytes))) = (parts.next(), parts.next()) else {
        return None;
    };
    let list: Vec<Value> = parts.collect();
    let of = |name: &[u8]| {
        let is_named = |pair: &&[Value]| matches!(&pair[0], Value::BulkString(of) if of == name);
        list.chunks_exact(2).find(is_named).map(|pair| text(&pair[1]))
    };
    let (entry, quarantine) = (of(b"o"), of(b"q"));
    let quarantine = quarantine.filter(|entry| EntryId::parse(entry.as_bytes()).is_some());
    let fields = Fields::take(list);
    let number = text(&number);
    let died_ms = EntryId::parse(number.as_bytes())?.0;
    Some(DeadLetter {
        number,
        id: fields.id,
        handler: fields.handler,
        key: fields.key,
        group: fields.group,
        entry,
        attempts: fields.attempts,
        error: fields.last_error.unwrap_or_default(),
        quarantine,
        age: Duration::from_millis(now_ms.saturating_sub(died_ms)),
        payload: fields.payload.unwrap_or_default(),
        payload_bytes: payload_bytes.cast_unsigned(),
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    }
}
