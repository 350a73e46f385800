//! `uwork doctor`: whether the machine and the processes are set up well, and what to do if not.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use uwork::topology::Machine;

use super::{DoctorArgs, UserError};
use crate::client::{Client, Row, Table, fact, remove_if_stale, sockets};
use crate::commands::print;

/// Queues that move nothing for so long while items wait are named.
const OBSERVED: Duration = Duration::from_millis(500);
/// With fewer threads than this left, a process is warned of.
const THREADS_LEFT_MIN: u64 = 64;

/// What was found, and what can be done about it.
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

/// Runs the command: 0 if everything is well, else 1.
pub(crate) fn run(args: DoctorArgs) -> Result<ExitCode, UserError> {
    let mut text = String::new();
    let mut is_well = section(&mut text, "this machine", machine());
    let clients: Vec<(String, Result<Client, UserError>)> = match args.processes.is_empty() {
        true => {
            let living = sockets().into_iter().filter(|(_, path)| !remove_if_stale(path));
            let paths = living.map(|(_, path)| path.display().to_string());
            paths.map(|path| (path.clone(), Client::connect(&path))).collect()
        }
        false => args.processes.iter().map(|name| (name.clone(), Client::connect(name))).collect(),
    };
    if clients.is_empty() {
        text.push_str("\nno process of this user has a control socket\n");
    }
    for (name, client) in clients {
        let (title, findings) = match client {
            Ok(mut client) => (format!("process {}", client.process()), process(&mut client)?),
            // A process that was named must answer; another may have ended meanwhile.
            Err(error) if !args.processes.is_empty() => return Err(error),
            Err(error) => {
                (name, vec![Finding::bad(error.0, "run doctor as the process's user or as root")])
            }
        };
        text.push('\n');
        is_well &= section(&mut text, &title, findings);
    }
    let _ = print(&text)?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Writes a section. False if anything is bad.
fn section(text: &mut String, title: &str, findings: Vec<Finding>) -> bool {
    let _ = writeln!(text, "{title}");
    for finding in &findings {
        let _ =
            writeln!(text, "  {}  {}", if finding.is_good { "ok  " } else { "LOOK" }, finding.what);
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "        {}", finding.remedy);
        }
        finding.evidence.lines().for_each(|line| _ = writeln!(text, "      {line}"));
    }
    findings.iter().all(|finding| finding.is_good)
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

fn process(client: &mut Client) -> Result<Vec<Finding>, UserError> {
    let process = client.process();
    let status = client.ask("status")?;
    let before = Table::parse(&client.ask("queues")?);
    std::thread::sleep(OBSERVED);
    let after = Table::parse(&client.ask("queues")?);
    let mut findings = vec![tier(&status), fences(&status)];
    findings.extend(defects(&status, process));
    findings.extend(threads(process));
    let mut stuck = Vec::new();
    for row in after.rows() {
        let same = |other: &Row<'_>| other.text("name") == row.text("name");
        let earlier = before.rows().find(same);
        if let Some(finding) = earlier.and_then(|earlier| queue(&earlier, &row, process)) {
            stuck.push((row.text("name").to_owned(), finding));
        }
    }
    if !stuck.is_empty() {
        // A process of an earlier version has no stacks.
        let stacks = client.ask("stacks").unwrap_or_default();
        let dump = client.ask("dump").unwrap_or_default();
        for (name, finding) in &mut stuck {
            finding.evidence = stacks_of(&stacks, name);
            if finding.evidence.is_empty() {
                finding.evidence = first_pending(&dump, name);
            }
        }
    }
    findings.extend(stuck.into_iter().map(|(_, finding)| finding));
    findings.extend(fallback(&after));
    Ok(findings)
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
            "permit SCHED_IDLE or performance events to the process; see UWORK_BLOCKING",
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

/// Whether the process may have more threads.
fn threads(process: u32) -> Option<Finding> {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let user = status.lines().find_map(|line| line.strip_prefix("Threads:"))?;
    let threads: u64 = user.trim().parse().ok()?;
    Some(match limit.saturating_sub(threads) < THREADS_LEFT_MIN {
        true => Finding::bad(
            format!("{threads} threads of the {limit} that RLIMIT_NPROC permits its user"),
            "raise the limit (ulimit -u, or LimitNPROC of the service)",
        ),
        false => Finding::good(format!("{threads} threads; RLIMIT_NPROC permits its user {limit}")),
    })
}

/// What keeps a queue from its items, given two samples.
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
    Some(match (now.text("gate"), now.number("saturated"), now.number("running")) {
        ("frozen", ..) => Finding::bad(
            format!("queue {name} is frozen, and {waits} items wait"),
            "the program has called freeze and not thaw",
        ),
        (_, 1.., running) => Finding::bad(
            format!(
                "queue {name}: all permits of max_active {} are taken, {running} items run, {waits} have not ended",
                now.text("max_active")
            ),
            &see,
        ),
        (_, 0, running) => Finding::bad(
            format!("queue {name}: {running} items run, none ends, {waits} are left"),
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
            is_of = line.contains(&of);
        }
        if is_of {
            let _ = writeln!(text, "{line}");
        }
    }
    text
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

/// Queues whose default scope is replaced by a finer one.
fn fallback(table: &Table) -> Option<Finding> {
    let scope =
        |row: &Row<'_>| row.text("scope").contains("->").then(|| row.text("scope").to_owned());
    let replaced: Vec<String> = table.rows().filter_map(|row| scope(&row)).collect();
    let first = replaced.first()?;
    Some(Finding::good(format!(
        "{} queues use the scope {first}, because the default has one pod here",
        replaced.len()
    )))
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
                .contains("all permits of max_active 1 are taken, 1 items run")
        );
        assert!(same("q 2 1 5 4 0 0 0 frozen").contains("queue q is frozen, and 5 items wait"));
        assert!(same("q 2 1 1 0 1 8 0 open").contains("1 items run, none ends, 1 are left"));
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

    #[test]
    fn each_bad_finding_has_a_remedy() {
        let status =
            "blocking_tier\tdeclared\nblocking_reason\tx\nfences\tfull\npanics\t1\nrescues\t2\n";
        let mut findings = vec![tier(status), fences(status)];
        findings.extend(defects(status, 7));
        assert_eq!(findings.len(), 4);
        assert!(findings.iter().all(|finding| !finding.is_good && !finding.remedy.is_empty()));
        let mut text = String::new();
        assert!(!section(&mut text, "process 7", findings));
        assert_eq!(text.matches("LOOK").count(), 4);
    }
}
