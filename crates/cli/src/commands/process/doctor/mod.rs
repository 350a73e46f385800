//! `uwork doctor`: whether the machine and the processes are set up well, and what to do if not.
//!
//! Each part of the evidence is good, bad, or unseen with the reason: a part that could not be had is
//! never counted as good.

mod elf;
pub(super) mod frames;
mod limits;
mod lines;
mod long;
mod machine;
pub(super) mod names;
mod reading;
mod stuck;

pub(in crate::commands) use reading::answer as names_of_request;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::stuck::{NAMES_BYTES_MAX, names_max};
use super::{DoctorArgs, UserError, apart, in_a_path, in_a_shell};
use crate::client::{
    Client, Failure, Found, Table, at_once, bounds, fact, is_alive, living, one_of_each, reason_of,
    state_of,
};
use crate::commands::json::line;
use crate::commands::{one_line, print, without_numbers};
use crate::exchange::Bounds;
use crate::peer::{ended, is_proc_ours, is_stopped, read_text};
use crate::printable::printable;

/// The time between the two looks at the queues. Those in which items wait and nothing moves in it are
/// named, and those in which an item runs on.
const OBSERVED: Duration = Duration::from_millis(500);

/// The shortest such time that says something. A process that has less is not looked at.
const OBSERVED_MIN: Duration = Duration::from_millis(100);
/// The shortest time for a process of a list: for both looks, and for the stacks.
const TIME_MIN: Duration = OBSERVED_MIN.saturating_mul(3);

/// Lines of source files that are not found after this time are left out: the rest of the evidence is
/// to be there within two seconds, on a busy machine, too.
pub(super) const EVIDENCE: Duration = Duration::from_millis(1_200);

/// The bytes of all answers of the processes of each user of a list, however many users there are.
const BYTES_MIN: usize = 1 << 20;

/// What was seen of a part of the evidence. The worst counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Good,
    /// It could not be had: it may be good or bad.
    Not,
    Bad,
}

/// A finding, and its remedy.
struct Finding {
    seen: Seen,
    what: String,
    remedy: String,
    /// Lines that show it.
    evidence: String,
}

impl Finding {
    fn new(seen: Seen, what: &str, remedy: &str) -> Finding {
        let (what, remedy) = (without_numbers(what), remedy.to_owned());
        Finding { seen, what, remedy, evidence: String::new() }
    }

    fn good(what: String) -> Finding {
        Finding::new(Seen::Good, &what, "")
    }

    fn bad(what: String, remedy: &str) -> Finding {
        Finding::new(Seen::Bad, &what, remedy)
    }

    /// `what` says what was not seen, and why.
    fn unseen(what: String, remedy: &str) -> Finding {
        Finding::new(Seen::Not, &what, remedy)
    }
}

/// A count and what it counts, in the singular or the plural.
fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// What was found of the machine, or of a process.
struct Section {
    /// Its number, or what the user has named.
    process: Option<String>,
    findings: Vec<Finding>,
}

