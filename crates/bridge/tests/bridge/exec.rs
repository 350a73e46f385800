//! Commands as handlers: input, output, exit status, time limit, processes left behind.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::channel;
use std::time::Duration;

use uwork_bridge::{Bridge, Config, Exec, Handlers, Producer, Push, Results};

use crate::support::count::{Count, LONG, config};
use crate::support::owned::Folder;
use crate::support::patience::{received, until};
use crate::support::process::Background;
use crate::support::server::Redis;

fn push(redis: &Redis, push: Push) {
    Producer::new(vec![redis.server()], "jobs", 1).unwrap().push(push).unwrap();
}

/// Runs the jobs of the stream with a shell script until so many have ended.
fn run(config: Config, script: &str, ended: u64) -> Count {
    let lines = Count::default();
    let command = ["sh", "-c", script].map(Into::into).to_vec();
    let exec = Exec::new(command, 100).unwrap();
    let handlers = Handlers::new().otherwise_exec(exec);
    let bridge = Bridge::start(config, handlers, lines.reports()).unwrap();
    until("the jobs have ended", || bridge.counters().done + bridge.counters().dead >= ended);
    bridge.stop(LONG);
    lines
}

fn with_results(redis: &Redis) -> Config {
    let mut config = config(redis.server(), "jobs");
    config.results = Results::Key(LONG);
    config
}

