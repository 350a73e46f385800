//! The functions in Lua that each script begins with.

/// The functions that several scripts share.
pub(super) const SHARED: &str = r"
-- Whether a refusal is a right that the user lacks.
local function is_denied(said)
  for _, words in ipairs({'NOPERM', 'user executing the script', 'ACL failure'}) do
    if said:find(words, 1, true) then return true end
  end
  return false
end
-- The server does not say which command of a script it refuses to the user. These do.
local redis = setmetatable({pcall = redis.pcall}, {__index = redis})
local pcall_of_server = redis.pcall
function redis.pcall(name, ...)
  local reply = pcall_of_server(name, ...)
  if type(reply) == 'table' and reply.err and is_denied(reply.err) then
    reply.err = 'REFUSED ' .. name .. ' ' .. tostring((...) or '') .. ': ' .. reply.err
  end
  return reply
end
function redis.call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end
local function owned(stream, group, consumer, id)
  return #redis.call('XPENDING', stream, group, id, id, 1, consumer) > 0
end
local function others(stream, group, id)
  return #redis.call('XPENDING', stream, group, id, id, 1) > 0 and 0 or 2
end
local function about(row)
  local found = {}
  for i = 1, #row, 2 do found[row[i]] = row[i + 1] end
  return found
end
-- The groups of a stream beside one, or all of them.
local function groups(stream, but)
  local rows, found = redis.pcall('XINFO', 'GROUPS', stream), {}
  if rows.err then
    if rows.err:find('no such key', 1, true) then return found end
    error(rows)
  end
  for _, row in ipairs(rows) do
    local group = about(row)
    if group.name ~= but then found[#found + 1] = group end
  end
  return found
end
-- Numbers of entries are two numbers of 64 bits, which no number of Lua holds.
local function is_later(a, b)
  local function parts(id) return id:match('^(%d+)-(%d+)$') end
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  local function is_larger(x, y)
    if #x ~= #y then return #x > #y end
    return x > y
  end
  if a_ms ~= b_ms then return is_larger(a_ms, b_ms) end
  return is_larger(a_seq, b_seq)
end
local function is_needed(stream, beside, id)
  for _, group in ipairs(beside) do
    if is_later(id, group['last-delivered-id']) then return true end
    if group.pending > 0 and #redis.call('XPENDING', stream, group.name, id, id, 1) > 0 then
      return true
    end
  end
  return false
end
-- Deletes entries that this group has acknowledged and no other needs.
local function delete(stream, group, ids)
  local beside = groups(stream, group)
  if #beside > 0 then
    local free = {}
    for _, id in ipairs(ids) do
      if not is_needed(stream, beside, id) then free[#free + 1] = id end
    end
    ids = free
  end
  for from = 1, #ids, 1000 do
    redis.call('XDEL', stream, unpack(ids, from, math.min(from + 999, #ids)))
  end
end
local function ended(stream, group, id, keep)
  redis.call('XACK', stream, group, id)
  -- A refusal leaves an entry without an owner, and is no reason to repeat what was done.
  if keep == '0' then pcall(delete, stream, group, {id}) end
end
-- Counts decide nothing: a counter that cannot be written stops no job.
local function tally(stats, name, by)
  redis.pcall('HINCRBY', stats, name, by)
end
-- Counts jobs that ran twice, and returns how many. Each run of one may find it out, and each retry is
-- another entry: the mark of a job that was counted, by its first entry, lasts for an hour.
local function ran_twice(stats, group, firsts)
  local count = 0
  for _, first in ipairs(firsts) do
    local mark = stats:sub(1, -6) .. 'twice:' .. first .. ':' .. group
    local set = redis.pcall('SET', mark, '', 'NX', 'PX', 3600000)
    -- A refusal is a table, too.
    if type(set) == 'table' and set.ok then count = count + 1 end
  end
  if count > 0 then tally(stats, 'duplicates', count) end
  return count
end
-- The stack of a script has 8000 places. Of an entry with more words the last ones are packed into
-- the field x, behind the fields of uwork, so that nothing is lost.
local words_max = 7000
-- Fields of an entry that a script moves, so that the server is not busy for long.
local fields_max = 50000
local made = {n = true, e = true, g = true, o = true}
-- A retry names its first entry. Entries of other programs may have fields of the same names.
local function is_entry(text) return text and text:find('^%d+%-%d+$') end
-- The fields of an entry's next place. None if the entry is missing, or if it cannot be moved: then also
-- why, and the first entry.
local function fields_of(stream, group, id, attempt, reason)
  local found = redis.call('XRANGE', stream, id, id)
  if #found == 0 then return nil end
  local fields, first, own, others = {}, id, {p = false, h = false, i = false, k = false}, {}
  local function add(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local words = found[1][2]
  for i = 1, #words, 2 do
    local name = words[i]
    if name == 'o' and is_entry(words[i + 1]) then first = words[i + 1] end
    if own[name] ~= nil then
      own[name] = words[i + 1]
    elseif not made[name] then
      others[#others + 1] = name
      others[#others + 1] = words[i + 1]
    end
  end
  if #words / 2 > fields_max then
    return nil, 'it has ' .. #words / 2 .. ' fields: allowed are ' .. fields_max, first
  end
  for name, value in pairs(own) do
    if value then add(name, value) end
  end
  for i = 1, math.min(#others, words_max), 2 do add(others[i], others[i + 1]) end
  if #others > words_max then
    local rest = {}
    for i = words_max + 1, #others do rest[#rest + 1] = others[i] end
    add('x', cmsgpack.pack(rest))
  end
  add('n', attempt)
  add('e', reason)
  add('o', first)
  -- Another group has this job, and its retry is none of its business.
  if #groups(stream, group) > 0 then add('g', group) end
  return fields, nil, first
end
-- A letter's job that is ready again is still a retry of its group.
local function stay_in_group(fields, letter)
  for _, name in ipairs(letter.g and is_entry(letter.o) and {'g', 'o'} or {}) do
    fields[#fields + 1] = name
    fields[#fields + 1] = letter[name]
  end
end
-- Whether a refusal is a state of the server or of the user's rights, whatever the command.
local function passes(said)
  for _, state in ipairs({'OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'MASTERDOWN'}) do
    if said:sub(1, #state) == state then return true end
  end
  return is_denied(said)
end
-- The same, or a state of the key, and not of one entry.
local function is_state(said)
  for _, state in ipairs({'WRONGTYPE', 'last possible ID', 'Unknown Redis command'}) do
    if said:find(state, 1, true) then return true end
  end
  return passes(said)
end
-- Raises what the server says to a command that the user may not run. The command changes nothing. The
-- test is no write: the server refuses writes without memory only before the first one of a script.
local function needs(...)
  if not redis.acl_check_cmd(...) then redis.call(...) end
end
-- The rights to what `ended` does beside XACK.
local function may_delete(stream, keep)
  if keep == '0' then needs('XDEL', stream, '0-1') end
end
-- Runs a command. Returns why the entry was refused, and the reply, and raises what is no fault of the entry.
local function refusal(...)
  local reply = redis.pcall(...)
  local said = type(reply) == 'table' and reply.err
  if said and is_state(said) then redis.call(...) end
  return said, reply
end
-- An entry that cannot be moved stays pending, of a consumer that runs nothing: so no group deletes it.
-- Its letter names it. The takeovers give the signs of life of that consumer.
local keeper = 'quarantine'
local function quarantine(stream, dead, group, id, attempt, reason, first)
  needs('XCLAIM', stream, group, keeper, 0, id)
  local letter =
    redis.call('XADD', dead, '*', 'n', attempt, 'e', reason, 'o', first, 'q', id, 'g', group)
  -- The counter of deliveries counts none here: it is the time of the letter.
  redis.call('XCLAIM', stream, group, keeper, 0, id, 'RETRYCOUNT', letter:match('^%d+'), 'JUSTID')
  return letter
end
-- Moves an entry to the dead letters. The rights to all of it were tested. Returns 1, or 3 if it cannot
-- be moved: it is in quarantine, and the letter; or 5 if another program has deleted it.
local function bury(stream, dead, stats, group, id, keep, attempt, reason, dead_max)
  local fields, large, first = fields_of(stream, group, id, attempt, reason)
  local letter
  if fields and dead_max == '0' then
    large, letter = refusal('XADD', dead, '*', unpack(fields))
  elseif fields then
    large, letter = refusal('XADD', dead, 'MAXLEN', '~', dead_max, '*', unpack(fields))
  end
  if large then
    letter = quarantine(stream, dead, group, id, attempt, reason .. '; ' .. large, first)
  end
  if fields or large then tally(stats, 'dead', 1) end
  if large then return 3, letter end
  ended(stream, group, id, keep)
  if fields then return 1, letter end
  return 5
end
-- Gives entries in quarantine whose letters were deleted or trimmed new ones: a command reaches an entry
-- by its letter only.
local function name_quarantine(stream, dead, group)
  local function has_letter(id, time)
    local at = time
    while true do
      local letter = redis.call('XRANGE', dead, at, time, 'COUNT', 1)[1]
      if not letter then return false end
      local of = about(letter[2])
      if of.q == id and of.g == group then return true end
      at = '(' .. letter[1]
    end
  end
  for _, row in ipairs(redis.call('XPENDING', stream, group, '-', '+', 1000, keeper)) do
    local id = row[1]
    if not has_letter(id, string.format('%.0f', row[4])) then
      local entry = redis.call('XRANGE', stream, id, id)[1]
      if entry then
        local of = about(entry[2])
        local first = is_entry(of.o) and of.o or id
        quarantine(stream, dead, group, id, 0, 'its letter was removed, and it cannot be moved', first)
      else
        redis.call('XACK', stream, group, id)
      end
    end
  end
end
-- The next takeover of any consumer finds it, with all attempts left.
local function release(stream, group, id)
  needs('XCLAIM', stream, group, keeper, 0, id)
  redis.call('XCLAIM', stream, group, 'released', 0, id, 'IDLE', 200000000, 'RETRYCOUNT', 0, 'JUSTID')
end
-- At most 1000 of them, so that the server is not busy for long.
local function keep_quarantine(stream, group, idle_ms)
  for _ = 1, 10 do
    local rows = redis.call('XPENDING', stream, group, 'IDLE', math.ceil(idle_ms / 2), '-', '+', 100,
      keeper)
    for _, row in ipairs(rows) do
      redis.call('XCLAIM', stream, group, keeper, 0, row[1], 'JUSTID')
    end
    if #rows < 100 then break end
  end
end
-- Whether a route leads to a shard that exists.
local function leads(route, shards)
  local shard = tonumber(route:sub(2))
  return shard and shard < tonumber(shards)
end
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
";