/// Runs the command: 0 if everything was seen and is well, 1 if anything is not, and 2 if nothing bad
/// was found, and not everything was seen.
pub(crate) fn run(args: DoctorArgs) -> Result<ExitCode, UserError> {
    hurry();
    // Without it the names say why they are missing.
    let _ = apart::start();
    let mut sections = vec![Section { process: None, findings: machine::findings() }];
    // All are asked at the same time, if there are threads for that.
    let bounds = bounds();
    sections.extend(at_once(
        &args.processes,
        |_| 0,
        |name, share| {
            let number = name.parse().ok();
            let connect = |bounds| Client::connect_within(name, bounds);
            let bounds = bounds.shared(share, TIME_MIN);
            let bounds = bounds.map_err(|fault| UserError(reason_of(&fault, number)));
            match not_halted(number).and(bounds).and_then(connect) {
                Ok(mut client) => {
                    Section::of(client.process(), process(&mut client, NAMES_BYTES_MAX))
                }
                Err(UserError(reason)) => Section {
                    process: Some(name.clone()),
                    findings: vec![unanswered(reason, number)],
                },
            }
        },
    ));
    if args.processes.is_empty() {
        let Found { sockets, left_out } = living();
        sections[0].findings.extend(left_out.map(|why| Finding::unseen(why, "")));
        // What all of them send is kept at the same time.
        let bytes = shares(sockets.iter().map(|entry| entry.owner).collect(), bounds.bytes);
        let sockets: Vec<_> = sockets.into_iter().zip(bytes).collect();
        let looked_at = at_once(
            &sockets,
            |(entry, _)| entry.owner,
            |(entry, bytes), share| {
                let bounds = Bounds { bytes: *bytes, ..bounds };
                let number = entry.process;
                // Without a number here it cannot be looked up.
                let known = Some(number).filter(|&number| number != 0);
                if known.is_some_and(|number| !is_alive(number)) {
                    return None;
                }
                let opened = bounds.shared(share, TIME_MIN);
                let reason = match not_halted(known) {
                    Err(UserError(reason)) => reason,
                    Ok(()) => match opened.and_then(|bounds| Client::open_listed(entry, bounds)) {
                        Ok(mut client) => {
                            let found = process(&mut client, names_max(bounds.bytes));
                            let section = Section::of(number, found);
                            return Some((section, entry.owner, false));
                        }
                        // None: it has ended meanwhile.
                        Err(fault) => state_of(&fault, number)?,
                    },
                };
                let reason = format!("{}: {reason}", entry.path.display());
                let section = Section::of(number, vec![unanswered(reason, known)]);
                Some((section, entry.owner, true))
            },
        );
        let key = |(section, owner, is_silent): &(Section, u32, bool)| {
            (section.number().unwrap_or(0), *owner, *is_silent)
        };
        let looked_at = one_of_each(looked_at.into_iter().flatten().collect(), key);
        sections.extend(looked_at.into_iter().map(|(section, ..)| section));
    }
    let mut text: String = match args.json {
        true => sections.iter().flat_map(Section::objects).map(|object| line(&object)).collect(),
        false => sections.iter().map(Section::text).collect::<Vec<_>>().join("\n"),
    };
    if sections.len() == 1 && !args.json {
        text.push_str("\nno process of this user has a control socket\n");
    }
    let _ = print(&text)?;
    Ok(match sections.iter().map(Section::worst).max() {
        Some(Seen::Bad) => ExitCode::from(1),
        Some(Seen::Not) => ExitCode::from(2),
        Some(Seen::Good) | None => ExitCode::SUCCESS,
    })
}

/// The bytes for each socket of these users. The users have equal parts of all bytes: no user takes those
/// of another by a number of sockets.
fn shares(users: Vec<u32>, all: usize) -> impl Iterator<Item = usize> {
    let mut counts = HashMap::new();
    users.iter().for_each(|user| *counts.entry(*user).or_insert(0) += 1);
    users.into_iter().map(move |user| (all / counts.len()).max(BYTES_MIN) / counts[&user])
}

/// Has this command get a CPU sooner, as far as it may: the machine may be busy.
fn hurry() {
    let slice = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: -20,
        sched_priority: 0,
        // The shortest, in nanoseconds.
        sched_runtime: 100_000,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: no pointers; 0 is this process.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // Without privileges the niceness stays, and the slice can be set all the same.
    for attributes in [slice, libc::sched_attr { sched_nice: nice, ..slice }] {
        // SAFETY: the structure is live and of the size that it states.
        let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if set == 0 {
            break;
        }
    }
}

impl Section {
    fn of(process: u32, findings: Vec<Finding>) -> Section {
        Section { process: Some(process.to_string()), findings }
    }

    fn number(&self) -> Option<u32> {
        self.process.as_ref()?.parse().ok()
    }

    fn worst(&self) -> Seen {
        self.findings.iter().map(|finding| finding.seen).max().unwrap_or(Seen::Good)
    }

