//! The client of the control sockets of other processes. The protocol is in
//! `crates/linux/src/control/README.md`.
//!
//! A process may be stopped, dead, slow or hostile. Its identity is what [`peer`] says, its bytes
//! come by [`exchange`](crate::exchange), and a connection on which an exchange has failed is closed.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};
use rustix::process::geteuid;

use crate::below::below;
use crate::commands::UserError;
use crate::exchange::{Bounds, Fault, Wire, is_out_of_files, words_of};
use crate::folder::Socket;
use crate::no_socket::no_socket;
use crate::peer::{self, Peer};
use crate::sockets::{check_name, listed, listed_socket};

pub(crate) use crate::at_once::at_once;
pub(crate) use crate::exchange::Refused;
pub(crate) use crate::peer::is_alive;
use crate::sockets::sockets_of;
pub(crate) use crate::sockets::{
    Entry, Found, one_of_each, remove_if_stale, sockets, sockets_without_unnamed,
};

/// The protocol's version that this client speaks.
const VERSION: u32 = 1;
/// How long all exchanges with a process may take: it may be stopped, or have no CPU. A command is
/// over within two seconds, its start and its output included.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);
/// The bytes of all answers of a process within that time.
const BYTES_MAX: usize = 64 << 20;
/// The same for a process of a list, which is asked for a few facts.
const BYTES_IN_A_LIST: usize = 64 << 10;

/// The sockets of the processes that live and belong to this user, by process; for root those of all
/// users.
pub(crate) fn living() -> Found {
    let user = geteuid().as_raw();
    let mut found = sockets();
    found.sockets.retain(|entry| is_for(user, entry) && !remove_if_stale(&entry.path));
    found
}

/// Whether the socket belongs to the user, or the user is root.
fn is_for(user: u32, entry: &Entry) -> bool {
    user == 0 || entry.owner == user
}

/// Connects without waiting for a place in the listener's queue, which a stopped process does not
/// empty.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// What the exchanges of a command, or of one of its rounds, may take from now on.
pub(crate) fn bounds() -> Bounds {
    Bounds { until: Instant::now() + PATIENCE, bytes: BYTES_MAX }
}

/// The same for each process of a list.
pub(crate) fn bounds_in_a_list() -> Bounds {
    Bounds { bytes: BYTES_IN_A_LIST, ..bounds() }
}

/// An open connection.
pub(crate) struct Client {
    wire: Wire,
    /// The socket's path.
    path: PathBuf,
    /// The number that the process must have.
    named: Option<u32>,
    peer: Peer,
    /// Why the connection was closed. An answer that came late would be read as that to the next
    /// request.
    closed: Option<String>,
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
    /// Connects to a process: its number, or the path of its socket. The deadline of all requests
    /// begins here, unless [`Client::renew`] moves it.
    pub(crate) fn connect(process: &str) -> Result<Client, UserError> {
        Client::connect_within(process, bounds())
    }

    /// The same with these bounds.
    pub(crate) fn connect_within(process: &str, bounds: Bounds) -> Result<Client, UserError> {
        if process.contains('/') {
            // A file of another kind refuses a connection as the socket of an ended process does. A
            // folder of a stranger's is not asked.
            let is_of_strangers = |path: &Path| listed(path).is_some() || below(path).is_some();
            if !is_of_strangers(Path::new(process))
                && fs::metadata(process).is_ok_and(|file| !file.file_type().is_socket())
            {
                return Err(UserError(format!("{process}: not a socket")));
            }
            return Client::open(Path::new(process), None, bounds)
                .map_err(|fault| at(process, &fault, None));
        }
        let number: u32 = process.parse().map_err(|_| {
            UserError(format!("'{process}' is neither a process's number nor a socket's path; `uwork ls` lists them"))
        })?;
        let mut failed: Option<(PathBuf, Fault)> = None;
        let Found { sockets, left_out } = sockets_of(number);
        for Entry { path, .. } in sockets {
            match Client::open(&path, Some(number), bounds) {
                Ok(client) => return Ok(client),
                // The first is the most likely one, unless nothing listens there any more.
                Err(fault) => match &failed {
                    Some((_, first)) if !matches!(first, Fault::Ended) => {}
                    _ => failed = Some((path, fault)),
                },
            }
        }
        let left_out = left_out.map_or(String::new(), |why| format!("; {why}"));
        Err(match failed {
            Some((path, fault)) => at(&path.display().to_string(), &fault, Some(number)),
            None => UserError(no_socket(number, bounds.until) + &left_out),
        })
    }

