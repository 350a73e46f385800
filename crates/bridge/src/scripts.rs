//! The transitions of a job that need several keys: Lua scripts, which the server runs without
//! interruption. The README has the table of transitions.
//!
//! A script that moves an entry writes its new place first. If the server refuses that write (OOM),
//! nothing has changed. The rights to all that follows are tested before: a script that fails has
//! changed nothing.

mod counter;
mod effects;
mod owned;
mod shared;

use std::sync::LazyLock;
use std::time::Duration;

use redis::Script;

use self::counter::COUNTER;
use self::effects::EFFECTS;
use self::owned::{BEAT, BEGIN, HAND_BACK, RECLAIM, SPARE};
use self::shared::SHARED;
use crate::dead::{LETTERS, SETTLE};

/// KEYS stream stats; ARGV group keep counts ids id..., then of each retry its id and its first entry:
/// acknowledges completed jobs, of which `ids` is the number. Returns how many of them were pending, and
/// how many it has counted as jobs that ran twice: of `all` of them, also if the call is sent `again`, of
/// `none`, or of those that were `missing`.
const COMPLETE: &str = r"
local done, missing, last = 0, {}, 4 + ARGV[4]
local beside = ARGV[2] == '0' and groups(KEYS[1], ARGV[1]) or {}
may_delete(KEYS[1], ARGV[2])
if #beside > 0 then needs('XPENDING', KEYS[1], ARGV[1]) end
-- Of entries that stay, only XACK says which were pending.
local is_deleted = ARGV[2] == '0' and #beside == 0
local step = is_deleted and 1000 or 1
for from = 5, last, step do
  local to = math.min(from + step - 1, last)
  local acked = redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, from, to))
  done = done + acked
  if acked == to - from + 1 then
    if is_deleted then redis.call('XDEL', KEYS[1], unpack(ARGV, from, to)) end
  else
    for i = from, to do
      if not is_deleted or redis.call('XDEL', KEYS[1], ARGV[i]) == 0 then missing[#missing + 1] = ARGV[i] end
    end
  end
end
if #beside > 0 then delete(KEYS[1], ARGV[1], {unpack(ARGV, 5, last)}) end
if done > 0 then tally(KEYS[2], 'done', done) end
if ARGV[3] == 'none' then return {done, 0} end
local twice, first = ARGV[3] == 'missing' and missing or {unpack(ARGV, 5, last)}, {}
for i = last + 1, #ARGV, 2 do first[ARGV[i]] = ARGV[i + 1] end
for i, id in ipairs(twice) do twice[i] = first[id] or id end
return {done, ran_twice(KEYS[2], ARGV[1], twice)}
";

/// KEYS stream; ARGV group keep, then of each entry its id and a group: acknowledges entries that are
/// retries of other groups. Returns those whose group does not exist: this one runs them.
const SKIP: &str = r"
local exists, skipped, gone = {}, {}, {}
for _, found in ipairs(groups(KEYS[1])) do exists[found.name] = true end
needs('XPENDING', KEYS[1], ARGV[1])
may_delete(KEYS[1], ARGV[2])
for i = 3, #ARGV, 2 do
  local list = exists[ARGV[i + 1]] and skipped or gone
  list[#list + 1] = ARGV[i]
end
for from = 1, #skipped, 1000 do
  redis.call('XACK', KEYS[1], ARGV[1], unpack(skipped, from, math.min(from + 999, #skipped)))
end
if ARGV[2] == '0' then delete(KEYS[1], ARGV[1], skipped) end
return gone
";

/// KEYS stream delayed stats dead; ARGV group consumer id keep attempt error delay_ms: moves a failed
/// job to the delayed ones, if the consumer owns it. Returns 1, or 0 if another one owns it, or 2 if
/// none does, or 3 and its letter if it cannot be moved: it is in quarantine, or 5 if another program has
/// deleted it.
const RETRY: &str = r"
if not owned(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then return others(KEYS[1], ARGV[1], ARGV[3]) end
needs('XACK', KEYS[1], ARGV[1], '0-1')
may_delete(KEYS[1], ARGV[4])
local fields, large, first = fields_of(KEYS[1], ARGV[1], ARGV[3], ARGV[5], ARGV[6])
if large then
  local reason = ARGV[6] .. '; ' .. large
  local letter = quarantine(KEYS[1], KEYS[4], ARGV[1], ARGV[3], ARGV[5], reason, first)
  tally(KEYS[3], 'dead', 1)
  return {3, letter}
end
if fields then
  local member = cmsgpack.pack({ARGV[3], fields})
  redis.call('ZADD', KEYS[2], now_ms() + ARGV[7], member)
  tally(KEYS[3], 'retries', 1)
end
ended(KEYS[1], ARGV[1], ARGV[3], ARGV[4])
return fields and 1 or 5
";

/// KEYS stream dead stats; ARGV group consumer id keep attempt error dead_max died: moves a job to the
/// dead-letter stream, if the consumer owns it. Returns as RETRY, or 1 and its letter; or 4, and changes
/// nothing, if it is buried for the deaths of its consumers (`died`) and one of them has said meanwhile
/// that it lives.
const BURY: &str = r"
local row = pending(KEYS[1], ARGV[1], ARGV[3])
if not row or row[2] ~= ARGV[2] then return row and 0 or 2 end
if ARGV[8] == '1' then
  local of = counter_of(row[4])
  if of.lives and of.begun == 0 then return 4 end
end
needs('XACK', KEYS[1], ARGV[1], '0-1')
may_delete(KEYS[1], ARGV[4])
return {bury(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])}
";

/// KEYS delayed stream dead; ARGV count: moves jobs that are due to the stream, and members that
/// are no jobs to the dead letters. Returns how many of the latter, how many neither stream takes,
/// the milliseconds until the next one is due, or -1, and why the last of those was refused. It ends
/// after 16 MiB, and reads one member at a time, since each may have a payload of any size.
const PROMOTE: &str = r"
local function fields_in(member)
  local is_packed, job = pcall(cmsgpack.unpack, member)
  local fields = is_packed and type(job) == 'table' and job[2]
  if type(fields) ~= 'table' or #fields == 0 or #fields % 2 == 1 or #fields > words_max + 20 then
    return nil
  end
  for _, field in ipairs(fields) do
    if type(field) ~= 'string' then return nil end
  end
  return fields
end
local function add(key, ...)
  local reply = redis.pcall('XADD', key, '*', ...)
  return type(reply) == 'table' and reply.err
end
local now, moved, buried, stuck, why = now_ms(), 0, 0, 0, ''
for nth = 1, tonumber(ARGV[1]) do
  local member = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
  if not member then break end
  if nth == 1 then needs('ZREM', KEYS[1], '') end
  local fields = fields_in(member)
  local said = 'it is not a delayed job of uwork'
  if fields then said = add(KEYS[2], unpack(fields)) end
  local is_letter = said and not is_state(said)
  local waits = said and not is_letter
  if is_letter then
    said = add(KEYS[3], 'p', member, 'e', said)
    -- The type of this key, or a right to it, keeps back no job.
    waits = said and passes(said) and not is_denied(said)
  end
  if waits then
    if nth == 1 then return redis.error_reply(said) end
    -- Those before have moved. The next call meets it first.
    break
  elseif said then
    redis.call('ZADD', KEYS[1], now + 60000, member)
    stuck, why = stuck + 1, said
  else
    redis.call('ZREM', KEYS[1], member)
    if is_letter then buried = buried + 1 end
  end
  moved = moved + #member
  if moved > 16777216 then break end
end
local next = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if #next == 0 then return {buried, stuck, -1, why} end
return {buried, stuck, math.max(0, math.ceil(next[2] - now)), why}
";

/// KEYS mark; ARGV route life_ms shards: names a shard for an id, unless it has a mark. Returns nil, or
/// the mark: a job of this id was pushed here, or `>N`: its job belongs to shard N. A route begins its
/// life anew, since the push that follows it may add a job. One that leads to a shard that does not
/// exist any more is replaced.
const ROUTE: &str = r"
local mark = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
if not mark or mark:sub(1, 1) ~= '>' then return mark end
if leads(mark, ARGV[3]) then
  redis.call('SET', KEYS[1], mark, 'PX', ARGV[2])
  return mark
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
";

/// KEYS stream delayed mark; ARGV window_ms delay_ms unique shards field value...: adds a job, unless
/// a job of its id was added within the window. Returns its entry, `delayed`, or nil, or `>N` if the
/// job of this id belongs to shard N, one of the first `shards`. Such a route begins its life anew.
///
/// The mark is set before the job is added, and taken back if the server refuses the job: both need
/// one right only, that to `SET`. So each refusal leaves neither a mark nor a job.
const PUSH: &str = r"
local due = ARGV[2] ~= '0' and now_ms() + ARGV[2]
if ARGV[1] ~= '0' then
  local mark = redis.call('SET', KEYS[3], ARGV[3], 'NX', 'GET', 'PX', ARGV[1])
  if mark and mark:sub(1, 1) ~= '>' then return false end
  if mark and leads(mark, ARGV[4]) then
    redis.call('SET', KEYS[3], mark, 'PX', 2 * ARGV[1])
    return mark
  end
  if mark then redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[1]) end
end
local added
if due then
  local member = cmsgpack.pack({ARGV[3], {unpack(ARGV, 5)}})
  added = redis.pcall('ZADD', KEYS[2], 'NX', due, member)
  -- Two equal members would be one job.
  if added == 0 then added = {err = 'ERR a delayed job with this number exists already'} end
else
  added = redis.pcall('XADD', KEYS[1], '*', unpack(ARGV, 5))
end
if type(added) == 'table' and added.err then
  -- A time that is over: the mark is gone at once.
  if ARGV[1] ~= '0' then redis.call('SET', KEYS[3], '', 'PXAT', 1) end
  return redis.error_reply(added.err)
end
return due and 'delayed' or added
";

/// KEYS stream dead; ARGV group idle_ms consumer keep back_ms: removes consumers without pending entries: the
/// named one, and those that are idle for `idle_ms`. The named one leaves: no outcome of it will come. So its
/// entries wait for any consumer, as those that `back_ms` has made look idle, and no process owns them. A
/// consumer with other entries stays, since removing it would lose them. It also deletes entries that each
/// group has acknowledged, the last one being of a program that deletes none, or one that was destroyed
/// since. It gives entries in quarantine letters, if theirs are gone.
const LEAVE: &str = r"
local rows = ARGV[3] ~= '' and redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[3]) or {}
for _, row in ipairs(rows) do
  -- One with a run of this consumer was not handed back.
  if not counter_of(row[4]).own then
    redis.call('XCLAIM', KEYS[1], ARGV[1], 'released', 0, row[1], 'IDLE', math.max(row[3], ARGV[5]),
      'RETRYCOUNT', string.format('%.0f', row[4]), 'JUSTID')
  end
end
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local found = about(row)
  if found.pending == 0 and (found.name == ARGV[3] or found.idle > tonumber(ARGV[2])) then
    redis.pcall('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], found.name)
  end
end
pcall(name_quarantine, KEYS[1], KEYS[2], ARGV[1])
local all = groups(KEYS[1])
if ARGV[4] ~= '0' then return 1 end
local first
for _, group in ipairs(all) do
  local id = group['last-delivered-id']
  if group.pending > 0 then
    id = redis.call('XPENDING', KEYS[1], group.name)[2]
  else
    -- It has acknowledged this one too.
    local ms, seq = id:match('^(%d+)-(%d+)$')
    if #seq < 15 then id = ms .. '-' .. string.format('%.0f', seq + 1) end
  end
  if not first or is_later(first, id) then first = id end
end
-- Whole nodes first, which is cheap, and then the rest of one, unless there is more than that.
local trimmed = redis.pcall('XTRIM', KEYS[1], 'MINID', '~', first, 'LIMIT', 10000)
if type(trimmed) == 'number' and trimmed < 10000 then
  redis.pcall('XTRIM', KEYS[1], 'MINID', '=', first)
end
return 1
";

/// The scripts by name.
pub(crate) struct Scripts {
    pub(crate) complete: Script,
    pub(crate) skip: Script,
    pub(crate) effects: Script,
    pub(crate) retry: Script,
    pub(crate) bury: Script,
    pub(crate) beat: Script,
    pub(crate) reclaim: Script,
    pub(crate) promote: Script,
    pub(crate) route: Script,
    pub(crate) push: Script,
    pub(crate) hand_back: Script,
    pub(crate) begin: Script,
    pub(crate) spare: Script,
    pub(crate) leave: Script,
    pub(crate) letters: Script,
    pub(crate) settle: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    complete: script(COMPLETE),
    skip: script(SKIP),
    effects: script(EFFECTS),
    retry: script(RETRY),
    bury: script(BURY),
    beat: script(BEAT),
    reclaim: script(RECLAIM),
    promote: script(PROMOTE),
    route: script(ROUTE),
    push: script(PUSH),
    hand_back: script(HAND_BACK),
    begin: script(BEGIN),
    spare: script(SPARE),
    leave: script(LEAVE),
    letters: script(LETTERS),
    settle: script(SETTLE),
});

/// The texts that the server must know before a script is called by its hash.
pub(crate) fn texts() -> impl Iterator<Item = String> {
    [COMPLETE, EFFECTS, RETRY, BURY, BEAT, RECLAIM, PROMOTE, PUSH, HAND_BACK, BEGIN, SPARE, LEAVE]
        .into_iter()
        .chain([ROUTE, LETTERS, SETTLE, SKIP])
        .map(whole)
}

fn script(text: &str) -> Script {
    Script::new(&whole(text))
}

fn whole(text: &str) -> String {
    format!("{SHARED}{COUNTER}{text}")
}

/// Milliseconds as an argument: at most 2000 years, which the server can add to its time.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(1 << 46)
}

/// The call of a script.
pub(crate) fn call<K: redis::ToRedisArgs>(script: &Script, keys: &[K]) -> redis::Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.get_hash()).arg(keys.len());
    keys.iter().for_each(|key| {
        command.arg(key);
    });
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::texts;

    #[test]
    fn the_documented_rules_have_each_command_of_the_scripts() {
        let guide = include_str!("../../../docs/bridge.md");
        let rules = guide.lines().find(|line| line.starts_with("user consumer ")).unwrap();
        let text: String = texts().collect();
        let calls = ["call('", "needs('", "refusal('"].map(|call| text.split(call).skip(1));
        let name = |rest: &str| rest.split('\'').next().unwrap_or_default().to_lowercase();
        let commands: BTreeSet<String> = calls.into_iter().flatten().map(name).collect();
        assert!(commands.contains("xclaim") && commands.contains("zadd"), "{commands:?}");
        let has = |name: &String| rules.split(' ').any(|rule| rule == format!("+{name}"));
        let missing: Vec<&String> = commands.iter().filter(|name| !has(name)).collect();
        assert!(missing.is_empty(), "the rules of {rules:?} lack {missing:?}");
    }
}