    fn text(&self) -> String {
        let mut text = match &self.process {
            Some(process) => format!("process {}\n", one_line(process)),
            None => "this machine\n".to_owned(),
        };
        for finding in &self.findings {
            let mark = match finding.seen {
                Seen::Good => "ok  ",
                Seen::Bad => "LOOK",
                Seen::Not => "??  ",
            };
            let _ = writeln!(text, "  {mark}  {}", one_line(&finding.what));
            if !finding.remedy.is_empty() {
                let _ = writeln!(text, "        {}", one_line(&finding.remedy));
            }
            let evidence = frames::without_callers(&finding.evidence);
            evidence.lines().for_each(|line| _ = writeln!(text, "      {line}"));
        }
        text
    }

    /// An object for each finding.
    fn objects(&self) -> impl Iterator<Item = Value> {
        // A process that the user has named by its socket, and that does not answer, has no number.
        let named = || self.process.as_deref().map(Value::from);
        let process = self.number().map(Value::from).or_else(named);
        self.findings.iter().map(move |finding| {
            let evidence: Vec<&str> = finding.evidence.lines().map(str::trim_end).collect();
            json!({
                "process": process,
                "verdict": match finding.seen {
                    Seen::Good => "ok",
                    Seen::Bad => "look",
                    Seen::Not => "unseen",
                },
                "what": finding.what,
                "remedy": (!finding.remedy.is_empty()).then_some(&finding.remedy),
                "evidence": evidence,
            })
        })
    }
}

fn process(client: &mut Client, names_max: usize) -> Vec<Finding> {
    let until = client.until().min(Instant::now() + EVIDENCE);
    let process = client.process();
    let mut answers = client.ask_all(&["status".to_owned(), "queues".to_owned()]).into_iter();
    let (status, before) = (answers.next(), answers.next());
    let first_look = Instant::now();
    let between = between_looks(client.until().saturating_duration_since(first_look));
    let mut findings = Vec::new();
    match status.and_then(Result::ok) {
        Some(status) => {
            findings.extend([tier(&status), fences(&status), area(&status)]);
            findings.extend(defects(&status, process));
        }
        None => findings.push(Finding::unseen(
            "the facts about the process: no answer".to_owned(),
            "reason: see the finding about the queues",
        )),
    }
    findings.extend(limits::findings(process));
    let Some(between) = between else {
        findings.push(uncompared(process, "the process was not asked in time"));
        return findings;
    };
    let after = before.and_then(Result::ok).map(|before| {
        let second_look = first_look + between;
        std::thread::sleep(second_look.saturating_duration_since(Instant::now()));
        (before, client.ask("queues"))
    });
    match after {
        Some((before, Ok(after))) => {
            let (before, after) = (Table::parse(&before), Table::parse(&after));
            findings.extend(stuck::findings(client, &before, &after, (until, names_max)));
            findings.extend(fallback(&after, process));
        }
        Some((_, Err(Failure::Gone(reason)))) => {
            findings.push(unanswered(format!("the queues: {reason}"), Some(process)));
        }
        Some((_, Err(Failure::Refused(refused)))) => {
            findings.push(uncompared(process, &refused.reason))
        }
        None => match client.ask("queues") {
            Err(Failure::Gone(reason)) => {
                findings.push(unanswered(format!("the queues: {reason}"), Some(process)));
            }
            Err(Failure::Refused(refused)) => findings.push(uncompared(process, &refused.reason)),
            Ok(_) => findings.push(uncompared(process, "the first answer was refused")),
        },
    }
    findings
}

/// The time between the two looks, if this time is left for the second one and for the stacks.
fn between_looks(left: Duration) -> Option<Duration> {
    Some(OBSERVED.min(left / 2)).filter(|&between| between >= OBSERVED_MIN)
}

fn uncompared(process: u32, reason: &str) -> Finding {
    Finding::unseen(
        format!("the queues were not compared: {reason}"),
        &format!("`uwork monitor {process} NAME` shows those with NAME in their names"),
    )
}

