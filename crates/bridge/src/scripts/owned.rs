//! The scripts of what a consumer owns: signs of life, begins, takeovers and returns. They alone write
//! the delivery counter.

/// KEYS stream; ARGV group consumer id...: sets the idle time of the consumer's entries to zero. Without
/// an entry it is a sign of life of the consumer: it reads its own entries behind the last possible one,
/// since servers before Redis 7.2 count only reads that return entries, and this kind. Returns the ids
/// that it no longer owns, as `gone ID` those that another program has deleted, which the server forgets at
/// this XCLAIM; the ids of which an earlier consumer lives; and the server's time.
pub(super) const BEAT: &str = r"
local lost, spared = {}, {}
if #ARGV == 2 then
  redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1],
    '18446744073709551615-0')
end
for i = 3, #ARGV do
  local row = pending(KEYS[1], ARGV[1], ARGV[i])
  if row and row[2] == ARGV[2] then
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    if #claimed == 0 then lost[#lost + 1] = 'gone ' .. ARGV[i] end
    if row[4] >= 4e13 then spared[#spared + 1] = ARGV[i] end
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return {lost, spared, now_ms()}
";

/// KEYS stream stats; ARGV group consumer idle_ms start count bytes_max attempts_max last until_ms,
/// then for each known suspect its id, its owner, the last sign of life and `dead`, `lives` or `-`:
/// takes over entries that were idle for `idle_ms`, at most `count`, and ends with the one that reaches
/// `bytes_max`. From `until_ms` of the server's clock on it takes none: the server was away, and so the
/// heartbeats of all consumers are late; the number of entries is -1 then. At most `last` of them must
/// run alone. An entry that is used up by its owner's run is a suspect, and stays with its owner until
/// it is decided. Returns where to go on, for each entry its id, its counter and its fields, for each
/// suspect its id, its owner, and the two times between which the owner gave its last sign of life, and
/// how many of the entries were another consumer's.
pub(super) const RECLAIM: &str = r"
local group, me, cursor, count = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[5])
local bytes, bytes_max, attempts_max = 0, tonumber(ARGV[6]), tonumber(ARGV[7])
local last, entries, suspects, known_as, theirs = tonumber(ARGV[8]), {}, {}, {}, 0
if now_ms() >= tonumber(ARGV[9]) then return {cursor, {}, {}, -1} end
keep_quarantine(KEYS[1], group, ARGV[3])
for i = 10, #ARGV, 4 do
  known_as[ARGV[i]] = {owner = ARGV[i + 1], seen = tonumber(ARGV[i + 2]), is = ARGV[i + 3]}
end
local consumers, from, to
local function seen(owner)
  if not consumers then
    consumers, from = {}, now_ms()
    for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], group)) do
      local found = about(row)
      consumers[found.name] = found.idle
    end
    to = now_ms()
  end
  local idle = consumers[owner] or 0
  return from - idle, to - idle
end
local function failed(id)
  local words = (redis.call('XRANGE', KEYS[1], id, id)[1] or {})[2] or {}
  local of = about(words)
  return is_entry(of.o) and tonumber(of.n) or 0
