//! The client of the control sockets of other processes. The protocol is in
//! `docs/control-protocol.md`.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};
use rustix::process::geteuid;

use crate::commands::UserError;

/// The protocol's version that this client speaks.
const VERSION: u32 = 1;
/// How long an answer may take: the process may be stopped, or have no CPU.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for each process of a list.
const PATIENCE_IN_A_LIST: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 64 << 20;
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
        Some((process_named(&path)?, path))
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}

/// The sockets of the processes that live and belong to this user, by process; for root those of all
/// users.
pub(crate) fn living() -> Vec<(u32, PathBuf)> {
    let user = geteuid().as_raw();
    let found = sockets().into_iter();
    found.filter(|(_, path)| is_for(user, path) && !remove_if_stale(path)).collect()
}

/// Whether the socket belongs to the user, or the user is root.
fn is_for(user: u32, path: &Path) -> bool {
    user == 0 || fs::symlink_metadata(path).is_ok_and(|file| file.uid() == user)
}

/// The process whose socket has this name.
fn process_named(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()
}

/// Connects without waiting for a place in the listener's queue, which a stopped process does not
/// empty.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// As [`connect`], but waits for so long for a place in the listener's queue.
fn connect_within(patience: Duration, path: &Path) -> io::Result<UnixStream> {
    let start = Instant::now();
    loop {
        match connect(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

/// Removes the socket of a process that has ended, if this user may. False if a process listens on
/// it.
pub(crate) fn remove_if_stale(path: &Path) -> bool {
    let refused = connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if refused {
        // Of another user, or another client has removed it.
        let _ = fs::remove_file(path);
    }
    refused
}

/// Removes the files of processes that were killed before their sockets had got their names.
pub(crate) fn remove_unnamed() {
    let files = folders().into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    for path in files.flatten().map(|file| file.path()) {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix('.'));
        let process = name.and_then(|name| name.parse::<u32>().ok());
        if process.is_some_and(|process| !is_alive(process)) {
            remove_if_stale(&path);
        }
    }
}

/// Whether the process exists and has not ended: a zombie has.
pub(crate) fn is_alive(process: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
        return Path::new(&format!("/proc/{process}")).exists();
    };
    // The state stands behind the name, which may have parentheses and spaces.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// An open connection.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    /// The socket's path.
    path: PathBuf,
    process: u32,
    /// Why the connection was closed. An answer that came late would be read as that to the next
    /// request.
    closed: Option<String>,
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
    fn open(path: &Path) -> io::Result<Client> {
        Client::open_within(PATIENCE, path)
    }

    /// Connects to one of many sockets, whose processes may take less time for an answer. The error
    /// is the reason, in words.
    pub(crate) fn open_listed(path: &Path) -> Result<Client, String> {
        Client::open_within(PATIENCE_IN_A_LIST, path).map_err(|error| words_of(&error))
    }

    fn open_within(patience: Duration, path: &Path) -> io::Result<Client> {
        let stream = connect_within(patience, path)?;
        check_peer(&stream, path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut stream = BufReader::new(stream);
        let process = read_greeting(&mut stream)?;
        Ok(Client { stream, path: path.to_owned(), process, closed: None })
    }

    /// Connects anew, by the same path. The error is the reason, in words.
    pub(crate) fn reopen(&self) -> Result<Client, String> {
        Client::open_listed(&self.path)?.patient()
    }

    /// Has answers take as long as those of a process that was named.
    pub(crate) fn patient(self) -> Result<Client, String> {
        let stream = self.stream.get_ref();
        let set = stream.set_read_timeout(Some(PATIENCE));
        let set = set.and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        set.map(|()| self).map_err(|error| words_of(&error))
    }

    /// The process, by its own account.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Sends a request and reads the answer. After [`Failure::Gone`] each further request fails with
    /// the same reason.
    pub(crate) fn ask(&mut self, request: &str) -> Result<String, Failure> {
        if let Some(reason) = &self.closed {
            return Err(Failure::Gone(reason.clone()));
        }
        self.exchange(request).map_err(|error| Failure::Gone(self.close(&error)))?
    }

    /// Closes the connection, and returns the reason.
    fn close(&mut self, error: &io::Error) -> String {
        let reason = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("process {} does not answer: it is stopped, or gets no CPU", self.process)
            }
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                format!("process {} is gone", self.process)
            }
            _ => format!("the connection to process {} failed: {error}", self.process),
        };
        // The other end may be closed already.
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
        self.closed.insert(reason).clone()
    }

    fn exchange(&mut self, request: &str) -> io::Result<Result<String, Failure>> {
        let line = format!("{}\n", request.replace(['\n', '\r'], " "));
        self.stream.get_mut().write_all(line.as_bytes())?;
        read_answer(&mut self.stream)
    }
}

