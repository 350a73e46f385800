//! The script that runs the effect of a job and acknowledges it, in one step.

/// KEYS stream stats guard; ARGV group id keep counts words..., where `words` is their number and the words
/// of the result's command, and then of the effect's: runs both and acknowledges the job, if it is
/// pending. Returns 1, or 0 if it is not.
///
/// All that can be refused comes before the effect, and is undone if the effect fails. A refusal is an
/// `EFFECT` if it is the handler's command's own, and `REFUSED` if it is a state of the server, of the
/// user's rights or of the place of results: then nothing has changed, and the call may be repeated.
pub(super) const EFFECTS: &str = r"
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then
  twice(KEYS[2], ARGV[4], 0, 1)
  return 0
end
-- These write nothing. SET fails in each state in which the server refuses writes: it checks that only
-- before the first write of a script. XACK and may_delete fail if the user lacks the right.
redis.call('SET', KEYS[3], '', 'PXAT', 1)
redis.call('XACK', KEYS[1], ARGV[1], '0-1')
may_delete(KEYS[1], ARGV[3])
-- Runs the handler's script of these words. Returns why it has failed, and whether it may have
-- written before. Valkey names the server's functions in two ways.
local function run_effect(from, to)
  local reads = {}
  for name in ([[EXISTS GET MGET STRLEN GETRANGE TTL PTTL TYPE HGET HMGET HGETALL HEXISTS HLEN LLEN
    LRANGE LINDEX SCARD SISMEMBER SMEMBERS ZCARD ZSCORE ZRANK ZRANGE ZRANGEBYSCORE XLEN XRANGE
    TIME]]):gmatch('%S+') do reads[name] = true end
  local denied, wrote = false, false
  local watched = setmetatable({}, {__index = redis})
  function watched.pcall(name, ...)
    local reply = redis.pcall(name, ...)
    if type(reply) == 'table' and reply.err then
      denied = denied or is_denied(reply.err)
    else
      wrote = wrote or not reads[tostring(name):upper()]
    end
    return reply
  end
  function watched.call(...)
    local reply = watched.pcall(...)
    if type(reply) == 'table' and reply.err then error(reply) end
    return reply
  end
  local first, keys, args = from + 3, {}, {}
  local last = first - 1 + ARGV[from + 2]
  for i = first, last do keys[#keys + 1] = ARGV[i] end
  for i = last + 1, to do args[#args + 1] = ARGV[i] end
  local run, reply = loadstring('local KEYS, ARGV, redis, server = ... ' .. ARGV[from + 1], '=effect')
  local ran = false
  if run then ran, reply = pcall(run, keys, args, watched, watched) end
  if not ran and type(reply) ~= 'table' then reply = {err = tostring(reply)} end
  return type(reply) == 'table' and reply.err, wrote or not denied
end
local at = 5
local function words()
  local from = at + 1
  at = from + ARGV[at]
  return from, at - 1
end
local function failure(kind, of, said)
  local named = said:match('^REFUSED (.*)')
  if kind == 'REFUSED' and named then return redis.error_reply(said) end
  return redis.error_reply(kind .. ' ' .. of .. ': ' .. (named or said))
end
local undo
local from, to = words()
if to >= from then
  local key = ARGV[from + 1]
  -- An effect may follow and fail: the right to take the result back is tried before.
  if ARGV[from] == 'XADD' then needs('XDEL', key, '0-1') end
  local reply = redis.pcall(unpack(ARGV, from, to))
  if type(reply) == 'table' and reply.err then return failure('REFUSED', ARGV[from], reply.err) end
  if ARGV[from] == 'SET' then
    undo = {'SET', key, '', 'PXAT', 1}
  else
    undo = {'XDEL', key, reply}
  end
end
from, to = words()
if to >= from then
  local of, said, has_begun = ARGV[from], nil, false
  if of:upper() == 'EVAL' then
    of, said, has_begun = 'EVAL', run_effect(from, to)
  else
    local reply = redis.pcall(unpack(ARGV, from, to))
    said = type(reply) == 'table' and reply.err
  end
  if said then
    if undo then redis.pcall(unpack(undo)) end
    return failure((has_begun or not passes(said)) and 'EFFECT' or 'REFUSED', of, said)
  end
end
ended(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
tally(KEYS[2], 'done', 1)
twice(KEYS[2], ARGV[4], 1, 1)
return 1
";
