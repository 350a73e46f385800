//! The state of a stream, as the server knows it.

use std::fmt::Write as _;
use std::time::Duration;

use redis::Value;

use crate::fault::{Error, Fault, Remedy};
use crate::keys::Keys;
use crate::server::Server;
use crate::wire::Wire;

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStat {
    /// Its name on the server.
    pub name: String,
    /// Jobs that it holds.
    pub pending: u64,
    /// The time since its last sign of life: a read, or a heartbeat.
    pub idle: Duration,
}

/// The state of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The stream.
    pub stream: String,
    /// Whether the server has the stream, or another key of it: a delayed job, a dead letter, a count.
    pub exists: bool,
    /// Whether the group exists: the first consumer makes it.
    pub group_exists: bool,
    /// Jobs that wait in the stream: no consumer has fetched them, or one that has stopped since has handed
    /// them back.
    pub lag: u64,
    /// Jobs that consumers hold.
    pub in_flight: u64,
    /// Delayed jobs, retries included.
    pub delayed: u64,
    /// Letters in the dead-letter stream.
    pub dead_letters: u64,
    /// Jobs that were acknowledged.
    pub done: u64,
    /// Failed attempts that were delayed for another.
    pub retries: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
    /// Jobs taken over from dead consumers, or from those that have handed them back.
    pub reclaimed: u64,
    /// Jobs that ran twice.
    pub duplicates: u64,
    /// The consumers.
    pub consumers: Vec<ConsumerStat>,
    /// Keys that the server has not shown, and why: they have another type, or the user has no right.
    /// Their numbers here are zero.
    pub unread: Vec<(String, Error)>,
}

/// The consumer of entries in quarantine, as the scripts name it.
pub(crate) const QUARANTINE: &str = "quarantine";
/// The consumer of entries that were released from quarantine, or by a consumer that has stopped.
const RELEASED: &str = "released";

impl ConsumerStat {
    /// Whether it is a process, which lives or has died. Else it has entries that no process has: those
    /// in quarantine, and those that were released from it, or by a consumer that has stopped, and wait for
    /// another.
    pub fn is_process(&self) -> bool {
        !self.is_quarantine() && self.name != RELEASED
    }

    /// Whether its entries are those in quarantine.
    pub fn is_quarantine(&self) -> bool {
        self.name == QUARANTINE
    }
}

impl Stat {
    /// The number of consumers that are processes, live or dead.
    pub fn consumers_known(&self) -> u64 {
        self.processes().count() as u64
    }

    /// The number of consumers that have given a sign of life within their heartbeat.
    pub fn consumers_alive(&self, heartbeat: Duration) -> u64 {
        self.processes().filter(|consumer| consumer.idle <= heartbeat).count() as u64
    }

    fn processes(&self) -> impl Iterator<Item = &ConsumerStat> {
        self.consumers.iter().filter(|consumer| consumer.is_process())
    }

    /// Takes the counters in the reply to HGETALL.
    fn count(&mut self, reply: &Value) {
        let Value::Array(counts) = reply else { return };
        for pair in counts.chunks_exact(2) {
            let place = match text(&pair[0]).as_str() {
                "done" => &mut self.done,
                "retries" => &mut self.retries,
                "dead" => &mut self.dead,
                "reclaimed" => &mut self.reclaimed,
                "duplicates" => &mut self.duplicates,
                _ => continue,
            };
            *place = text(&pair[1]).parse().unwrap_or(0);
        }
    }