    /// Connects to the socket of a process of a list.
    pub(crate) fn open_listed(entry: &Entry, bounds: Bounds) -> Result<Client, Fault> {
        Client::open(&entry.path, Some(entry.process), bounds)
    }

    /// `named`: the number that the process must have.
    fn open(path: &Path, named: Option<u32>, bounds: Bounds) -> Result<Client, Fault> {
        // In a folder of sockets the file is opened first. It is connected to, whatever has its name
        // then.
        let (listed, below) = (listed_socket(path).transpose()?, below(path));
        let mut wire = match &below {
            None => Wire::connect(listed.as_ref().map_or(path, Socket::path), bounds)?,
            Some(below) => Wire::new(below.connect(bounds.until)?, bounds)?,
        };
        let peer = peer::of(wire.stream(), named)?;
        check_name(path, peer.process).map_err(Fault::Stranger)?;
        below.map_or(Ok(()), |below| below.check(&peer))?;
        let number = wire.greeting(VERSION)?;
        if peer::own_number(peer.process) != Some(number) {
            let process = peer.process;
            return Err(Fault::Stranger(format!("process {process} says that it is {number}")));
        }
        Ok(Client { wire, path: path.to_owned(), named, peer, closed: None })
    }

    /// Connects anew, by the same path. `most` is for the exchange with the new connection. The error is
    /// the reason, in words.
    pub(crate) fn reopen(&self, most: Duration) -> Result<Client, String> {
        let bounds = bounds();
        let until = bounds.until.min(Instant::now() + most);
        let opened = Client::open(&self.path, self.named, Bounds { until, ..bounds });
        opened.map_err(|fault| reason_of(&fault, Some(self.peer.process)))
    }

    /// Whether the other connection is to the same process. Another one may have its number.
    pub(crate) fn is_of_same_process(&self, other: &Client) -> bool {
        self.peer == other.peer
    }

    /// Begins a round of requests with a deadline of its own. A process closes connections that are
    /// idle, if others need their places: then it connects anew to the same process. Where that fails,
    /// the next request says why the connection was closed.
    pub(crate) fn renew(&mut self) {
        self.renew_within(bounds());
    }

    /// The same, but for the deadline of all rounds.
    pub(crate) fn renew_before(&mut self, last: Instant) {
        let bounds = bounds();
        self.renew_within(Bounds { until: bounds.until.min(last), ..bounds });
    }

    fn renew_within(&mut self, bounds: Bounds) {
        self.wire.renew(bounds);
        if self.closed.is_some() {
            return;
        }
        let Err(fault) = self.wire.is_quiet() else { return };
        self.close(&fault);
        if !matches!(fault, Fault::Refused(_)) {
            return;
        }
        let opened = Client::open(&self.path, self.named, bounds);
        if let Some(client) = opened.ok().filter(|client| client.is_of_same_process(self)) {
            *self = client;
        }
    }

    /// The deadline of the present round.
    pub(crate) fn until(&self) -> Instant {
        self.wire.until()
    }

    /// The deadline of a command that takes this time and no longer, if the process answers.
    pub(crate) fn last_after(&self, time: Duration) -> Instant {
        self.wire.until() + time
    }

    /// The process, as the kernel knows it.
    pub(crate) fn process(&self) -> u32 {
        self.peer.process
    }

    /// Sends the only request to a process of a list.
    pub(crate) fn ask_once(mut self, request: &str) -> Result<Result<String, Refused>, Fault> {
        self.wire.request(&[request.to_owned()])?;
        self.wire.answer()
    }

    /// Sends a request and reads the answer. After [`Failure::Gone`] each further request fails with
    /// the same reason.
    pub(crate) fn ask(&mut self, request: &str) -> Result<String, Failure> {
        self.ask_all(&[request.to_owned()]).remove(0)
    }

    /// As [`Client::ask`], for several requests, which are sent together: on a busy machine each wait
    /// for an answer takes long. As many answers as requests.
    pub(crate) fn ask_all(&mut self, requests: &[String]) -> Vec<Result<String, Failure>> {
        if self.closed.is_none()
            && let Err(fault) = self.wire.request(requests)
        {
            self.close(&fault);
        }
        let mut answer = || match &self.closed {
            Some(reason) => Err(Failure::Gone(reason.clone())),
            None => match self.wire.answer() {
                Ok(answer) => answer.map_err(Failure::Refused),
                Err(fault) => Err(Failure::Gone(self.close(&fault))),
            },
        };
        requests.iter().map(|_| answer()).collect()
    }

