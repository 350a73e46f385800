//! Queues in which items wait and nothing moves, or an item runs on: the cause, and the evidence.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Instant;

use super::{Finding, counted, long, names};
use crate::client::{Client, Failure, Row, Table};

/// The most queues whose threads are asked for their stacks, which disturbs these threads; and the most in
/// a request, whose threads a process asks at the same time. That is the number of stacks of an answer.
const ASKED_MAX: usize = 16;
const ASKED_AT_ONCE: usize = 8;
/// The bytes of a request. A process refuses lines of 4096.
const REQUEST_MAX: usize = 4_000;
/// Precedes the reason why there are no stacks.
const NO_STACKS: &str = "  no stacks: ";
/// Begins the line of an item in a deadlock.
const DEADLOCK: &str = "  deadlock: item ";

/// The evidence of a queue that is kept, in bytes. The stacks of a queue's workers have a few KiB.
const EVIDENCE_MAX: usize = 64 << 10;

/// The bytes that names may add to the evidence of a process. Those of a user's processes in a list have
/// the share of the user's answers, too.
pub(super) const NAMES_BYTES_MAX: usize = 1 << 20;

/// Queues that are named. A process with more has one cause for them, or is not honest.
const NAMED_MAX: usize = 64;

/// The run time from which the items of a queue that does not move are shown, in milliseconds.
const STACKS_MS: u64 = 100;

/// A queue that does not move, or in which an item runs on.
struct Stuck {
    name: String,
    kind: String,
    /// Whether its threads are to be asked for their stacks.
    is_asked: bool,
    /// Workers in its items, as the table says.
    running: u64,
    /// Whether other items of the queue start and end.
    moves: bool,
    /// The run time from which its items are shown, in milliseconds.
    shown_ms: u64,
    finding: Finding,
    evidence: String,
}

/// The bytes that names may add to the evidence of a process whose answers may have so many.
pub(super) fn names_max(bytes: usize) -> usize {
    NAMES_BYTES_MAX.min(bytes)
}

/// A finding for each queue that has moved nothing between two answers to `queues`, for each in which
/// an item runs on, and one for all others. Lines of source files are looked up until `until`, and names
/// add `names_max` bytes at most.
pub(super) fn findings(
    client: &mut Client,
    before: &Table,
    after: &Table,
    (until, names_max): (Instant, usize),
) -> Vec<Finding> {
    let runs = long::runs(client);
    let (mut stuck, mut findings) = compared(client.process(), before, after, runs.as_ref().ok());
    findings.extend(runs.err().map(|failure| {
        Finding::unseen(
            format!("how long the items have run: {}", reason(failure)),
            "`uwork dump` shows the items that run",
        )
    }));
    if stuck.is_empty() {
        return findings;
    }
    let dump = match answered_raw(client, &mut stuck) {
        Some(dump) => dump,
        // A process of an earlier version looks names up by itself.
        None => answered_with_names(client, &mut stuck),
    };
    add_waiting(&mut stuck, &dump);
    let found = |client: &Client, stuck: &[Stuck]| {
        let texts: Vec<&str> = stuck.iter().map(|queue| queue.evidence.as_str()).collect();
        names::find(client.process(), &texts, until).bounded(names_max)
    };
    let mut names = found(client, &stuck);
    // Its files cannot be read here, as of a daemon that has given up root's rights.
    if names.is_unread() && name_by_process(client, &mut stuck) {
        names = found(client, &stuck);
    }
    let mut deadlocks = Deadlocks::default();
    for queue in stuck {
        let text = names.in_text(&queue.evidence);
        let mut finding = queue.finding;
        if let Some(remedy) = remedy(&queue.kind, &text) {
            finding.remedy = remedy;
        }
        finding.evidence = start_of(deadlocks.once(&queue.name, &text));
        findings.push(finding);
    }
    findings.extend(names.missing.iter().cloned().chain(names.left_out()).map(|reason| {
        Finding::unseen(
            format!("names of functions or lines are missing: {reason}"),
            "`addr2line -ifCe FILE ADDRESS` shows them, with a file that has them",
        )
    }));
    findings
}

