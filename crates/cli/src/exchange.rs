//! The bytes of a connection to a control socket: requests out, answers in, all by one deadline.
//!
//! The other end may be stopped, slow or hostile. Whatever it does, an exchange ends at its deadline,
//! and keeps no more bytes than [`Bounds`] permit:
//!
//! - A connect waits in the kernel for a place in the listener's queue, for as long as `SO_SNDTIMEO`
//!   says. A non-blocking connect would have to be repeated, because `poll` does not report such a
//!   place.
//! - The connected socket never blocks. Each wait is a `poll` for the time that is left, so bytes
//!   that trickle in do not prolong it.
//! - Requests are sent while answers come in: neither end waits for the other with a full buffer.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};

/// The longest answer of a server.
const ANSWER_MAX: usize = 8 << 20;
/// The longest line that is read.
const LINE_MAX: usize = 64 << 10;
/// The bytes of one read.
const READ: usize = 64 << 10;
/// The code of a server that closes the connection.
const CLOSED: &str = "closed";
/// The shortest time for a connect: zero would be no limit.
const CONNECT_MIN: Duration = Duration::from_millis(1);

/// What an exchange may take.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The deadline.
    pub(crate) until: Instant,
    /// The bytes of all answers until then.
    pub(crate) bytes: usize,
}

impl Bounds {
    /// A share of the time that is left, from 0 to 1. It is `least` long, or as long as the rest.
    ///
    /// # Errors
    /// No time is left.
    pub(crate) fn shared(self, share: f64, least: Duration) -> Result<Bounds, Fault> {
        self.shared_at(Instant::now(), share, least)
    }

    fn shared_at(self, now: Instant, share: f64, least: Duration) -> Result<Bounds, Fault> {
        let left = self.until.saturating_duration_since(now);
        if left.is_zero() {
            return Err(Fault::Unasked);
        }
        Ok(Bounds { until: now + left.mul_f64(share).max(least).min(left), ..self })
    }
}

/// Why an exchange has failed. The connection is of no use any more: the rest of an answer would be
/// read as the next one.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing listens at the address.
    Ended,
    /// The deadline has passed.
    Late,
    /// It had passed before the process was asked: others of the list have taken the time.
    Unasked,
    /// The other end has closed the connection.
    Closed,
    /// The socket's rights exclude this user.
    Forbidden,
    /// The server has refused the connection, or closed an idle one, for this reason.
    Refused(String),
    /// The peer is not the process that the address names, or not one to be believed.
    Stranger(String),
    /// The server has sent what no server of this protocol sends.
    Malformed(String),
    System(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            ErrorKind::ConnectionRefused => Fault::Ended,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::Late,
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                Fault::Closed
            }
            ErrorKind::PermissionDenied => Fault::Forbidden,
            _ => Fault::System(error),
        }
    }
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Fault {
        io::Error::from(error).into()
    }
}

/// The words of an error of the system, without its number.
pub(crate) fn words_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Whether this process has no free descriptor.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// A request that a process refused.
pub(crate) struct Refused {
    /// The code, for programs.
    pub(crate) code: String,
    /// The reason, for readers.
    pub(crate) reason: String,
}

/// A connection to a socket.
pub(crate) fn connected(path: &Path, until: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(CONNECT_MIN);
        set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match connect_to(&socket, &address) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    }
    Ok(UnixStream::from(socket))
}

/// A connection.
pub(crate) struct Wire {
    stream: UnixStream,
    bounds: Bounds,
    /// A read after the deadline has been made.
    is_late: bool,
    received: Vec<u8>,
    /// How much of `received` was taken.
    taken: usize,
    outgoing: Vec<u8>,
    /// How much of `outgoing` was sent.
    sent: usize,
}

impl Wire {
    /// Connects to a socket.
    pub(crate) fn connect(path: &Path, bounds: Bounds) -> Result<Wire, Fault> {
        Wire::new(connected(path, bounds.until)?, bounds)
    }

