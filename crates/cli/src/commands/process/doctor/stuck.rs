//! Queues in which items wait and nothing moves: the cause, and the evidence.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::Finding;
use crate::client::{Client, Failure, Row, Table};

/// For so many queues the threads in their items are asked for their stacks, which disturbs them.
const ASKED_MAX: usize = 16;

/// Queues that are named. A process with more has one cause for them, or is not honest.
const NAMED_MAX: usize = 64;

/// A finding for each queue that has moved nothing between two answers to `queues`.
pub(super) fn findings(client: &mut Client, before: &Table, after: &Table) -> Vec<Finding> {
    let (mut stuck, mut more) = (Vec::new(), 0);
    let earlier: HashMap<&str, Row<'_>> =
        before.rows().map(|row| (row.text("name"), row)).collect();
    for row in after.rows() {
        let earlier = earlier.get(row.text("name"));
        if let Some(finding) = earlier.and_then(|earlier| queue(earlier, &row, client.process())) {
            if stuck.len() == NAMED_MAX {
                more += 1;
                continue;
            }
            let text = |column| row.text(column).to_owned();
            stuck.push((text("name"), text("kind"), text("gate"), finding));
        }
    }
    if stuck.is_empty() {
        return Vec::new();
    }
    let dump = client.ask("dump").unwrap_or_default();
    let mut asked = 0;
    for (name, kind, gate, finding) in &mut stuck {
        // The items that run in a frozen or paused queue are not why others wait.
        if asked < ASKED_MAX && !matches!(gate.as_str(), "frozen" | "paused") {
            asked += 1;
            finding.evidence = match stacks(client, name) {
                Ok(stacks) => stacks_of(&stacks, name),
                Err(Failure::Gone(reason)) => {
                    format!("  no stacks: {reason}\n{}", first_pending(&dump, name))
                }
                Err(Failure::Refused(_)) => String::new(),
            };
        }
        if let Some(remedy) = remedy(kind, &finding.evidence) {
            finding.remedy = remedy.to_owned();
        }
        if finding.evidence.is_empty() {
            finding.evidence = first_pending(&dump, name);
        }
    }
    let mut findings: Vec<_> = stuck.into_iter().map(|(.., finding)| finding).collect();
    if more > 0 {
        let what = format!("{more} more queues do not move");
        findings.push(Finding::bad(what, &format!("`uwork dump {}` has all", client.process())));
    }
    findings
}

/// The answer to `stacks` about a queue.
fn stacks(client: &mut Client, queue: &str) -> Result<String, Failure> {
    match client.ask(&format!("stacks 100 {queue}")) {
        // A process of an earlier version has the stacks of all queues together, or none.
        Err(Failure::Refused(_)) => client.ask("stacks"),
        answer => answer,
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
    // `saturated` is a hint, which the watcher clears. A per-CPU queue has a limit for each CPU, so
    // there the number of runs says nothing about it.
    let is_at_limit =
        now.text("kind") == "unbound" && now.number("running") >= now.number("max_active");
    let saturated = now.number("saturated").max(u64::from(is_at_limit));
    Some(match (now.text("gate"), saturated, now.number("running")) {
        ("frozen", ..) => Finding::bad(
            format!("queue {name} is frozen, and {} items wait", now.number("pending")),
            "the program has called freeze and not thaw",
        ),
        ("paused", ..) => Finding::bad(
            format!("queue {name} is paused, and {} items wait", now.number("pending")),
            "the program has called pause and not resume",
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

/// The remedy for what the stacks of a queue of that kind show. None if its items only take long.
fn remedy(kind: &str, stacks: &str) -> Option<&'static str> {
    let sleeps = || stacks.contains(", asleep, in ") || stacks.contains(", waiting, in ");
    match kind {
        _ if stacks.contains("  deadlock: item ") => Some(
            "a deadlock, items wait for each other: flush outside of items, or use one order of the \
             queues",
        ),
        "bh" if sleeps() => Some("an item sleeps in BH context: move it to another queue"),
        _ if sleeps() => Some(
            "an item sleeps where its stack says, which may be no fault; if it waits for a lock, \
             `gdb -p` shows the holder",
        ),
        _ => None,
    }
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
                .contains("all permits of max_active 1 are taken, 1 items run")
        );
        assert!(same("q 2 1 5 4 0 0 0 frozen").contains("queue q is frozen, and 4 items wait"));
        assert!(same("q 2 1 5 4 0 0 0 paused").contains("queue q is paused, and 4 items wait"));
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
    fn the_remedy_follows_from_the_kind_and_the_stacks() {
        let worker =
            |state| format!("  uw/0 (thread 7, slot 1), {state}, in a::F of queue \"q\"\n");
        let of = |kind, state| remedy(kind, &worker(state)).unwrap_or("none");
        assert_eq!(of("bh", "asleep"), "an item sleeps in BH context: move it to another queue");
        assert!(of("unbound", "asleep").starts_with("an item sleeps where its stack says"));
        assert_eq!(of("unbound", "asleep"), of("per-cpu", "waiting"));
        assert_eq!((of("bh", "running"), of("unbound", "running")), ("none", "none"));
        let deadlock =
            worker("waiting") + "  deadlock: item a::F 0x1 (slot 1) of queue \"q\" waits\n";
        assert!(
            remedy("unbound", &deadlock).is_some_and(|remedy| remedy.starts_with("a deadlock"))
        );
    }
}
