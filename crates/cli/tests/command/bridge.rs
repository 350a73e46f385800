//! `uwork bridge` with a redis-server of the test's own.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[path = "../../../uwork/tests/support/address.rs"]
mod address;
#[path = "../../../uwork/tests/support/owned.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
pub(crate) mod owned;
#[path = "../../../uwork/tests/support/patience.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod patience;
#[path = "../../../bridge/tests/bridge/support/process.rs"]
mod process;
#[path = "../../../bridge/tests/bridge/support/server.rs"]
#[allow(dead_code, reason = "shared by the tests of two crates")]
mod server;

use crate::guard;
use crate::left_out::{self, left_out};
use crate::observed::with_default_signals;
use crate::process::{command, text_of};
use owned::{Folder, Owned, output, pipe_at};
use patience::until;
use process::Background;
use server::{RESERVED_PORT, Redis};

mod operators;
mod signals;

impl Redis {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        // A busy machine exceeds the time limits of a server that works.
        let patient = ["--patience", "360"];
        // Behind the subcommand, and the subcommand of that.
        let at = args.iter().take(1 + usize::from(args[0] == "dead"));
        let at = at.take_while(|arg| !arg.starts_with('-')).count();
        command.arg("bridge").args(&args[..at]).args(patient).args(&args[at..]);
        command.env("UWORK_BRIDGE_SERVER", self.url());
        with_default_signals(&mut command);
        command
    }

    fn text(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = output(&mut self.command(args));
        assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }
}

#[test]
fn jobs_are_pushed_run_and_shown() {
    let Some(redis) = Redis::start("jobs_are_pushed_run_and_shown", &[]) else { return };
    let mut lines = redis.command(&["push", "--stream", "jobs", "--lines"]);
    let mut lines = Owned::spawn(lines.stdin(Stdio::piped()).stdout(Stdio::piped()));
    lines.stdin.take().unwrap().write_all(b"1\n2\r\n3\n").unwrap();
    assert_eq!(lines.output().stdout, b"3 jobs\n");
    let push = ["push", "--stream", "jobs", "--id", "7", "four"];
    assert!(redis.text(&push).contains('-'));
    assert_eq!(redis.text(&push), "duplicate\n");
    let folder = Folder::new();
    let out = folder.file("out");
    let script = r#"cat >>"$1"; echo >>"$1""#;
    // Without the word `run`.
    let run = ["--stream", "jobs", "--max-active", "1", "--exec", "sh", "-c", script, "sh", &out];
    let run = Owned::spawn(redis.command(&run).stderr(Stdio::piped()));
    until("all jobs are done", || {
        let metrics = redis.text(&["stat", "--stream", "jobs", "--openmetrics"]);
        metrics.contains("uwork_bridge_done_total{stream=\"jobs\"} 4\n")
    });
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    let ended = run.output();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{said}");
    assert!(
        said.ends_with("4 done, 0 retried, 0 dead, 0 handed back, 0 killed, 0 left to others\n")
    );
    let mut seen: Vec<String> =
        std::fs::read_to_string(out).unwrap().split_whitespace().map(str::to_owned).collect();
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "four"]);
    let table = redis.text(&["stat", "--stream", "jobs"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["jobs", "0", "0", "0", "0", "4", "0", "0", "0", "0"], "{table}");
}