/// A value in /proc/PID/status.
fn said_of(process: Option<u32>, title: &str) -> Option<String> {
    let process = process.filter(|_| is_proc_ours())?;
    let status = read_text(&format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(title))?;
    Some(printable(line.trim()).into_owned())
}

/// An error if the process is stopped or has ended: an answer is not waited for then.
fn not_halted(process: Option<u32>) -> Result<(), UserError> {
    match process {
        Some(process) if !is_alive(process) => Err(UserError(ended(process))),
        Some(process) if is_stopped(process) => {
            Err(UserError("the process cannot answer".to_owned()))
        }
        _ => Ok(()),
    }
}

/// The process does not answer. The system says more about it, if it has its number here.
fn unanswered(reason: String, process: Option<u32>) -> Finding {
    let state = said_of(process, "State:");
    let tracer = said_of(process, "TracerPid:").filter(|tracer| tracer != "0");
    let known = state.as_deref().map(|state| format!("; its state is {state}"));
    let traced = tracer.map(|tracer| format!(", and process {tracer} traces it"));
    let what = reason + &known.unwrap_or_default() + &traced.unwrap_or_default();
    let remedy = match state.as_deref().and_then(|state| state.chars().next()) {
        None => "`uwork ls` lists the processes that can be looked into",
        Some('T' | 't') => "`kill -CONT` lets a stopped process go on; a debugger has to let it go",
        Some('Z' | 'X') => "it has ended, and its parent has not waited for it",
        Some(_) if what.contains("does not answer") => {
            "if it gets no CPU, try again; if it was started with UWORK_DUMP_SIGNAL, that signal makes \
             it write the dump; `gdb -p` shows its stacks"
        }
        // The reason says what is missing.
        Some(_) => "",
    };
    Finding::unseen(what, remedy)
}

/// A fact that an earlier version does not know, or that could not be had.
fn unknown(what: &str) -> Finding {
    Finding::unseen(
        format!("{what}: the process does not say"),
        "its version of uwork may be an earlier one: see `version` in the answer to `status`",
    )
}

fn tier(status: &str) -> Finding {
    let (tier, reason) = (fact(status, "blocking_tier"), fact(status, "blocking_reason"));
    let what = format!("sleeping items are detected by the tier {tier}: {reason}");
    match tier {
        "" => unknown("how sleeping items are detected"),
        "declared" => Finding::bad(
            what,
            "mount /proc, or declare every wait with `blocking`; see UWORK_BLOCKING",
        ),
        "sampling" => Finding::bad(
            what,
            "permit sched_setattr or performance events to the process; see UWORK_BLOCKING",
        ),
        _ => Finding::good(what),
    }
}

fn fences(status: &str) -> Finding {
    match fact(status, "fences") {
        "full" => Finding::bad(
            "membarrier is refused: each item pays for full fences".to_owned(),
            "permit the system call membarrier in the process's filter",
        ),
        "membarrier" => {
            Finding::good("membarrier is permitted: workers pay for no fences".to_owned())
        }
        _ => unknown("whether membarrier is permitted"),
    }
}

/// Whether threads find their CPU without a system call.
fn area(status: &str) -> Finding {
    match fact(status, "rseq") {
        "" => unknown("whether rseq has an area for each thread"),
        "none" => Finding::bad(
            "rseq: glibc has registered no area, so each submission asks the system for its CPU"
                .to_owned(),
            "use glibc 2.35 or newer, linked dynamically, without \
             GLIBC_TUNABLES=glibc.pthread.rseq=0, and permit rseq(2)",
        ),
        by => Finding::good(format!("rseq: {by} has registered an area for each thread")),
    }
}

