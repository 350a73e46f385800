//! The script that runs the effect of a job and acknowledges it, in one step.

/// KEYS stream stats guard dead; ARGV group id keep counts attempt dead_max results_max first words..., where
/// `words` is their number and the words of the result's command, and then of the effect's: runs both and
/// acknowledges the job, if it is pending. Returns 1, or 0 if it is not, and what COMPLETE counts.
///
/// All that can be refused comes before the effect, and is undone if the effect fails. What cannot be undone
/// comes after it: an earlier result of the same id is replaced then, and old results are trimmed to
/// `results_max`. A refusal is an
/// `EFFECT` if it is the handler's command's own, and `REFUSED` if it is a state of the server, of the
/// user's rights or of the place of results: then nothing has changed, and the call may be repeated.
///
/// A handler's script that fails keeps its writes. So this call makes its job a dead letter, although
/// another consumer may own the entry, and no run repeats the writes. It returns what BURY returns, with
/// the error before the letter. A call with a script that is sent `again`, or is not known to be the first
/// (`none`), returns the same if it finds the letter of `first` among the newest 100, or 4 MiB of them: an
/// exchange has a bound of such calls.
pub(super) const EFFECTS: &str = r"
local failed = 'an effect failed: EVAL: '
local function letter()
  local at, bytes = '+', 0
  for _ = 1, 100 do
    local found = redis.pcall('XREVRANGE', KEYS[4], at, '-', 'COUNT', 1)[1]
    if not found or bytes > 4194304 then return nil end
    at = '(' .. found[1]
    for _, word in ipairs(found[2]) do bytes = bytes + #word end
    local of = about(found[2])
    local is_own = of.o == ARGV[8] and (not of.g or of.g == ARGV[1])
    if is_own and of.e and of.e:sub(1, #failed) == failed then return {of.q and 3 or 1, of.e, found[1]} end
  end
end
local at = 9
local function words()
  local from = at + 1
  at = from + ARGV[at]
  return from, at - 1
end
local first, last = words()
local from, to = words()
local is_script = to >= from and ARGV[from]:upper() == 'EVAL'
local row = pending(KEYS[1], ARGV[1], ARGV[2])
local is_repeat = ARGV[4] == 'again' or ARGV[4] == 'none'
-- An entry in quarantine has had its end.
if not row or row[2] == keeper then
  -- Only the failure of a script leaves a letter here.
  local found = is_script and is_repeat and letter()
  if found then return found end
  return {0, ran_twice(KEYS[2], ARGV[1], ARGV[4] ~= 'none' and {ARGV[8]} or {})}
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
  local keys, args = {}, {}
  local last = from + 2 + ARGV[from + 2]
  for i = from + 3, last do keys[#keys + 1] = ARGV[i] end
  for i = last + 1, to do args[#args + 1] = ARGV[i] end
  local run, reply = loadstring('local KEYS, ARGV, redis, server = ... ' .. ARGV[from + 1], '=effect')
  local ran = false
  if run then ran, reply = pcall(run, keys, args, watched, watched) end
  if not ran and type(reply) ~= 'table' then reply = {err = tostring(reply)} end
  return type(reply) == 'table' and reply.err, wrote or not denied
end
local function failure(kind, of, said)
  local named = said:match('^REFUSED (.*)')
  if kind == 'REFUSED' and named then return redis.error_reply(said) end
  return redis.error_reply(kind .. ' ' .. of .. ': ' .. (named or said))
end
if is_script then
  -- All that a burial needs, since the script cannot be undone.
  needs('XINFO', 'GROUPS', KEYS[1])
  needs('XRANGE', KEYS[1], '-', '+')
  needs('XCLAIM', KEYS[1], ARGV[1], keeper, 0, '0-1')
  needs('XADD', KEYS[4], '*', 'p', '')
  redis.call('XLEN', KEYS[4])
end
local kind, key, added = last >= first and ARGV[first], ARGV[first + 1], nil
if kind == 'XADD' then
  needs('XDEL', key, '0-1')
  needs('XTRIM', key, 'MAXLEN', '~', ARGV[7])
  added = redis.pcall(unpack(ARGV, first, last))
  if type(added) == 'table' and added.err then return failure('REFUSED', kind, added.err) end
elseif kind then
  -- SET, which only a right refuses.
  needs(unpack(ARGV, first, last))
end
if to >= from then
  local of, said, has_begun = ARGV[from], nil, false
  if is_script then
    of, said, has_begun = 'EVAL', run_effect(from, to)
  else
    local reply = redis.pcall(unpack(ARGV, from, to))
    said = type(reply) == 'table' and reply.err
  end
  if said and added then redis.pcall('XDEL', key, added) end
  if said and said:find('non local key', 1, true) then
    said = said .. '; in a cluster the keys of an effect have the tag of its stream, as balance:{jobs}:7'
  end
  if said and not has_begun and passes(said) then return failure('REFUSED', of, said) end
  if said and not is_script then return failure('EFFECT', of, said) end
  if said then
    local reason = failed .. (said:match('^REFUSED (.*)') or said):sub(1, 65536)
    local is_buried, place, named = pcall(bury, KEYS[1], KEYS[4], KEYS[2], ARGV[1], ARGV[2], ARGV[3],
      ARGV[5], reason, ARGV[6])
    if not is_buried then
      -- The script itself may have changed the dead letters. The sweep gives the entry a letter.
      redis.call('XCLAIM', KEYS[1], ARGV[1], keeper, 0, ARGV[2], 'RETRYCOUNT', 0, 'JUSTID')
    end
    return {is_buried and place or 3, reason, named}
  end
end
if added then
  redis.pcall('XTRIM', key, 'MAXLEN', '~', ARGV[7])
elseif kind then
  redis.pcall(unpack(ARGV, first, last))
end
ended(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
tally(KEYS[2], 'done', 1)
return {1, ran_twice(KEYS[2], ARGV[1], (ARGV[4] == 'all' or ARGV[4] == 'again') and {ARGV[8]} or {})}
";
