//! `uwork-lab serve` and `uwork-lab bench serve` as programs: their output, their shutdown, and what they
//! refuse.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::{ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::left_out::left_out;
use crate::owned::{self, Folder, Owned};
use crate::patience::until;

fn uwork(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(args);
    command
}

/// A running server, killed on drop.
struct Serving {
    child: Owned,
    lines: BufReader<ChildStdout>,
    address: String,
    /// The lines that it printed at the start.
    said: Vec<String>,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let all = [&["serve", "--port", "0"], args].concat();
        let mut child = Owned::spawn(uwork(&all).stdout(Stdio::piped()));
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Self { child, lines, address: String::new(), said: Vec::new() };
        while serving.address.is_empty() {
            let mut line = String::new();
            let len = serving.lines.read_line(&mut line).unwrap();
            assert_ne!(len, 0, "it has not started: {:?}", serving.said);
            match line.trim_end().strip_prefix("listening on ") {
                Some(address) => serving.address = address.to_owned(),
                None => serving.said.push(line.trim_end().to_owned()),
            }
        }
        serving
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// Waits until the peer's kernel has received everything that was sent.
fn arrived(client: &TcpStream) {
    until("the server has received the requests", || {
        let mut unsent: libc::c_int = 1;
        // SAFETY: the socket is open, and the request writes one int.
        let told = unsafe { libc::ioctl(client.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
        assert_eq!(told, 0);
        unsent == 0
    });
}

#[test]
fn it_prints_its_address_and_stops_in_order_on_a_signal() {
    const TERM: (Signal, &str) = (Signal::TERM, "SIGTERM");
    const INT: (Signal, &str) = (Signal::INT, "SIGINT");
    for ((signal, name), io, notify, receiver) in [
        (TERM, "auto", "light", "shared"),
        (TERM, "auto", "signal", "shared"),
        (TERM, "epoll", "light", "shared"),
        (TERM, "epoll", "signal", "shared"),
        (TERM, "auto", "light", "dedicated"),
        (TERM, "epoll", "signal", "dedicated"),
        (INT, "auto", "light", "shared"),
    ] {
        let how = ["--io", io, "--notify", notify, "--receiver", receiver];
        let mut server =
            Serving::start(&[&["--threads", "2", "--drain-timeout", "3600"], &how[..]].concat());
        assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
        assert!(server.said.iter().any(|line| line.starts_with("2 thread(s), no persistence")));
        let mut client = TcpStream::connect(&server.address).unwrap();
        client.write_all(b"SET a 1\r\n").unwrap();
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        client.write_all("DIGEST a\r\nGET b\r\n".repeat(100).as_bytes()).unwrap();
        arrived(&client);
        server.signal(signal);
        let mut replies = Vec::new();
        client.read_to_end(&mut replies).unwrap();
        // The requests that the server had received by then are answered.
        const REPLIES: usize = "$64\r\n\r\n".len() + 64 + "$-1\r\n".len();
        assert_eq!(replies.len(), 100 * REPLIES, "{how:?}");
        assert!(server.child.wait().unwrap().success());
        let mut rest = String::new();
        server.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("{name}: answering what is in flight\nstopped\n"));
    }
}

#[test]
fn listening_beyond_loopback_prints_a_warning() {
    let server = Serving::start(&["--bind", "0.0.0.0", "--receiver", "dedicated"]);
    assert!(server.said.iter().any(|line| line.contains("there are no passwords")));
}

/// Asserts a refusal: one line on standard error with all the words, nothing on standard output,
/// exit code 2.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty(), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    words.iter().for_each(|word| assert!(line.contains(word), "{line}"));
}

#[test]
fn bad_settings_are_refused_with_what_is_allowed() {
    let serve = |args: &[&str]| owned::output(&mut uwork(&[&["serve"], args].concat()));
    refused(&serve(&["--port", "70000"]), &["--port '70000'", "0 to 65535"]);
    refused(&serve(&["--threads", "many"]), &["--threads 'many'", "1 to 256"]);
    refused(&serve(&["--notify", "loud"]), &["light and signal are allowed"]);
    refused(&serve(&["--replies", "lost"]), &["combined, locked and returned are allowed"]);
    refused(&serve(&["--replies", "locked"]), &["--receiver dedicated"]);
    refused(&serve(&["--foreign-keys", "lost"]), &["in-place and handed-over are allowed"]);
    refused(&serve(&["--spares", "sold"]), &["kept and freed are allowed"]);
    refused(&serve(&["--scope", "moon"]), &["--scope"]);
    let server = Serving::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    refused(&serve(&["--port", port]), &["cannot listen on 127.0.0.1:", "in use"]);
}

#[test]
fn without_redis_the_benchmark_says_how_to_install_it() {
    let output = owned::output(uwork(&["bench", "serve"]).env("PATH", ""));
    refused(&output, &["redis-benchmark", "apt-get install -y redis-tools"]);
    let output = owned::output(&mut uwork(&["bench", "serve", "--digest-bytes", "0"]));
    refused(&output, &["--digest-bytes", "16777216"]);
    let output = owned::output(&mut uwork(&["bench", "serve", "--case", "put"]));
    refused(
        &output,
        &[
            "--case 'put'",
            "get, set, get-p16, set-p16, threads, threads-p16, series, series-p16, handover, ",
            "handover-p16, digest, digest-p16",
        ],
    );
}

#[test]
fn the_benchmark_writes_its_figures_under_their_names() {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !there("redis-benchmark") || !there("redis-server") {
        let why = "redis-server and redis-benchmark are not installed";
        return left_out("the_benchmark_writes_its_figures_under_their_names", why);
    }
    let folder = Folder::new();
    let path = &folder.file("records.json");
    let small = ["--requests", "1000", "--samples", "1", "--digest-bytes", "1024", "--json", path];
    let small = [&small[..], &["--client-threads", "2"]].concat();
    let cases = [
        "bench",
        "serve",
        "--case",
        "get,set-p16,threads-p16,series,handover-p16,digest,digest-p16",
    ];
    let output = owned::output(&mut uwork(&[&cases[..], &small].concat()));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in ["redis-server (get):", "uwork light (handover-p16):", "uwork default (digest):"] {
        assert!(table.contains(line), "{table}");
    }
    let records: Vec<serde_json::Value> =
        serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap();
    // A run of a thousand requests is too short, unless the machine is so busy that it takes 10 s.
    let is_rate = |record: &&serde_json::Value| record["metric"] == "requests_per_s";
    let of_get = records.iter().filter(|record| is_rate(record) && record["case"] == "get");
    let rates = of_get.map(|record| record["value"].as_f64().expect("a number"));
    let is_short = rates.fold(0.0, f64::max) > 100.0;
    let doubts = String::from_utf8_lossy(&output.stderr);
    assert_eq!(doubts.contains("warning: get: a run took "), is_short, "{doubts}");
    for metric in ["requests_per_s", "cpu_s_per_mitem", "latency_p50_us", "latency_p99_us"] {
        for (case, runner, variant) in [
            ("get", "redis-server", ""),
            ("get", "uwork", ""),
            ("set-p16", "uwork", ""),
            ("threads-p16", "redis-server", ""),
            ("threads-p16", "uwork", "threads2"),
            ("series", "uwork", "default"),
            ("series", "uwork", "returned"),
            ("handover-p16", "uwork", "signal"),
            ("digest", "uwork", "cache"),
            ("digest-p16", "uwork", "default"),
        ] {
            let is_it = |record: &&serde_json::Value| {
                record["case"] == case
                    && record["runner"] == runner
                    && record["variant"] == variant
                    && record["metric"] == metric
            };
            assert_eq!(records.iter().filter(is_it).count(), 1, "{case} {runner} {metric}");
        }
    }
}

#[test]
fn a_second_signal_does_not_wait_for_a_client_that_does_not_read() {
    let mut server = Serving::start(&["--drain-timeout", "1000000", "--send-buffer", "4096"]);
    let mut client = TcpStream::connect(&server.address).unwrap();
    let value = "v".repeat(1 << 20);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\n", value.len());
    client.write_all(set.as_bytes()).unwrap();
    client.write_all("GET a\r\n".repeat(20).as_bytes()).unwrap();
    arrived(&client);
    server.signal(Signal::TERM);
    let mut line = String::new();
    server.lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("SIGTERM: answering what is in flight"), "{line}");
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(128 + 15));
}
