//! `uwork trace`: the runs of a process's items over a few seconds, as a file for Perfetto.
//!
//! A group has a track for each CPU, another has a track for each worker, and a third has the other
//! threads that queue items. An arrow leads from the submission of an item to its start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uwork_sim::trace_events::{Events, Track};

use super::{TraceArgs, UserError};
use crate::client::{Client, Failure, PATIENCE, Table};
use crate::commands::progress::Progress;
use crate::commands::signals::Signals;
use crate::printable::{self, in_a_line, printable};

/// How often the records are read: the rings of the process hold a multiple of what it records
/// meanwhile.
const INTERVAL: Duration = Duration::from_millis(10);
/// How long a process that has not answered is asked to end the trace.
const END_MAX: Duration = Duration::from_millis(250);
/// The most records of a file. Perfetto needs some gigabytes of memory for that number.
const RECORDS_MAX: usize = 3_000_000;
/// The bytes of all answers that are kept, names included. Those of as many records are fewer.
const BYTES_MAX: usize = 512 << 20;
/// The bytes of the names of all runs in a file. Later runs have none.
const NAMES_MAX: usize = 128 << 20;
/// The characters of a name that are kept.
const NAME_MAX: usize = 512;
/// The longest slice of a submission in the file. The real one takes less.
const SUBMISSION_NS: u64 = 100;

const CPUS: u32 = 1;
const WORKERS: u32 = 2;
const SUBMITTERS: u32 = 3;

/// Runs the command. SIGINT and SIGTERM end the trace early. The exit code is 1 if the process ended
/// meanwhile, ceased to answer, or refused to go on. The file has what came before in all cases.
pub(super) fn run(args: &TraceArgs) -> Result<ExitCode, UserError> {
    let file = |error| UserError(format!("{}: {error}", args.output.display()));
    let mut client = Client::connect(&args.process)?;
    let time = Duration::from_secs(args.seconds);
    let mut last = client.last_after(time);
    // Before the trace, which a file that cannot be written does not cost then. Its contents stay
    // until there are others.
    let _writable = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&args.output)
        .map_err(file)?;
    let ran_before = ran(&mut client);
    let signals = Signals::block();
    client.ask(&format!("trace on {}", args.seconds))?;
    let progress = Progress::new(None);
    progress.begin(format!("records process {} for {} s", client.process(), args.seconds));
    let mut trace = Trace::default();
    let start = Instant::now();
    let outcome = record(&mut client, &signals, (start + time, last), &mut trace);
    let seconds = start.elapsed().as_secs_f64();
    drop(progress);
    let ended = match outcome {
        Ok(end) => {
            end.explain();
            None
        }
        Err(failure) => {
            last = last_of_end(last, Instant::now());
            end(&mut client, last);
            Some(UserError::from(failure).0)
        }
    };
    // A signal that came at the end is no reason to lose the file. A later one ends the command.
    while signals.come_within(Duration::ZERO).is_some() {}
    drop(signals);
    trace.close();
    client.renew_before(last);
    let ran = ran(&mut client).zip(ran_before).map(|(ran, before)| ran.saturating_sub(before));
    let process = client.process();
    let mut out = File::create(&args.output).map_err(file)?;
    let mut written = Ok(());
    let write = |text: &str| {
        if written.is_ok() {
            // A reader may print it.
            written = out.write_all(printable(text).as_bytes());
        }
    };
    trace.file(process, &|thread| thread_name(process, thread), write);
    written.map_err(file)?;
    let of = ran.map_or(String::new(), |ran| format!(" of about {ran}"));
    complain!(
        "{} runs{of} in {seconds:.1} s, {} records lost; ui.perfetto.dev opens {}",
        trace.runs.len(),
        trace.lost,
        args.output.display()
    );
    if trace.nameless > 0 {
        complain!(
            "uwork: {} runs have no names in the file: those of the others have {} MiB",
            trace.nameless,
            NAMES_MAX >> 20
        );
    }
    let Some(reason) = ended else { return Ok(ExitCode::SUCCESS) };
    complain!("uwork: {reason}; the file has what came before");
    Ok(ExitCode::from(1))
}

