//! Debian's redis-server on a port of the loopback interface that belongs to the test; it ends with
//! the test.

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redis::Value;
use rustix::process::{Pid, Signal, kill_process};
use uwork_bridge::Server;

use super::address::Address;
use super::left_out::left_out;
use super::owned::{Folder, Owned};
use super::patience::until;

pub(crate) struct Redis {
    child: Owned,
    address: Address,
    /// Of the flags with [`RESERVED_PORT`].
    _more: Vec<Address>,
    folder: Folder,
    flags: Vec<String>,
    preload: Option<PathBuf>,
}

/// In the place of a flag's value: a port that belongs to the server for the whole test.
pub(crate) const RESERVED_PORT: &str = "RESERVED_PORT";

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
        let mut more = Vec::new();
        let value = |&flag: &&str| match flag {
            RESERVED_PORT => {
                more.push(Address::reserve().unwrap());
                more.last().unwrap().port().to_string()
            }
            flag => flag.to_owned(),
        };
        let flags: Vec<String> = flags.iter().map(value).collect();
        let (address, folder) = (Address::reserve().unwrap(), Folder::new());
        let preload = preload.map(Path::to_owned);
        let child = spawn(&address, &folder, &flags, preload.as_deref());
        let mut redis = Redis { child, address, _more: more, folder, flags, preload };
        redis.wait_until_up();
        Some(redis)
    }

    /// The address is the server's own: what accepts a connection is this server.
    #[track_caller]
    fn wait_until_up(&mut self) {
        until("redis-server listens", || {
            let log = || std::fs::read_to_string(self.folder.file(LOG)).unwrap_or_default();
            if let Some(status) = self.child.ended() {
                panic!("redis-server has ended: {status}\n{}", log());
            }
            TcpStream::connect(self.address.socket()).is_ok()
        });
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.child.kill();
    }

    /// Kills the server and starts it again on its port and its files. Returns when it has read them.
    pub(crate) fn restart(&mut self) {
        self.child.kill();
        self.child = spawn(&self.address, &self.folder, &self.flags, self.preload.as_deref());
        self.wait_until_up();
        until("redis-server has read its files", || {
            !self.asked("PING").is_err_and(|error| is_early(&error))
        });
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
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address.socket())
    }

    pub(crate) fn server(&self) -> Server {
        server_at(&self.url())
    }

    /// The reply to a command of words without spaces; waits while the server loads its file.
    pub(crate) fn ask(&self, words: &str) -> Value {
        let mut answer = None;
        until("redis-server answers", || {
            match self.asked(words) {
                Err(error) if is_early(&error) => return false,
                said => answer = Some(said.unwrap()),
            }
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

    /// How often the server has executed a command, as INFO counts it.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let Value::BulkString(text) = self.ask("INFO commandstats") else { panic!() };
        let text = String::from_utf8(text).unwrap();
        let calls = text.split(&format!("cmdstat_{command}:calls=")).nth(1);
        calls.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    pub(crate) fn pending(&self, stream: &str) -> i64 {
        let Value::Array(parts) = self.ask(&format!("XPENDING {stream} uwork")) else { panic!() };
        let Value::Int(count) = parts[0] else { panic!() };
        count
    }

    /// Waits until the server knows that the first pending job has begun.
    pub(crate) fn wait_until_recorded(&self, stream: &str) {
        until("the begin of the job is recorded", || self.is_recorded(stream));
    }

    /// Whether the server knows that the first pending job has begun.
    pub(crate) fn is_recorded(&self, stream: &str) -> bool {
        let Value::Array(rows) = self.ask(&format!("XPENDING {stream} uwork - + 1")) else {
            panic!()
        };
        let [Value::Array(row)] = &rows[..] else { panic!("{rows:?}") };
        matches!(row[3], Value::Int(counter) if counter >= 1_000_000)
    }

    /// Makes the jobs of the consumers whose names begin with `of` look as if these consumers were
    /// dead by any heartbeat.
    pub(crate) fn forget_signs_of_life(&self, stream: &str, of: &str) {
        const DAY_MS: u32 = 24 * 3_600 * 1_000;
        let Value::Array(rows) = self.ask(&format!("XPENDING {stream} uwork - + 1000")) else {
            panic!()
        };
        for row in rows {
            let Value::Array(row) = row else { panic!() };
            let [Value::BulkString(id), Value::BulkString(owner), ..] = &row[..] else { panic!() };
            let [id, owner] = [id, owner].map(|text| String::from_utf8_lossy(text));
            if owner.starts_with(of) {
                self.ask(&format!("XCLAIM {stream} uwork {owner} 0 {id} IDLE {DAY_MS} JUSTID"));
            }
        }
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

/// A server whose answers have no time limit that a busy machine exceeds.
pub(crate) fn server_at(url: &str) -> Server {
    Server::new(url).unwrap().patience(360)
}

/// An entry of a foreign producer with more fields than the bridge moves.
pub(crate) fn add_wide(redis: &Redis, payload: &str) -> String {
    let text = "local words = {}
        for part = 1, 11 do
          for n = 1, 5000 do words[#words + 1] = 'f' .. n; words[#words + 1] = '' end
        end
        return words";
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let words: Vec<String> = redis::cmd("EVAL").arg(text).arg(0).query(&mut connection).unwrap();
    let mut add = redis::cmd("XADD");
    add.arg("jobs").arg("*").arg("p").arg(payload).arg(words);
    add.query(&mut connection).unwrap()
}

/// What a server writes to its standard output.
const LOG: &str = "log";

/// Whether the server does not answer yet, or reads its files.
fn is_early(error: &redis::RedisError) -> bool {
    error.code() == Some("LOADING") || error.is_io_error()
}

fn spawn(address: &Address, folder: &Folder, flags: &[String], preload: Option<&Path>) -> Owned {
    let mut command = Command::new("redis-server");
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
    // A server that keeps jobs, unless the flags say otherwise.
    command.args(["--appendonly", "yes", "--appendfsync", "no"]);
    command.arg("--dir").arg(folder.path()).args(flags);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let log = File::options().append(true).create(true).open(folder.file(LOG)).unwrap();
    Owned::spawn(command.stdin(Stdio::null()).stdout(log))
}
