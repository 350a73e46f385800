//! What a consumer is told: where the jobs are, how they run, what happens when they fail.

use std::time::Duration;

use crate::fault::Error;
use crate::keys::{refusal_of, shard_name, slot};
use crate::nodes::{Nodes, Place};
use crate::policy::Backoff;
use crate::server::Server;

/// The largest number of shards of a stream.
pub const SHARDS_MAX: u32 = 4_096;

/// The range of a heartbeat.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
const HEARTBEAT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The shortest time limit of an attempt.
const LIMIT_MIN: Duration = Duration::from_millis(1);

/// Where results go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Results {
    /// Nowhere.
    #[default]
    Dropped,
    /// Each to a key, `{STREAM}:result:ID`, which expires after this time.
    Key(Duration),
    /// All to the stream `{STREAM}:results`, and about how many it keeps.
    Stream(u64),
}

/// The settings of a consumer. The fields have defaults: [`Config::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The servers. Shards are dealt out to them in turn; more servers than shards are further
    /// addresses of the same, a master and its replicas. One node of a cluster that lives suffices:
    /// the others are found.
    pub servers: Vec<Server>,
    /// The streams, by falling priority. Jobs of a later stream are fetched only while the earlier
    /// ones have none, except for one read in 16, so that a later stream always advances.
    pub streams: Vec<String>,
    /// The number of shards of each stream; 1: the stream itself.
    pub shards: u32,
    /// The consumer group. It is created if it does not exist.
    pub group: String,
    /// A name for people. The name on the server is made unique.
    pub name: String,
    /// How many jobs run at once, 1 to 2048.
    pub max_active: u32,
    /// After this time without a sign of life, other consumers take over a consumer's jobs. A
    /// consumer gives three signs in this time. From 100 ms to 24 hours.
    pub heartbeat: Duration,
    /// The number of attempts after which a job becomes a dead letter, at least 1. An attempt is a run
    /// that has begun, whether it fails or its consumer dies. Deaths bury a job only when the last three
    /// of them were alone: with 1 attempt, a job may begin four runs whose consumers die.
    pub attempts_max: u32,
    /// The delays between attempts.
    pub backoff: Backoff,
    /// After this time an attempt counts as failed. At least 1 ms.
    pub limit: Option<Duration>,
    /// Where results go.
    pub results: Results,
    /// Entries stay in the stream when they are done. Without it they are deleted when all groups of
    /// the stream have acknowledged them.
    pub keep: bool,
    /// A server that forgets jobs fails the start: one that evicts keys, that has no append-only
    /// file, that is a replica, or that does not tell. If a server begins to do so later, no job is
    /// fetched from it until that ends. Without it such a server is reported.
    pub strict: bool,
    /// The interval at which a server is asked whether it may forget jobs: 1 ms to 24 h. A new
    /// connection asks at once.
    pub look_every: Duration,
    /// About how many letters the dead-letter stream keeps; 0: all.
    pub dead_max: u64,
    /// The memory for jobs that are held, in bytes: their payloads, and what belongs to them. The last
    /// job that is taken may exceed it, so a payload of any size runs, and so may fields of at most 64 KiB
    /// of jobs that arrive at that moment. Results, effects and errors that the server has not taken yet
    /// count from the end of their runs on: those of the jobs held by then may exceed it, too. A quarter
    /// is kept for jobs taken over from dead consumers. The server delivers without regard to sizes: jobs
    /// for which there is no memory are handed back at once, and taken again when there is.
    pub payload_bytes_max: usize,
}