/// The runs of all queues so far. None if they are too many for an answer, or the process has ended.
fn ran(client: &mut Client) -> Option<u64> {
    let table = Table::parse(&client.ask("queues").ok()?);
    Some(table.rows().fold(0, |sum, row| row.number("ran").saturating_add(sum)))
}

/// Why a trace ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Time,
    Signal,
    Full,
}

impl End {
    fn explain(self) {
        match self {
            End::Time => {}
            End::Signal => complain!("uwork: ended by a signal; the file has what came before"),
            End::Full => complain!(
                "uwork: a file has at most {RECORDS_MAX} records, so the trace has ended early"
            ),
        }
    }
}

fn record(
    client: &mut Client,
    signals: &Signals,
    (end_at, last): (Instant, Instant),
    trace: &mut Trace,
) -> Result<End, Failure> {
    let mut end = End::Time;
    while end == End::Time && Instant::now() < end_at {
        if signals.come_within(INTERVAL).is_some() {
            end = End::Signal;
        }
        read(client, last, trace)?;
        if !trace.has_room() {
            end = End::Full;
        }
    }
    client.renew_before(last);
    client.ask("trace off")?;
    read(client, last, trace)?;
    Ok(end)
}

/// The deadline of what follows a failure: a round of its own for all of it, whatever is left of the time.
fn last_of_end(last: Instant, now: Instant) -> Instant {
    last.min(now + PATIENCE)
}

/// Ends the trace of a process that has refused to read, or does not answer. Where it answers too late, the
/// end of the connection ends the trace. A process of an earlier version has to be told by another one.
fn end(client: &mut Client, last: Instant) {
    client.renew_before(last);
    if matches!(client.ask("trace off"), Err(Failure::Gone(_)))
        && let Ok(mut other) = client.reopen(END_MAX)
        && other.is_of_same_process(client)
    {
        let _ = other.ask("trace off");
    }
}

/// Reads what the process has, by one deadline: it may always say that it has more.
fn read(client: &mut Client, last: Instant, trace: &mut Trace) -> Result<(), Failure> {
    client.renew_before(last);
    while trace.has_room() && trace.add(&client.ask("trace read")?) {}
    Ok(())
}

/// The name of a thread of the process, while it lives.
fn thread_name(process: u32, thread: u64) -> Option<String> {
    printable::file(&format!("/proc/{process}/task/{thread}/comm"))
}

/// A submission: when, by which thread, and on which CPU.
#[derive(Clone, Copy)]
struct Queued {
    at: u64,
    thread: u64,
}

/// A run of an item.
struct Run {
    from: u64,
    to: u64,
    cpu: u32,
    slot: u64,
    name: Rc<str>,
    queue: Rc<str>,
    queued: Option<Queued>,
}

/// A line of the answer to `trace read` that is a record.
struct Record {
    at: u64,
    cpu: u32,
    item: u64,
    pwq: u64,
    event: Event,
}

enum Event {
    Queued { thread: u64 },
    Started { slot: u64, function: u64 },
    Ended { slot: u64, thread: u64 },
}

/// What was read so far.
#[derive(Default)]
struct Trace {
    records: Vec<Record>,
    functions: HashMap<u64, Name>,
    queues: HashMap<u64, Name>,
    runs: Vec<Run>,
    /// Runs without names, beyond [`NAMES_MAX`].
    nameless: usize,
    lost: u64,
    /// Of all answers.
    bytes: usize,
}