/// The queues that do not move or in which an item runs on, and findings about the others.
fn compared(
    process: u32,
    before: &Table,
    after: &Table,
    runs: Option<&long::Runs>,
) -> (Vec<Stuck>, Vec<Finding>) {
    let (mut stuck, mut all, mut new, mut more) = (Vec::new(), 0, 0, 0);
    let earlier: HashMap<&str, Row<'_>> =
        before.rows().map(|row| (row.text("name"), row)).collect();
    for row in after.rows() {
        all += 1;
        let Some(earlier) = earlier.get(row.text("name")) else {
            new += 1;
            continue;
        };
        let still = queue(earlier, &row, process).map(|finding| (finding, STACKS_MS));
        let moves = still.is_none();
        let runs_on = || runs.and_then(|runs| long::queue(&row, runs));
        let Some((finding, shown_ms)) = still.or_else(runs_on) else { continue };
        if stuck.len() == NAMED_MAX {
            more += 1;
            continue;
        }
        let text = |column| row.text(column).to_owned();
        // The items that run in a frozen or paused queue are not why others wait.
        let is_held = matches!(row.text("gate"), "frozen" | "paused");
        let asked = stuck.iter().filter(|queue: &&Stuck| queue.is_asked).count();
        let mut evidence = String::new();
        if !is_held && asked >= ASKED_MAX {
            evidence = format!("{NO_STACKS}the threads of {ASKED_MAX} queues are asked at most\n");
        }
        stuck.push(Stuck {
            name: text("name"),
            kind: text("kind"),
            is_asked: !is_held && asked < ASKED_MAX,
            running: row.number("running"),
            moves,
            shown_ms,
            finding,
            evidence,
        });
    }
    let good = all - new - more - stuck.len();
    let found = format!("queues that move or have no items, seen twice: {good} of {all}");
    let mut others = vec![match new {
        0 => Finding::good(found),
        _ => Finding::good(format!("{found}; made meanwhile: {new}")),
    }];
    if more > 0 {
        let what = format!("more queues that do not move, or have an item that runs on: {more}");
        others.push(Finding::bad(what, &format!("`uwork dump {process}` has all")));
    }
    (stuck, others)
}

/// Asks for stacks and items as addresses, all at once. Returns the dump; None if the process does not
/// know the request.
fn answered_raw(client: &mut Client, stuck: &mut [Stuck]) -> Option<Result<String, String>> {
    // The dump first: it waits for no thread.
    let mut requests = vec!["raw dump".to_owned()];
    let mut queues = stuck.iter_mut().filter(|queue| queue.is_asked).collect::<Vec<_>>();
    let counts = requests_of(&queues, &mut requests);
    let mut answers = client.ask_all(&requests).into_iter();
    let dump = answers.next()?;
    if matches!(&dump, Err(Failure::Refused(refused)) if refused.code == "bad-request") {
        return None;
    }
    let mut rest = &mut queues[..];
    for (count, answer) in counts.into_iter().zip(answers) {
        let (those, behind) = rest.split_at_mut(count);
        rest = behind;
        let answer = answer.map_err(reason);
        let mut parts = answer.as_ref().map(|text| parts(text)).unwrap_or_default().into_iter();
        for queue in those {
            let part = match &answer {
                Ok(_) => Ok(parts.next().unwrap_or_default()),
                Err(reason) => Err(reason.clone()),
            };
            queue.evidence = evidence(queue, part);
        }
    }
    Some(dump.map_err(reason))
}

/// Adds the requests for the stacks of queues. Returns the number of queues in each.
fn requests_of(queues: &[&mut Stuck], requests: &mut Vec<String>) -> Vec<usize> {
    let mut counts: Vec<usize> = Vec::new();
    for queue in queues {
        let part = format!("{} {}", queue.shown_ms, queue.name);
        match (counts.last_mut(), requests.last_mut()) {
            (Some(count), Some(request))
                if *count < ASKED_AT_ONCE && request.len() + 1 + part.len() <= REQUEST_MAX =>
            {
                *count += 1;
                request.push('\t');
                request.push_str(&part);
            }
            _ => {
                counts.push(1);
                requests.push(format!("raw stacks {part}"));
            }
        }
    }
    counts
}