impl Config {
    /// The settings for one stream on one server: the group `uwork`, as many jobs at once as the
    /// process has CPUs, twice, a heartbeat of 10 s, 5 attempts, delays from 1 s to 10 minutes, no
    /// limit of time, no results, a look at the server each minute, all dead letters, 48 MiB for jobs
    /// that are held.
    pub fn new(server: Server, stream: impl Into<String>) -> Config {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            servers: vec![server],
            streams: vec![stream.into()],
            shards: 1,
            group: "uwork".to_owned(),
            name: "uwork".to_owned(),
            max_active: u32::try_from(2 * cpus).unwrap_or(2048).min(2048),
            heartbeat: Duration::from_secs(10),
            attempts_max: 5,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(600) },
            limit: None,
            results: Results::Dropped,
            keep: false,
            strict: false,
            look_every: Duration::from_secs(60),
            dead_max: 0,
            payload_bytes_max: 48 << 20,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |text: String| Err(Error::config(text));
        if self.servers.is_empty() || self.streams.is_empty() {
            return fail("at least one server and one stream are needed".to_owned());
        }
        if let Some(refusal) = self.streams.iter().find_map(|of| refusal_of(of, self.shards)) {
            return fail(refusal);
        }
        let twice = self.streams.iter().enumerate().find(|(n, s)| self.streams[..*n].contains(s));
        if let Some((_, stream)) = twice {
            return fail(format!("the stream {stream:?} is given twice"));
        }
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return fail(format!("{} shards: allowed are 1 to {SHARDS_MAX}", self.shards));
        }
        if !(1..=2048).contains(&self.max_active) {
            return fail(format!("max_active {}: allowed are 1 to 2048", self.max_active));
        }
        if self.attempts_max == 0 {
            return fail("0 attempts: at least 1 is needed".to_owned());
        }
        if !(HEARTBEAT_MIN..=HEARTBEAT_MAX).contains(&self.heartbeat) {
            let heartbeat = self.heartbeat;
            return fail(format!("a heartbeat of {heartbeat:?}: allowed are 100 ms to 24 h"));
        }
        if let Some(limit) = self.limit.filter(|&limit| limit < LIMIT_MIN) {
            return fail(format!("a time limit of {limit:?}: at least 1 ms"));
        }
        if !(LIMIT_MIN..=HEARTBEAT_MAX).contains(&self.look_every) {
            let every = self.look_every;
            return fail(format!("a look every {every:?}: allowed are 1 ms to 24 h"));
        }
        if self.group.is_empty() || self.name.is_empty() {
            return fail("the group and the name have at least one character".to_owned());
        }
        Ok(())
    }

    /// The server and the streams of each shard.
    pub(crate) fn placed(&self) -> Vec<(Server, Vec<String>)> {
        let first = self.streams.first().map(String::as_str).unwrap_or_default();
        let placed = placed(&self.servers, first, self.shards);
        (0..)
            .zip(placed)
            .map(|(shard, (server, _))| {
                let name = |stream: &String| shard_name(stream, shard, self.shards);
                (server, self.streams.iter().map(name).collect())
            })
            .collect()
    }
}

/// The shards of a stream: for each its server and the name of its stream. Empty without servers.
/// The servers know each other: where one fails, the others of its cluster are asked.
pub fn placed(servers: &[Server], stream: &str, shards: u32) -> Vec<(Server, String)> {
    let nodes = Nodes::new(servers, shards);
    let place = |(shard, home): (u32, usize)| {
        let name = shard_name(stream, shard, shards);
        let place = Place { nodes: nodes.clone(), home, slot: Some(slot(&name)) };
        (servers[home].clone().with_place(place), name)
    };
    let homes = (0..servers.len()).cycle();
    (0..shards).zip(homes).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(Server::new("redis://127.0.0.1").unwrap(), "jobs")
    }

    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = config();
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn settings_out_of_range_are_refused_with_the_allowed_ones() {
        config().check().unwrap();
        assert!(refusal(|config| config.max_active = 0).contains("1 to 2048"));
        assert!(refusal(|config| config.shards = 5_000).contains("1 to 4096"));
        assert!(refusal(|config| config.attempts_max = 0).contains("at least 1"));
        assert!(refusal(|config| config.heartbeat = Duration::ZERO).contains("100 ms"));
        assert!(refusal(|config| config.heartbeat = Duration::MAX).contains("24 h"));
        assert!(refusal(|config| config.look_every = Duration::ZERO).contains("1 ms to 24 h"));
        assert!(refusal(|config| config.look_every = Duration::MAX).contains("1 ms to 24 h"));
        assert!(refusal(|config| config.limit = Some(Duration::ZERO)).contains("at least 1 ms"));
        assert!(refusal(|config| config.streams.push("jobs".to_owned())).contains("twice"));
        assert!(refusal(|config| config.streams.clear()).contains("one stream"));
        assert!(refusal(|config| config.streams.push(String::new())).contains("one character"));
        assert!(refusal(|config| config.streams.push("{jobs}".to_owned())).contains("{tag}"));
    }

    #[test]
    fn shards_are_dealt_out_to_the_servers_in_turn() {
        let mut config = config();
        config.servers.push(Server::new("redis://127.0.0.2").unwrap());
        config.shards = 3;
        let placed = config.placed();
        let servers: Vec<String> = placed.iter().map(|(server, _)| server.name()).collect();
        assert_eq!(servers, ["127.0.0.1:6379", "127.0.0.2:6379", "127.0.0.1:6379"]);
        assert_eq!(placed[2].1, ["jobs.{2}"]);
    }

    #[test]
    fn a_bad_address_is_refused_without_its_password() {
        let error = Server::new("http://me:secret@host").unwrap_err().to_string();
        assert!(error.contains("redis://") && !error.contains("secret"), "{error}");
    }
}