#[test]
fn the_attributes_of_a_consumers_queue_are_set_while_it_runs() {
    let Some(redis) = Redis::start("the_attributes_of_a_consumers_queue", &[]) else { return };
    let folder = Folder::new();
    let (begun, gate) = (folder.file("begun"), folder.file("gate"));
    // A job that reads from it ends at the latest with this test.
    let mut lines = pipe_at(Path::new(&gate)).unwrap();
    // Each job waits for a line of the test.
    let script = r#"echo >>"$1"; read line <"$2""#;
    let run = ["run", "--stream", "jobs", "--max-active", "1", "--exec", "sh", "-c", script, "sh"];
    redis.text(&["push", "--stream", "jobs", "--id", "one", "x"]);
    redis.text(&["push", "--stream", "jobs", "--id", "t\x1b[31mo", "x"]);
    // Both sides look for the socket in the same folder, which has no other.
    let sockets = Folder::new();
    let with_socket = |mut command: Command| {
        command.env("XDG_RUNTIME_DIR", sockets.path()).env_remove("UWORK_CONTROL");
        command
    };
    let mut run = with_socket(redis.command(&run));
    let consumer = Owned::spawn(run.args([&begun, &gate]));
    let began = || std::fs::read(&begun).unwrap_or_default().len();
    until("the first job has begun", || began() == 1);
    let pid = consumer.id().to_string();
    let uwork = |args: &[&str]| text_of(&mut with_socket(command(args)));
    // The socket opens some time after the queue was made.
    until("the consumer can be asked", || {
        output(&mut with_socket(command(&["ls", &pid]))).status.success()
    });
    let limit = "workqueue/devices/bridge-1/max_active";
    assert_eq!(uwork(&["get", &pid, limit]), "1\n");
    assert_eq!(began(), 1, "the second job waits");
    let dump = uwork(&["dump", &pid]);
    assert!(dump.contains("\"one sh -c echo"), "the id and the command: {dump}");
    // It exits with 1 for what it finds, and a busy process may not answer.
    let doctor = || output(&mut with_socket(command(&["doctor", &pid]))).stdout;
    until("the doctor names the job that does not end", || {
        String::from_utf8_lossy(&doctor()).contains("a job that runs: one sh -c echo")
    });
    uwork(&["set", &pid, limit, "2"]);
    until("the second job has begun beside the first", || began() == 2);
    let dump = uwork(&["dump", &pid]);
    assert!(dump.contains(r#""t\u{1b}[31mo sh -c"#), "no terminal obeys an id: {dump}");
    lines.write_all(b"go\ngo\n").unwrap();
    until("both jobs are done", || {
        let metrics = redis.text(&["stat", "--stream", "jobs", "--openmetrics"]);
        metrics.contains("uwork_bridge_done_total{stream=\"jobs\"} 2\n")
    });
    kill_process(Pid::from_child(&consumer), Signal::TERM).unwrap();
    assert!(consumer.output().status.success());
}

#[test]
fn a_signal_kills_what_does_not_end_within_the_limit_and_hands_it_back() {
    let name = "a_signal_kills_what_does_not_end";
    let Some(redis) = Redis::start(name, &[]) else { return };
    for signal in
        [Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALARM]
    {
        redis.ask("FLUSHALL");
        let mut background = Background::new();
        redis.text(&["push", "--stream", "jobs", &background.folder()]);
        let script = format!("read -r folder; {} wait", Background::command(":"));
        let run = ["run", "--stream", "jobs", "--stop-limit", "0", "--exec", "sh", "-c", &script];
        let run = Owned::spawn(redis.command(&run).stderr(Stdio::piped()));
        until("the process in the background has begun", || background.has_begun());
        kill_process(Pid::from_child(&run), signal).unwrap();
        let ended = run.output();
        let said = String::from_utf8(ended.stderr).unwrap();
        let expected = "0 done, 0 retried, 0 dead, 1 handed back, 1 killed, 0 left to others\n";
        assert!(ended.status.success() && said.ends_with(expected), "{said}");
        background.wait_for_end();
        let table = redis.text(&["stat", "--stream", "jobs"]);
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[1..3], ["1", "0"], "the job waits for another consumer: {table}");
    }
}

#[test]
fn a_consumer_whose_parent_ignores_the_ends_of_children_loses_no_job() {
    let Some(redis) = Redis::start("a_consumer_whose_parent_ignores", &[]) else { return };
    redis.text(&["push", "--stream", "jobs", "job"]);
    let run = ["run", "--stream", "jobs", "--attempts", "1", "--exec", "true"];
    let mut run = redis.command(&run);
    // SAFETY: the call is async-signal-safe.
    unsafe {
        run.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        });
    }
    let run = Owned::spawn(run.stderr(Stdio::piped()));
    until("the job has left the stream", || redis.number("XLEN jobs") == 0);
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    let said = String::from_utf8(run.output().stderr).unwrap();
    assert!(said.contains(" 1 done, 0 retried, 0 dead, "), "{said}");
}

