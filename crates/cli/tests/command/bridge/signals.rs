//! Signals to `uwork bridge push`, and to `uwork bridge run` before it has started, or while nothing reads
//! what it says.

use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use super::owned::Owned;
use super::patience::until;
use super::process::Background;
use super::server::Redis;

/// Waits until a thread of a process, which has the name, has taken the signal and sleeps.
fn until_taken(pid: u32, signal: Signal, name: &str) {
    until("the signal was taken", || !is_pending(pid, signal) && sleeps(pid, name));
}

#[test]
fn a_signal_ends_a_push_which_says_how_many_jobs_it_has_added() {
    let Some(redis) = Redis::start("a_signal_ends_a_push", &[]) else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::QUIT] {
        redis.ask("DEL jobs");
        let mut push = redis.command(&["push", "--stream", "jobs", "--lines"]);
        push.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut push = Owned::spawn(&mut push);
        let mut input = push.stdin.take().unwrap();
        input.write_all(&b"job\n".repeat(1_500)).unwrap();
        // Their answer may be on its way. The others wait for more lines.
        until("the first jobs are in the stream", || redis.number("XLEN jobs") > 0);
        kill_process(Pid::from_child(&push), signal).unwrap();
        let Output { status, stdout, stderr } = push.output();
        drop(input);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!((status.signal(), &*stdout), (Some(signal.as_raw()), &b""[..]), "{said}");
        assert!(said.ends_with("uwork: a signal: jobs pushed: 1000\n"), "{said}");
        assert_eq!(redis.number("XLEN jobs"), 1_000);
    }
}

#[test]
fn a_signal_ends_a_consumer_that_waits_for_its_server() {
    let Some(redis) = Redis::start("a_signal_ends_a_consumer_that_waits", &[]) else { return };
    for signal in [Signal::INT, Signal::TERM] {
        // Port 1 has no listener.
        let server = ["--server", "redis://127.0.0.1:1", "--stream", "jobs", "--exec", "true"];
        let mut run = redis.command(&[&["run"][..], &server].concat());
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut run = Owned::spawn(&mut run);
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
        let waits = lines.find(|line| line.as_ref().unwrap().contains("waiting for the server"));
        assert!(waits.is_some());
        kill_process(Pid::from_child(&run), signal).unwrap();
        let said: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(said.last().unwrap(), "uwork bridge: a signal ends the start");
        assert_eq!(run.output().status.signal(), Some(signal.as_raw()));
    }
}

/// Whether a thread of a process, with this name, sleeps.
fn sleeps(pid: u32, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains(&format!("({name}) S "))
    })
}

/// Whether no thread of a process has taken a signal that was sent to it.
fn is_pending(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    pending & 1 << (signal.as_raw() - 1) != 0
}

// Catches: a signal that waits until the input ends: the push has lines for the next batch at once.
#[test]
fn a_signal_ends_a_push_before_its_next_batch() {
    let Some(redis) = Redis::start("a_signal_ends_a_push_before", &[]) else { return };
    let mut push = redis.command(&["push", "--stream", "jobs", "--lines"]);
    push.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut push = Owned::spawn(&mut push);
    let mut input = push.stdin.take().unwrap();
    input.write_all(&b"job\n".repeat(1_000)).unwrap();
    until("the first batch is in the stream", || redis.number("XLEN jobs") == 1_000);
    redis.pause();
    // Until the process ends, and with it the pipe.
    let writer =
        std::thread::spawn(move || while input.write_all(&b"job\n".repeat(10_000)).is_ok() {});
    // The number and the first argument of a system call.
    let reads = format!("{} 0x0 ", libc::SYS_read);
    until("the push waits for the server, and not for lines", || {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", push.id())).unwrap();
        !call.starts_with(&reads) && !call.starts_with("running")
    });
    kill_process(Pid::from_child(&push), Signal::TERM).unwrap();
    // It sleeps again once it has announced the end.
    until_taken(push.id(), Signal::TERM, "signals");
    redis.resume();
    let Output { status, stderr, .. } = push.output();
    writer.join().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{said}");
    let jobs = redis.number("XLEN jobs");
    assert!(said.ends_with(&format!("uwork: a signal: jobs pushed: {jobs}\n")), "{said}");
    assert_eq!(jobs, 2_000, "and no batch after the one that waited");
}

#[test]
fn a_second_signal_ends_a_push_whose_answer_is_not_read() {
    let Some(redis) = Redis::start("a_second_signal_ends_a_push", &[]) else { return };
    // A job with the id of another one is not added.
    for pushed in [1, 0] {
        end_by_a_second_signal(&redis, pushed);
        assert_eq!(redis.number("XLEN jobs"), 1);
    }
}

/// A pipe whose writer has to wait for a reader.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let full = writer.write_all(&[0; 2 << 20]).unwrap_err().kind();
    assert_eq!(full, ErrorKind::WouldBlock, "a pipe holds less");
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

fn end_by_a_second_signal(redis: &Redis, pushed: usize) {
    let (reader, writer) = full_pipe();
    let mut push = redis.command(&["push", "--stream", "jobs", "--id", "a", "job"]);
    push.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    let push = Owned::spawn(&mut push);
    let writes = format!("{} 0x1 ", libc::SYS_write);
    until("the push waits for a reader of its answer", || {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", push.id())).unwrap();
        call.starts_with(&writes)
    });
    kill_process(Pid::from_child(&push), Signal::TERM).unwrap();
    until_taken(push.id(), Signal::TERM, "signals");
    kill_process(Pid::from_child(&push), Signal::TERM).unwrap();
    let Output { status, stderr, .. } = push.output();
    drop(reader);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{said}");
    let what = format!("a second signal: the answer was not read; jobs pushed: {pushed}\n");
    assert!(said.ends_with(&what), "{said}");
}

// Catches: threads of a consumer that wait for the reader of its lines.
#[test]
fn a_consumer_whose_lines_are_not_read_runs_its_jobs_and_stops() {
    let Some(redis) = Redis::start("a_consumer_whose_lines_are_not_read", &[]) else { return };
    let (reader, writer) = full_pipe();
    // Each job fails, and has a line.
    redis.text(&["push", "--stream", "jobs", "--id", "a", "x"]);
    redis.text(&["push", "--stream", "jobs", "--id", "b", "x"]);
    let mut run = redis.command(&["run", "--stream", "jobs", "--exec", "sh", "-c", "exit 65"]);
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    let run = Owned::spawn(&mut run);
    until("both are dead letters", || redis.number("XLEN {jobs}:dead") == 2);
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.output().status.code(), Some(0));
    drop(reader);
}

#[test]
fn a_second_signal_kills_the_jobs_of_a_consumer_whose_lines_are_not_read() {
    let Some(redis) = Redis::start("a_second_signal_kills_the_jobs", &[]) else { return };
    let (reader, writer) = full_pipe();
    let mut job = Background::new();
    redis.text(&["push", "--stream", "jobs", &job.folder()]);
    let script = format!("read -r folder; {} wait", Background::command(":"));
    let mut run = redis.command(&["run", "--stream", "jobs", "--exec", "sh", "-c", &script]);
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    let run = Owned::spawn(&mut run);
    until("the job has begun", || job.has_begun());
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    until_taken(run.id(), Signal::TERM, "signals");
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.output().status.code(), Some(128 + libc::SIGTERM));
    job.wait_for_end();
    drop(reader);
}
