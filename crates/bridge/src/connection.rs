//! A connection to one address: packed commands out, replies in. A wait has a limit, and is cut into
//! slices: its owner is asked whether it is worth going on while the server is silent. A server that
//! is never silent for long may take any time, until the owner [`Ends`]. A connection knows nothing of
//! other servers.

mod socket;

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, Value};

pub(crate) use self::socket::Socket;
use crate::addresses::Addresses;
use crate::resp::{Arrived, Replies};
use crate::server::Server;
use crate::tls;

/// A host that does not answer the first packet of a TCP connection within this time is unreachable.
/// The system would repeat that packet after a second. The next connection does so, too, and goes
/// where the name leads by then.
const TCP_MAX: Duration = Duration::from_millis(900);
/// The longest wait of one system call.
pub(crate) const SLICE: Duration = Duration::from_millis(500);

/// What bytes go through: a socket, or TLS on a socket.
pub(crate) trait Stream: Read + Write + Send {
    /// Whether the program has closed its descriptor, or the server its end, before anything is sent.
    fn is_over(&self) -> bool {
        false
    }
}

/// When the connections of a thread end, whatever they wait for or receive; unknown at first. The clones
/// share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(Arc<OnceLock<Instant>>);

impl Ends {
    /// Only the first call counts.
    pub(crate) fn set(&self, at: Instant) {
        self.0.get_or_init(|| at);
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    pub(crate) fn are_over(&self) -> bool {
        self.at().is_some_and(|at| Instant::now() >= at)
    }

    fn check(&self) -> io::Result<()> {
        let over = || io::Error::new(ErrorKind::ConnectionAborted, "the consumer has ended");
        if self.are_over() { Err(over()) } else { Ok(()) }
    }
}

/// A socket whose reads and writes fail when its owner has ended. It is below TLS, whose reads go on
/// while anything arrives.
pub(crate) struct Bounded<S> {
    socket: S,
    ends: Ends,
}

impl<S: Read> Read for Bounded<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.ends.check()?;
        self.socket.read(bytes)
    }
}

impl<S: Write> Write for Bounded<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ends.check()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl<S: Stream> Stream for Bounded<S> {
    fn is_over(&self) -> bool {
        self.socket.is_over()
    }
}

/// How long an exchange waits, and for whom.
pub(crate) struct Wait<'a> {
    /// A server that is silent for this time has failed.
    pub(crate) limit: Duration,
    /// A server that is silent for this time is doubted.
    pub(crate) doubt: Duration,
    /// Asked in each slice of a silence that is doubted: an error ends the wait.
    pub(crate) ask: &'a mut dyn FnMut() -> io::Result<()>,
}

/// Reads one reply: that to the command with this number.
pub(crate) type Intake<'a> = dyn FnMut(usize, &mut Replies<'_>) -> io::Result<Value> + 'a;

/// A stream that waits for bytes.
struct Patient<'a, 'w> {
    stream: &'a mut dyn Stream,
    silence: Silence,
    wait: Wait<'w>,
}

impl Read for Patient<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Ok(0) => {
                    let text = "the server has closed the connection";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
                }
                Ok(count) => {
                    self.silence.has_moved = true;
                    return Ok(count);
                }
                Err(error) if is_silence(&error) => self.silence.lasts(&mut self.wait)?,
                Err(error) => return Err(error),
            }
        }
    }
}

pub(crate) struct Connection {
    /// None for a path.
    address: Option<SocketAddr>,
    stream: Box<dyn Stream>,
    arrived: Arrived,
}

impl Connection {
    /// Connects to a server within `limit`: its name is resolved anew, and each of its addresses gets
    /// what is left, or [`TCP_MAX`]. The greeting has `limit` for itself. The connection ends with its
    /// owner.
    pub(crate) fn open(
        server: &Server,
        addresses: &Addresses,
        limit: Duration,
        ends: &Ends,
    ) -> io::Result<Connection> {
        let tcp = |host: &str, port| {
            let (address, socket) = connect(server, addresses, host, port, limit)?;
            io::Result::Ok((Some(address), Bounded { socket, ends: ends.clone() }))
        };
        let (address, stream): (_, Box<dyn Stream>) = match server.addr() {
            ConnectionAddr::Unix(path) => {
                let socket = connect_to_path(path, limit)?;
                (None, Box::new(Bounded { socket, ends: ends.clone() }))
            }
            ConnectionAddr::TcpTls { host, port, .. } => {
                let (address, stream) = tcp(host, *port)?;
                (address, tls::wrap(server, host, stream)?)
            }
            ConnectionAddr::Tcp(host, port) => {
                let (address, stream) = tcp(host, *port)?;
                (address, Box::new(stream))
            }
            _ => return Err(io::Error::new(ErrorKind::Unsupported, "an unknown kind of address")),
        };
        Ok(Connection { address, ..Connection::on(stream) })
    }