#[test]
fn a_signal_for_a_dump_does_not_end_a_consumer_which_has_no_huge_pages() {
    let Some(redis) = Redis::start("a_signal_for_a_dump", &[]) else { return };
    for (name, signal) in [("HUP", Signal::HUP), ("QUIT", Signal::QUIT), ("USR1", Signal::USR1)] {
        let folder = Folder::new();
        let said = folder.file("said");
        let has_said = |words: &str| std::fs::read_to_string(&said).unwrap().contains(words);
        let mut run = redis.command(&["run", "--stream", "jobs", "--exec", "true"]);
        run.env("UWORK_DUMP_SIGNAL", name).stderr(std::fs::File::create(&said).unwrap());
        let run = Owned::spawn(&mut run);
        until("the consumer runs", || has_said(" runs; "));
        // A consumer of 500 commands would take 2 MiB for each few KiB.
        let memory = std::fs::read_to_string(format!("/proc/{}/smaps", run.id())).unwrap();
        assert!(memory.contains("VmFlags: ") && !memory.contains(" hg "), "no huge pages");
        kill_process(Pid::from_child(&run), signal).unwrap();
        until("the dump is written", || has_said("bridge-1"));
        kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
        assert!(run.output().status.success() && has_said("0 done"));
    }
}

#[test]
fn bad_settings_are_refused_in_one_line() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        let output = output(command.arg("bridge").args(args));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let line = refused(&["push", "--server", "http://x", "--stream", "jobs", "x"]);
    assert!(line.contains("redis://[USER:PASSWORD@]HOST[:PORT][/DB]") && line.lines().count() == 1);
    let run = ["run", "--stream", "jobs", "--max-active", "0", "--exec", "true"];
    assert_eq!(refused(&run), "uwork: max_active 0: allowed are 1 to 2048\n");
    assert!(refused(&["run", "--stream", "jobs"]).contains("--exec"));
    let limit = ["run", "--stream", "jobs", "--limit", "soon", "--exec", "true"];
    assert!(refused(&limit).contains("allowed are seconds"));
    let limit = ["--stream", "jobs", "--limit", "0", "--exec", "true"];
    assert_eq!(refused(&limit), "uwork: a time limit of 0ns: at least 1 ms\n");
    assert!(refused(&["--stream", "jobs"]).contains("--exec"));
    for command in [&["stat"][..], &["push", "x"], &["run", "--exec", "true"]] {
        for shards in ["0", "5000"] {
            let place = ["--shards", shards, "--stream", "jobs"];
            let line = refused(&[&command[..1], &place[..], &command[1..]].concat());
            assert!(line.contains("allowed are 1 to 4096"), "{line}");
        }
    }
    assert!(refused(&[]).contains("Usage: uwork bridge"));
    // Only a replay has one.
    let drop = ["dead", "drop", "--stream", "jobs", "--all", "--window", "1"];
    assert!(refused(&drop).contains("unexpected argument '--window'"));
    // Before any job: port 1 has no server, and a start would wait for one.
    let typo = ["--server", "redis://127.0.0.1:1", "--stream", "jobs", "--exec", "./wrok"];
    let expected = "uwork: the command \"./wrok\" cannot be started: No such file or directory\n";
    assert_eq!(refused(&typo), expected);
}

#[test]
fn more_commands_than_descriptors_allow_are_refused_with_the_number_that_they_do() {
    let run = "ulimit -n 200; exec \"$0\" bridge --server redis://127.0.0.1:1 --stream jobs \"$@\"";
    let refused = |max: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", run, env!("CARGO_BIN_EXE_uwork"), "--max-active", max]);
        let output = output(command.args(["--exec", "true"]));
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, line) = refused("2048");
    let most = line.strip_prefix("uwork: --max-active 2048: the limit of open files (ulimit -n) ");
    let most =
        most.and_then(|rest| rest.strip_prefix("allows at most ")).unwrap_or_default().trim();
    assert!(status == Some(2) && (1..200).contains(&most.parse().unwrap_or(0)), "{line}");
    let next = (most.parse::<u32>().unwrap() + 1).to_string();
    assert!(refused(&next).1.contains(&format!("--max-active {next}: ")));
}

