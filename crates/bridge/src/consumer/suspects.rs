//! Jobs whose attempts are used up by runs that have begun, the last three alone: each is buried if
//! its owner has died, and spared if its owner lives. Pure: looks and times in, verdicts out.
//!
//! | since the first look | verdict |
//! |---|---|
//! | less than [`HOLDS`] heartbeats | none: the owner may be stopped, cut off, or its server's clock has jumped |
//! | the owner has given [`SIGNS`] signs of life, though none for this job | it lives |
//! | no sign of life, and the server has a connection of the owner | none: it is stopped |
//! | no sign of life, and no connection | it has died |

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::link::Place;
use crate::server::client_name;

/// Heartbeats for which an owner must have given no sign of life.
const HOLDS: u32 = 3;
/// The same, at least: a consumer that was cut off connects again within this time.
const HOLD_MIN: Duration = Duration::from_secs(3);
/// The factor of this time for a server that does not tell its connections.
const UNKNOWN: u32 = 10;
/// The signs of life of an owner that lives. It gives nine in three heartbeats. One may be of another
/// consumer: SPARE names the owner of the job, and the server takes that for a sign of the owner.
const SIGNS: u32 = 3;

/// A suspect, as a look at the server shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) owner: String,
    /// Between these milliseconds of the server's clock the owner has given its last sign of life.
    pub(super) after_ms: u64,
    pub(super) before_ms: u64,
}

struct Suspect {
    /// Its last sign of life.
    last: Seen,
    /// The signs of life since the first look.
    signs: u32,
    /// How long it has been a suspect, as far as the server has answered.
    waited: Duration,
    looked: Instant,
    /// The server has no connection of its owner.
    is_dead: bool,
}

pub(super) struct Suspects {
    all: HashMap<Place, Suspect>,
    heartbeat: Duration,
    /// The name of this consumer's connections: a list without it lacks those of others, too.
    own: String,
}

impl Suspect {
    fn lives(&self) -> bool {
        self.signs >= SIGNS
    }
}

impl Suspects {
    pub(super) fn new(consumer: &str, heartbeat: Duration) -> Suspects {
        Suspects { all: HashMap::new(), heartbeat, own: client_name(consumer) }
    }

    fn hold(&self) -> Duration {
        (self.heartbeat * HOLDS).max(HOLD_MIN)
    }

    /// Learns what a look has found. A time without looks, in which the owner could give no sign of
    /// life either, counts for a part.
    pub(super) fn look(&mut self, now: Instant, place: Place, seen: Seen) {
        let new =
            |last| Suspect { last, signs: 0, waited: Duration::ZERO, looked: now, is_dead: false };
        match self.all.get_mut(&place) {
            Some(known) if known.last.owner == seen.owner => {
                known.waited += (now - known.looked).min(self.heartbeat / 2);
                known.looked = now;
                if seen.after_ms > known.last.before_ms {
                    (known.last, known.is_dead) = (seen, false);
                    known.signs += 1;
                }
            }
            _ => drop(self.all.insert(place, new(seen))),
        }
    }

    /// Forgets those that no look has found for a heartbeat: they have ended, or their owner keeps
    /// them alive.
    pub(super) fn forget(&mut self, now: Instant) {
        self.all.retain(|_, suspect| now - suspect.looked < self.heartbeat);
    }

    /// Whether it depends on the connections of the server.
    pub(super) fn needs_connections(&self, stream: usize) -> bool {
        let hold = self.hold();
        let needs =
            |suspect: &Suspect| !suspect.lives() && !suspect.is_dead && suspect.waited >= hold;
        self.all.iter().any(|((of, _), suspect)| *of == stream && needs(suspect))
    }

    /// Learns the connections of the server, a line each, or None if it does not tell. A list without
    /// this consumer tells nothing: names were refused, or a proxy has answered.
    pub(super) fn connections(&mut self, stream: usize, list: Option<&str>) {
        let has = |list: &&str, name: &str| {
            list.split_ascii_whitespace().any(|word| word.strip_prefix("name=") == Some(name))
        };
        let list = list.filter(|list| has(list, &self.own));
        let hold = self.hold();
        for (_, suspect) in self.all.iter_mut().filter(|((of, _), _)| *of == stream) {
            if suspect.lives() || suspect.waited < hold {
                continue;
            }
            let name = client_name(&suspect.last.owner);
            suspect.is_dead = match list {
                None => suspect.waited >= hold * UNKNOWN,
                Some(list) => !has(&list, &name),
            };
            if list.is_some() && !suspect.is_dead {
                // It is asked again.
                suspect.waited = hold / 2;
            }
        }
    }

