//! Debian's redis-server on a free port of the loopback interface; it ends with the test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::Value;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use uwork_bridge::Server;

use super::left_out::left_out;
use super::until::wait_until;

pub(crate) struct Redis {
    child: Child,
    port: u16,
    folder: TempDir,
    flags: Vec<String>,
    preload: Option<PathBuf>,
}

/// In the place of a flag's value: a port that is free when the server starts.
pub(crate) const FREE_PORT: &str = "FREE_PORT";

/// A port of the loopback interface that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Redis {
    /// Starts a server, or returns None where none is installed. `name` is that of the test, which
    /// is then left out by name.
    pub(crate) fn start(name: &str, flags: &[&str]) -> Option<Redis> {
        Redis::start_with(name, flags, None)
    }

    /// The same, with a library that the server loads before all others.
    pub(crate) fn start_with(name: &str, flags: &[&str], preload: Option<&Path>) -> Option<Redis> {
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if found.is_err() {
            left_out(name, "redis-server is not installed");
            return None;
        }
        let value = |&flag: &&str| match flag {
            FREE_PORT => free_port().to_string(),
            flag => flag.to_owned(),
        };
        // A port that is free now may be taken a moment later: the server then ends at once.
        for _ in 0..20 {
            let port = free_port();
            let flags: Vec<String> = flags.iter().map(value).collect();
            let folder = tempfile::tempdir().unwrap();
            let preload = preload.map(Path::to_owned);
            let child = spawn(port, &folder, &flags, preload.as_deref());
            let mut redis = Redis { child, port, folder, flags, preload };
            if redis.is_up() {
                return Some(redis);
            }
        }
        panic!("redis-server does not start");
    }

    fn is_up(&mut self) -> bool {
        let mut is_up = false;
        wait_until("redis-server listens or has ended", || {
            is_up = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            is_up || self.child.try_wait().unwrap().is_some()
        });
        is_up
    }

    /// Kills the server and starts it again on its port and its files.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.port, &self.folder, &self.flags, self.preload.as_deref());
        assert!(self.is_up());
    }

    /// Stops the server's process: it listens, and answers nothing.
    pub(crate) fn pause(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// The value of a flag that the server was started with.
    pub(crate) fn flag(&self, name: &str) -> &str {
        let at = self.flags.iter().position(|flag| flag == name).unwrap();
        &self.flags[at + 1]
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn server(&self) -> Server {
        Server::new(&self.url()).unwrap()
    }

    /// The reply to a command of words without spaces; waits while the server loads its file.
    pub(crate) fn ask(&self, words: &str) -> Value {
        let mut answer = None;
        wait_until("redis-server answers", || {
            let said = self.asked(words);
            let is_busy =
                |error: &redis::RedisError| error.code() == Some("LOADING") || error.is_io_error();
            if said.as_ref().is_err_and(is_busy) {
                return false;
            }
            answer = Some(said.unwrap());
            true
        });
        answer.unwrap()
    }

    fn asked(&self, words: &str) -> redis::RedisResult<Value> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query(&mut connection)
    }

    pub(crate) fn number(&self, words: &str) -> i64 {
        match self.ask(words) {
            Value::Int(number) => number,
            Value::BulkString(text) => String::from_utf8(text).unwrap().parse().unwrap(),
            Value::Nil => 0,
            other => panic!("{words}: {other:?}"),
        }
    }

    pub(crate) fn pending(&self, stream: &str) -> i64 {
        let Value::Array(parts) = self.ask(&format!("XPENDING {stream} uwork")) else { panic!() };
        let Value::Int(count) = parts[0] else { panic!() };
        count
    }

    /// The number of the first entry of a stream.
    pub(crate) fn entry(&self, stream: &str) -> String {
        let Value::Array(entries) = self.ask(&format!("XRANGE {stream} - + COUNT 1")) else {
            panic!()
        };
        let Some(Value::Array(entry)) = entries.into_iter().next() else { panic!("no entry") };
        let Value::BulkString(id) = &entry[0] else { panic!() };
        String::from_utf8_lossy(id).into_owned()
    }

    /// The fields of the first entry of a stream, as text: `name=value name=value`.
    pub(crate) fn first(&self, stream: &str) -> String {
        let Value::Array(entries) = self.ask(&format!("XRANGE {stream} - + COUNT 1")) else {
            panic!()
        };
        let Some(Value::Array(entry)) = entries.into_iter().next() else { panic!("no entry") };
        let Value::Array(fields) = &entry[1] else { panic!() };
        let texts: Vec<String> = fields
            .iter()
            .map(|field| match field {
                Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
                _ => panic!(),
            })
            .collect();
        texts.chunks(2).map(|pair| pair.join("=")).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, folder: &TempDir, flags: &[String], preload: Option<&Path>) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.arg("--dir").arg(folder.path()).args(flags);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}