/// The parts of an answer to a request for the stacks of several queues.
fn parts(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.match_indices("\nstacks of ").map(|(at, _)| at + 1).collect();
    starts.insert(0, 0);
    let ends = starts[1..].iter().copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &text[start..end]).collect()
}

/// The same, of a process of an earlier version, which has the stacks of one queue, or of all together,
/// or none.
fn answered_with_names(client: &mut Client, stuck: &mut [Stuck]) -> Result<String, String> {
    for queue in stuck.iter_mut().filter(|queue| queue.is_asked) {
        let answer = match client.ask(&format!("stacks {} {}", queue.shown_ms, queue.name)) {
            Err(Failure::Refused(_)) => client.ask("stacks"),
            answer => answer,
        };
        let answer = answer.map_err(reason);
        queue.evidence = evidence(queue, answer.as_deref().map_err(Clone::clone));
    }
    client.ask("dump").map_err(reason)
}

/// Has the process name the functions in the evidence. False if a part of the evidence would be lost:
/// then the evidence stays as it is.
fn name_by_process(client: &mut Client, stuck: &mut [Stuck]) -> bool {
    let has_stacks = |evidence: &str| !evidence.starts_with(NO_STACKS);
    let mut before = Vec::new();
    for queue in &mut *stuck {
        let reasons = queue.evidence.lines().filter(|line| !has_stacks(line));
        let reasons = reasons.map(|line| format!("{line}\n")).collect();
        before.push(std::mem::replace(&mut queue.evidence, reasons));
    }
    let dump = answered_with_names(client, stuck);
    let is_lost =
        |(queue, before): (&Stuck, &String)| has_stacks(before) && !has_stacks(&queue.evidence);
    if dump.is_err() || stuck.iter().zip(&before).any(is_lost) {
        stuck.iter_mut().zip(before).for_each(|(queue, before)| queue.evidence = before);
        return false;
    }
    add_waiting(stuck, &dump);
    true
}

/// Adds an item that waits to the queues that have no stacks.
fn add_waiting(stuck: &mut [Stuck], dump: &Result<String, String>) {
    for queue in stuck {
        match dump {
            _ if queue.moves => {}
            Ok(dump) if queue.evidence.lines().all(|line| line.starts_with(NO_STACKS)) => {
                queue.evidence.push_str(&first_pending(dump, &queue.name));
            }
            Ok(_) => {}
            Err(reason) => queue.evidence.push_str(&format!("  no items that wait: {reason}\n")),
        }
        queue.evidence = start_of(std::mem::take(&mut queue.evidence));
    }
}

/// As many lines as evidence may have.
fn start_of(mut evidence: String) -> String {
    if evidence.len() > EVIDENCE_MAX {
        let end = evidence.as_bytes()[..EVIDENCE_MAX].iter().rposition(|&byte| byte == b'\n');
        evidence.truncate(end.map_or(0, |end| end + 1));
        evidence.shrink_to_fit();
        evidence.push_str("  more was left out: see `uwork dump --stacks`\n");
    }
    evidence
}

fn reason(failure: Failure) -> String {
    match failure {
        Failure::Refused(refused) => refused.reason,
        Failure::Gone(reason) => reason,
    }
}

/// The stacks of a queue, or why there are none.
fn evidence(queue: &Stuck, answer: Result<&str, String>) -> String {
    let stacks = match answer {
        Ok(stacks) => start_of(stacks_of(stacks, &queue.name)),
        Err(reason) => return format!("{NO_STACKS}{reason}\n"),
    };
    match (stacks.is_empty(), queue.running) {
        (false, _) => stacks,
        (true, 0) => format!("{NO_STACKS}no worker is in an item of this queue\n"),
        (true, _) => format!(
            "{NO_STACKS}the process lists no worker that has been in an item of it for {} ms\n",
            queue.shown_ms
        ),
    }
}

/// The deadlocks that were printed already.
#[derive(Default)]
struct Deadlocks(HashMap<String, String>);

impl Deadlocks {
    /// The text without the lines of deadlocks that stand at another queue.
    fn once(&mut self, queue: &str, text: &str) -> String {
        let mut out = String::new();
        let mut elsewhere = None;
        for line in text.lines() {
            match self.0.get(line) {
                Some(other) => elsewhere = Some(other.clone()),
                None => _ = writeln!(out, "{line}"),
            }
        }
        if let Some(other) = elsewhere {
            let _ = writeln!(out, "  deadlock: the one of queue {other:?}, above");
        }
        let deadlocks = text.lines().filter(|line| line.starts_with(DEADLOCK));
        deadlocks.for_each(|line| _ = self.0.insert(line.to_owned(), queue.to_owned()));
        out
    }
}

