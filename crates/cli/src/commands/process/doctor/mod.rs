//! `uwork doctor`: whether the machine and the processes are set up well, and what to do if not.

mod limits;
mod stuck;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use uwork::topology::Machine;

use super::{DoctorArgs, UserError, in_a_path};
use crate::client::{Client, Failure, Table, at_once, bounds, fact, is_alive, living, state_of};
use crate::commands::json::line;
use crate::commands::print;

/// Queues that move nothing for so long while items wait are named.
const OBSERVED: Duration = Duration::from_millis(500);

/// A finding, and its remedy.
struct Finding {
    is_good: bool,
    what: String,
    remedy: String,
    /// Lines that show it.
    evidence: String,
}

impl Finding {
    fn good(what: String) -> Finding {
        Finding { is_good: true, what, remedy: String::new(), evidence: String::new() }
    }

    fn bad(what: String, remedy: &str) -> Finding {
        Finding { is_good: false, what, remedy: remedy.to_owned(), evidence: String::new() }
    }
}

/// What was found of the machine, or of a process.
struct Section {
    process: Option<u32>,
    findings: Vec<Finding>,
}

/// Runs the command: 0 if everything is well, else 1.
pub(crate) fn run(args: DoctorArgs) -> Result<ExitCode, UserError> {
    let mut sections = vec![Section { process: None, findings: machine() }];
    let mut add = |process: u32, findings| {
        sections.push(Section { process: Some(process), findings });
    };
    // A process that was named must answer; another may have ended meanwhile. All are asked at the
    // same time.
    let named = at_once(&args.processes, |name| {
        let client = Client::connect(name);
        client.map(|mut client| (client.process(), answered(&mut client)))
    });
    for looked_at in named {
        let (process, findings) = looked_at?;
        add(process, findings);
    }
    if args.processes.is_empty() {
        let (living, bounds) = (living(), bounds());
        let looked_at =
            at_once(&living, |(process, path)| match Client::open_listed(*process, path, bounds) {
                Ok(mut client) => Some((client.process(), answered(&mut client))),
                Err(fault) => {
                    // None: it has ended meanwhile.
                    let reason = state_of(&fault, *process)?;
                    let reason = format!("{}: {reason}", path.display());
                    Some((*process, vec![unanswered(reason, *process)]))
                }
            });
        looked_at.into_iter().flatten().for_each(|(process, findings)| add(process, findings));
    }
    let mut text: String = match args.json {
        true => sections.iter().flat_map(Section::objects).map(|object| line(&object)).collect(),
        false => sections.iter().map(Section::text).collect::<Vec<_>>().join("\n"),
    };
    if sections.len() == 1 && !args.json {
        text.push_str("\nno process of this user has a control socket\n");
    }
    let is_well = sections.iter().flat_map(|section| &section.findings).all(|it| it.is_good);
    let _ = print(&text)?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn answered(client: &mut Client) -> Vec<Finding> {
    let number = client.process();
    process(client).unwrap_or_else(|failure| vec![unanswered(UserError::from(failure).0, number)])
}

impl Section {
    fn text(&self) -> String {
        let mut text = match self.process {
            Some(process) => format!("process {process}\n"),
            None => "this machine\n".to_owned(),
        };
        for finding in &self.findings {
            let mark = if finding.is_good { "ok  " } else { "LOOK" };
            let _ = writeln!(text, "  {mark}  {}", finding.what);
            if !finding.remedy.is_empty() {
                let _ = writeln!(text, "        {}", finding.remedy);
            }
            finding.evidence.lines().for_each(|line| _ = writeln!(text, "      {line}"));
        }
        text
    }

    /// An object for each finding.
    fn objects(&self) -> impl Iterator<Item = Value> {
        self.findings.iter().map(|finding| {
            let evidence: Vec<&str> = finding.evidence.lines().map(str::trim_end).collect();
            json!({
                "process": self.process,
                "ok": finding.is_good,
                "what": finding.what,
                "remedy": (!finding.remedy.is_empty()).then_some(&finding.remedy),
                "evidence": evidence,
            })
        })
    }
}

fn machine() -> Vec<Finding> {
    let mut findings = Vec::new();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let paranoid: Option<i32> = paranoid.and_then(|text| text.trim().parse().ok());
    findings.push(match paranoid {
        Some(level) if level > 2 => Finding::bad(
            format!(
                "kernel.perf_event_paranoid is {level}: records of context switches are refused"
            ),
            "sysctl kernel.perf_event_paranoid=2 permits them; samples replace them",
        ),
        Some(level) => Finding::good(format!(
            "kernel.perf_event_paranoid is {level}: context switches can be recorded"
        )),
        None => Finding::bad(
            "this kernel has no performance events".to_owned(),
            "sleeping items are found by standbys and samples; declare known waits with `blocking`",
        ),
    });
    match Machine::read() {
        Ok(machine) => {
            findings.push(match &machine.quota {
                Some(quota) if quota.cpus_rounded_up() < machine.allowed.len() as u64 => {
                    Finding::bad(
                        format!(
                            "the control group's quota is {} of {} CPUs",
                            quota.cpus_rounded_up(),
                            machine.allowed.len()
                        ),
                        "raise cpu.max of the group, or restrict its cpuset to as many CPUs",
                    )
                }
                _ => Finding::good(format!(
                    "{} CPUs without a quota below that",
                    machine.allowed.len()
                )),
            });
            let notes = machine.notes.iter();
            findings
                .extend(notes.map(|note| {
                    Finding::bad(note.clone(), "`uwork topology` shows what was read")
                }));
        }
        Err(error) => findings.push(Finding::bad(
            error.to_string(),
            "mount /sys and /proc: without them uwork assumes equal CPUs",
        )),
    }
    findings
}

fn process(client: &mut Client) -> Result<Vec<Finding>, Failure> {
    let process = client.process();
    let status = client.ask("status")?;
    let mut findings = vec![tier(&status), fences(&status)];
    findings.extend(area(&status));
    findings.extend(defects(&status, process));
    findings.extend(limits::findings(process));
    match observed(client) {
        Ok((before, after)) => {
            findings.extend(stuck::findings(client, &before, &after));
            findings.extend(fallback(&after, process));
        }
        Err(Failure::Refused(refused)) => findings.push(Finding::bad(
            format!("the queues were not compared: {}", refused.reason),
            &format!("`uwork monitor {process} NAME` shows those with NAME in their names"),
        )),
        Err(gone) => return Err(gone),
    }
    Ok(findings)
}

/// The queues at two times.
fn observed(client: &mut Client) -> Result<(Table, Table), Failure> {
    let before = Table::parse(&client.ask("queues")?);
    std::thread::sleep(OBSERVED);
    Ok((before, Table::parse(&client.ask("queues")?)))
}

/// The process has ended, or does not answer any more.
fn unanswered(reason: String, process: u32) -> Finding {
    match is_alive(process) {
        false => Finding::good("it has ended while it was looked at".to_owned()),
        true => {
            Finding::bad(reason, "`ps` shows T for a stopped process: `kill -CONT` lets it go on")
        }
    }
}

fn tier(status: &str) -> Finding {
    let (tier, reason) = (fact(status, "blocking_tier"), fact(status, "blocking_reason"));
    let what = format!("sleeping items are detected by the tier {tier}: {reason}");
    match tier {
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
        _ => Finding::good("membarrier is permitted: workers pay for no fences".to_owned()),
    }
}

/// Whether threads find their CPU without a system call. None: a process of an earlier version does
/// not say.
fn area(status: &str) -> Option<Finding> {
    match fact(status, "rseq") {
        "" => None,
        "none" => Some(Finding::bad(
            "rseq: glibc has registered no area, so each submission asks the system for its CPU"
                .to_owned(),
            "use glibc 2.35 or newer, linked dynamically, without \
             GLIBC_TUNABLES=glibc.pthread.rseq=0, and permit rseq(2)",
        )),
        by => Some(Finding::good(format!("rseq: {by} has registered an area for each thread"))),
    }
}

/// Counts that should be zero.
fn defects(status: &str, process: u32) -> Vec<Finding> {
    let of = |name: &str| fact(status, name).parse::<u64>().unwrap_or(0);
    let mut findings = Vec::new();
    if of("panics") > 0 {
        findings.push(Finding::bad(
            format!("{} items have panicked", of("panics")),
            "the messages are on the process's standard error, or with its reporter",
        ));
    }
    if of("rescues") > 0 {
        findings.push(Finding::bad(
            format!("the engine's backstop has helped {} times", of("rescues")),
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
    let finding = Finding::good(format!(
        "{} queues use the scope {}, because the default has one pod here",
        replaced().count(),
        first.text("scope")
    ));
    let queue = in_a_path(first.text("name"));
    Some(Finding {
        remedy: format!(
            "to choose another: `uwork set {process} workqueue/devices/{queue}/affinity_scope \
             cache`, or module/parameters/default_affinity_scope for all"
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
        findings.extend(area(&format!("rseq\tnone\n{status}")));
        findings.extend(defects(status, 7));
        assert_eq!(findings.len(), 5);
        assert!(findings.iter().all(|finding| !finding.is_good && !finding.remedy.is_empty()));
        let section = Section { process: Some(7), findings };
        assert!(section.text().starts_with("process 7\n  LOOK  "), "{}", section.text());
        assert_eq!(section.text().matches("LOOK").count(), 5);
        let objects: Vec<Value> = section.objects().collect();
        assert_eq!((objects.len(), &objects[0]["ok"]), (5, &false.into()));
        assert_eq!((&objects[0]["process"], &objects[0]["evidence"]), (&7.into(), &json!([])));
        assert!(objects.iter().all(|object| object["remedy"].is_string()), "{objects:?}");
    }

    #[test]
    fn a_fallback_in_force_is_no_fault_and_can_be_replaced() {
        let table = Table::parse(
            "name\tscope\na/b c\tdefault (cache -> cpu)\nnuma\tnuma\nd\tdefault (cache -> cpu)\n",
        );
        let finding = fallback(&table, 7).expect("two queues");
        assert!(finding.is_good && finding.what.starts_with("2 queues use the scope default"));
        let set = "`uwork set 7 workqueue/devices/a!b!c/affinity_scope cache`";
        assert!(finding.remedy.contains(set), "{}", finding.remedy);
        assert!(finding.remedy.contains("module/parameters/default_affinity_scope"));
        assert!(fallback(&Table::parse("name\tscope\nnuma\tnuma\n"), 7).is_none());
    }

    #[test]
    fn a_process_that_has_ended_meanwhile_is_a_finding() {
        assert!(unanswered("process 99999998 is gone".to_owned(), 99_999_998).is_good);
        let stopped = unanswered("process 1 does not answer".to_owned(), 1);
        assert!(!stopped.is_good && stopped.remedy.contains("kill -CONT"));
    }
}