    /// Closes the connection, and returns the reason.
    fn close(&mut self, fault: &Fault) -> String {
        let reason = match fault {
            Fault::Closed | Fault::Ended if peer::is_ending(self.peer.process) => {
                format!("process {} is gone", self.peer.process)
            }
            fault => reason_of(fault, Some(self.peer.process)),
        };
        // The other end may be closed already.
        let _ = self.wire.stream().shutdown(Shutdown::Both);
        self.closed.insert(reason).clone()
    }
}

/// Why a process does not answer, as a sentence.
pub(crate) fn reason_of(fault: &Fault, process: Option<u32>) -> String {
    let subject = process.map_or("the process".to_owned(), |number| format!("process {number}"));
    match (fault, process) {
        (Fault::Ended, _) => format!("{subject} has ended"),
        (Fault::Late, Some(number)) if peer::is_stopped(number) => {
            format!("{subject} is stopped: `kill -CONT {number}` lets it go on")
        }
        (Fault::Unasked, _) => format!("{subject} was not asked in time"),
        (Fault::Late, _) => format!("{subject} does not answer: it is stopped, or gets no CPU"),
        (Fault::Closed, _) => format!("{subject} has closed the connection"),
        (Fault::Forbidden, _) => "belongs to another user; root may connect".to_owned(),
        (Fault::Refused(reason) | Fault::Stranger(reason), _) => reason.clone(),
        (Fault::Malformed(what), _) => format!("{subject} {what}"),
        (Fault::System(error), _) => words_of(error),
    }
}

/// The state of a process that does not answer, in few words for a list. None: it has ended.
pub(crate) fn state_of(fault: &Fault, process: u32) -> Option<String> {
    Some(match fault {
        Fault::Ended => return None,
        Fault::System(error) if error.kind() == ErrorKind::NotFound => return None,
        // Without a number here it cannot be looked up.
        _ if process != 0 && !is_alive(process) => return None,
        Fault::Late if peer::is_stopped(process) => "stopped".to_owned(),
        Fault::Late => "does not answer".to_owned(),
        Fault::Unasked => "not asked in time".to_owned(),
        Fault::Closed => "closes the connection".to_owned(),
        Fault::System(error) if is_out_of_files(error) => {
            "not asked: this command may open no more files (ulimit -n)".to_owned()
        }
        Fault::Forbidden => "refused: another user's".to_owned(),
        Fault::Refused(reason) => format!("refused: {reason}"),
        Fault::Stranger(reason) => format!("not believed: {reason}"),
        Fault::Malformed(what) => what.clone(),
        Fault::System(error) => words_of(error),
    })
}

fn at(place: &str, fault: &Fault, process: Option<u32>) -> UserError {
    UserError(format!("{place}: {}", reason_of(fault, process)))
}

/// The most columns and rows of a table. A server of 8 MiB of text has fewer.
const COLUMNS_MAX: usize = 64;
const ROWS_MAX: usize = 100_000;

/// A table of an answer: a line of names, and lines of values, all separated by tabs.
pub(crate) struct Table {
    text: String,
}

impl Table {
    pub(crate) fn parse(text: &str) -> Table {
        Table { text: text.to_owned() }
    }

    /// The rows, each as a function from a column's name to the value, which is empty if the server
    /// has no such column.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let mut lines = self.text.lines();
        let names: Vec<&str> =
            lines.next().unwrap_or_default().split('\t').take(COLUMNS_MAX).collect();
        let names = Rc::new(names);
        lines.take(ROWS_MAX).map(move |line| Row { names: Rc::clone(&names), line })
    }
}

/// A row of a [`Table`].
pub(crate) struct Row<'a> {
    names: Rc<Vec<&'a str>>,
    line: &'a str,
}