#[test]
fn lines_that_are_not_text_are_jobs_and_an_error_says_how_many_came_before() {
    let name = "lines_that_are_not_text_are_jobs";
    let Some(redis) = Redis::start(name, &[]) else { return };
    let push = |lines: &[u8]| push_lines(&redis, lines);
    assert_eq!(push(b"\xff\xfe\nb\n").stdout, b"2 jobs\n");
    assert_eq!(redis.number("XLEN jobs"), 2);
    redis.ask("SET jobs text");
    let refused = String::from_utf8(push(b"c\n").stderr).unwrap();
    assert!(refused.starts_with("uwork: after 0 jobs: ") && refused.contains("WRONGTYPE"));
}

fn push_lines(redis: &Redis, lines: &[u8]) -> Output {
    let mut command = redis.command(&["push", "--stream", "jobs", "--lines"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut push = Owned::spawn(&mut command);
    // A push that has failed reads no more.
    let _ = push.stdin.take().unwrap().write_all(lines);
    push.output()
}

#[test]
fn an_error_in_the_middle_of_a_batch_says_how_many_jobs_the_server_has() {
    let Some(redis) = Redis::start("an_error_in_the_middle_of_a_batch", &[]) else { return };
    // Room for some thousands of the jobs.
    let used = redis
        .number("EVAL return(tonumber(redis.call('INFO','memory'):match('used_memory:(%d+)'))) 0");
    redis.ask(&format!("CONFIG SET maxmemory {}", used + (3 << 20)));
    let lines = [&[b'x'; 1_000][..], b"\n"].concat().repeat(10_000);
    let Output { status, stderr, .. } = push_lines(&redis, &lines);
    let said = String::from_utf8(stderr).unwrap();
    let jobs = redis.number("XLEN jobs");
    assert!(status.code() == Some(2) && jobs > 0, "{said}");
    assert!(said.contains(&format!("uwork: after {jobs} jobs: ")), "{said}");
}

#[test]
fn a_push_from_an_empty_or_closed_standard_input_is_refused_and_an_empty_argument_is_a_job() {
    let name = "a_push_from_an_empty_or_closed_standard_input";
    let Some(redis) = Redis::start(name, &[]) else { return };
    let push = ["push", "--stream", "jobs", "--id", "7"];
    let said = |mut command: Command| {
        let Output { status, stdout, stderr } = output(&mut command);
        assert_eq!((status.code(), &*stdout), (Some(2), &b""[..]));
        String::from_utf8(stderr).unwrap()
    };
    let mut empty = redis.command(&push);
    empty.stdin(Stdio::null());
    let uwork = redis.command(&push);
    let mut closed = Command::new("sh");
    closed.args(["-c", r#"exec "$@" <&-"#, "sh"]).arg(uwork.get_program()).args(uwork.get_args());
    closed.env("UWORK_BRIDGE_SERVER", redis.url());
    for command in [empty, closed] {
        let line = "uwork: standard input is empty: no job was added; an empty job is \
                    the argument ''\n";
        assert!(said(command).ends_with(line));
    }
    assert_eq!(redis.number("EXISTS jobs {jobs}:id:7"), 0, "neither a job nor the mark of its id");
    assert!(redis.text(&[&push[..], &[""]].concat()).contains('-'));
    assert_eq!(redis.number("XLEN jobs"), 1);
}

#[test]
fn a_strict_command_refuses_a_server_without_a_log_which_is_otherwise_reported() {
    let name = "a_strict_command_refuses_a_server";
    let Some(redis) = Redis::start(name, &["--appendonly", "no"]) else { return };
    let run = |args: &[&str]| {
        let Output { status, stderr, .. } = output(&mut redis.command(args));
        (status.success(), String::from_utf8(stderr).unwrap())
    };
    let words = "no append-only file";
    for args in [
        &["push", "--stream", "jobs", "--strict", "x"][..],
        &["run", "--stream", "jobs", "--strict", "--exec", "true"],
    ] {
        let (is_done, said) = run(args);
        assert!(!is_done && said.starts_with("uwork: ") && said.contains(words), "{said}");
    }
    assert_eq!(redis.number("EXISTS jobs"), 0);
    let (is_done, said) = run(&["push", "--stream", "jobs", "x"]);
    assert!(is_done && said.contains(words), "{said}");
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let name = "a_password_comes_from_a_file_or_the_environment";
    let Some(redis) = Redis::start(name, &["--requirepass", "right"]) else { return };
    let folder = Folder::new();
    let file = &folder.file("password");
    std::fs::write(file, "right\n").unwrap();
    let push = ["push", "--stream", "jobs", "x"];
    let missing = output(&mut redis.command(&push));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("NOAUTH"));
    assert!(redis.text(&["push", "--password-file", file, "--stream", "jobs", "x"]).contains('-'));
    let with = |password: &str| output(redis.command(&push).env("UWORK_BRIDGE_PASSWORD", password));
    assert!(with("right").status.success());
    // An empty variable is none.
    let in_address = format!("redis://:right@127.0.0.1:{}", redis.port());
    let mut command = redis.command(&push);
    command.env("UWORK_BRIDGE_SERVER", in_address).env("UWORK_BRIDGE_PASSWORD", "");
    assert!(output(&mut command).status.success());
    let line = String::from_utf8(with("left").stderr).unwrap();
    assert!(line.contains("check user and password") && !line.contains("left"), "{line}");
}

fn openssl(folder: &Path, words: &str) {
    let mut command = Command::new("openssl");
    command.args(words.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "openssl {words}");
}

#[test]
fn options_for_tls_check_the_server_and_show_the_clients_certificate() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        return left_out("options_for_tls", "openssl is not installed");
    }
    let folder = Folder::new();
    let folder = folder.path();
    let new = "req -x509 -newkey rsa:2048 -nodes -days 2";
    openssl(folder, &format!("{new} -subj /CN=ca -keyout ca.key -out ca.crt"));
    let signed = "-CA ca.crt -CAkey ca.key -addext subjectAltName=IP:127.0.0.1";
    let signed = format!("{new} {signed} -addext basicConstraints=critical,CA:FALSE");
    openssl(folder, &format!("{signed} -subj /CN=peer -keyout peer.key -out peer.crt"));
    let path = |name: &str| folder.join(name).display().to_string();
    let (ca, cert, key) = (path("ca.crt"), path("peer.crt"), path("peer.key"));
    let mut flags = vec!["--tls-port", RESERVED_PORT, "--tls-ca-cert-file", &ca];
    flags.extend(["--tls-cert-file", &cert, "--tls-key-file", &key]);
    let Some(redis) = Redis::start("options_for_tls", &flags) else { return };
    let server = format!("rediss://127.0.0.1:{}", redis.flag("--tls-port"));
    let push = |options: &[&str]| {
        let mut command = redis.command(&["push", "--stream", "jobs", "--server"]);
        let output = output(command.args(options).arg("x"));
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (ok, line) = push(&[&server, "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key]);
    assert!(ok, "{line}");
    let refused = |options: &[&str], words: &str| {
        let (ok, line) = push(options);
        assert!(!ok && line.contains(words) && line.lines().count() == 1, "{options:?}: {line}");
    };
    refused(&[&server], "certificate");
    refused(&[&server, "--tls-ca", &ca], "ertificate");
    refused(&[&server, "--tls-ca", &ca, "--tls-cert", &cert], "are given together");
    refused(&[&server, "--tls-ca", "/no/such/file"], "/no/such/file: No such file");
    refused(&[&server, "--tls-ca", &key], "not in PEM: -----BEGIN CERTIFICATE-----");
    refused(&[&format!("{server}#insecure")], "#insecure is refused");
    refused(&[&redis.url(), "--tls-ca", &ca], "begin with rediss://");
}

/// The output of a command that says something on standard error, and its exit code.
fn both(redis: &Redis, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = output(&mut redis.command(args));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_stream_that_does_not_exist_is_named_and_the_others_are_shown() {
    let Some(redis) = Redis::start("a_stream_that_does_not_exist", &[]) else { return };
    redis.text(&["push", "--stream", "jobs", "--delay", "1000", "later"]);
    redis.ask("XADD {jobs}:dead 7-0 p x n 1 e why");
    let streams = ["--stream", "jobs", "--stream", "jbos"];
    for (command, options, shows) in [
        (&["stat"][..], &[][..], "jobs"),
        (&["stat"], &["--json"], "jobs"),
        (&["stat"], &["--openmetrics"], "jobs"),
        (&["consumers"], &[], ""),
        (&["dead"], &[], "7-0"),
        (&["dead", "list"], &["--json"], "7-0"),
        (&["dead", "show"], &["7-0"], "7-0"),
        (&["dead", "replay"], &["7-0"], "jobs: 1 replayed"),
        (&["dead", "drop"], &["--all"], "jobs: 0 dropped"),
    ] {
        let (code, shown, said) = both(&redis, &[command, &streams, options].concat());
        assert_eq!(code, Some(1), "{command:?} {options:?}: {said}");
        let line = "uwork: there is no stream jbos: no job was pushed to it\n";
        assert!(said.contains(line), "{command:?} {options:?}: {said}");
        assert!(shown.contains(shows), "{command:?} {options:?}: {shown}");
    }
    // A stream exists if one of its shards does.
    redis.ask("XADD cut.{1} * p x");
    for command in [&["stat"][..], &["consumers"], &["dead"]] {
        let (code, _, said) =
            both(&redis, &[command, &["--stream", "cut", "--shards", "2"]].concat());
        assert!(code == Some(0) && !said.contains("no stream"), "{command:?}: {said}");
    }
    let (code, shown, said) = both(&redis, &["stat", "--stream", "jobs", "--json"]);
    assert_eq!(code, Some(0));
    assert_eq!(said, "uwork: jobs: there is no group uwork: no consumer has started\n");
    let object: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&object["exists"], &object["delayed"]), (&true.into(), &1.into()), "{shown}");
}

#[test]
fn dead_letters_are_listed_shown_replayed_and_dropped() {
    let Some(redis) = Redis::start("dead_letters_are_listed", &[]) else { return };
    // Two shards with a letter of one number.
    for shard in 0..2 {
        let key = format!("jobs.{{{shard}}}:dead");
        redis.ask(&format!("XADD {key} 7-0 p a\x1b[31m i id h mail n 5 e no\x07\nway o 3-0"));
    }
    redis.ask("XADD jobs.{0}:dead 8-0 p only n 1 e why");
    let place = ["--stream", "jobs", "--shards", "2"];
    let dead = |args: &[&str]| both(&redis, &[&["dead"], args].concat());
    let (code, list, _) = dead(&place);
    let rows: Vec<Vec<&str>> =
        list.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((code, rows.len()), (Some(0), 3), "{list}");
    assert_eq!(rows[0][..2], ["jobs.{0}", "7-0"], "{list}");
    assert_eq!(rows[0][4..], ["5", "3-0", "mail", "id", r"no\u{7}\nway"], "{list}");
    let (_, lines, _) = dead(&[&["list", "--json"], &place[..]].concat());
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["payload"], &first["attempts"]), (&"a\x1b[31m".into(), &5.into()));
    assert!(!lines.contains('\x1b'), "{lines}");
    let (code, shown, said) = dead(&[&["show", "7-0"], &place[..]].concat());
    assert_eq!((code, &*shown), (Some(2), ""));
    assert!(said.contains("7-0 is the number of jobs.{0}/7-0 and jobs.{1}/7-0"), "{said}");
    let (code, shown, _) = dead(&[&["show", "jobs.{1}/7-0"], &place[..]].concat());
    assert!(
        code == Some(0) && shown.contains(r"a\u{1b}[31m") && !shown.contains('\x1b'),
        "{shown}"
    );
    let raw = dead(&[&["show", "--payload", "jobs.{1}/7-0"], &place[..]].concat());
    assert_eq!(raw.1, "a\x1b[31m", "byte by byte");
    let replayed = dead(&[&["replay", "8-0", "9-0"], &place[..]].concat());
    assert_eq!(
        (replayed.0, &*replayed.1),
        (Some(1), "jobs.{0}: 1 replayed\njobs.{1}: 0 replayed\n")
    );
    assert_eq!(replayed.2, "uwork: there is no dead letter 9-0\n");
    assert_eq!(redis.first("jobs.{0}"), "p=only");
    let dropped = dead(&[&["drop", "--all"], &place[..]].concat());
    assert_eq!((dropped.0, &*dropped.1), (Some(0), "jobs.{0}: 1 dropped\njobs.{1}: 1 dropped\n"));
    assert_eq!(redis.number("XLEN jobs.{0}:dead") + redis.number("XLEN jobs.{1}:dead"), 0);
    assert_eq!(dead(&["replay", "--stream", "jobs"]).0, Some(2), "neither letters nor --all");
}

#[test]
fn a_list_of_dead_letters_ends_after_a_count_and_says_so() {
    let nodes = ["--stream-node-max-entries", "1"];
    let Some(redis) = Redis::start("a_list_of_dead_letters_ends", &nodes) else { return };
    (1..=3).for_each(|n| _ = redis.ask(&format!("XADD {{jobs}}:dead {n}-0 p x e why")));
    let list = |count: &str| both(&redis, &["dead", "--stream", "jobs", "--count", count]);
    let (_, shown, said) = list("2");
    assert_eq!((shown.lines().count(), said.lines().count()), (3, 1), "{said}");
    assert!(said.contains("jobs: 2 of 3 letters are listed; --count 0 lists all"), "{said}");
    let (_, shown, said) = list("0");
    assert_eq!((shown.lines().count(), &*said), (4, ""));
    redis.text(&["push", "--stream", "jobs", "late"]);
    let run = ["--stream", "jobs", "--dead-max", "2", "--exec", "sh", "-c", "exit 65"];
    let _run = Owned::spawn(redis.command(&run).stderr(Stdio::null()));
    until("the oldest are gone", || redis.number("XLEN {jobs}:dead") == 2);
}

#[test]
fn consumers_are_alive_or_dead_and_show_what_they_hold() {
    let Some(redis) = Redis::start("consumers_are_alive_or_dead", &[]) else { return };
    redis.text(&["push", "--stream", "jobs", "--id", "seven", "x"]);
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost STREAMS jobs >");
    let consumers = |heartbeat: &str| {
        let (_, shown, _) =
            both(&redis, &["consumers", "--stream", "jobs", "--json", "--heartbeat", heartbeat]);
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()
    };
    let alive = consumers("1e9");
    assert_eq!((&alive["consumer"], &alive["alive"]), (&"ghost".into(), &true.into()), "{alive}");
    until("more than no time has passed", || consumers("0")["alive"] == false);
    for (heartbeat, count) in [("1e9", 1), ("0", 0)] {
        let stat = ["stat", "--stream", "jobs", "--json", "--heartbeat", heartbeat];
        let stat: serde_json::Value = serde_json::from_str(&redis.text(&stat)).unwrap();
        assert_eq!(stat["consumers_alive"], count, "{stat}");
    }
    let (_, shown, _) = both(&redis, &["consumers", "--stream", "jobs", "--heartbeat", "1e9"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("ghost of jobs: alive, last seen "), "{shown}");
    assert!(lines[0].ends_with(" s ago, holds 1"), "{shown}");
    // After a second without a heartbeat it says so behind the id.
    assert!(lines[1].contains("  id seven"), "{shown}");
    let (code, shown, said) = both(&redis, &["consumers", "--stream", "jobs", "--group", "other"]);
    let expected = "uwork: jobs: the group other has no consumer\n";
    assert_eq!((code, &*shown, &*said), (Some(0), "", expected));
}
