//! A tape in the JSON format of trace events, which Perfetto opens.
//!
//! One process has a track for each CPU, with the threads that compute there. Another has a track for
//! each thread, with the runs of items, declared waits and wakes. Times are virtual.

use std::collections::BTreeMap;

use crate::play::Run;
use crate::script::Script;
use crate::tape::{Call, What};
use crate::trace_events::{Events, Track, quoted};

const CPUS: u32 = 1;
const THREADS: u32 = 2;

fn cpu_track(cpu: u32) -> Track {
    Track { group: CPUS, number: cpu.into() }
}

fn thread_track(thread: usize) -> Track {
    Track { group: THREADS, number: thread as u64 }
}

fn name_of(call: Call) -> &'static str {
    match call {
        Call::Queue(_) => "queue",
        Call::Arm => "arm",
        Call::Cancel => "cancel",
        Call::CancelSync => "cancel_sync",
        Call::Flush => "flush",
    }
}

/// The text of the file. It says that the run is simulated, and of what.
#[must_use]
pub fn json(script: &Script, run: &Run) -> String {
    let mut events = Events::default();
    events.name_group(CPUS, "CPUs (simulated)");
    events.name_group(THREADS, "threads (simulated)");
    for (thread, name) in run.threads.iter().enumerate() {
        events.name_track(thread_track(thread), name);
    }
    let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
    // The burn of each thread that is in progress: its CPU, its begin and its end.
    let mut burns: BTreeMap<usize, (u32, u64, u64)> = BTreeMap::new();
    for entry in run.tape.entries() {
        let (at, thread) = (entry.at, entry.thread);
        let track = thread_track(thread);
        let ended = match burns.get(&thread) {
            Some(&(cpu, from, until)) if until <= at || entry.what == What::Evicted => {
                Some((cpu, from, until.min(at)))
            }
            _ => None,
        };
        if let Some((cpu, from, until)) = ended {
            burns.remove(&thread);
            events.slice(from, until, cpu_track(cpu), &run.threads[thread]);
        }
        let item = |no: usize| {
            let line = copies.get(&no).copied().unwrap_or(no);
            script.items.get(line).map_or("item", |item| item.name.as_str())
        };
        match &entry.what {
            What::Burns(ns) => {
                burns.insert(thread, (entry.cpu, at, at + ns));
            }
            What::Copies(no, line) => {
                copies.insert(*no, *line);
            }
            What::Starts(no) => events.begin(at, track, item(*no)),
            What::Finishes(no) => events.end(at, track, item(*no)),
            What::Declares(true) => events.begin(at, track, "waits"),
            What::Declares(false) => events.end(at, track, "waits"),
            What::Begins(call, no) => {
                events.instant(at, track, &format!("{} {}", name_of(*call), item(*no)));
            }
            What::Wakes(other) => {
                events.instant(at, track, &format!("wakes {}", run.threads[*other]));
            }
            What::Restricts(cpus) => events.instant(at, track, &format!("CPUs {cpus}")),
            _ => {}
        }
    }
    for (thread, (cpu, from, until)) in burns {
        let until = until.min(run.ended_at);
        events.slice(from, until, cpu_track(cpu), &run.threads[thread]);
    }
    let (machine, seed) = (quoted(&script.machine), script.seed);
    let costs = run.bill.as_ref().map_or("none", |bill| &bill.costs().source);
    let costs = quoted(costs);
    events.file(&format!(
        "\"simulated\":true,\"machine\":{machine},\"seed\":{seed},\"costs\":{costs}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machines, play, script};

    const TEXT: &str =
        "machine core:2\nqueue q percpu\nitem a q: burn 5us; sleep 1ms\nthread: queue a; flush a\n";

    #[test]
    fn a_trace_has_the_run_of_the_item() {
        let script = script::parse(TEXT).unwrap();
        let machine = machines::machine(&script.machine).unwrap();
        let text = json(&script, &play::play(&script, &machine).unwrap());
        assert!(text.contains(r#""simulated":true,"machine":"core:2""#), "{text}");
        assert!(text.contains(r#""costs":"none""#), "{text}");
        assert!(text.contains(r#""name":"a","ph":"B","ts":0.000"#), "{text}");
        assert!(text.contains(r#""name":"a","ph":"E","ts":1005.000"#), "{text}");
        assert!(text.contains(r#""ph":"X","ts":0.000,"pid":1,"tid":0,"dur":5.000"#), "{text}");
    }
}