/// Why a queue does not start its items, given two samples.
fn queue(earlier: &Row<'_>, now: &Row<'_>, process: u32) -> Option<Finding> {
    let name = now.text("name");
    let waits = now.number("in_flight").max(now.number("pending"));
    let moves = now.number("ran") != earlier.number("ran")
        || now.number("started") != earlier.number("started");
    if waits == 0 || earlier.number("in_flight").max(earlier.number("pending")) == 0 || moves {
        return None;
    }
    let see =
        format!("`uwork dump {process}` names the functions; items that run for long are no fault");
    // A process of an earlier version notes this only once an item has had to wait for a permit.
    let is_at_limit = now.number("running") >= now.number("max_active");
    let saturated =
        now.number("saturated").max(u64::from(is_at_limit && now.text("kind") == "unbound"));
    let permits = if is_at_limit { "permits" } else { "permits that one node has" };
    let pending = counted(now.number("pending"), "item waits", "items wait");
    let running = counted(now.number("running"), "item runs", "items run");
    Some(match (now.text("gate"), saturated) {
        ("frozen", _) => Finding::bad(
            format!("queue {name} is frozen, and {pending}"),
            "the program has called freeze and not thaw",
        ),
        ("paused", _) => Finding::bad(
            format!("queue {name} is paused, and {pending}"),
            "the program has called pause and not resume",
        ),
        (_, 1..) => Finding::bad(
            format!(
                "queue {name}: all {permits} of max_active {} are taken, {running}, {}",
                now.text("max_active"),
                counted(waits, "has not ended", "have not ended"),
            ),
            &see,
        ),
        (_, 0) => Finding::bad(
            format!(
                "queue {name}: {running} and none has ended between the two looks; {} in the queue",
                counted(waits, "item", "items")
            ),
            &see,
        ),
    })
}