fn record_of(kind: &str, values: &[&str]) -> Option<Record> {
    let number = |place: usize| values.get(place)?.parse::<u64>().ok();
    let hex = |place: usize| u64::from_str_radix(values.get(place)?, 16).ok();
    let event = match kind {
        "queued" => Event::Queued { thread: number(4)? },
        "started" => Event::Started { slot: number(4)?, function: hex(5)? },
        "ended" => Event::Ended { slot: number(4)?, thread: number(5)? },
        _ => return None,
    };
    let (at, cpu, item, pwq) = (number(0)?, number(1)? as u32, hex(2)?, number(3)?);
    Some(Record { at, cpu, item, pwq, event })
}

/// A name as far as it is kept, and its bytes in the file, where each run has it.
struct Name(Rc<str>, usize);

impl Name {
    fn new(name: &str) -> Name {
        let start: String = name.chars().take(NAME_MAX).collect();
        let bytes = in_a_line(&start).len();
        Name(start.into(), bytes)
    }
}

impl Trace {
    fn has_room(&self) -> bool {
        self.records.len() < RECORDS_MAX && self.bytes < BYTES_MAX
    }

    /// Adds the records of an answer. Whether the process has more of them.
    fn add(&mut self, answer: &str) -> bool {
        let mut has_more = false;
        self.bytes += answer.len();
        for line in answer.lines() {
            let mut fields = line.split('\t');
            let kind = fields.next().unwrap_or_default();
            let values: Vec<&str> = fields.collect();
            match (kind, &values[..]) {
                ("lost", [count]) => {
                    self.lost = self.lost.saturating_add(count.parse().unwrap_or(0));
                }
                ("more", [more]) => has_more = *more != "0",
                ("function", [number, name]) => {
                    let number = u64::from_str_radix(number, 16).unwrap_or(0);
                    self.functions.insert(number, Name::new(name));
                }
                ("queue", [number, name]) => {
                    self.queues.insert(number.parse().unwrap_or(0), Name::new(name));
                }
                // Lines of other kinds are for later versions of this command.
                _ => self.records.extend(record_of(kind, &values)),
            }
        }
        has_more
    }

    /// Forms runs of the records.
    fn close(&mut self) {
        self.close_within(NAMES_MAX);
    }

    /// The same, with this many bytes of names.
    fn close_within(&mut self, names_max: usize) {
        let (mut left, nameless): (usize, Rc<str>) = (names_max, "item".into());
        self.records.sort_by_key(|record| record.at);
        let last = self.records.last().map_or(0, |record| record.at);
        let mut queued: HashMap<u64, Queued> = HashMap::new();
        // The run of each slot that is in progress.
        let mut open: BTreeMap<u64, Run> = BTreeMap::new();
        for &Record { at, cpu, item, pwq, ref event } in &self.records {
            let slot = match *event {
                Event::Queued { thread } => {
                    queued.insert(item, Queued { at, thread });
                    continue;
                }
                Event::Started { slot, .. } | Event::Ended { slot, .. } => slot,
            };
            // A run whose end was lost has ended when the next one starts.
            let ended = open.remove(&slot).map(|run| Run { to: at, ..run });
            self.runs.extend(ended);
            if let Event::Started { function, .. } = *event {
                let (name, queue) = (self.functions.get(&function), self.queues.get(&pwq));
                let bytes = [name, queue].into_iter().flatten().map(|name| name.1).sum();
                let rest = left.checked_sub(bytes);
                left = rest.unwrap_or(0);
                self.nameless += usize::from(rest.is_none());
                let known =
                    |name: Option<&Name>| Some(Rc::clone(&name.filter(|_| rest.is_some())?.0));
                let run = Run {
                    from: at,
                    to: at,
                    cpu,
                    slot,
                    name: known(name).unwrap_or_else(|| Rc::clone(&nameless)),
                    queue: known(queue).unwrap_or_default(),
                    queued: queued.remove(&item),
                };
                open.insert(slot, run);
            }
        }
        let unfinished = open.into_values().map(|run| {
            let name = format!("{} (has not ended)", run.name).into();
            Run { to: last, name, ..run }
        });
        self.runs.extend(unfinished);
    }

