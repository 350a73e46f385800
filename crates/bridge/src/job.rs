//! A job: the fields of an entry of a stream, as a handler sees them.

use std::fmt::{self, Write as _};
use std::string::FromUtf8Error;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::Value;
use rustix::process::Pid;

use crate::consumer::{Trial, lock};
use crate::exec::kill_is_refused;
use crate::handler::Failure;
use crate::policy::Deliveries;
use crate::scripts::ms;

/// The number of an entry: milliseconds and sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(pub(crate) u64, pub(crate) u64);

impl EntryId {
    pub(crate) fn parse(text: &[u8]) -> Option<EntryId> {
        let (ms, seq) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(EntryId(ms.parse().ok()?, seq.parse().ok()?))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// What a handler gets.
#[derive(Debug)]
pub struct Job {
    pub(crate) stream: Arc<str>,
    pub(crate) entry: EntryId,
    pub(crate) payload: Vec<u8>,
    pub(crate) handler: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) last_error: Option<String>,
    /// The entry of which it is a retry.
    pub(crate) first: Option<String>,
    pub(crate) limit: Option<Duration>,
    pub(crate) ticket: Arc<Ticket>,
    /// It is the first job after a pause.
    pub(crate) trial: Option<Trial>,
}

impl Job {
    /// The bytes that the producer pushed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The id: the producer's, or the number of the entry. It is the same in each attempt if the
    /// producer gave one, so it is the key for effects that must happen once.
    pub fn id(&self) -> String {
        self.id.clone().unwrap_or_else(|| self.entry.to_string())
    }

    /// The name of the handler, if the producer gave one.
    pub fn handler(&self) -> Option<&str> {
        self.handler.as_deref()
    }

    /// The key that chose the shard, if the producer gave one.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The error of the attempt before.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The entry that was pushed: its own, or that of which it is a retry.
    pub(crate) fn first(&self) -> String {
        self.first.clone().unwrap_or_else(|| self.entry.to_string())
    }

    /// Whether the run has lost its job: its time is over, or the consumer ends. Its outcome will be
    /// ignored, so a long handler may stop.
    pub fn is_abandoned(&self) -> bool {
        self.ticket.is_settled()
    }

    /// Describes the run by its job's id and `what` runs, for dumps.
    pub(crate) fn describe(&self, what: &str) {
        let mut text = Description::default();
        // Writing to a description does not fail.
        let _ = match &self.id {
            Some(id) => text.write_id(id, what),
            None => write!(text, "{} {what}", self.entry),
        };
        uwork::set_worker_desc(text.as_str().trim_end());
    }

    /// Says that nothing prevents the run, so that a pause of the consumer ends.
    pub(crate) fn has_started(&self) {
        self.trial.iter().for_each(Trial::has_started);
    }

    /// The first attempt of a job that has nothing but its number.
    #[cfg(test)]
    pub(crate) fn for_test() -> Job {
        Job {
            stream: Arc::from("jobs"),
            entry: EntryId(7, 0),
            payload: Vec::new(),
            handler: None,
            id: None,
            key: None,
            attempt: 1,
            last_error: None,
            first: None,
            limit: None,
            ticket: Ticket::new(),
            trial: None,
        }
    }