    /// Asks a server for the state of a stream. A stream or group that does not exist is empty.
    ///
    /// # Errors
    /// The server does not answer, or shows none of the stream's keys.
    pub fn read(server: Server, stream: &str, group: &str) -> Result<Stat, Error> {
        let keys = Keys::of(stream);
        let mut wire = Wire::new(server);
        let command = |name: &str, args: &[&str]| {
            let mut command = redis::cmd(name);
            args.iter().for_each(|arg| {
                command.arg(arg);
            });
            command
        };
        let commands = [
            command("XLEN", &[stream]),
            command("ZCARD", &[&keys.delayed]),
            command("XLEN", &[&keys.dead]),
            command("HGETALL", &[&keys.stats]),
            command("XPENDING", &[stream, group]),
            command("XINFO", &["GROUPS", stream]),
            command("XINFO", &["CONSUMERS", stream, group]),
        ];
        let replies = wire.ask(&commands).map_err(|fault| fault.error)?;
        let unread = unread(&keys, &replies, &wire.name())?;
        let mut stat = Stat { stream: stream.to_owned(), unread, ..Stat::default() };
        let length = number(&replies[0]);
        stat.delayed = number(&replies[1]);
        stat.dead_letters = number(&replies[2]);
        stat.count(&replies[3]);
        let groups = groups(&replies[5]);
        stat.group_exists = groups.iter().any(|name| name == group) || stat.is_unread("");
        let has_counts = matches!(&replies[3], Value::Array(counts) if !counts.is_empty());
        stat.exists = matches!(&replies[5], Value::Array(_))
            || stat.delayed + stat.dead_letters > 0
            || has_counts
            || !stat.unread.is_empty();
        // The rest are errors if the group does not exist.
        if let Value::Array(pending) = &replies[4] {
            stat.in_flight = pending.first().map_or(0, number);
        }
        // The server counts the lag unless entries in the middle were deleted, and its count is too
        // large after it has loaded a log. What has no owner is in the stream and not pending.
        let lag = rows(&replies[5])
            .find(|about| field(about, "name").map(text).as_deref() == Some(group));
        let lag = lag.and_then(|about| match field(about, "lag") {
            Some(Value::Int(lag)) => Some(lag.cast_unsigned()),
            _ => None,
        });
        let lag_max = length.saturating_sub(stat.in_flight);
        stat.lag = lag.map_or(lag_max, |lag| lag.min(lag_max));
        stat.consumers = consumers(&replies[6]);
        stat.let_released_wait();
        Ok(stat)
    }

    /// Released entries are pending, and no consumer holds them.
    fn let_released_wait(&mut self) {
        let released = self.consumers.iter().find(|consumer| consumer.name == RELEASED);
        // The replies are of several moments.
        let waiting = released.map_or(0, |released| released.pending).min(self.in_flight);
        self.in_flight -= waiting;
        self.lag += waiting;
    }

    /// Whether the server has not shown a key: the stream with an empty name, or one of its others.
    fn is_unread(&self, part: &str) -> bool {
        self.unread.iter().any(|(key, _)| match part {
            "" => *key == self.stream,
            part => *key != self.stream && key.ends_with(part),
        })
    }

    /// Several streams in the text format of OpenMetrics, without numbers that are unknown. A consumer is
    /// alive within this heartbeat, which is that of the consumers.
    pub fn to_openmetrics(stats: &[Stat], heartbeat: Duration) -> String {
        type Metric = (&'static str, &'static str, &'static str, fn(&Stat, Duration) -> u64);
        // By the keys that have them.
        const METRICS: [Metric; 11] = [
            ("lag", "", "Jobs that wait in the stream", |stat, _| stat.lag),
            ("in_flight", "", "Jobs that consumers hold", |stat, _| stat.in_flight),
            ("delayed", ":delayed", "Delayed jobs, retries included", |stat, _| stat.delayed),
            ("dead_letters", ":dead", "Letters in the dead-letter stream", |s, _| s.dead_letters),
            ("consumers", "", "Consumers of the group, live or dead", |s, _| s.consumers_known()),
            ("consumers_alive", "", "Consumers of the group that live", Stat::consumers_alive),
            ("done", ":stats", "Jobs that were acknowledged", |stat, _| stat.done),
            ("retries", ":stats", "Failed attempts, delayed for another", |stat, _| stat.retries),
            ("dead", ":stats", "Jobs that became dead letters", |stat, _| stat.dead),
            ("reclaimed", ":stats", "Jobs taken over from others", |stat, _| stat.reclaimed),
            ("duplicates", ":stats", "Jobs that ran twice", |s, _| s.duplicates),
        ];
        let mut out = String::new();
        for (name, key, help, value) in METRICS {
            let (kind, suffix) =
                if key == ":stats" { ("counter", "_total") } else { ("gauge", "") };
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "# TYPE uwork_bridge_{name} {kind}\n# HELP uwork_bridge_{name} {help}.\n"
            );
            for stat in stats.iter().filter(|stat| !stat.is_unread(key)) {
                let stream = stat.stream.replace('\\', "\\\\").replace('"', "\\\"");
                let stream = stream.replace('\n', "\\n");
                let value = value(stat, heartbeat);
                let _ = writeln!(out, "uwork_bridge_{name}{suffix}{{stream=\"{stream}\"}} {value}");
            }
        }
        out.push_str("# EOF\n");
        out
    }
}

/// The keys that a server has not shown, and why. A stream or a group that does not exist is no error
/// of the replies about it. If no key was shown, the first error is that of the server.
fn unread(keys: &Keys, replies: &[Value], address: &str) -> Result<Vec<(String, Error)>, Error> {
    let of = [&keys.stream, &keys.delayed, &keys.dead, &keys.stats, &keys.stream, &keys.stream];
    let mut unread: Vec<(String, Error)> = Vec::new();
    for (key, reply) in of.into_iter().zip(replies) {
        let exists = |fault: &Fault| {
            fault.remedy != Remedy::MakeGroup && !fault.error.to_string().contains("no such key")
        };
        let fault = Fault::in_reply(reply, address).filter(exists);
        if let Some(fault) = fault.filter(|_| unread.iter().all(|(known, _)| known != key)) {
            unread.push((key.clone(), fault.error));
        }
    }
    if unread.len() == 4 { Err(unread.swap_remove(0).1) } else { Ok(unread) }
}

