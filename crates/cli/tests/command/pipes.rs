//! A reader that closes its end of a pipe, as `head` does, ends each command without a message.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::observed::{looked_at, observed, until};
use crate::process::{command, complete};

/// The arguments of each subcommand that has any. A `*` is replaced: PID, FILE and SCRIPT are those
/// of the test, DIR is its folder.
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("topology", &[]),
    ("sum", &["*FILE"]),
    ("sim run", &["*SCRIPT", "--verbose"]),
    ("sim check", &["--seeds", "5"]),
    ("sim calibrate", &[]),
    ("sim power", &["--seconds", "1", "--draws", "1", "--machine", "board"]),
    ("sim seeds", &["--batches", "1"]),
    ("sim scale", &["--cpus", "2", "--batches", "1"]),
    ("sim move", &["--cpus", "8", "--items", "100"]),
    ("sim bench", &["--machine", "core:2", "--quick"]),
    ("sim machines", &[]),
    ("bridge run", &["--server", "nowhere", "--stream", "s", "--exec", "true"]),
    ("bridge push", &["--server", "unix:///nowhere", "--stream", "s", "payload"]),
    ("bridge stat", &["--server", "unix:///nowhere", "--stream", "s"]),
    ("bridge dead list", &["--server", "unix:///nowhere", "--stream", "s"]),
    ("bridge dead show", &["--server", "unix:///nowhere", "--stream", "s", "1-1"]),
    ("bridge dead replay", &["--server", "unix:///nowhere", "--stream", "s", "1-1"]),
    ("bridge dead drop", &["--server", "unix:///nowhere", "--stream", "s", "1-1"]),
    ("bridge consumers", &["--server", "unix:///nowhere", "--stream", "s"]),
    ("ls", &[]),
    ("get", &["*PID", "cpumask"]),
    ("set", &["*PID", "devices/piped/max_active", "3"]),
    ("dump", &["*PID", "--stacks"]),
    // Without an end of its own.
    ("monitor", &["*PID", "-i", "0.01"]),
    ("top", &["*PID", "-i", "0.05"]),
    ("trace", &["*PID", "-o", "*DIR/trace.json"]),
    ("doctor", &["*PID"]),
    ("report", &["*DIR/none.json"]),
    ("completions", &["bash"]),
    ("man", &[]),
];

/// Every subcommand that has no subcommands below, by the help of the command.
fn subcommands() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        let words: Vec<&str> = path.split_whitespace().chain(["--help"]).collect();
        let output = command(&words).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        // Continued descriptions are indented further.
        let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| {
            line.strip_prefix("  ")?.split_whitespace().next().filter(|_| !line.starts_with("   "))
        });
        let below: Vec<String> =
            names.filter(|name| *name != "help").map(|name| format!("{path} {name}")).collect();
        match below.is_empty() {
            true => found.push(path.trim().to_owned()),
            false => open.extend(below),
        }
    }
    found
}

/// An end to write to whose reader has gone. Not a pipe, whose reader a process of another test may
/// have until its exec.
fn closed() -> Stdio {
    let (reader, writer) = UnixStream::pair().unwrap();
    reader.shutdown(Shutdown::Both).unwrap();
    Stdio::from(OwnedFd::from(writer))
}

/// The code of a command that has ended by itself and has not panicked.
fn code(name: &str, output: &Output) -> i32 {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panic"), "{name}: {errors}");
    output.status.code().unwrap_or_else(|| panic!("{name}: {}: {errors}", output.status))
}

