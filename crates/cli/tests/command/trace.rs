//! `uwork trace`: the file, and what ends a trace in the process.

use std::fs;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use uwork::control;

use crate::answering::{answering, ok};
use crate::observed::{Other, looked_at, observed, until};
use crate::process::{NO_ANSWER, answered, command, refused, uwork};

/// What a trace of this process said, or the reason to repeat it: a thread of this process got no
/// CPU, be it for an answer, or to read a trace.
fn undisturbed(trace: Output) -> Result<String, String> {
    let said = String::from_utf8(trace.stderr).unwrap();
    let reasons = [NO_ANSWER, "another client reads the trace"];
    if reasons.iter().any(|reason| said.contains(reason)) {
        return Err(said);
    }
    assert!(trace.status.success(), "{said}");
    Ok(said)
}

#[test]
fn a_trace_has_the_runs_of_the_items_that_are_queued_meanwhile() {
    observed("trace::a_trace_has_the_runs_of_the_items_that_are_queued_meanwhile", || {
        let (queue, pid) = looked_at("traced");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let file = path.to_str().unwrap().to_owned();
        let trace = || {
            control::answer("trace off");
            let mut command = command(&["trace", &pid, "-o", &file]);
            let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
            while running.try_wait().unwrap().is_none() {
                queue.spawn(std::thread::yield_now).join().unwrap();
            }
            undisturbed(running.wait_with_output().unwrap())?;
            let text = fs::read_to_string(&path).unwrap();
            Ok::<_, String>(serde_json::from_str::<serde_json::Value>(&text).unwrap())
        };
        let is_run = |event: &serde_json::Value| {
            event["ph"] == "X"
                && event["name"].as_str().is_some_and(|name| name.ends_with("[traced]"))
        };
        let is_arrow = |event: &serde_json::Value| event["ph"] == "f" && event["name"] == "queued";
        // On a busy machine no item may have run during a trace.
        until(trace, |trace| {
            let events = trace["traceEvents"].as_array().unwrap();
            events.iter().any(is_run) && events.iter().any(is_arrow)
        });
        assert!(refused(&["trace", &pid, "-o", "/nowhere/t.json"]).contains("No such file"));
    });
}

#[test]
fn a_trace_that_is_refused_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    fs::write(&path, "an earlier trace").unwrap();
    let file = path.to_str().unwrap();
    let (_folder, busy) = answering(|_| "err refused a trace is on\n".to_owned());
    for process in ["99999998", &busy] {
        refused(&["trace", process, "-o", file]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "an earlier trace", "{process}");
    }
}

#[test]
fn a_trace_that_is_refused_later_is_ended_and_written() {
    let (asked, requests) = std::sync::mpsc::channel();
    let reads = std::cell::Cell::new(0);
    let (folder, socket) = answering(move |request| {
        asked.send(request.to_owned()).unwrap();
        match request {
            "trace on 3600" => {
                reads.set(0);
                ok("")
            }
            "trace read" => {
                reads.set(reads.get() + 1);
                let record = "lost\t0\nmore\t0\nstarted\t5000\t1\tbeef\t7\t3\ta0\n";
                if reads.get() == 1 { ok(record) } else { "err refused not now\n".to_owned() }
            }
            "queues" => ok("name\tran\n"),
            _ => ok(""),
        }
    });
    let path = folder.path().join("trace.json");
    let args = ["trace", &socket, "-o", path.to_str().unwrap(), "-s", "3600"];
    let output = answered(&mut command(&args));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 runs") && said.contains("not now; the file has what"), "{said}");
    // The command does not wait for this answer longer than for others.
    until(|| Ok::<_, ()>(requests.try_iter().any(|request| request == "trace off")), |came| *came);
    assert!(fs::read_to_string(&path).unwrap().contains("has not ended"));
}