impl<'a> Row<'a> {
    pub(crate) fn text(&self, name: &str) -> &'a str {
        let place = self.names.iter().position(|&known| known == name);
        place.and_then(|place| self.line.split('\t').nth(place)).unwrap_or_default()
    }

    /// Every column with its value.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.names.iter().copied().zip(self.line.split('\t'))
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
    use std::io::Write as _;
    use std::thread;

    use super::*;
    use crate::exchange::tests::{answer_to, sent, wide};

    #[test]
    fn an_answer_that_comes_late_is_not_that_to_the_next_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (timed_out, waits) = std::sync::mpsc::channel::<()>();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            writeln!(stream, "uwork-control 1 {}", std::process::id()).unwrap();
            waits.recv().unwrap();
            // Refused, if the client has closed the connection.
            let _ = stream.write_all(b"ok 5\nlate\n");
        });
        let mut client = Client::open(&path, None, wide()).map_err(|_| "no greeting").unwrap();
        client.wire.renew(Bounds { until: Instant::now(), ..wide() });
        let reason = |answer| match answer {
            Err(Failure::Gone(reason)) => reason,
            _ => panic!("no answer was sent"),
        };
        let first = reason(client.ask("status"));
        assert!(first.contains("does not answer"), "{first}");
        timed_out.send(()).unwrap();
        server.join().unwrap();
        client.renew();
        assert_eq!(reason(client.ask("queues")), first);
    }

    /// A server of two connections. The first is closed for this reason once an answer was read.
    fn closes_idle(last_word: &'static str) -> (tempfile::TempDir, thread::JoinHandle<()>, Client) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            for last_word in [last_word, ""] {
                let (mut stream, _) = listener.accept().unwrap();
                writeln!(stream, "uwork-control 1 {}", std::process::id()).unwrap();
                let mut line = String::new();
                let mut requests = std::io::BufReader::new(stream.try_clone().unwrap());
                std::io::BufRead::read_line(&mut requests, &mut line).unwrap();
                // In one piece: who has read the answer has the last word, too.
                stream
                    .write_all(format!("ok {}\n{line}{last_word}", line.len()).as_bytes())
                    .unwrap();
            }
        });
        let client = Client::open(&path, None, wide()).map_err(|_| "no greeting").unwrap();
        (folder, server, client)
    }

    const LAST_WORDS: [&str; 2] =
        ["err refused the connection was idle\n", "err closed the connection was idle\n"];

    // Catches: the last word of a process to an idle client, taken for the answer to the next request.
    #[test]
    fn the_end_of_an_idle_connection_is_no_answer() {
        for last_word in LAST_WORDS {
            let (_folder, server, mut client) = closes_idle(last_word);
            assert!(client.ask("a").is_ok());
            let Err(Failure::Gone(reason)) = client.ask("b") else { panic!("an answer") };
            assert_eq!(reason, "the connection was idle");
            // The second connection is for the test below.
            let _ = client.reopen(PATIENCE).map(|mut client| client.ask("c").is_ok());
            server.join().unwrap();
        }
    }

    #[test]
    fn a_round_begins_with_a_new_connection_if_the_last_was_closed() {
        for last_word in LAST_WORDS {
            let (_folder, server, mut client) = closes_idle(last_word);
            assert!(client.ask("a").is_ok());
            client.renew();
            assert!(client.ask("b").is_ok_and(|answer| answer == "b\n"));
            server.join().unwrap();
        }
    }

    #[test]
    fn a_process_that_calls_itself_by_another_number_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"uwork-control 1 1\n").unwrap();
        });
        let fault = Client::open(&path, None, wide()).map(|_| ()).unwrap_err();
        server.join().unwrap();
        assert!(matches!(fault, Fault::Stranger(why) if why.ends_with("says that it is 1")));
    }

    #[test]
    fn a_state_is_plain_words() {
        let own = std::process::id();
        let of = |fault| state_of(&fault, own).unwrap_or("none".to_owned());
        let system = |number| Fault::from(io::Error::from_raw_os_error(number));
        assert_eq!(of(system(libc::EACCES)), "refused: another user's");
        assert_eq!(of(system(libc::EAGAIN)), "does not answer");
        assert_eq!(of(system(libc::ENFILE)), "Too many open files in system");
        assert!(of(system(libc::EMFILE)).starts_with("not asked: this command"));
        assert_eq!(
            (of(system(libc::ECONNREFUSED)), of(system(libc::ENOENT))),
            ("none".into(), "none".into())
        );
        assert_eq!(state_of(&Fault::Late, 99_999_998), None, "it has ended");
    }

    #[test]
    fn a_process_is_not_asked_after_the_deadline() {
        let past = Bounds { until: Instant::now(), ..wide() };
        let fault = past.shared(1.0, Duration::ZERO).map(|_| ()).unwrap_err();
        assert_eq!(state_of(&fault, std::process::id()).as_deref(), Some("not asked in time"));
    }

    #[test]
    fn sockets_of_other_users_are_no_candidates() {
        let entry = Entry { process: 1, path: "/run/1.sock".into(), owner: 7 };
        assert!(is_for(7, &entry) && is_for(0, &entry) && !is_for(8, &entry));
    }

    #[test]
    fn a_listener_whose_queue_is_full_is_not_stale() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect(&path).unwrap();
        assert!(connect(&path).is_err() && !remove_if_stale(&path), "a process listens");
    }

    proptest::proptest! {
        /// A server may send anything.
        #[test]
        fn any_bytes_of_a_server_are_read(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            let bytes = [&b"ok "[..], b"err ", b"uwork-control ", b""]
                .map(|prefix| [prefix, &bytes].concat());
            for bytes in &bytes {
                let _ = sent(bytes).greeting(VERSION);
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
