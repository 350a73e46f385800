//! redis-benchmark: its command line and its output.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::process::ServerProcess;
use super::sample::Served;
use crate::UserError;

/// Number of distinct keys; clients choose among them at random.
const KEYS: usize = 10_000;
const VALUE_BYTES: usize = 64;
const DIGEST_KEY: &str = "large";

/// The request of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Get,
    Set,
    /// The digest of a value of this many bytes.
    Digest {
        bytes: usize,
    },
}

/// A load.
#[derive(Clone, Debug)]
pub(super) struct Drive {
    pub(super) request: Request,
    pub(super) clients: usize,
    pub(super) pipeline: usize,
    pub(super) requests: usize,
    /// Threads of redis-benchmark.
    pub(super) threads: usize,
}

/// Checks that redis-benchmark is installed.
pub(super) fn check() -> Result<(), UserError> {
    installed("redis-benchmark", "redis-tools")
}

/// Checks that a program of a Debian package is installed.
pub(super) fn installed(program: &str, package: &str) -> Result<(), UserError> {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.map(drop).map_err(|error| {
        UserError(format!(
            "{program}: {error}; it is needed: apt-get install -y {package} (Debian, Ubuntu)"
        ))
    })
}

impl Drive {
    /// The description of the table.
    pub(super) fn title(&self, case: &str, samples: usize) -> String {
        let Self { request, clients, pipeline, requests, threads } = self;
        let what = match request {
            Request::Digest { bytes } => format!("values of {bytes} bytes"),
            _ => format!("values of {VALUE_BYTES} bytes, {KEYS} keys"),
        };
        let pipeline =
            if *pipeline > 1 { format!(", {pipeline} at a time") } else { String::new() };
        format!(
            "serve: {case}  ({clients} clients on {threads} thread(s){pipeline}, {what}, {requests} requests, \
             {samples} sample(s))"
        )
    }

    /// Sets the keys that will be requested.
    pub(super) fn prepare(&self, server: &ServerProcess) -> Result<(), UserError> {
        match self.request {
            Request::Digest { bytes } => set_large(server, bytes),
            Request::Get | Request::Set => {
                // Keys are random: with ten times as many requests as keys, almost every key is
                // set.
                let (clients, pipeline, requests) = (4, 100, KEYS * 10);
                let fill = Drive { request: Request::Set, clients, pipeline, requests, threads: 1 };
                fill.measure(server).map(drop)
            }
        }
    }

    /// Takes a sample.
    pub(super) fn measure(&self, server: &ServerProcess) -> Result<Served, UserError> {
        let (cpu, start) = (server.cpu_time()?, Instant::now());
        let text = self.run(server)?;
        let (wall, cpu) = (start.elapsed(), server.cpu_time()?.saturating_sub(cpu));
        Served::read(&text, self, cpu, wall).ok_or_else(|| {
            UserError(format!(
                "redis-benchmark with {} has printed no summary:\n{text}",
                server.what()
            ))
        })
    }

    fn run(&self, server: &ServerProcess) -> Result<String, UserError> {
        let Self { request, clients, pipeline, requests, threads } = self;
        let address = server.address();
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["-c", &clients.to_string(), "-n", &requests.to_string()]);
        command.args(["-P", &pipeline.to_string(), "-r", &KEYS.to_string()]);
        command.args(["-d", &VALUE_BYTES.to_string()]);
        if *threads > 1 {
            command.args(["--threads", &threads.to_string()]);
        }
        match request {
            Request::Get => command.args(["-t", "get"]),
            Request::Set => command.args(["-t", "set"]),
            Request::Digest { .. } => command.args(["DIGEST", DIGEST_KEY]),
        };
        let out = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        let out = out.map_err(|error| UserError(format!("redis-benchmark: {error}")))?;
        if !out.status.success() {
            let what = server.what();
            return Err(UserError(format!(
                "redis-benchmark with {what} has failed: {}",
                out.status
            )));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

fn set_large(server: &ServerProcess, bytes: usize) -> Result<(), UserError> {
    let fail = |error: std::io::Error| UserError(format!("{}: {error}", server.what()));
    let mut stream = TcpStream::connect(server.address()).map_err(fail)?;
    let value = "v".repeat(bytes);
    let key = DIGEST_KEY;
    let request = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n{value}\r\n", key.len());
    stream.write_all(request.as_bytes()).map_err(fail)?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).map_err(fail)?;
    match reply.as_str() {
        "+OK\r\n" => Ok(()),
        other => Err(UserError(format!("{} says to SET: {}", server.what(), other.trim_end()))),
    }
}