#[test]
fn a_signal_ends_a_trace_and_the_file_is_written() {
    observed("trace::a_signal_ends_a_trace_and_the_file_is_written", || {
        let (queue, pid) = looked_at("cut-short");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let file = path.to_str().unwrap().to_owned();
        let trace = || {
            control::answer("trace off");
            let mut command = command(&["trace", &pid, "-o", &file, "-s", "3600"]);
            let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
            let read = || {
                queue.spawn(std::thread::yield_now).join().unwrap();
                let has_ended = running.try_wait().unwrap().is_some();
                Ok::<_, ()>((has_ended, control::answer("trace read")))
            };
            let is_over = |(has_ended, records): &(bool, String)| {
                *has_ended || records.contains("\nqueued\t")
            };
            let (has_ended, _) = until(read, is_over);
            if !has_ended {
                kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
            }
            undisturbed(running.wait_with_output().unwrap())
        };
        let said = until(trace, |_| true);
        assert!(said.contains("ended by a signal"), "{said}");
        let trace: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(trace["traceEvents"].is_array());
        assert!(
            control::answer("trace on 1").starts_with("ok "),
            "it was ended in the process, too"
        );
        control::answer("trace off");
    });
}

/// Runs `uwork trace` until it is not refused.
fn until_traced(pid: &str, file: &str) {
    let trace = || {
        let output = uwork(&["trace", pid, "-o", file]);
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    until(trace, |_| true);
}

// Catches: a process that records for an hour, as the client that began it was killed.
#[test]
fn a_trace_whose_command_was_killed_ends() {
    observed("trace::a_trace_whose_command_was_killed_ends", || {
        let (queue, pid) = looked_at("killed");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.json").display().to_string();
        let mut command = command(&["trace", &pid, "-o", &file, "-s", "3600"]);
        let mut running = command.stderr(Stdio::null()).spawn().unwrap();
        let is_traced = || {
            queue.spawn(std::thread::yield_now).join().unwrap();
            Ok::<_, ()>(control::answer("trace read").contains("\nqueued\t"))
        };
        until(is_traced, |&is_traced| is_traced);
        running.kill().unwrap();
        running.wait().unwrap();
        until(is_traced, |&is_traced| !is_traced);
        assert!(control::answer("trace on 1").starts_with("ok "));
    });
}

// Catches: a command that gives up, and leaves the trace on in a process that goes on later.
#[test]
fn a_trace_of_a_process_that_was_stopped_meanwhile_ends() {
    let test = "trace::a_trace_of_a_process_that_was_stopped_meanwhile_ends";
    observed(test, || {
        let other = Other::start(test, "halted");
        let pid = other.number();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.json").display().to_string();
        let start = || {
            let mut command = command(&["trace", &pid, "-o", &file, "-s", "3600"]);
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut running = start();
        let second = || {
            // The second one may have come first.
            if running.try_wait().unwrap().is_some() {
                running = start();
            }
            Ok::<_, ()>(uwork(&["trace", &pid, "-o", "/dev/null", "-s", "1"]))
        };
        let is_refused = |output: &Output| {
            String::from_utf8_lossy(&output.stderr).contains("a trace is on for ")
        };
        until(second, is_refused);
        other.stop();
        let output = running.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("is stopped: ") && said.contains("has what came before"), "{said}");
        other.go_on();
        until_traced(&pid, &file);
    });
}

// A server of an earlier version records on when the connection has ended.
#[test]
fn a_trace_that_was_answered_too_late_is_ended_by_another_connection() {
    let (asked, requests) = std::sync::mpsc::channel();
    let (_folder, socket) = answering(move |request| {
        asked.send(request.to_owned()).unwrap();
        match request {
            "trace read" => String::new(),
            "queues" => ok("name\tran\n"),
            _ => ok(""),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    // Again, if this process got no CPU in the time for that.
    let trace = || {
        let output = uwork(&["trace", &socket, "-o", path.to_str().unwrap(), "-s", "3600"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(NO_ANSWER), "{said}");
        Ok::<_, ()>(requests.try_iter().any(|request| request == "trace off"))
    };
    until(trace, |&is_ended| is_ended);
}