end
-- The counter of an entry that is taken over, or nil.
local function taken(id, owner, number)
  local of = counter_of(number)
  if of.begun > 0 then
    local known = known_as[id]
    if known and known.owner ~= owner then known = nil end
    local used = of.begun
    -- The whole entry is read for this number: only where it decides and is unknown.
    local proven = is_proven(of)
    if known and proven and of.own and not of.lives then
      used = attempts_max
    elseif used + 1 < attempts_max or (proven and used < attempts_max) then
      used = used + failed(id)
    end
    if proven and used >= attempts_max and of.own then
      local after, before = seen(owner)
      local is_decided = known and known.is ~= '-'
      if not is_decided or (known.is == 'dead' and after > known.seen) then
        suspects[#suspects + 1] =
          {id, owner, string.format('%.0f', after), string.format('%.0f', before)}
        return nil
      end
      if known.is == 'lives' then
        of.own = false
        spare(of)
      end
    elseif proven and used >= attempts_max then
      -- Decided by an earlier takeover, after which it was handed back.
    elseif used + 1 >= attempts_max then
      if last == 0 then return nil end
      last = last - 1
    end
  end
  of.deliveries = of.deliveries + 1
  -- What the consumer itself was late to keep alive is its own still. Another one knows the runs.
  of.own, of.lives = of.own and owner == me, of.lives and owner == me
  return counter(of)
end
for _ = 1, 100 do
  local most = math.min(10, count - #entries)
  local rows = redis.call('XPENDING', KEYS[1], group, 'IDLE', ARGV[3], cursor, '+', most)
  local looked = 0
  for _, row in ipairs(rows) do
    if bytes >= bytes_max then break end
    cursor, looked = '(' .. row[1], looked + 1
    local number = taken(row[1], row[2], row[4])
    local found = number and redis.call('XCLAIM', KEYS[1], group, me, ARGV[3], row[1],
      'RETRYCOUNT', number)[1]
    if found then
      entries[#entries + 1] = {found[1], tonumber(number), found[2]}
      if row[2] ~= me then theirs = theirs + 1 end
      for _, word in ipairs(found[2]) do bytes = bytes + #word end
    end
  end
  if looked == #rows and #rows < most then
    cursor = '0-0'
    break
  end
  if #entries >= count or bytes >= bytes_max then break end
end
if theirs > 0 then tally(KEYS[2], 'reclaimed', theirs) end
return {cursor, entries, suspects, theirs}
";

/// KEYS stream; ARGV group consumer idle_ms, then of each entry its id and its deliveries before: makes
/// the consumer's entries look idle, without the runs that it has recorded. The next reclaim of any
/// consumer takes them. Returns the ids that it no longer owns, as BEAT.
pub(super) const HAND_BACK: &str = r"
local lost = {}
for i = 4, #ARGV, 2 do
  local row = pending(KEYS[1], ARGV[1], ARGV[i])
  if row and row[2] == ARGV[2] then
    local of = counter_of(row[4])
    if of.own then
      if of.alone then of.lonely = of.lonely - 1 end
      of.begun, of.own, of.alone = of.begun - 1, false, false
    end
    of.deliveries = tonumber(ARGV[i + 1])
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'IDLE', ARGV[3], 'RETRYCOUNT', counter(of), 'JUSTID')
    if #claimed == 0 then lost[#lost + 1] = 'gone ' .. ARGV[i] end
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
";

/// KEYS stream; ARGV group consumer, then of each entry its id and 1 if its run is alone: records a run
/// of each of the consumer's entries, once, and is a sign of life. Returns the ids that it no longer
/// owns, as BEAT.
pub(super) const BEGIN: &str = r"
local lost = {}
for i = 3, #ARGV, 2 do
  local row = pending(KEYS[1], ARGV[1], ARGV[i])
  if row and row[2] == ARGV[2] then
    local of = counter_of(row[4])
    local was_own = of.own
    if not was_own then of.begun, of.own = of.begun + 1, true end
    of.alone = ARGV[i + 1] == '1'
    -- A run beside others proves nothing, and neither do those before it.
    if not of.alone then
      of.lonely = 0
    elseif not was_own then
      of.lonely = of.lonely + 1
    end
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'RETRYCOUNT', counter(of), 'JUSTID')
    if #claimed == 0 then lost[#lost + 1] = 'gone ' .. ARGV[i] end
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
";

/// KEYS stream dead; ARGV group consumer died, then of each entry its id and its first entry: a consumer
/// that has begun these jobs lives. Of those that others own, the counters keep only the run of the
/// owner. Those that were buried meanwhile, with a reason that begins with `died`, are ready again:
/// they are looked for among the newest 1000 letters, or 4 MiB of them. Returns their ids.
pub(super) const SPARE: &str = r"
local gone, count, ready = {}, 0, {}
for i = 4, #ARGV, 2 do
  local row = pending(KEYS[1], ARGV[1], ARGV[i])
  if not row or row[2] == keeper then
    gone[ARGV[i + 1]], count = ARGV[i], count + 1
  elseif row[2] ~= ARGV[2] then
    local of = counter_of(row[4])
    spare(of)
    redis.call('XCLAIM', KEYS[1], ARGV[1], row[2], 0, ARGV[i],
      'IDLE', row[3], 'RETRYCOUNT', counter(of), 'JUSTID')
  end
end
local at, bytes = '+', 0
for _ = 1, 1000 do
  if count == 0 or bytes > 4194304 then break end
  local letter = redis.call('XREVRANGE', KEYS[2], at, '-', 'COUNT', 1)[1]
  if not letter then break end
  at = '(' .. letter[1]
  local of, fields = {}, {}
  for i = 1, #letter[2], 2 do
    local name, value = letter[2][i], letter[2][i + 1]
    bytes = bytes + #name + #value
    of[name] = value
    if not made[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  local id = of.o and gone[of.o]
  local is_of_group = not of.g or of.g == ARGV[1]
  stay_in_group(fields, of)
  if id and is_of_group and of.e and of.e:sub(1, #ARGV[3]) == ARGV[3] then
    gone[of.o], count = nil, count - 1
    -- A right that is missing is met before a job has two places.
    redis.call('XDEL', KEYS[2], '0-1')
    if of.q == id and owned(KEYS[1], ARGV[1], keeper, id) then
      release(KEYS[1], ARGV[1], id)
    elseif of.p then
      redis.call('XADD', KEYS[1], '*', unpack(fields))
    end
    redis.call('XDEL', KEYS[2], letter[1])
    ready[#ready + 1] = id
  end
end
return ready
";