/// The consumers in a reply to XINFO CONSUMERS; none in an error.
pub(crate) fn consumers(reply: &Value) -> Vec<ConsumerStat> {
    let consumer = |about: &[Value]| ConsumerStat {
        name: field(about, "name").map(text).unwrap_or_default(),
        pending: field(about, "pending").map_or(0, number),
        idle: Duration::from_millis(field(about, "idle").map_or(0, number)),
    };
    rows(reply).map(consumer).collect()
}

/// The groups in a reply to XINFO GROUPS; none in an error.
pub(crate) fn groups(reply: &Value) -> Vec<String> {
    rows(reply).filter_map(|about| field(about, "name").map(text)).collect()
}

/// The rows of a reply to XINFO.
fn rows(reply: &Value) -> impl Iterator<Item = &[Value]> {
    let rows = if let Value::Array(rows) = reply { &rows[..] } else { &[] };
    rows.iter().filter_map(|row| if let Value::Array(row) = row { Some(&row[..]) } else { None })
}

fn field<'a>(about: &'a [Value], name: &str) -> Option<&'a Value> {
    about.chunks_exact(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
}

fn number(value: &Value) -> u64 {
    if let Value::Int(number) = value { number.cast_unsigned() } else { 0 }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_have_one_line_for_each_stream_and_metric() {
        let stat = |stream: &str| Stat { stream: stream.to_owned(), done: 7, ..Stat::default() };
        let heartbeat = Duration::from_secs(10);
        let out = Stat::to_openmetrics(&[stat("a"), stat("b\"")], heartbeat);
        assert!(out.contains("uwork_bridge_done_total{stream=\"a\"} 7\n"));
        assert!(out.contains("uwork_bridge_lag{stream=\"b\\\"\"} 0\n"));
        assert!(out.ends_with("# EOF\n"));
        let error = Error::config("no right");
        let hidden = Stat { unread: vec![("{a}:stats".to_owned(), error)], ..stat("a") };
        let out = Stat::to_openmetrics(&[hidden], heartbeat);
        assert!(!out.contains("done_total{") && out.contains("lag{stream=\"a\"} 0"), "{out}");
    }

    #[test]
    fn consumers_are_processes_and_those_that_live_are_counted() {
        let consumer = |name: &str, idle_s| {
            let idle = Duration::from_secs(idle_s);
            ConsumerStat { name: name.to_owned(), pending: 1, idle }
        };
        let consumers = ["a:1:f", "b:2:f", "c:3:f", "quarantine", "released"];
        let idle_s = [0, 10, 11, 0, 0];
        let consumers = consumers.into_iter().zip(idle_s).map(|(name, idle)| consumer(name, idle));
        let stat = Stat { consumers: consumers.collect(), ..Stat::default() };
        let heartbeat = Duration::from_secs(10);
        assert_eq!((stat.consumers_known(), stat.consumers_alive(heartbeat)), (3, 2));
        let out = Stat::to_openmetrics(&[stat], heartbeat);
        assert!(out.contains("uwork_bridge_consumers{stream=\"\"} 3\n"), "{out}");
        assert!(out.contains("uwork_bridge_consumers_alive{stream=\"\"} 2\n"), "{out}");
    }

    #[test]
    fn released_jobs_wait_and_are_not_in_flight() {
        let consumer = |name: &str, pending| ConsumerStat {
            name: name.to_owned(),
            pending,
            idle: Duration::ZERO,
        };
        let stat = |released| {
            let consumers = vec![consumer("a:1:f", 2), consumer(RELEASED, released)];
            let mut stat = Stat { lag: 5, in_flight: 5, consumers, ..Stat::default() };
            stat.let_released_wait();
            (stat.lag, stat.in_flight)
        };
        assert_eq!([stat(0), stat(3), stat(9)], [(5, 5), (8, 2), (10, 0)]);
    }

    #[test]
    fn counters_without_a_value_are_not_read() {
        let bulk = |word: &str| Value::BulkString(word.into());
        let mut stat = Stat::default();
        stat.count(&Value::Array(["done", "7", "dead"].map(bulk).to_vec()));
        stat.count(&Value::Okay);
        assert_eq!((stat.done, stat.dead), (7, 0));
    }
}