/// The parts of the answer to `stacks` that are about a queue: its workers with their stacks, and its
/// part of a deadlock.
fn stacks_of(stacks: &str, queue: &str) -> String {
    let of = format!("of queue {queue:?}");
    let mut is_of = false;
    let mut text = String::new();
    for line in stacks.lines().skip(1) {
        // Frames are indented further than the lines of workers and deadlocks.
        if !line.starts_with("   ") {
            // All items of a deadlock are shown together.
            is_of = line.contains(&of) || line.starts_with(DEADLOCK);
        }
        if is_of {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// The remedy for what the stacks of a queue of that kind show. None if its items only take long.
fn remedy(kind: &str, stacks: &str) -> Option<String> {
    let sleeps = || stacks.contains(", asleep, in ") || stacks.contains(", waiting, in ");
    let text = match kind {
        _ if stacks.contains(DEADLOCK) => {
            "a deadlock, items wait for each other: flush outside of items, or use one order of the \
             queues"
        }
        "bh" if sleeps() => "an item sleeps in BH context: move it to another queue",
        _ if sleeps() => match job_in(stacks) {
            Some(job) => {
                return Some(format!("a job that runs: {job}; `--limit` ends one that hangs"));
            }
            None => {
                "an item sleeps (see its stack); this may be intended; if it waits for a lock, the \
                 holder is among the stacks of `gdb -p PID -batch -ex 'thread apply all bt'`"
            }
        },
        _ => return None,
    };
    Some(text.to_owned())
}

/// The job of a bridge that runs for the longest: its worker has its description.
fn job_in(stacks: &str) -> Option<&str> {
    stacks.lines().find_map(|line| {
        let (_, of_worker) = line.split_once(" of queue \"bridge-")?;
        of_worker.split_once(", \"")?.1.strip_suffix('"')
    })
}

/// The first item of a dump's queue that waits.
fn first_pending(dump: &str, queue: &str) -> String {
    let title = format!("  queue {queue}  ");
    let lines = dump.lines().skip_while(|line| !line.starts_with(&title)).skip(1);
    let mut below = lines.take_while(|line| line.starts_with("    "));
    let first = below.find(|line| {
        let line = line.trim_start();
        line.starts_with("pending  item ") || line.starts_with("inactive  item ")
    });
    first.map_or(String::new(), |line| format!("  {}\n", line.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: [&str; 2]) -> Option<String> {
        let names =
            "name\tstarted\tran\tin_flight\tpending\trunning\tmax_active\tsaturated\tgate\n";
        let [before, now] =
            rows.map(|row| Table::parse(&format!("{names}{}", row.replace(' ', "\t"))));
        let (before, now) = (before.rows().next()?, now.rows().next()?);
        queue(&before, &now, 7).map(|finding| finding.what)
    }

    #[test]
    fn a_queue_that_moves_or_is_empty_is_no_finding() {
        assert_eq!(found(["q 1 1 5 5 1 1 1 open", "q 2 1 5 4 1 1 1 open"]), None);
        assert_eq!(found(["q 1 1 0 0 0 1 0 open", "q 1 1 0 0 0 1 0 open"]), None);
        assert_eq!(found(["q 1 1 0 0 0 1 0 open", "q 1 1 1 1 0 1 0 open"]), None, "just submitted");
    }

    #[test]
    fn a_queue_that_does_not_move_is_named_with_the_reason() {
        let same = |row| found([row, row]).unwrap();
        assert!(
            same("q 2 1 5 4 1 1 1 open")
                .contains("all permits of max_active 1 are taken, 1 item runs, 5 have not ended")
        );
        let of_a_node = "all permits that one node has of max_active 4 are taken, 2 items run, 5";
        assert!(same("q 2 1 5 4 2 4 1 open").contains(of_a_node));
        assert!(same("q 2 1 5 4 0 0 0 frozen").contains("queue q is frozen, and 4 items wait"));
        assert!(same("q 2 1 5 4 0 0 0 paused").contains("queue q is paused, and 4 items wait"));
        assert!(
            same("q 2 1 1 0 1 8 0 open").contains(
                "1 item runs and none has ended between the two looks; 1 item in the queue"
            )
        );
    }

    #[test]
    fn evidence_is_what_belongs_to_the_queue() {
        let stacks = "stacks of 2 workers\n  \
            uw/0 (thread 7, slot 1), asleep, in a::F of queue \"q\"\n      0 0x1 wait\n  \
            uw/1 (thread 8, slot 2), running, in b::G of queue \"other\"\n      0 0x2 spin\n";
        let found = stacks_of(stacks, "q");
        assert_eq!(found.lines().count(), 2, "{found}");
        assert!(found.contains("a::F") && found.ends_with("0x1 wait\n"), "{found}");
        assert_eq!(stacks_of(stacks, "none"), "");
        let dump = "queues\n  queue q  bh  flags -\n    pwq 1    pool 1\n      pending  item 0x5  c::H\n  \
            queue r  bh  flags -\n      pending  item 0x6  d::I\n";
        assert_eq!(first_pending(dump, "q"), "  pending  item 0x5  c::H\n");
        assert_eq!(first_pending(dump, "s"), "");
    }

    fn stuck(name: &str) -> Stuck {
        Stuck {
            name: name.to_owned(),
            kind: String::new(),
            is_asked: true,
            running: 1,
            moves: false,
            shown_ms: 7,
            finding: Finding::good(String::new()),
            evidence: String::new(),
        }
    }

    // Catches: queues without stacks, as the threads of the first ones get no CPU.
    #[test]
    fn the_threads_of_several_queues_are_asked_by_one_request() {
        let requests = |queues: &mut [Stuck]| {
            let mut requests = Vec::new();
            let counts = requests_of(&queues.iter_mut().collect::<Vec<_>>(), &mut requests);
            (counts, requests)
        };
        let (counts, all) = requests(&mut ["a", "b c"].map(stuck));
        assert_eq!((counts, all), (vec![2], vec!["raw stacks 7 a\t7 b c".to_owned()]));
        let (counts, all) = requests(&mut [(); ASKED_MAX].map(|()| stuck("q")));
        assert_eq!((counts, all.len()), (vec![ASKED_AT_ONCE; 2], 2));
        let (counts, all) = requests(&mut [(); 5].map(|()| stuck(&"q".repeat(1_500))));
        assert_eq!(counts, [2, 2, 1]);
        assert!(all.iter().all(|request| request.len() < REQUEST_MAX));
        assert_eq!(requests(&mut []), (Vec::new(), Vec::new()));
        assert_eq!(parts("stacks of 1\n a\nstacks of 0\n"), ["stacks of 1\n a\n", "stacks of 0\n"]);
        assert_eq!(parts(""), [""]);
    }

    #[test]
    fn evidence_is_bounded() {
        let line = "  a\u{e9}\n";
        let text = start_of(line.repeat(EVIDENCE_MAX));
        let more = "  more was left out: see `uwork dump --stacks`\n";
        assert_eq!(text.strip_suffix(more), Some(&*line.repeat(EVIDENCE_MAX / line.len())));
        assert_eq!(start_of("x".repeat(EVIDENCE_MAX + 1)), more);
        assert_eq!(start_of(line.to_owned()), line);
    }

    #[test]
    fn the_lines_of_a_deadlock_stand_once() {
        let lines = "  deadlock: item a::F 0x1 (slot 0) of queue \"q\" waits for all items of queue \
                     \"r\", of which b::G 0x2 (slot 1) runs\n  deadlock: item b::G 0x2 (slot 1) of \
                     queue \"r\" waits for all items of queue \"q\", of which a::F 0x1 (slot 0) runs\n";
        let answer =
            format!("stacks of 1 workers\n  uw/0, waiting, in a::F of queue \"q\"\n{lines}");
        let first = stacks_of(&answer, "q");
        assert!(first.ends_with(lines), "{first}");
        let mut deadlocks = Deadlocks::default();
        assert_eq!(deadlocks.once("q", &first), first);
        let second =
            deadlocks.once("r", &format!("  uw/1, waiting, in b::G of queue \"r\"\n{lines}"));
        assert_eq!(
            second,
            "  uw/1, waiting, in b::G of queue \"r\"\n  deadlock: the one of queue \"q\", above\n"
        );
    }

    #[test]
    fn queues_that_move_are_counted_and_new_ones_said() {
        let table = |rows: &str| {
            let names = "name\tkind\tstarted\tran\tin_flight\tpending\trunning\tmax_active\tgate\n";
            Table::parse(&format!("{names}{}", rows.replace(' ', "\t")))
        };
        let before = table("a bh 1 1 1 0 1 1 open\nb bh 1 1 0 0 0 1 open\n");
        let after = table("a bh 1 1 1 0 1 1 open\nb bh 2 2 1 0 0 1 open\nc bh 1 1 1 0 1 1 open\n");
        let (stuck, others) = compared(7, &before, &after, None);
        assert_eq!(stuck.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let expected = "queues that move or have no items, seen twice: 1 of 3; made meanwhile: 1";
        assert_eq!((others.len(), &*others[0].what), (1, expected));
    }

    #[test]
    fn the_remedy_follows_from_the_kind_and_the_stacks() {
        let worker =
            |state| format!("  uw/0 (thread 7, slot 1), {state}, in a::F of queue \"q\"\n");
        let of = |kind, state| remedy(kind, &worker(state)).unwrap_or("none".to_owned());
        assert_eq!(of("bh", "asleep"), "an item sleeps in BH context: move it to another queue");
        assert!(of("unbound", "asleep").starts_with("an item sleeps (see its stack)"));
        assert_eq!(of("unbound", "asleep"), of("per-cpu", "waiting"));
        assert_eq!([of("bh", "running"), of("unbound", "running")], ["none", "none"]);
        let deadlock =
            worker("waiting") + "  deadlock: item a::F 0x1 (slot 1) of queue \"q\" waits\n";
        assert!(
            remedy("unbound", &deadlock).is_some_and(|remedy| remedy.starts_with("a deadlock"))
        );
        let job = worker("waiting")
            .replace("\"q\"\n", "\"bridge-1\", for at most 7 s, \"o-8 sleep 60\"\n");
        let named = remedy("unbound", &job).unwrap();
        assert_eq!(named, "a job that runs: o-8 sleep 60; `--limit` ends one that hangs");
    }
}
