//! The client of the control sockets of other processes. The protocol is in
//! `docs/control-protocol.md`.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::commands::UserError;

/// The protocol's version that this client speaks.
const VERSION: u32 = 1;
/// How long an answer may take: the process may be stopped, or have no CPU.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;
/// The longest line that is read.
const LINE_MAX: u64 = 64 << 10;

/// The folders in which processes have their sockets, the most likely first.
fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute()).map(|path| path.join("uwork"));
    // Root sees the sockets of all users.
    let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
    let users = users.map(|user| user.path().join("uwork"));
    let mut folders = Vec::new();
    for folder in own.into_iter().chain([PathBuf::from("/run/uwork")]).chain(users) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The sockets of all processes that this user may see, by process.
pub(crate) fn sockets() -> Vec<(u32, PathBuf)> {
    let files = folders().into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let named = files.flatten().filter_map(|file| {
        let path = file.path();
        let process = path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
        Some((process, path))
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}

/// Removes the socket of a process that has ended. False if a process listens on it.
pub(crate) fn remove_if_stale(path: &Path) -> bool {
    let refused =
        UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    refused && fs::remove_file(path).is_ok()
}

/// An open connection.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    process: u32,
}

/// A request that a process refused.
pub(crate) struct Refused {
    /// The code, for programs.
    pub(crate) code: String,
    /// The reason, for readers.
    pub(crate) reason: String,
}

/// The result of a request.
pub(crate) enum Failure {
    /// The process answered that it will not.
    Refused(Refused),
    /// The process has ended, or does not answer.
    Gone(String),
}

impl From<Failure> for UserError {
    fn from(failure: Failure) -> UserError {
        match failure {
            Failure::Refused(refused) => UserError(refused.reason),
            Failure::Gone(reason) => UserError(reason),
        }
    }
}

impl Client {
    /// Connects to a process: its number, or the path of its socket.
    pub(crate) fn connect(process: &str) -> Result<Client, UserError> {
        if process.contains('/') {
            return Client::open(Path::new(process)).map_err(|error| at(process, &error));
        }
        let number: u32 = process.parse().map_err(|_| {
            UserError(format!("'{process}' is neither a process's number nor a socket's path; `uwork ls` lists them"))
        })?;
        let mut failed = None;
        for (_, path) in sockets().into_iter().filter(|&(found, _)| found == number) {
            match Client::open(&path) {
                Ok(client) => return Ok(client),
                Err(error) => failed = Some(at(&path.display().to_string(), &error)),
            }
        }
        Err(failed.unwrap_or_else(|| UserError(no_socket(number))))
    }

    /// Connects to a socket.
    pub(crate) fn open(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Client { stream: BufReader::new(stream), process: 0 };
        let greeting = client.line()?;
        if let Some(refusal) = greeting.strip_prefix("err ") {
            return Err(io::Error::other(refusal.to_owned()));
        }
        let mut words = greeting.split(' ').skip(1);
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
        match (greeting.starts_with("uwork-control "), number(), number()) {
            (true, Some(VERSION), Some(process)) => client.process = process,
            (true, Some(version), _) => {
                let other =
                    format!("speaks version {version} of the protocol, and this command {VERSION}");
                return Err(io::Error::other(other));
            }
            _ => return Err(io::Error::other("is no control socket of uwork")),
        }
        Ok(client)
    }

    /// The process, by its own account.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Sends a request and reads the answer.
    pub(crate) fn ask(&mut self, request: &str) -> Result<String, Failure> {
        self.exchange(request).map_err(|error| {
            Failure::Gone(match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!(
                        "process {} does not answer: it is stopped, or gets no CPU",
                        self.process
                    )
                }
                _ => format!("process {} is gone ({error})", self.process),
            })
        })?
    }

    fn exchange(&mut self, request: &str) -> io::Result<Result<String, Failure>> {
        let line = format!("{}\n", request.replace(['\n', '\r'], " "));
        self.stream.get_mut().write_all(line.as_bytes())?;
        let first = self.line()?;
        if let Some(refusal) = first.strip_prefix("err ") {
            let (code, reason) = refusal.split_once(' ').unwrap_or((refusal, refusal));
            let refused = Refused { code: code.to_owned(), reason: reason.to_owned() };
            return Ok(Err(Failure::Refused(refused)));
        }
        let length = first.strip_prefix("ok ").and_then(|length| length.parse().ok());
        let malformed = || io::Error::other(format!("malformed answer {first:?}"));
        let length: usize = length.filter(|&length| length <= ANSWER_MAX).ok_or_else(malformed)?;
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text)?;
        Ok(Ok(String::from_utf8_lossy(&text).into_owned()))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_MAX).read_line(&mut line)?;
        line.strip_suffix('\n').map(str::to_owned).ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }
}

fn at(place: &str, error: &io::Error) -> UserError {
    UserError(match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("{place}: the process has ended (`uwork ls` removes the file)")
        }
        ErrorKind::PermissionDenied => {
            format!("{place}: belongs to another user; root may connect")
        }
        _ => format!("{place}: {error}"),
    })
}

/// Why a process has no socket, as far as it shows from outside.
fn no_socket(process: u32) -> String {
    match Path::new(&format!("/proc/{process}")).exists() {
        false => format!("there is no process {process}"),
        true => format!(
            "process {process} has no control socket here: it has made no queue, was started with \
             UWORK_CONTROL=0, or has another XDG_RUNTIME_DIR"
        ),
    }
}

/// A table of an answer: a line of names, and lines of values, all separated by tabs.
pub(crate) struct Table {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn parse(text: &str) -> Table {
        let mut lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect());
        Table { names: lines.next().unwrap_or_default(), rows: lines.collect() }
    }

    /// The rows, each as a function from a column's name to the value, which is empty if the server
    /// has no such column.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|values| Row { names: &self.names, values })
    }
}

/// A row of a [`Table`].
pub(crate) struct Row<'a> {
    names: &'a [String],
    values: &'a [String],
}

impl<'a> Row<'a> {
    pub(crate) fn text(&self, name: &str) -> &'a str {
        let place = self.names.iter().position(|known| known == name);
        place.and_then(|place| self.values.get(place)).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

/// The value of a fact in the answer to `status`.
pub(crate) fn fact<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines().filter_map(|line| line.split_once('\t'));
    lines.find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_by_the_names_of_its_columns() {
        let table = Table::parse("name\tran\nlog\t5\nshort\n");
        let rows: Vec<_> = table.rows().map(|row| (row.text("name"), row.number("ran"))).collect();
        assert_eq!(rows, [("log", 5), ("short", 0)]);
        assert_eq!(table.rows().next().map(|row| row.text("missing")), Some(""));
        assert_eq!(Table::parse("").rows().count(), 0);
    }

    #[test]
    fn a_fact_is_found_by_its_name() {
        assert_eq!(fact("pid\t7\nblocking_tier\tevents\n", "blocking_tier"), "events");
        assert_eq!(fact("pid\t7\n", "tier"), "");
    }
}