fn text(redis: &Redis, words: &str) -> String {
    match redis.ask(words) {
        redis::Value::BulkString(text) => String::from_utf8(text).unwrap(),
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn a_command_gets_the_payload_and_its_output_is_the_result() {
    let Some(redis) = Redis::start("a_command_gets_the_payload", &[]) else { return };
    push(&redis, Push::new("hello").id("a").key("k").handler("h"));
    let script = "read -r line; echo $line $UWORK_JOB_ID $UWORK_JOB_KEY $UWORK_JOB_HANDLER \
                  $UWORK_JOB_ATTEMPT $UWORK_JOB_STREAM";
    run(with_results(&redis), script, 1);
    assert_eq!(text(&redis, "GET {jobs}:result:a"), "hello a k h 1 jobs\n");
}

#[test]
fn the_exit_status_decides_and_standard_error_is_the_error() {
    let Some(redis) = Redis::start("the_exit_status_decides", &[]) else { return };
    // Without an end of another kind, 126 and 127 are those of a command that cannot be started.
    push(&redis, Push::new("0"));
    push(&redis, Push::new("65"));
    push(&redis, Push::new("7"));
    push(&redis, Push::new("9"));
    push(&redis, Push::new("126"));
    push(&redis, Push::new("127"));
    let script = "read -r n; echo said $n >&2; [ $n != 9 ] || kill -9 $$; exit $n";
    let lines = run(config(redis.server(), "jobs"), script, 6);
    lines.wait_line("after 1 attempt(s): sh: exit status 65: said 65");
    lines.wait_line("after 3 attempt(s): sh: exit status 7: said 7");
    lines.wait_line("after 3 attempt(s): sh: killed by signal 9: said 9");
    lines.wait_line("exit status 126 (a command is not executable): said 126");
    lines.wait_line("exit status 127 (a command was not found): said 127");
    assert_eq!(redis.number("XLEN {jobs}:dead"), 5);
}

#[test]
fn a_command_has_all_cpus_of_its_consumer() {
    let Some(redis) = Redis::start("a_command_has_all_cpus", &[]) else { return };
    push(&redis, Push::new("").id("a"));
    run(with_results(&redis), "grep ^Cpus_allowed: /proc/self/status", 1);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap();
    assert_eq!(text(&redis, "GET {jobs}:result:a").trim_end(), allowed);
}

// Catches: a command with the signal mask of a worker, whose shell waits for a child's end for ever.
#[test]
fn a_command_starts_with_no_signal_blocked() {
    let Some(redis) = Redis::start("a_command_starts_with_no_signal_blocked", &[]) else { return };
    push(&redis, Push::new("").id("a"));
    let script = "sleep 0.1 & wait; (trap 'echo told' TERM; sh -c 'kill $PPID'; :); \
                  grep ^SigBlk: /proc/self/status";
    let mut settings = with_results(&redis);
    settings.limit = Some(LONG / 60);
    run(settings, script, 1);
    let said = text(&redis, "GET {jobs}:result:a");
    assert_eq!(said, "told\nSigBlk:\t0000000000000000\n");
}

// Catches: the end of a large payload that comes from the consumer, and not from the system.
#[test]
fn a_payload_beyond_a_pipe_is_read_as_a_whole() {
    let Some(redis) = Redis::start("a_payload_beyond_a_pipe", &[]) else { return };
    let payload: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let folder = Folder::new();
    std::fs::write(folder.file("expected"), &payload).unwrap();
    push(&redis, Push::new(payload).id("a"));
    let file = folder.file("expected");
    run(with_results(&redis), &format!("cmp {file} - && head -c 1 | wc -c"), 1);
    assert_eq!(text(&redis, "GET {jobs}:result:a").trim(), "0", "and then the end");
}

#[test]
fn a_command_that_reads_nothing_or_writes_much_ends_all_the_same() {
    let Some(redis) = Redis::start("a_command_that_reads_nothing", &[]) else { return };
    push(&redis, Push::new(vec![b'x'; 64 << 20]).id("large"));
    push(&redis, Push::new("").id("empty"));
    run(with_results(&redis), "head -c 1000000 /dev/zero | tr '\\0' y", 2);
    assert_eq!(text(&redis, "GET {jobs}:result:large"), "y".repeat(100), "the output is cut");
    assert_eq!(text(&redis, "GET {jobs}:result:empty"), "y".repeat(100));
}

#[test]
fn the_time_limit_kills_the_whole_process_group() {
    let Some(redis) = Redis::start("the_time_limit_kills", &[]) else { return };
    let mut background = Background::new();
    push(&redis, Push::new(background.folder()));
    let script = format!("read -r folder; {} wait", Background::command(":"));
    let mut limit = Duration::from_millis(500);
    // On a busy machine an attempt is over before its process has begun: the next has twice the time.
    until("an attempt has begun within its limit", || {
        let mut config = config(redis.server(), "jobs");
        config.limit = Some(limit);
        config.attempts_max = u32::MAX;
        let errors = Count::default();
        let sink = errors.clone();
        let exec = Exec::new(["sh", "-c", &script].map(Into::into).to_vec(), 100).unwrap();
        let handlers = Handlers::new().otherwise(move |job| {
            sink.add(job.last_error().unwrap_or("none"));
            let outcome = exec.run(job);
            assert!(outcome.is_err(), "the command waits for ever: {outcome:?}");
            outcome
        });
        let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
        errors.wait_line(&format!("the time limit of {limit:?} is over"));
        bridge.stop(Duration::ZERO);
        limit *= 2;
        background.has_begun()
    });
    background.wait_for_end();
}

#[test]
fn the_time_limit_kills_a_command_although_the_server_hangs() {
    let Some(redis) = Redis::start("the_time_limit_kills_although", &[]) else { return };
    push(&redis, Push::new("x"));
    let mut config = config(redis.server(), "jobs");
    config.limit = Some(Duration::from_secs(1));
    config.attempts_max = u32::MAX;
    let (begin, begun) = channel();
    let (end, ended) = channel();
    let hold = Background::new();
    let command = ["cat".to_owned(), format!("{}/input", hold.folder())];
    let exec = Exec::new(command.map(Into::into).to_vec(), 100).unwrap();
    let handlers = Handlers::new().otherwise(move |job| {
        // The test may have ended.
        let _ = begin.send(());
        let outcome = exec.run(job);
        let _ = end.send(format!("{outcome:?}"));
        outcome
    });
    let bridge = Bridge::start(config, handlers, |_| {}).unwrap();
    // On a busy machine the committer may decide before the server hangs.
    until("a run has decided, and not the committer", || {
        received("an attempt", &begun);
        // The committer promotes ten times a second, and then waits for the server.
        redis.pause();
        let outcome = received("the end of the attempt", &ended);
        redis.resume();
        // Had the committer decided, it would be: its job was taken away.
        outcome.contains("the time limit of 1s is over")
    });
    bridge.stop(Duration::ZERO);
}

#[test]
fn a_process_left_behind_ends_with_its_job_and_delays_it_not() {
    let Some(redis) = Redis::start("a_process_left_behind", &[]) else { return };
    let mut background = Background::new();
    push(&redis, Push::new(background.folder()));
    // The process keeps the job's standard error open. The job waits until it has begun.
    let process = Background::command("echo >$folder/ready");
    let script =
        format!("read -r folder; mkfifo $folder/ready; {process} read -r _ <$folder/ready");
    run(config(redis.server(), "jobs"), &script, 1);
    background.wait_for_end();
    assert_eq!(redis.number("HGET {jobs}:stats done"), 1);
}

/// A script in a folder of the test, which counts its runs.
fn script(folder: &Folder, text: &str) -> String {
    let file = folder.file("work");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[test]
fn a_program_that_cannot_be_started_is_refused_at_once() {
    let refused = |words: &[&str]| {
        let words = words.iter().map(Into::into).collect();
        Exec::new(words, 1).unwrap_err().to_string()
    };
    assert_eq!(refused(&[]), "the command has no program");
    let missing = refused(&["/no/such/program"]);
    let expected = "the command \"/no/such/program\" cannot be started: No such file or directory";
    assert_eq!(missing, expected);
    assert!(refused(&["sh -c true"]).ends_with("are words of their own"));
    let folder = Folder::new();
    let plain = script(&folder, "#!/no/such/interpreter\n");
    assert!(refused(&[&plain]).contains("its interpreter \"/no/such/interpreter\""));
}

#[test]
fn a_program_that_vanishes_costs_no_attempt_and_its_job_goes_to_another_consumer() {
    let Some(redis) = Redis::start("a_program_that_vanishes", &[]) else { return };
    let folder = Folder::new();
    let file = script(&folder, "#!/bin/sh\ncat >/dev/null; echo $UWORK_JOB_ATTEMPT\n");
    let exec = Exec::new(vec![file.clone().into()], 100).unwrap();
    std::fs::rename(&file, folder.file("away")).unwrap();
    let lines = Count::default();
    let handlers = Handlers::new().otherwise_exec(exec);
    let mut settings = with_results(&redis);
    // A job that lost an attempt would be a dead letter at once.
    settings.attempts_max = 1;
    let bridge = Bridge::start(settings.clone(), handlers, lines.reports()).unwrap();
    push(&redis, Push::new("x").id("a"));
    lines.wait_line("cannot be started: No such file or directory; no job is fetched");
    until("it was handed back, and tried again", || bridge.counters().handed_back > 1);
    assert_eq!((bridge.counters().dead, bridge.counters().retries), (0, 0));
    // Another consumer has the program.
    let other = Exec::new(vec![folder.file("away").into()], 100).unwrap();
    let handlers = Handlers::new().otherwise(move |job| other.run(job));
    let other = Bridge::start(settings, handlers, |_| {}).unwrap();
    until("the job is done", || other.counters().done == 1);
    assert_eq!(text(&redis, "GET {jobs}:result:a"), "1\n", "it is the first attempt");
    other.stop(LONG);
    // The program is back.
    std::fs::rename(folder.file("away"), &file).unwrap();
    push(&redis, Push::new("x").id("b"));
    until("the job is done", || bridge.counters().done == 1);
    assert_eq!(text(&redis, "GET {jobs}:result:b"), "1\n");
    lines.wait_line("jobs can run again");
    bridge.stop(LONG);
    let began = lines.lines().iter().filter(|line| line.contains("no job is fetched")).count();
    assert_eq!(began, 1, "{:?}", lines.lines());
}

#[test]
fn a_command_that_a_shell_does_not_find_costs_no_attempt() {
    let Some(redis) = Redis::start("a_command_that_a_shell_does_not_find", &[]) else { return };
    let folder = Folder::new();
    let file = folder.file("work");
    // Each run says something else, as with the number of its process.
    let words = ["sh", "-c", "echo $$ >&2; \"$0\"", &file].map(Into::into).to_vec();
    let exec = Exec::new(words, 100).unwrap();
    let handlers = Handlers::new().otherwise_exec(exec);
    let mut settings = config(redis.server(), "jobs");
    // No run goes on that has not found the command when another one has.
    (settings.attempts_max, settings.max_active) = (1, 1);
    let lines = Count::default();
    let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
    (0..5).for_each(|_| push(&redis, Push::new("x")));
    lines.wait_line("sh: exit status 127 (a command was not found): ");
    until("jobs were handed back, and tried again", || bridge.counters().handed_back > 5);
    let stopped = lines.lines().iter().filter(|line| line.contains("no job is fetched")).count();
    assert_eq!(stopped, 1, "{:#?}", lines.lines());
    assert_eq!((bridge.counters().dead, redis.number("XLEN jobs")), (0, 5));
    script(&folder, "#!/bin/sh\n[ \"$UWORK_JOB_ATTEMPT\" = 1 ]\n");
    until("the jobs are done", || bridge.counters().done == 5);
    lines.wait_line("jobs can run again");
    // From now on it is a failure of its job.
    std::fs::remove_file(&file).unwrap();
    push(&redis, Push::new("x"));
    until("it is a dead letter", || bridge.counters().dead == 1);
    bridge.stop(LONG);
}

// Catches: a job that goes back each time, is the oldest, and so keeps the only place from all others.
#[test]
fn a_run_that_lasts_and_then_does_not_find_a_command_has_failed() {
    let Some(redis) = Redis::start("a_run_that_lasts_and_then", &[]) else { return };
    push(&redis, Push::new("bad"));
    push(&redis, Push::new("good"));
    let mut settings = config(redis.server(), "jobs");
    (settings.attempts_max, settings.max_active) = (1, 1);
    let script = "read -r word; [ $word = good ] || { sleep 3; exit 127; }";
    let lines = run(settings, script, 2);
    lines.wait_line("after 1 attempt(s): sh: exit status 127 (a command was not found)");
    let [done, dead] =
        ["done", "dead"].map(|of| redis.number(&format!("HGET {{jobs}}:stats {of}")));
    assert_eq!((done, dead), (1, 1));
    assert!(!lines.lines().iter().any(|line| line.contains("no job is fetched")));
}

#[test]
fn a_long_run_does_not_prolong_the_pause_after_a_command_that_cannot_be_started() {
    let name = "a_long_run_does_not_prolong_the_pause";
    let Some(redis) = Redis::start(name, &[]) else { return };
    let mut long = Background::new();
    let folder = Folder::new();
    let text = format!(
        "#!/bin/sh\nread -r folder; [ -n \"$folder\" ] || exit 0\n{} wait\n",
        Background::command(":")
    );
    let file = script(&folder, &text);
    let exec = Exec::new(vec![file.clone().into()], 100).unwrap();
    let handlers = Handlers::new().otherwise_exec(exec);
    let mut settings = config(redis.server(), "jobs");
    settings.max_active = 3;
    let lines = Count::default();
    let bridge = Bridge::start(settings, handlers, lines.reports()).unwrap();
    push(&redis, Push::new(long.folder()));
    until("a long run has begun", || long.has_begun());
    std::fs::rename(&file, folder.file("away")).unwrap();
    push(&redis, Push::new("\n"));
    lines.wait_line("cannot be started: No such file or directory; no job is fetched");
    std::fs::rename(folder.file("away"), &file).unwrap();
    // The pause ends when a second long run has started.
    let mut second = Background::new();
    push(&redis, Push::new(second.folder()));
    (0..5).for_each(|_| push(&redis, Push::new("\n")));
    until("the second long run has begun", || second.has_begun());
    until("the short ones are done", || bridge.counters().done == 6);
    lines.wait_line("jobs can run again");
    assert_eq!((bridge.counters().dead, bridge.counters().retries), (0, 0));
    bridge.stop(Duration::ZERO);
    [long, second].iter_mut().for_each(Background::wait_for_end);
}

#[test]
fn a_job_that_no_environment_takes_is_its_own_failure() {
    let Some(redis) = Redis::start("a_job_that_no_environment_takes", &[]) else { return };
    // A variable of a process has at most 128 KiB, and a producer of another kind no limit.
    redis.ask(&format!("XADD jobs * p long h {}", "x".repeat(200_000)));
    push(&redis, Push::new("nul").id("a\0b"));
    let lines = run(config(redis.server(), "jobs"), "true", 2);
    lines.wait_line("after 3 attempt(s): sh cannot be started: Argument list too long");
    lines.wait_line("after 3 attempt(s): sh cannot be started: nul byte found");
    assert!(!lines.lines().iter().any(|line| line.contains("no job is fetched")));
}