/// Whether the process at the other end is the one that the socket's name says, and this user's:
/// other users may make files in a folder like /run/uwork. Root may look at any user's.
fn check_peer(stream: &UnixStream, path: &Path) -> io::Result<()> {
    let peer = peer_of(stream)?;
    let user = geteuid();
    if !user.is_root() && peer.uid != user.as_raw() && peer.uid != 0 {
        let whose = format!("process {} of user {} listens here", peer.pid, peer.uid);
        return Err(io::Error::other(whose));
    }
    let is_ours = path.parent().is_some_and(|folder| folders().iter().any(|known| known == folder));
    match process_named(path).filter(|_| is_ours) {
        // The numbers of another namespace mean other processes here.
        Some(_) if peer.pid == 0 => {
            Err(io::Error::other("a process of another PID namespace listens here"))
        }
        Some(named) if i64::from(named) != i64::from(peer.pid) => {
            Err(io::Error::other(format!("process {} listens here, not {named}", peer.pid)))
        }
        _ => Ok(()),
    }
}

/// The process that listens at the other end, and its user.
fn peer_of(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (file, option) = (stream.as_raw_fd(), libc::SO_PEERCRED);
    // SAFETY: the structure is live and of the given length.
    let outcome = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(file, libc::SOL_SOCKET, option, place, &raw mut length)
    };
    if outcome == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

/// Reads the first line of a connection: the process's number.
fn read_greeting(stream: &mut impl BufRead) -> io::Result<u32> {
    let greeting = read_line(stream)?;
    if let Some(refusal) = greeting.strip_prefix("err ") {
        return Err(io::Error::other(refusal.to_owned()));
    }
    let mut words = greeting.split(' ').skip(1);
    let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
    match (greeting.starts_with("uwork-control "), number(), number()) {
        (true, Some(VERSION), Some(process)) => Ok(process),
        (true, Some(version), _) => {
            let other =
                format!("speaks version {version} of the protocol, and this command {VERSION}");
            Err(io::Error::other(other))
        }
        _ => Err(io::Error::other("is no control socket of uwork")),
    }
}

/// Reads an answer.
fn read_answer(stream: &mut impl BufRead) -> io::Result<Result<String, Failure>> {
    let first = read_line(stream)?;
    if let Some(refusal) = first.strip_prefix("err ") {
        let (code, reason) = refusal.split_once(' ').unwrap_or((refusal, refusal));
        let refused = Refused { code: code.to_owned(), reason: reason.to_owned() };
        return Ok(Err(Failure::Refused(refused)));
    }
    let length = first.strip_prefix("ok ").and_then(|length| length.parse().ok());
    let malformed = || io::Error::other(format!("malformed answer {first:?}"));
    let length: u64 = length.filter(|&length| length <= ANSWER_MAX).ok_or_else(malformed)?;
    // Grows with what comes, whatever the line has promised.
    let mut text = Vec::new();
    if (&mut *stream).take(length).read_to_end(&mut text)? as u64 != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Ok(printable(&String::from_utf8_lossy(&text))))
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    (&mut *stream).take(LINE_MAX).read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\n").ok_or(ErrorKind::UnexpectedEof)?;
    Ok(printable(&String::from_utf8_lossy(line)))
}

