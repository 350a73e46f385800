//! A tape in the JSON format of trace events, which Perfetto opens.
//!
//! One process has a track for each CPU, with the threads that compute there. Another has a track for
//! each thread, with the runs of items, declared waits and wakes. Times are virtual.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::play::Run;
use crate::script::Script;
use crate::tape::{Call, What};

const CPUS: u32 = 1;
const THREADS: u32 = 2;

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Nanoseconds in the unit of the format, microseconds.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

struct Events(Vec<String>);

impl Events {
    fn name(&mut self, what: &str, pid: u32, tid: usize, name: &str) {
        let name = quoted(name);
        self.0.push(format!(
            r#"{{"name":"{what}","ph":"M","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#
        ));
    }

    /// An event of a phase: `B` and `E` for the ends of a slice, `i` for an instant.
    fn add(&mut self, phase: char, at: u64, thread: usize, name: &str) {
        let (name, at) = (quoted(name), us(at));
        let scope = if phase == 'i' { r#","s":"t""# } else { "" };
        self.0.push(format!(
            r#"{{"name":{name},"ph":"{phase}","ts":{at},"pid":{THREADS},"tid":{thread}{scope}}}"#
        ));
    }

    fn burn(&mut self, cpu: u32, from: u64, to: u64, name: &str) {
        let (name, at, duration) = (quoted(name), us(from), us(to - from));
        self.0.push(format!(
            r#"{{"name":{name},"ph":"X","ts":{at},"dur":{duration},"pid":{CPUS},"tid":{cpu}}}"#
        ));
    }
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
    let mut events = Events(Vec::new());
    events.name("process_name", CPUS, 0, "CPUs (simulated)");
    events.name("process_name", THREADS, 0, "threads (simulated)");
    for (thread, name) in run.threads.iter().enumerate() {
        events.name("thread_name", THREADS, thread, name);
    }
    let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
    // The burn of each thread that is in progress: its CPU, its begin and its end.
    let mut burns: BTreeMap<usize, (u32, u64, u64)> = BTreeMap::new();
    for entry in run.tape.entries() {
        let (at, thread) = (entry.at, entry.thread);
        let ended = match burns.get(&thread) {
            Some(&(cpu, from, until)) if until <= at || entry.what == What::Evicted => {
                Some((cpu, from, until.min(at)))
            }
            _ => None,
        };
        if let Some((cpu, from, until)) = ended {
            burns.remove(&thread);
            events.burn(cpu, from, until, &run.threads[thread]);
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
            What::Starts(no) => events.add('B', at, thread, item(*no)),
            What::Finishes(no) => events.add('E', at, thread, item(*no)),
            What::Declares(true) => events.add('B', at, thread, "waits"),
            What::Declares(false) => events.add('E', at, thread, "waits"),
            What::Begins(call, no) => {
                events.add('i', at, thread, &format!("{} {}", name_of(*call), item(*no)));
            }
            What::Wakes(other) => {
                events.add('i', at, thread, &format!("wakes {}", run.threads[*other]));
            }
            What::Restricts(cpus) => events.add('i', at, thread, &format!("CPUs {cpus}")),
            _ => {}
        }
    }
    for (thread, (cpu, from, until)) in burns {
        events.burn(cpu, from, until.min(run.ended_at), &run.threads[thread]);
    }
    let (machine, seed) = (quoted(&script.machine), script.seed);
    format!(
        "{{\"otherData\":{{\"simulated\":true,\"machine\":{machine},\"seed\":{seed}}},\n\
         \"traceEvents\":[\n{}\n]}}\n",
        events.0.join(",\n")
    )
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
        let text = json(&script, &play::play(&script, &machine, None).unwrap());
        assert!(text.contains(r#""simulated":true,"machine":"core:2""#), "{text}");
        assert!(text.contains(r#""name":"a","ph":"B","ts":0.000"#), "{text}");
        assert!(text.contains(r#""name":"a","ph":"E","ts":1005.000"#), "{text}");
        assert!(text.contains(r#""ph":"X","ts":0.000,"dur":5.000,"pid":1"#), "{text}");
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b\\\n"), r#""a\"b\\\u000a""#);
    }
}