#[test]
fn every_command_ends_well_in_a_closed_pipe() {
    observed("pipes::every_command_ends_well_in_a_closed_pipe", || {
        let (_queue, pid) = looked_at("piped");
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (file, script) = (path("file"), path("script"));
        std::fs::write(&file, "text").unwrap();
        std::fs::write(&script, "machine core:2\nqueue q percpu\nitem a q: burn 5us\n").unwrap();
        let names = subcommands();
        assert_eq!(names.len(), ARGUMENTS.len(), "{names:?}");
        for name in &names {
            let (_, arguments) = ARGUMENTS.iter().find(|(known, _)| known == name).expect(name);
            let place = folder.path().to_str().unwrap();
            let given = |argument: &&str| match *argument {
                "*PID" => pid.clone(),
                "*FILE" => file.clone(),
                "*SCRIPT" => script.clone(),
                other => other.replace("*DIR", place),
            };
            let words = name.split(' ').map(str::to_owned).chain(arguments.iter().map(given));
            let words: Vec<String> = words.collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // Every answer may come too late on a busy machine, which the code 2 says.
            let output = command(&words).stdout(closed()).output().unwrap();
            let allowed: &[i32] = match name.as_str() {
                "sum" => &[141],
                // No server, no such file; or something to look at.
                "report" => &[2],
                _ if name.starts_with("bridge") => &[2],
                "doctor" => &[0, 1, 2],
                _ => &[0, 2],
            };
            let ended = code(name, &output);
            assert!(allowed.contains(&ended), "{name}: {ended}");
            let said = complete(&String::from_utf8_lossy(&output.stderr));
            assert!(said.is_empty() || ended == 2 || name == "trace", "{name}: {said}");
            let help: Vec<&str> = name.split(' ').chain(["--help"]).collect();
            let output = command(&help).stdout(closed()).output().unwrap();
            assert_eq!((code(name, &output), output.stderr), (0, Vec::new()), "{name} --help");
            if name == "sim seeds" {
                // Takes ten seconds, and writes nothing to standard error.
                continue;
            }
            // With `2>&1` the messages go the same way.
            let output = command(&words).stdout(closed()).stderr(closed()).output().unwrap();
            assert!(allowed.contains(&code(name, &output)), "{name}, no reader of errors");
        }
    });
}

#[test]
fn an_idle_monitor_ends_when_its_reader_has_gone() {
    observed("pipes::an_idle_monitor_ends_when_its_reader_has_gone", || {
        let (_queue, pid) = looked_at("idle");
        // The next line is due in a day.
        let mut command = command(&["monitor", &pid, "-i", "86400"]);
        let mut monitor = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
        // A process that got no CPU for an answer ends the command before its first line.
        let first = lines.next().transpose().unwrap();
        drop(lines);
        until(|| monitor.try_wait(), Option::is_some);
        let output = monitor.wait_with_output().unwrap();
        let ended = code("monitor", &output);
        assert_eq!((ended, output.stderr.is_empty()), first.map_or((2, false), |_| (0, true)));
    });
}

// Catches: a command that ends in the middle of its output, since another program of its terminal has
// made that non-blocking.
#[test]
fn output_that_does_not_block_is_complete() {
    let words = ["completions", "bash"];
    let expected = command(&words).output().unwrap().stdout;
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let room = fcntl_setpipe_size(&writer, 4_096).unwrap();
    assert!(expected.len() > 4 * room);
    fcntl_setfl(&reader, OFlags::empty()).unwrap();
    let child = command(&words).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut read = Vec::new();
    std::fs::File::from(reader).read_to_end(&mut read).unwrap();
    let errors = child.wait_with_output().unwrap().stderr;
    assert_eq!((read.len(), &*String::from_utf8_lossy(&errors)), (expected.len(), ""));
    assert!(read == expected);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    observed("pipes::output_that_cannot_be_written_is_an_error", || {
        let (_queue, pid) = looked_at("full");
        let lines =
            ["--help", "--version", "ls --help", "topology", "man", "completions bash", "ls"];
        let lines = lines.map(str::to_owned).into_iter().chain([format!("dump {pid}")]);
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let output = command(&words).stdout(full).output().unwrap();
            let errors = complete(&String::from_utf8_lossy(&output.stderr));
            let expected = "uwork: standard output: No space left on device\n";
            assert_eq!((code(&line, &output), &*errors), (2, expected), "{line}");
        }
    });
}