/// The text without characters that a terminal obeys, or that change the direction of a line: the
/// process writes what it likes.
pub(crate) fn printable(text: &str) -> String {
    let turns = |c| {
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t' || turns(c);
    text.replace(obeyed, "?")
}

/// An error as words for the user.
fn words_of(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            "the process does not answer: it is stopped, or gets no CPU".to_owned()
        }
        ErrorKind::ConnectionRefused => {
            "the process has ended (`uwork ls` removes the file)".to_owned()
        }
        ErrorKind::PermissionDenied => "belongs to another user; root may connect".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            "the process has closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

fn at(place: &str, error: &io::Error) -> UserError {
    UserError(format!("{place}: {}", words_of(error)))
}

/// Why a process has no socket, as far as it shows from outside.
fn no_socket(process: u32) -> String {
    match is_alive(process) {
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

    /// Every column with its value.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let values = self.values.iter().map(String::as_str);
        self.names.iter().map(String::as_str).zip(values)
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

    fn answer_to(bytes: &[u8]) -> io::Result<Result<String, Failure>> {
        read_answer(&mut &*bytes)
    }

    #[test]
    fn control_characters_are_replaced() {
        let answer = answer_to(b"ok 12\na\tb\x1b[2J\r\xc2\x9bc\n");
        assert!(matches!(answer, Ok(Ok(text)) if text == "a\tb?[2J??c\n"));
        let refused = answer_to(b"err failed \x1b]0;x\x07\n");
        assert!(matches!(refused, Ok(Err(Failure::Refused(it))) if it.reason == "?]0;x?"));
    }

    #[test]
    fn an_answer_that_is_cut_or_too_long_is_an_error() {
        let kind = |bytes| answer_to(bytes).err().map(|error| error.kind());
        assert_eq!(kind(b"ok 3\nab"), Some(ErrorKind::UnexpectedEof));
        assert_eq!(kind(b"ok 3"), Some(ErrorKind::UnexpectedEof));
        for bytes in [&b"ok 99999999999\n"[..], b"ok -1\n", b"ok\n", b"yes\n", b"\n"] {
            assert_eq!(kind(bytes), Some(ErrorKind::Other), "{bytes:?}");
        }
    }

    #[test]
    fn an_answer_that_comes_late_is_not_that_to_the_next_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (timed_out, waits) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"uwork-control 1 1\n").unwrap();
            waits.recv().unwrap();
            // Refused, if the client has closed the connection.
            let _ = stream.write_all(b"ok 5\nlate\n");
        });
        let mut client = Client::open(&path).unwrap();
        let soon = Some(Duration::from_millis(1));
        client.stream.get_ref().set_read_timeout(soon).unwrap();
        let reason = |answer| match answer {
            Err(Failure::Gone(reason)) => reason,
            _ => panic!("no answer was sent"),
        };
        let first = reason(client.ask("status"));
        assert!(first.contains("does not answer"), "{first}");
        timed_out.send(()).unwrap();
        server.join().unwrap();
        assert_eq!(reason(client.ask("queues")), first);
    }

    #[test]
    fn sockets_of_other_users_are_no_candidates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let own = geteuid().as_raw();
        assert!(is_for(own, &path) && is_for(0, &path) && !is_for(own + 1, &path));
    }

    #[test]
    fn a_listener_whose_queue_is_full_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect(&path).unwrap();
        let error = connect(&path).unwrap_err();
        assert!(words_of(&error).contains("does not answer"), "{error}");
        assert!(!remove_if_stale(&path), "a process listens");
    }

    proptest::proptest! {
        /// A server may send anything.
        #[test]
        fn any_bytes_of_a_server_are_read(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            let bytes = [&b"ok "[..], b"err ", b"uwork-control ", b""]
                .map(|prefix| [prefix, &bytes].concat());
            for bytes in &bytes {
                let _ = read_greeting(&mut &**bytes);
                if let Ok(Ok(text)) = answer_to(bytes) {
                    let _ = fact(&text, "pid");
                    Table::parse(&text).rows().for_each(|row| _ = row.number("name"));
                }
            }
        }

        /// A table of any text has no more values than the text has fields.
        #[test]
        fn any_text_is_a_table(text in "[a-c\t\n]{0,80}") {
            let table = Table::parse(&text);
            for row in table.rows() {
                let value = row.text("a");
                assert!(text.contains(value) && !value.contains(['\t', '\n']));
            }
        }
    }

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