    /// The same of an open connection.
    pub(crate) fn new(stream: UnixStream, bounds: Bounds) -> Result<Wire, Fault> {
        stream.set_nonblocking(true)?;
        let (received, outgoing) = (Vec::new(), Vec::new());
        Ok(Wire { stream, bounds, is_late: false, received, taken: 0, outgoing, sent: 0 })
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn until(&self) -> Instant {
        self.bounds.until
    }

    /// Begins an exchange with bounds of its own.
    pub(crate) fn renew(&mut self, bounds: Bounds) {
        (self.bounds, self.is_late) = (bounds, false);
    }

    /// Reads the first line of a connection: the process's number, as the process knows it.
    pub(crate) fn greeting(&mut self, version: u32) -> Result<u32, Fault> {
        let greeting = self.line()?;
        if let Some(refusal) = greeting.strip_prefix("err ") {
            let reason = refusal.split_once(' ').map_or(refusal, |(_, reason)| reason);
            return Err(Fault::Refused(reason.to_owned()));
        }
        let mut words = greeting.split(' ').skip(1);
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
        match (greeting.starts_with("uwork-control "), number(), number()) {
            (true, Some(theirs), Some(process)) if theirs == version => Ok(process),
            (true, Some(theirs), _) => Err(Fault::Malformed(format!(
                "speaks version {theirs} of the protocol, and this command {version}"
            ))),
            _ => Err(Fault::Malformed("is no control socket of uwork".to_owned())),
        }
    }

    /// Begins to send requests. [`Wire::answer`] is to be called for each of them.
    pub(crate) fn request(&mut self, requests: &[String]) -> Result<(), Fault> {
        self.is_quiet()?;
        for request in requests {
            self.outgoing.extend(request.bytes().map(|byte| match byte {
                b'\n' | b'\r' => b' ',
                byte => byte,
            }));
            self.outgoing.push(b'\n');
        }
        self.send()
    }

    /// Nothing has come that no request has asked for. An idle connection may have been closed: then the
    /// last word of the server, which is the error, is no answer.
    pub(crate) fn is_quiet(&mut self) -> Result<(), Fault> {
        if self.taken == self.received.len() && !self.read()? {
            return Ok(());
        }
        let rest = String::from_utf8_lossy(&self.received[self.taken..]);
        let line = rest.lines().next().unwrap_or_default();
        Err(match line.strip_prefix("err ").and_then(|refusal| refusal.split_once(' ')) {
            Some(("refused" | CLOSED, reason)) => Fault::Refused(reason.to_owned()),
            _ => Fault::Malformed("sent more than it was asked for".to_owned()),
        })
    }

    /// Reads the answer to the next request.
    pub(crate) fn answer(&mut self) -> Result<Result<String, Refused>, Fault> {
        let first = self.line()?;
        if let Some(refusal) = first.strip_prefix("err ") {
            let (code, reason) = refusal.split_once(' ').unwrap_or((refusal, refusal));
            if code == CLOSED {
                return Err(Fault::Refused(reason.to_owned()));
            }
            return Ok(Err(Refused { code: code.to_owned(), reason: reason.to_owned() }));
        }
        let length = first.strip_prefix("ok ").and_then(|length| length.parse().ok());
        let Some(length) = length.filter(|&length: &usize| length <= ANSWER_MAX) else {
            let start: String = first.chars().take(40).collect();
            return Err(Fault::Malformed(format!("sent a malformed answer, '{start}'")));
        };
        // Grows with what comes, whatever the line has promised.
        while self.received.len() - self.taken < length {
            self.fill()?;
        }
        Ok(Ok(self.take(length)))
    }

    /// A line without its end.
    fn line(&mut self) -> Result<String, Fault> {
        loop {
            let rest = &self.received[self.taken..];
            if let Some(length) = rest.iter().take(LINE_MAX).position(|&byte| byte == b'\n') {
                let line = self.take(length);
                self.take(1);
                return Ok(line);
            }
            if rest.len() >= LINE_MAX {
                return Err(Fault::Malformed("sent a line without an end".to_owned()));
            }
            self.fill()?;
        }
    }

    /// The next bytes, which have come, as text: raw, as it names things in requests. Bytes that are
    /// no UTF-8 become U+FFFD.
    fn take(&mut self, length: usize) -> String {
        let end = self.taken + length;
        let text = String::from_utf8_lossy(&self.received[self.taken..end]).into_owned();
        self.taken = end;
        if end == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
        text
    }

    /// Waits until more has come. After the deadline it looks once: a client that got no CPU finds
    /// what has come in time.
    fn fill(&mut self) -> Result<(), Fault> {
        loop {
            let left = self.bounds.until.saturating_duration_since(Instant::now());
            if left.is_zero() && std::mem::replace(&mut self.is_late, true) {
                return Err(Fault::Late);
            }
            self.send()?;
            if self.read()? {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Fault::Late);
            }
            let sends = if self.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let mut ends = [PollFd::new(&self.stream, PollFlags::IN | sends)];
            let left = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut ends, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads what has come. False if that is nothing.
    fn read(&mut self) -> Result<bool, Fault> {
        let mut bytes = [0; READ];
        let most = READ.min(self.bounds.bytes);
        if most == 0 {
            return Err(Fault::Malformed("sends more than it should".to_owned()));
        }
        match self.stream.read(&mut bytes[..most]) {
            Ok(0) => Err(Fault::Closed),
            Ok(count) => {
                self.bounds.bytes -= count;
                self.received.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
                _ => Err(error.into()),
            },
        }
    }

    /// Sends as much as the other end takes.
    fn send(&mut self) -> Result<(), Fault> {
        while self.sent < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => {}
                    // What the server has said before it closed the connection is read first.
                    ErrorKind::BrokenPipe => break,
                    _ => return Err(error.into()),
                },
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bounds that only a hang exceeds.
    pub(crate) fn wide() -> Bounds {
        Bounds { until: Instant::now() + Duration::from_secs(600), bytes: 1 << 20 }
    }

    /// A connection whose server has sent these bytes and has left.
    pub(crate) fn sent(bytes: &[u8]) -> Wire {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        Wire::new(ours, wide()).unwrap()
    }

    pub(crate) fn answer_to(bytes: &[u8]) -> Result<Result<String, Refused>, Fault> {
        sent(bytes).answer()
    }

    #[test]
    fn a_share_of_the_time_is_for_one_of_several_items() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let bounds = Bounds { until: now + seconds(60), ..wide() };
        let time = |at, share, least| {
            bounds.shared_at(at, share, seconds(least)).map(|it| it.until.duration_since(now)).ok()
        };
        assert_eq!(time(now, 1.0, 0), Some(seconds(60)));
        assert_eq!([time(now, 0.25, 0), time(now, 0.25, 20)], [15, 20].map(|it| Some(seconds(it))));
        assert_eq!(time(now + seconds(50), 0.1, 20), Some(seconds(60)));
        assert_eq!(time(bounds.until, 1.0, 20), None);
    }

    #[test]
    fn text_is_as_it_was_sent() {
        let answer = answer_to(b"ok 12\na\tb\x1b[2J\r\xc2\x9bc\n");
        assert!(matches!(answer, Ok(Ok(text)) if text == "a\tb\x1b[2J\r\u{9b}c\n"));
        let greeting = sent(b"err refused \xe2\x80\xae\n").greeting(1);
        assert!(matches!(greeting, Err(Fault::Refused(reason)) if reason == "\u{202e}"));
        assert!(matches!(answer_to(b"ok 2\na\xff"), Ok(Ok(text)) if text == "a\u{fffd}"));
    }

    #[test]
    fn an_answer_that_is_cut_or_too_long_is_a_fault() {
        assert!(matches!(answer_to(b"ok 3\nab"), Err(Fault::Closed)));
        assert!(matches!(answer_to(b"ok 3"), Err(Fault::Closed)));
        for bytes in [&b"ok 99999999999\n"[..], b"ok 8388609\n", b"ok -1\n", b"ok\n", b"\n"] {
            assert!(matches!(answer_to(bytes), Err(Fault::Malformed(_))), "{bytes:?}");
        }
        let line = vec![b'x'; LINE_MAX + 1];
        assert!(matches!(answer_to(&line), Err(Fault::Malformed(_))));
    }

    #[test]
    fn an_answer_that_no_request_has_asked_for_is_a_fault() {
        let mut wire = sent(b"ok 2\na\nok 2\nb\n");
        assert!(matches!(wire.answer(), Ok(Ok(text)) if text == "a\n"));
        assert!(matches!(wire.request(&["get b".to_owned()]), Err(Fault::Malformed(_))));
    }

    #[test]
    fn answers_end_at_their_bytes() {
        let mut wire = sent(&[b"ok 100\n", &[b'x'; 100][..]].concat());
        wire.renew(Bounds { bytes: 50, ..wide() });
        assert!(matches!(wire.answer(), Err(Fault::Malformed(_))));
    }

    /// A server sends byte by byte. The deadline has passed before the end.
    #[test]
    fn bytes_that_trickle_do_not_move_the_deadline() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(ours, Bounds { until: Instant::now(), ..wide() }).unwrap();
        theirs.write_all(b"o").unwrap();
        assert!(matches!(wire.fill(), Ok(())), "what has come in time is found");
        theirs.write_all(b"k").unwrap();
        assert!(matches!(wire.fill(), Err(Fault::Late)));
        wire.renew(wide());
        assert!(matches!(wire.fill(), Ok(())));
    }

    #[test]
    fn a_listener_whose_queue_is_full_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = Wire::connect(&path, wide()).unwrap();
        let soon = Bounds { until: Instant::now() + Duration::from_millis(20), ..wide() };
        assert!(matches!(Wire::connect(&path, soon), Err(Fault::Late)));
    }

    /// More requests and answers than the buffers of both ends hold.
    #[test]
    fn many_requests_are_answered_without_waiting_for_each_other() {
        use std::io::BufRead as _;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let answer = format!("ok 1001\n{}\n", "y".repeat(1_000));
            for _ in std::io::BufReader::new(&theirs).lines().map_while(Result::ok) {
                (&theirs).write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut wire = Wire::new(ours, Bounds { bytes: 64 << 20, ..wide() }).unwrap();
        let requests = vec![format!("get {}", "x".repeat(2_000)); 4_000];
        wire.request(&requests).unwrap();
        for _ in &requests {
            assert!(matches!(wire.answer(), Ok(Ok(text)) if text.len() == 1_001));
        }
        drop(wire);
        server.join().unwrap();
    }
}