    fn on(stream: Box<dyn Stream>) -> Connection {
        Connection { address: None, stream, arrived: Arrived::nothing() }
    }

    /// The address that was connected to; None for a path.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether it was closed, by the program or the server: nothing may be sent on it.
    pub(crate) fn is_over(&self) -> bool {
        self.stream.is_over()
    }

    /// The reply that a server has sent before it closed the connection, if that has failed a write.
    pub(crate) fn last_words(&mut self) -> Option<Value> {
        let wait = Wait { limit: SLICE, doubt: SLICE, ask: &mut || Ok(()) };
        let mut stream = Patient { stream: &mut *self.stream, silence: Silence::begin(), wait };
        Replies::new(&mut self.arrived, &mut stream).value().ok()
    }

    /// Sends packed commands with these numbers, each of whose replies `intake` reads. After an error
    /// the connection is of no further use: replies may still be on their way.
    pub(crate) fn ask_into(
        &mut self,
        packed: &[u8],
        numbers: impl Iterator<Item = usize>,
        wait: Wait<'_>,
        intake: &mut Intake<'_>,
    ) -> io::Result<Vec<Value>> {
        let silence = Silence::begin();
        let mut stream = Patient { stream: &mut *self.stream, silence, wait };
        stream.send(packed)?;
        // The server is silent from now on.
        stream.silence = Silence::begin();
        let mut replies = Replies::new(&mut self.arrived, &mut stream);
        numbers.map(|number| intake(number, &mut replies)).collect()
    }
}

impl Patient<'_, '_> {
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.silence.has_moved = true;
                    bytes = &bytes[count..];
                }
                Err(error) if is_silence(&error) => self.silence.lasts(&mut self.wait)?,
                Err(error) => return Err(error),
            }
        }
        loop {
            match self.stream.flush() {
                Err(error) if is_silence(&error) => self.silence.lasts(&mut self.wait)?,
                done => return done,
            }
        }
    }
}

/// The end of a slice, or a signal: nothing is lost.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// How long no byte has moved.
struct Silence {
    since: Instant,
    /// Bytes have moved since then.
    has_moved: bool,
}

impl Silence {
    fn begin() -> Silence {
        Silence { since: Instant::now(), has_moved: false }
    }

    /// A slice is over without a byte, or with a part of a reply.
    fn lasts(&mut self, wait: &mut Wait<'_>) -> io::Result<()> {
        if self.has_moved {
            *self = Silence::begin();
            return Ok(());
        }
        let silent = self.since.elapsed();
        // The next slice would end too late.
        if silent + SLICE / 2 >= wait.limit {
            let limit = wait.limit;
            return Err(io::Error::new(ErrorKind::TimedOut, format!("no reply in {limit:?}")));
        }
        if silent >= wait.doubt { (wait.ask)() } else { Ok(()) }
    }
}

/// Connects to a path.
fn connect_to_path(path: &Path, limit: Duration) -> io::Result<Socket> {
    let socket = Socket::to_path(path, limit)?;
    socket.set_slice(SLICE.min(limit))?;
    Ok(socket)
}

