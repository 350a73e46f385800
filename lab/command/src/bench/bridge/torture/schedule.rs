//! The schedule of the disturbances. It follows from the seed, the time and the number of consumers,
//! so a torture can be repeated with its seed.

use std::time::Duration;

/// A generator of random numbers that is the same in each version of this program (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u32) -> Random {
        Random(u64::from(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// What happens to a consumer, or to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    Kill(usize),
    /// The consumer is stopped for a time beyond its heartbeat.
    Stop(usize, Duration),
    /// The connections of a consumer, or of the producer after the last of them, to the plain server are
    /// cut in the middle of a reply, of which this part in 1024 arrives. A consumer of the cluster: as
    /// [`Hit::CutNodes`].
    Cut(usize, u64),
    /// The same with all connections to the nodes of the cluster that have the jobs.
    CutNodes(u64),
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// The plain server is killed, and starts again on its log.
    Restart,
    /// The clock of the plain server steps by this number of seconds.
    Step(i64),
    /// The master of the cluster that has the jobs is killed.
    KillMaster,
    /// It is stopped until its replica has its place, and then continues.
    StopMaster,
}

pub(super) struct Schedule {
    /// By time since the begin.
    pub(super) hits: Vec<(Duration, Hit)>,
    pub(super) blows: Vec<(Duration, Blow)>,
}

/// The time between two hits, in milliseconds. Each of eight consumers is hit about every four seconds.
const HIT_MS: (u64, u64) = (150, 850);
/// Stops, beyond the heartbeat of 10 s.
const STOP_MS: (u64, u64) = (11_000, 15_000);
/// The time between two blows.
const BLOW_EVERY: Duration = Duration::from_secs(20);
/// There is one of each kind at least.
const BLOWS_MIN: u32 = 4;
/// Steps of the clock, in seconds.
const STEP_S: (u64, u64) = (60, 300);
/// The clock is ahead of the true time by at most this.
const AHEAD_MAX_S: i64 = 900;

impl Schedule {
    pub(super) fn new(seed: u32, time: Duration, consumers: usize) -> Schedule {
        let mut random = Random::new(seed);
        Schedule { hits: hits(&mut random, time, consumers), blows: blows(&mut random, time) }
    }
}

fn hits(random: &mut Random, time: Duration, consumers: usize) -> Vec<(Duration, Hit)> {
    let mut hits = Vec::new();
    let mut at = random.ms(100, 500);
    // Until when a consumer is stopped.
    let mut stopped = vec![Duration::ZERO; consumers];
    while at < time {
        let victim = random.below(consumers as u64) as usize;
        // The first four are one of each kind.
        let dice = [0, 60, 75, 90].get(hits.len()).copied().unwrap_or_else(|| random.below(100));
        let is_stopped = stopped[victim] > at;
        hits.push((
            at,
            match dice {
                ..60 if !is_stopped => Hit::Kill(victim),
                60..70 if stopped.iter().all(|&until| until <= at) => {
                    let lasts = random.ms(STOP_MS.0, STOP_MS.1);
                    stopped[victim] = at + lasts;
                    Hit::Stop(victim, lasts)
                }
                70..75 => Hit::Cut(consumers, random.below(1024)),
                90.. => Hit::CutNodes(random.below(1024)),
                _ => Hit::Cut(victim, random.below(1024)),
            },
        ));
        at += random.ms(HIT_MS.0, HIT_MS.1);
    }
    hits
}

fn blows(random: &mut Random, time: Duration) -> Vec<(Duration, Blow)> {
    let count = ((time.as_secs() / BLOW_EVERY.as_secs()) as u32).max(BLOWS_MIN);
    let mut ahead = 0_i64;
    let blow = |nth| {
        let blow = match nth % BLOWS_MIN {
            0 => Blow::KillMaster,
            1 => {
                let by = (STEP_S.0 + random.below(STEP_S.1 - STEP_S.0)).cast_signed();
                // The first one is ahead; the clock never shows a time before the start.
                let is_back = ahead >= by && (ahead + by > AHEAD_MAX_S || random.below(2) == 0);
                let by = if is_back { -by } else { by };
                ahead += by;
                Blow::Step(by)
            }
            2 => Blow::StopMaster,
            _ => Blow::Restart,
        };
        (time * (nth + 1) / (count + 1), blow)
    };
    (0..count).map(blow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_schedule_and_another_seed_another_one() {
        let of = |seed| Schedule::new(seed, Duration::from_secs(600), 4);
        let (first, again, other) = (of(7), of(7), of(8));
        assert!(first.hits == again.hits && first.blows == again.blows);
        assert!(first.hits != other.hits && first.blows != other.blows);
    }

    #[test]
    fn a_short_torture_has_each_kind_of_disturbance_and_a_long_one_steps_back_too() {
        let hits = Schedule::new(1, Duration::from_secs(10), 4).hits;
        let of = hits.iter().map(|(_, hit)| *hit).collect::<Vec<_>>();
        let [Hit::Kill(_), Hit::Stop(..), Hit::Cut(..), Hit::CutNodes(_), ..] = of[..] else {
            panic!("{hits:?}")
        };
        let blows = Schedule::new(1, Duration::from_secs(1), 4).blows;
        let is = |wanted: fn(&Blow) -> bool| blows.iter().any(|(_, blow)| wanted(blow));
        assert!(is(|blow| *blow == Blow::Restart) && is(|blow| *blow == Blow::KillMaster));
        assert!(is(|blow| *blow == Blow::StopMaster) && is(|blow| matches!(blow, Blow::Step(1..))));
        let blows = Schedule::new(1, Duration::from_secs(6_000), 4).blows;
        assert!(blows.iter().any(|(_, blow)| matches!(blow, Blow::Step(..0))));
    }
}
