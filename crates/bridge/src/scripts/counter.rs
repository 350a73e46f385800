//! The server's delivery counter of an entry, which the scripts write. Its parts are those of
//! [`Deliveries`](crate::policy::Deliveries).

/// The functions in Lua that read and write it.
pub(super) const COUNTER: &str = r"
local function counter_of(number)
  local flags = math.floor(number / 1e13)
  return {
    deliveries = number % 1e5, lonely = math.floor(number % 1e6 / 1e5),
    begun = math.floor(number % 1e13 / 1e6), alone = flags % 2 == 1,
    own = math.floor(flags / 2) % 2 == 1, lives = math.floor(flags / 4) % 2 == 1
  }
end
local function counter(of)
  local flags = (of.alone and 1 or 0) + (of.own and 2 or 0) + (of.lives and 4 or 0)
  local begun = math.min(of.begun, 9999999)
  local fetched = math.min(of.deliveries, 99999) + math.min(of.lonely, 9) * 1e5
  return string.format('%.0f', fetched + begun * 1e6 + flags * 1e13)
end
-- A consumer that has begun it lives: of the runs only its owner's is left.
local function spare(of)
  of.begun, of.alone, of.lives = of.own and 1 or 0, of.own and of.alone, true
  of.lonely = of.alone and 1 or 0
end
-- The last runs were alone, as many as prove that the job kills its consumers.
local function is_proven(of) return of.alone and of.lonely >= 3 end
local function pending(stream, group, id)
  return redis.call('XPENDING', stream, group, id, id, 1)[1]
end
";

#[cfg(test)]
mod tests {
    #[test]
    fn the_scripts_and_the_consumer_need_the_same_proof() {
        let needs = format!("of.lonely >= {} end", crate::policy::LONELY_MIN);
        assert!(super::COUNTER.contains(&needs));
    }
}