fn connect(
    server: &Server,
    addresses: &Addresses,
    host: &str,
    port: u16,
    limit: Duration,
) -> io::Result<(SocketAddr, Socket)> {
    let mut last = None;
    let (begun, tcp_max) = (Instant::now(), server.limit(TCP_MAX));
    for address in addresses.find(host, port, limit)? {
        let tcp_limit = limit.saturating_sub(begun.elapsed()).min(tcp_max);
        if tcp_limit.is_zero() {
            let late =
                || io::Error::new(ErrorKind::TimedOut, format!("no connection in {limit:?}"));
            return Err(last.unwrap_or_else(late));
        }
        match Socket::to_address(address, tcp_limit) {
            Ok(socket) => {
                socket.set_slice(SLICE.min(limit))?;
                return Ok((address, socket));
            }
            Err(error) => {
                addresses.has_failed(address);
                last = Some(error);
            }
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address")))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_host_that_drops_packets_does_not_get_the_time_of_a_slow_greeting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // SAFETY: the socket is open. A second call changes the length of its queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // While the queue is full, the system drops the packets of further connections.
        let fill = |_: u8| TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let queue: Vec<io::Result<TcpStream>> = (0..3).map(fill).collect();
        assert!(queue[0].is_ok() && queue[2].is_err());
        let server = Server::new(&format!("redis://{address}")).unwrap();
        // Longer than any test.
        let addresses = Addresses::default();
        let error =
            Connection::open(&server, &addresses, Duration::from_secs(86_400), &Ends::default());
        let error = error.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn a_path_whose_server_accepts_no_connection_costs_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the socket is open. A second call changes the length of its queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let server = Server::new(&format!("unix://{}", path.display())).unwrap();
        let open = || {
            let (addresses, limit) = (Addresses::default(), Duration::from_millis(100));
            Connection::open(&server, &addresses, limit, &Ends::default()).map(drop)
        };
        let limit = Duration::from_millis(100);
        let queue: Vec<_> = (0..3).map(|_| connect_to_path(&path, limit)).collect();
        assert!(queue[0].is_ok() && queue[2].is_err());
        let error = open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop(listener);
        assert_eq!(open().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    /// A server that says these parts, and is silent after each.
    struct Parts(std::vec::IntoIter<&'static [u8]>, bool);

    impl Read for Parts {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            let part = if self.1 { self.0.next() } else { None };
            let part = part.ok_or(ErrorKind::WouldBlock)?;
            bytes[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }

    impl Write for Parts {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Parts {}

    fn ask(
        parts: Vec<&'static [u8]>,
        ask: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Vec<Value>> {
        let mut connection = Connection::on(Box::new(Parts(parts.into_iter(), false)));
        let wait = Wait { limit: Duration::from_secs(3_600), doubt: Duration::ZERO, ask };
        connection.ask_into(b"words", 0..2, wait, &mut |_, replies| replies.value())
    }

    #[test]
    fn a_reply_with_silences_in_its_middle_is_read_as_a_whole() {
        let parts: Vec<&[u8]> =
            vec![b"*2\r\n$5\r\nab", b"", b"cde", b"\r", b"\n:", b"7\r\n+O", b"K\r\n"];
        // An empty part would be the end of the stream.
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let replies = ask(parts, &mut || Ok(())).unwrap();
        let text = Value::BulkString(b"abcde".to_vec());
        assert_eq!(replies, [Value::Array(vec![text, Value::Int(7)]), Value::Okay]);
    }

    #[test]
    fn an_owner_that_doubts_ends_the_wait() {
        let mut asked = 0;
        let error = ask(vec![b"+OK\r\n"], &mut || {
            asked += 1;
            if asked == 3 { Err(io::Error::other("replaced")) } else { Ok(()) }
        });
        assert!(error.unwrap_err().to_string().contains("replaced"));
    }

    /// A server whose reply arrives byte by byte. After some of them its reader ends.
    struct Drip(usize, Ends);

    impl Read for Drip {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 == 1_000 {
                self.1.set(Instant::now());
            }
            let header = b"$100000000\r\n";
            bytes[0] = header.get(self.0 - 1).copied().unwrap_or(b'x');
            Ok(1)
        }
    }

    impl Write for Drip {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Drip {}

    #[test]
    fn a_reply_that_arrives_byte_by_byte_ends_with_its_reader() {
        let ends = Ends::default();
        let socket = Drip(0, ends.clone());
        let mut connection = Connection::on(Box::new(Bounded { socket, ends }));
        let limit = Duration::from_secs(3_600);
        let wait = Wait { limit, doubt: limit, ask: &mut || Ok(()) };
        let read = connection.ask_into(b"words", 0..1, wait, &mut |_, replies| replies.value());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
}
