//! The server's delivery counter of an entry, which the scripts write. Its parts are those of
//! [`Deliveries`](crate::policy::Deliveries).

/// The functions in Lua that read and write it.
pub(super) const COUNTER: &str = r"
local function counter_of(number)
  local flags = math.floor(number / 1e13)
  return {
    deliveries = number % 1e6, begun = math.floor(number % 1e13 / 1e6), alone = flags % 2 == 1,
    own = math.floor(flags / 2) % 2 == 1, lives = math.floor(flags / 4) % 2 == 1
  }
end
local function counter(of)
  local flags = (of.alone and 1 or 0) + (of.own and 2 or 0) + (of.lives and 4 or 0)
  local begun = math.min(of.begun, 9999999)
  return string.format('%.0f', math.min(of.deliveries, 999999) + begun * 1e6 + flags * 1e13)
end
-- A consumer that has begun it lives: of the runs only its owner's is left.
local function spare(of)
  of.begun, of.alone, of.lives = of.own and 1 or 0, of.own and of.alone, true
end
local function pending(stream, group, id)
  return redis.call('XPENDING', stream, group, id, id, 1)[1]
end
";