    /// The time limit, if the run has exceeded it. The committer decides such attempts; it cannot
    /// while it waits for a server that hangs.
    pub(crate) fn limit_exceeded(&self) -> Option<Duration> {
        self.limit.filter(|&limit| self.ticket.running_ms().is_some_and(|of| of >= ms(limit)))
    }
}

/// The bytes of a description that uwork keeps.
const DESCRIPTION_MAX: usize = 31;
/// The bytes of what runs that a long id leaves.
const WHAT_MIN: usize = 12;

/// A text without an allocation, cut to what uwork keeps.
#[derive(Default)]
struct Description {
    bytes: [u8; DESCRIPTION_MAX],
    length: usize,
}

impl Description {
    /// A long id is cut, so that a part of what runs is shown.
    fn write_id(&mut self, id: &str, what: &str) -> fmt::Result {
        let id_max = DESCRIPTION_MAX - 1 - what.len().min(WHAT_MIN);
        let cut = first_bytes(id, id_max);
        let cut = if cut.len() < id.len() { first_bytes(id, id_max - 1) } else { cut };
        write!(self, "{cut}{} {what}", if cut.len() < id.len() { "~" } else { "" })
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Description {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = first_bytes(text, DESCRIPTION_MAX - self.length);
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// The first bytes of a text, at most `max`, cut between characters.
fn first_bytes(text: &str, max: usize) -> &str {
    let end = (0..=text.len().min(max)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The failure of an attempt that runs for longer than its limit.
pub(crate) fn too_long(limit: Duration) -> Failure {
    Failure::again(format!("the time limit of {limit:?} is over"))
}

/// The fields of an entry.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) handler: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    /// Attempts that have failed.
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<String>,
    /// The entry of which it is a retry.
    pub(crate) first: Option<String>,
    /// The group whose retry it is, if the stream has several.
    pub(crate) group: Option<String>,
}

impl Fields {
    /// Takes the fields out of the reply's list of names and values. Unknown names are ignored.
    pub(crate) fn take(list: Vec<Value>) -> Fields {
        let mut fields = Fields::default();
        let mut list = list.into_iter();
        while let (Some(name), Some(Value::BulkString(value))) = (list.next(), list.next()) {
            let Value::BulkString(name) = name else { continue };
            if let Some(name) = Fields::known(&name) {
                fields.set(name, value);
            }
        }
        fields
    }

    /// The fields of an entry of a stream. What the scripts give a retry counts only in a retry, which
    /// names its first entry: another program may have fields of the same names.
    pub(crate) fn of_entry(mut self) -> Fields {
        self.first = self.first.filter(|first| EntryId::parse(first.as_bytes()).is_some());
        if self.first.is_none() {
            (self.attempts, self.last_error, self.group) = (0, None, None);
        }
        self
    }

    /// The name of a field that a consumer reads.
    pub(crate) fn known(name: &[u8]) -> Option<u8> {
        match name {
            &[name] if b"phikneog".contains(&name) => Some(name),
            _ => None,
        }
    }

    /// Sets the field of a known name.
    pub(crate) fn set(&mut self, name: u8, value: Vec<u8>) {
        // Without a copy, unless it is no text.
        let text = |value| {
            let lossy = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into();
            Some(String::from_utf8(value).unwrap_or_else(lossy))
        };
        match name {
            b'p' => self.payload = Some(value),
            b'h' => self.handler = text(value),
            b'i' => self.id = text(value),
            b'k' => self.key = text(value),
            b'n' => self.attempts = text(value).and_then(|text| text.parse().ok()).unwrap_or(0),
            b'e' => self.last_error = text(value),
            b'o' => self.first = text(value),
            b'g' => self.group = text(value),
            _ => {}
        }
    }
}

/// An entry as it was delivered.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    /// What the server's counter said when it was delivered.
    pub(crate) of: Deliveries,
    /// None: the consumer had no memory for them.
    pub(crate) fields: Option<Fields>,
    /// The memory that is counted for it.
    pub(crate) bytes: usize,
}

/// The right to decide on an attempt of a job: a word with the states of the README.
///
/// | state | meaning |
/// |---|---|
/// | 0 HELD | the consumer owns the entry, no handler has begun |
/// | 1 RUNNING | a handler runs |
/// | 2 SETTLED | the attempt is decided; a handler that still runs is ignored |
#[derive(Debug)]
pub(crate) struct Ticket {
    state: AtomicU8,
    /// The run was reported as a long one.
    is_reported: AtomicBool,
    /// When the run began, in milliseconds after `since`; 0: not yet.
    began_ms: std::sync::atomic::AtomicU64,
    since: Instant,
    /// The run has its permit: only the record of its begin may be between it and its handler.
    has_permit: AtomicBool,
    /// The server knows that the run has begun.
    recorded: AtomicBool,
    /// The server was told that the run begins, and its answer did not come.
    unanswered: AtomicBool,
    /// The leader of the process group that runs the job, until it is reaped.
    group: Mutex<Option<Pid>>,
}

const HELD: u8 = 0;
const RUNNING: u8 = 1;
const SETTLED: u8 = 2;

impl Ticket {
    pub(crate) fn new() -> Arc<Ticket> {
        Arc::new(Ticket {
            state: AtomicU8::new(HELD),
            is_reported: AtomicBool::new(false),
            began_ms: std::sync::atomic::AtomicU64::new(0),
            since: Instant::now(),
            has_permit: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            unanswered: AtomicBool::new(false),
            group: Mutex::default(),
        })
    }

    /// Begins the run. False if the attempt is decided already.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        let ms = self.since.elapsed().as_millis() as u64 + 1;
        self.began_ms.store(ms, Ordering::Relaxed);
        self.state.compare_exchange(HELD, RUNNING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes that the run has its permit.
    pub(crate) fn take_permit(&self) {
        self.has_permit.store(true, Ordering::Relaxed);
    }

    /// Whether the job is held, and has waited for its permit for this time.
    pub(crate) fn has_waited(&self, limit: Duration) -> bool {
        let is_held = self.state.load(Ordering::Relaxed) == HELD;
        is_held && !self.has_permit.load(Ordering::Relaxed) && self.since.elapsed() >= limit
    }

    /// Decides the attempt. False if it is decided already.
    #[must_use]
    pub(crate) fn settle(&self) -> bool {
        self.state.swap(SETTLED, Ordering::Relaxed) != SETTLED
    }

    /// Decides an attempt that has not begun.
    #[must_use]
    pub(crate) fn settle_unstarted(&self) -> bool {
        self.state.compare_exchange(HELD, SETTLED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SETTLED
    }

    /// A process group runs the job from now on. It is killed if the attempt is decided already.
    pub(crate) fn begin_group(&self, leader: Pid) {
        *lock(&self.group) = Some(leader);
        if self.is_settled() {
            let _ = self.kill_group();
        }
    }

    /// The leader of the group will be reaped.
    pub(crate) fn end_group(&self) {
        *lock(&self.group) = None;
    }

    /// Kills the process group. To be called when another thread than that of the run has decided the
    /// attempt, before its outcome is delivered: another consumer may start the job then. True if the
    /// system refuses it.
    pub(crate) fn kill_group(&self) -> bool {
        // Under the lock, so that the number still belongs to the leader.
        let group = lock(&self.group);
        group.is_some_and(kill_is_refused)
    }

    /// Whether its run has begun, and may have ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.began_ms.load(Ordering::Relaxed) > 0
    }

    /// The server has recorded the begin.
    pub(crate) fn record(&self) {
        self.recorded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    /// The server was told that the run begins, and its answer was lost.
    pub(crate) fn lose_answer(&self) {
        self.unanswered.store(true, Ordering::Relaxed);
    }

    /// Whether the run has begun, or may be recorded as if it had.
    pub(crate) fn may_count(&self) -> bool {
        self.has_begun() || self.is_recorded() || self.unanswered.load(Ordering::Relaxed)
    }

    /// True once: the run is to be reported as a long one.
    pub(crate) fn report_once(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }

    /// The milliseconds that the handler has run, if it runs.
    pub(crate) fn running_ms(&self) -> Option<u64> {
        let is_running = self.state.load(Ordering::Relaxed) == RUNNING;
        let began = self.began_ms.load(Ordering::Relaxed);
        is_running.then(|| (self.since.elapsed().as_millis() as u64 + 1).saturating_sub(began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_decided_once() {
        let ticket = Ticket::new();
        assert!(ticket.begin());
        assert!(!ticket.begin() && !ticket.settle_unstarted());
        assert!(ticket.running_ms().is_some());
        assert!(ticket.settle());
        assert!(!ticket.settle() && !ticket.begin() && ticket.is_settled());
        let waiting = Ticket::new();
        assert!(waiting.has_waited(Duration::ZERO) && !waiting.has_waited(Duration::MAX));
        waiting.take_permit();
        assert!(!waiting.has_waited(Duration::ZERO) && !ticket.has_waited(Duration::ZERO));
        let unstarted = Ticket::new();
        assert!(unstarted.settle_unstarted() && !unstarted.begin());
    }

    #[test]
    fn a_description_has_the_id_and_a_part_of_what_runs() {
        let of = |id: &str, what: &str| {
            let mut text = Description::default();
            text.write_id(id, what).unwrap();
            text.as_str().to_owned()
        };
        assert_eq!(of("order-7", "./work"), "order-7 ./work");
        assert_eq!(
            of("order-7", "sh -c cat >>jobs.txt; sleep 100"),
            "order-7 sh -c cat >>jobs.txt; s"
        );
        let long = "550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(of(long, "./work"), "550e8400-e29b-41d4-a716~ ./work");
        assert_eq!(of(long, "sh -c true; true"), "550e8400-e29b-41d~ sh -c true; ");
        let wide = of(&"\u{e9}".repeat(40), "\u{e9}\u{e9}");
        assert!(wide.len() <= DESCRIPTION_MAX && wide.ends_with("~ \u{e9}\u{e9}"), "{wide}");
    }

    #[test]
    fn fields_are_read_by_name_and_unknown_ones_are_ignored() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let list = ["p", "data", "zz", "?", "n", "3", "i", "id7", "e", "why", "lonely"];
        let fields = Fields::take(list.map(bulk).to_vec());
        assert_eq!(fields.payload.as_deref(), Some(&b"data"[..]));
        assert_eq!((fields.attempts, fields.id.as_deref()), (3, Some("id7")));
        assert_eq!(fields.last_error.as_deref(), Some("why"));
        let foreign = fields.of_entry();
        assert_eq!(
            (foreign.attempts, foreign.last_error, foreign.id.unwrap()),
            (0, None, "id7".into())
        );
        let fields = |first| ["n", "3", "g", "mail", "o", first].map(bulk).to_vec();
        let of = |first| {
            let fields = Fields::take(fields(first)).of_entry();
            (fields.attempts, fields.group, fields.first)
        };
        assert_eq!(of("17-0"), (3, Some("mail".into()), Some("17-0".into())), "a retry");
        assert_eq!(of("gold"), (0, None, None));
        assert!(Fields::take(Vec::new()).payload.is_none());
    }

    #[test]
    fn entry_ids_are_read_and_written() {
        assert_eq!(EntryId::parse(b"17-3").unwrap().to_string(), "17-3");
        assert!(EntryId::parse(b"17").is_none() && EntryId::parse(b"a-b").is_none());
        assert!(EntryId(9, 0) < EntryId(10, 0), "numbers, not text");
    }
}