    /// The suspects of a stream, and whether each one's owner has died, if that is decided.
    pub(super) fn known(
        &self,
        stream: usize,
    ) -> impl Iterator<Item = (Place, &Seen, Option<bool>)> {
        let hold = self.hold();
        let of_stream = self.all.iter().filter(move |((of, _), _)| *of == stream);
        let is_decided =
            move |suspect: &Suspect| suspect.waited >= hold && (suspect.lives() || suspect.is_dead);
        of_stream.map(move |(place, suspect)| {
            (*place, &suspect.last, is_decided(suspect).then_some(suspect.is_dead))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::EntryId;

    const HEARTBEAT: Duration = Duration::from_secs(10);
    const PLACE: Place = (0, EntryId(7, 0));

    /// Looks twice a second, with the last sign of life that `ms` tells, until it is decided.
    fn verdict(
        suspects: &mut Suspects,
        looks: u32,
        ms: impl Fn(u32) -> u64,
        list: Option<&str>,
    ) -> Option<bool> {
        let start = Instant::now();
        for nth in 0..looks {
            let now = start + Duration::from_millis(500) * nth;
            let (owner, seen) = ("me:1:ab".to_owned(), ms(nth));
            suspects.look(now, PLACE, Seen { owner, after_ms: seen, before_ms: seen + 1 });
            suspects.forget(now);
            if suspects.needs_connections(0) {
                suspects.connections(0, list);
            }
        }
        suspects.known(0).find_map(|(_, _, is_dead)| is_dead)
    }

    fn of(looks: u32, ms: impl Fn(u32) -> u64, list: Option<&str>) -> Option<bool> {
        // The observer itself.
        let list = list.map(|list| format!("id=9 name=it:1:cd age=1\n{list}"));
        verdict(&mut Suspects::new("it:1:cd", HEARTBEAT), looks, ms, list.as_deref())
    }

    #[test]
    fn an_owner_has_died_after_three_heartbeats_without_a_sign_and_a_connection() {
        let others = Some("id=3 addr=127.0.0.1:5 name=me:1:abc\nid=4 name= age=1\n");
        assert_eq!(of(60, |_| 1_000, others), None);
        assert_eq!(of(70, |_| 1_000, others), Some(true));
        // A late answer of the server moves the bounds by less than they are apart.
        assert_eq!(of(70, |nth| 1_000 + u64::from(nth % 2), others), Some(true));
    }

    #[test]
    fn a_list_without_the_observer_tells_nothing() {
        let without = Some("id=3 addr=127.0.0.1:5 name= age=90\n");
        let mut suspects = Suspects::new("it:1:cd", HEARTBEAT);
        assert_eq!(verdict(&mut suspects, 500, |_| 1_000, without), None);
        let mut suspects = Suspects::new("it:1:cd", HEARTBEAT);
        assert_eq!(verdict(&mut suspects, 700, |_| 1_000, without), Some(true));
    }

    #[test]
    fn an_owner_that_is_stopped_has_not_died() {
        let stopped = Some("id=3 addr=127.0.0.1:5 name=me:1:ab age=90\n");
        assert_eq!(of(10_000, |_| 1_000, stopped), None);
        assert_eq!(of(500, |_| 1_000, None), None, "the server does not tell");
        assert_eq!(of(700, |_| 1_000, None), Some(true));
    }

    #[test]
    fn an_owner_that_gives_signs_of_life_lives_whatever_the_clock_says() {
        assert_eq!(of(70, |nth| 1_000 + u64::from(nth / 7) * 3_333, Some("")), Some(false));
        let jump = |nth| 1_000 + u64::from(nth / 7) + if nth < 10 { 0 } else { 3_600_000 };
        assert_eq!(of(70, jump, Some("")), Some(false));
    }

    #[test]
    fn signs_that_other_consumers_give_for_an_owner_do_not_make_it_live() {
        for signs in 0..=SIGNS {
            let ms = |nth: u32| 1_000 * u64::from((nth / 4).min(signs));
            assert_eq!(of(90, ms, Some("")), Some(signs < SIGNS), "{signs}");
        }
    }

    #[test]
    fn a_silent_server_and_a_job_that_was_kept_alive_begin_the_wait_anew() {
        let mut suspects = Suspects::new("it", HEARTBEAT);
        let seen = || Seen { owner: "me".to_owned(), after_ms: 1, before_ms: 2 };
        let now = Instant::now();
        suspects.look(now, PLACE, seen());
        suspects.look(now + HEARTBEAT * 9, PLACE, seen());
        assert!(!suspects.needs_connections(0), "nothing was seen in between");
        suspects.forget(now + HEARTBEAT * 10);
        assert_eq!(suspects.all.len(), 0);
    }
}