    /// The thread of each worker.
    fn threads(&self) -> BTreeMap<u64, u64> {
        let ended = self.records.iter().filter_map(|record| match record.event {
            Event::Ended { slot, thread } => Some((slot, thread)),
            _ => None,
        });
        ended.collect()
    }

    /// Writes the text of the file, in pieces. Times begin with the first record.
    fn file(
        &self,
        process: u32,
        thread_name: &dyn Fn(u64) -> Option<String>,
        mut write: impl FnMut(&str),
    ) {
        let mut events = Events::to(Box::new(&mut write));
        events.name_group(CPUS, &format!("CPUs of process {process}"));
        events.name_group(WORKERS, "workers");
        events.name_group(SUBMITTERS, "other threads that queue");
        let threads = self.threads();
        let workers: HashMap<u64, u64> = threads.iter().map(|(&slot, &id)| (id, slot)).collect();
        let worker = |slot| Track { group: WORKERS, number: slot };
        let name = |thread: u64| match thread_name(thread) {
            Some(name) => format!("{name} (thread {thread})"),
            None => format!("thread {thread}"),
        };
        for slot in self.runs.iter().map(|run| run.slot).collect::<BTreeSet<_>>() {
            let named = threads.get(&slot).map_or(format!("slot {slot}"), |&thread| name(thread));
            events.name_track(worker(slot), &named);
        }
        let submitters = self.runs.iter().filter_map(|run| Some(run.queued?.thread));
        let submitters: BTreeSet<u64> =
            submitters.filter(|thread| !workers.contains_key(thread)).collect();
        for &thread in &submitters {
            events.name_track(Track { group: SUBMITTERS, number: thread }, &name(thread));
        }
        let first = self.records.first().map_or(0, |record| record.at);
        for (id, run) in self.runs.iter().enumerate() {
            let (from, to) = (run.from - first, run.to - first);
            events.slice(from, to, worker(run.slot), &format!("{} [{}]", run.name, run.queue));
            let Some(Queued { at, thread }) = run.queued else { continue };
            let at = at - first;
            let track = workers
                .get(&thread)
                .map_or(Track { group: SUBMITTERS, number: thread }, |&slot| worker(slot));
            events.slice(at, at + SUBMISSION_NS.min(from.saturating_sub(at)), track, "queue");
            events.arrow_from(at, track, "queued", id as u64);
            events.arrow_to(from, worker(run.slot), "queued", id as u64);
        }
        self.draw_cpus(first, &mut events);
        let lost = self.lost;
        let rest = events.file(&format!("\"process\":{process},\"records_lost\":{lost}"));
        write(&rest);
    }