/// Counts that should be zero.
fn defects(status: &str, process: u32) -> Vec<Finding> {
    let count = |name: &str| fact(status, name).parse::<u64>();
    let of = |name: &str| count(name).unwrap_or(0);
    let mut findings = Vec::new();
    for (name, what) in [
        ("panics", "how many items have panicked"),
        ("rescues", "whether the engine had to rescue work (`rescues`)"),
    ] {
        findings.extend(count(name).is_err().then(|| unknown(what)));
    }
    if of("panics") > 0 {
        findings.push(Finding::bad(
            counted(of("panics"), "item has panicked", "items have panicked"),
            "the messages are on the process's standard error, or with its reporter",
        ));
    }
    if of("rescues") > 0 {
        findings.push(Finding::bad(
            format!("the engine's backstop has helped {}", counted(of("rescues"), "time", "times")),
            &format!(
                "a defect of uwork: please report it with the output of `uwork dump {process}`"
            ),
        ));
    }
    findings
}

/// Queues whose default scope is replaced by a finer one: as intended, and how to have another.
fn fallback(table: &Table, process: u32) -> Option<Finding> {
    let replaced = || table.rows().filter(|row| row.text("scope").contains("->"));
    let first = replaced().next()?;
    // As in `default (cache -> cpu)`.
    let scope = first.text("scope");
    let coarse = scope.split_once('(').and_then(|(_, rest)| rest.split_once(" ->"));
    let finding = Finding::good(format!(
        "{} the scope {scope}, because scope `{}` has one pod on this machine",
        counted(replaced().count() as u64, "queue uses", "queues use"),
        coarse.map_or("default", |(coarse, _)| coarse),
    ));
    let path = format!("devices/{}/affinity_scope", in_a_path(first.text("name")));
    Some(Finding {
        remedy: format!(
            "To choose another scope: `uwork set {process} {} cache`, or \
             module/parameters/default_affinity_scope for all",
            in_a_shell(&path)
        ),
        ..finding
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_finding_has_a_remedy() {
        let status =
            "blocking_tier\tdeclared\nblocking_reason\tx\nfences\tfull\npanics\t1\nrescues\t2\n";
        let mut findings = vec![tier(status), fences(status)];
        findings.push(area(&format!("rseq\tnone\n{status}")));
        findings.extend(defects(status, 7));
        assert_eq!(findings.len(), 5);
        assert!(findings.iter().all(|it| it.seen == Seen::Bad && !it.remedy.is_empty()));
        let section = Section { process: Some("7".to_owned()), findings };
        assert_eq!(section.worst(), Seen::Bad);
        assert!(section.text().starts_with("process 7\n  LOOK  "), "{}", section.text());
        assert_eq!(section.text().matches("LOOK").count(), 5);
        let objects: Vec<Value> = section.objects().collect();
        assert_eq!((objects.len(), &objects[0]["verdict"]), (5, &"look".into()));
        assert_eq!((&objects[0]["process"], &objects[0]["evidence"]), (&7.into(), &json!([])));
        assert!(objects.iter().all(|object| object["remedy"].is_string()), "{objects:?}");
    }

    #[test]
    fn a_user_with_many_sockets_takes_no_bytes_of_others() {
        let bytes: Vec<usize> = shares(vec![7, 8, 8, 8, 8], 16 << 20).collect();
        assert_eq!(bytes, [8 << 20, 2 << 20, 2 << 20, 2 << 20, 2 << 20]);
        // Catches: gigabytes for a user, as each of thousands of sockets has a part in any case.
        let of_one: usize = shares(vec![7; 4_096], 16 << 20).sum();
        assert_eq!(of_one, 16 << 20);
        // Catches: the same of names, which are kept with the answers.
        let names: usize = shares(vec![7; 4_096], 16 << 20).map(names_max).sum();
        assert_eq!((names, names_max(64 << 20)), (16 << 20, NAMES_BYTES_MAX));
        let mut of_many = shares((0..500).chain([7; 1_024]).collect(), 16 << 20);
        assert_eq!((of_many.next(), of_many.nth(6)), (Some(BYTES_MIN), Some(BYTES_MIN / 1_025)));
        assert_eq!(shares(Vec::new(), 16 << 20).count(), 0);
    }

    // Catches: a second look that comes too late, so that a healthy process is called silent.
    #[test]
    fn the_second_look_is_within_the_time_of_the_process() {
        let between = |ms| between_looks(Duration::from_millis(ms)).map(|it| it.as_millis());
        assert_eq!(
            [1_500, 1_000, 300, 199, 0].map(between),
            [Some(500), Some(500), Some(150), None, None]
        );
        assert!(between_looks(TIME_MIN).is_some());
    }

    #[test]
    fn a_fact_that_is_missing_is_not_good() {
        let mut findings = vec![tier(""), fences(""), fences("fences\tnew\n"), area("")];
        findings.extend(defects("panics\t0\n", 7));
        assert_eq!(findings.len(), 5, "and no word about panics, which are known to be none");
        assert!(findings.iter().all(|it| it.seen == Seen::Not && !it.remedy.is_empty()));
        let section = Section::of(7, findings);
        let text = section.text();
        assert_eq!(section.worst(), Seen::Not);
        assert_eq!(text.matches("  ??    ").count(), 5, "{text}");
    }

    #[test]
    fn a_finding_is_one_line_with_the_words_of_the_system() {
        let refused = "a\n  ok    b: Permission denied (os error 13), c".to_owned();
        let section = Section::of(
            7,
            vec![
                tier(&format!(
                    "blocking_tier\tx\nblocking_reason\t\
            {}",
                    std::io::Error::from_raw_os_error(13)
                )),
                Finding::unseen(refused, ""),
            ],
        );
        let expected = "process 7\n  ok    sleeping items are detected by the tier x: Permission \
            denied\n  ??    a\\u000a  ok    b: Permission denied, c\n";
        assert_eq!(section.text(), expected);
        assert!(section.objects().all(|object| !object.to_string().contains("os error")));
    }

    #[test]
    fn a_fallback_in_force_is_no_fault_and_can_be_replaced() {
        let table = Table::parse(
            "name\tscope\na/b c\tdefault (cache -> cpu)\nnuma\tnuma\nd\tdefault (cache -> cpu)\n",
        );
        let finding = fallback(&table, 7).expect("two queues");
        assert!(
            finding.seen == Seen::Good
                && finding.what.starts_with("2 queues use the scope default")
        );
        let set = "`uwork set 7 'devices/a!b!c/affinity_scope' cache`";
        assert!(finding.what.ends_with("because scope `cache` has one pod on this machine"));
        assert!(finding.remedy.contains(set), "{}", finding.remedy);
        assert!(finding.remedy.contains("module/parameters/default_affinity_scope"));
        assert!(fallback(&Table::parse("name\tscope\nnuma\tnuma\n"), 7).is_none());
        for (name, path) in [
            ("log", "devices/log/affinity_scope"),
            ("$(id)", "'devices/$(id)/affinity_scope'"),
            ("a'`id`;", "'devices/a'\\''`id`;/affinity_scope'"),
        ] {
            let table = Table::parse(&format!("name\tscope\n{name}\tdefault (cache -> cpu)\n"));
            let remedy = fallback(&table, 7).expect("a queue").remedy;
            assert!(remedy.contains(&format!("`uwork set 7 {path} cache`")), "{remedy}");
        }
    }

    #[test]
    fn a_process_that_does_not_answer_is_unseen_with_its_state() {
        let gone = unanswered("process 99999998 is gone".to_owned(), Some(99_999_998));
        assert_eq!((gone.seen, gone.what.as_str()), (Seen::Not, "process 99999998 is gone"));
        let alive = unanswered("it does not answer".to_owned(), Some(std::process::id()));
        assert!(alive.what.starts_with("it does not answer; its state is "), "{}", alive.what);
        assert!(alive.remedy.contains("UWORK_DUMP_SIGNAL"), "{}", alive.remedy);
        let foreign = "process 7 belongs to user 0; that user and root may look".to_owned();
        assert_eq!(unanswered(foreign, Some(std::process::id())).remedy, "");
    }
}