    /// The track of a CPU shows the item that started there last. An item that sleeps is on its
    /// worker's track alone, as soon as another item starts on the CPU.
    fn draw_cpus(&self, first: u64, events: &mut Events<'_>) {
        let mut cpus: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
        self.runs.iter().for_each(|run| cpus.entry(run.cpu).or_default().push(run));
        for (cpu, mut runs) in cpus {
            let track = Track { group: CPUS, number: cpu.into() };
            events.name_track(track, &format!("CPU {cpu}"));
            runs.sort_by_key(|run| run.from);
            for (place, run) in runs.iter().enumerate() {
                let next = runs.get(place + 1).map_or(run.to, |next| next.from);
                events.slice(run.from - first, run.to.min(next) - first, track, &run.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "lost\t2\nmore\t1\nfunction\ta0\tapp::Log\nqueue\t7\tlog\n\
        queued\t1000\t0\tbeef\t7\t11\n\
        started\t5000\t1\tbeef\t7\t3\ta0\n\
        started\t6000\t1\tcafe\t7\t4\ta0\n\
        queued\t6500\t1\tbeef\t7\t12\n\
        ended\t9000\t1\tbeef\t7\t3\t12\n";

    fn trace() -> Trace {
        let mut trace = Trace::default();
        assert!(trace.add(ANSWER), "more is left");
        assert!(!trace.add("lost\t1\nmore\t0\nnew\t1\t2\n"));
        trace.close();
        trace
    }

    #[test]
    fn a_run_has_its_submission_and_its_end() {
        let trace = trace();
        assert_eq!(trace.lost, 3);
        let run = trace.runs.iter().find(|run| run.slot == 3).expect("the whole run");
        assert_eq!((run.from, run.to, run.cpu), (5_000, 9_000, 1));
        assert_eq!((&*run.name, &*run.queue), ("app::Log", "log"));
        assert_eq!(run.queued.map(|queued| (queued.at, queued.thread)), Some((1_000, 11)));
        let open = trace.runs.iter().find(|run| run.slot == 4).expect("the unfinished run");
        assert_eq!((open.to, &*open.name), (9_000, "app::Log (has not ended)"));
    }

    // Catches: a file of gigabytes, as a long name is that of each of three million runs.
    #[test]
    fn the_bytes_of_names_in_a_file_are_bounded() {
        let mut trace = Trace::default();
        let name = "\u{202e}".repeat(2 * NAME_MAX);
        trace.add(&format!("function\ta0\t{name}\nqueue\t7\tlog\n"));
        for run in 0..1_000 {
            trace.add(&format!("started\t{run}\t1\tbeef\t7\t3\ta0\n"));
        }
        trace.close_within(10 * (6 * NAME_MAX + 3));
        let (named, nameless) = trace.runs.split_at(10);
        assert!(named.iter().all(|run| run.name.len() == 3 * NAME_MAX && &*run.queue == "log"));
        assert!(nameless[..989].iter().all(|run| &*run.name == "item" && run.queue.is_empty()));
        assert_eq!((trace.nameless, nameless.len()), (990, 990));
    }

    // Catches: two rounds after a trace of minutes has failed, one to end it and one to count.
    #[test]
    fn after_a_failure_there_is_time_for_one_round() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        assert_eq!(last_of_end(now + minute, now), now + PATIENCE);
        assert_eq!(last_of_end(now, now + minute), now);
    }

    proptest::proptest! {
        /// A process may answer anything.
        #[test]
        fn any_answer_makes_a_file(
            lines in proptest::collection::vec(
                ("queued|started|ended|lost|more|function|queue|new", "[0-9a-f\\t]{0,20}"),
                0..40,
            ),
        ) {
            let answer: String =
                lines.iter().map(|(kind, values)| format!("{kind}\t{values}\n")).collect();
            let mut trace = Trace::default();
            trace.add(&answer);
            trace.add("started\t18446744073709551615\t4294967296\t1\t0\t1\t2\n");
            trace.close();
            let mut text = String::new();
            trace.file(1, &|_| None, |piece| text += piece);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_file_has_tracks_and_arrows() {
        let mut text = String::new();
        let name = |thread| (thread == 12).then(|| "uw/1".to_owned());
        trace().file(42, &name, |piece| text += piece);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let events = json["traceEvents"].as_array().expect("a list");
        let named = |name: &str| events.iter().any(|event| event["args"]["name"] == name);
        for name in ["CPU 1", "uw/1 (thread 12)", "slot 4", "thread 11"] {
            assert!(named(name), "{name}: {text}");
        }
        let of =
            |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        let (from, to) = (of("s"), of("f"));
        assert_eq!((from.len(), to.len()), (1, 1), "{text}");
        assert_eq!((from[0]["tid"].as_u64(), to[0]["tid"].as_u64()), (Some(11), Some(3)));
        assert_eq!(from[0]["id"], to[0]["id"]);
        let on_cpu = of("X").into_iter().filter(|event| event["pid"] == CPUS);
        let spans: Vec<_> =
            on_cpu.map(|event| (event["ts"].as_f64(), event["dur"].as_f64())).collect();
        assert_eq!(spans, [(Some(4.0), Some(1.0)), (Some(5.0), Some(3.0))], "cut by the next");
    }
}
