//! A connection to one address: packed commands out, replies in. A wait has a limit, and is cut into
//! slices: its owner is asked whether it is worth going on while the server is silent. It knows
//! nothing of other servers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, Parser, Value};

use crate::server::Server;
use crate::tls;

/// The longest wait of one system call.
const SLICE: Duration = Duration::from_millis(500);

/// What bytes go through: a socket, or TLS on a socket.
pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// How long an exchange waits, and for whom.
pub(crate) struct Wait<'a> {
    /// A server that is silent for this time has failed.
    pub(crate) limit: Duration,
    /// A server that is silent for this time is doubted.
    pub(crate) doubt: Duration,
    /// Asked in each slice of a silence that is doubted: an error ends the wait.
    pub(crate) ask: &'a mut dyn FnMut() -> io::Result<()>,
}

/// Counts what the server has sent and taken.
struct Counted {
    stream: Box<dyn Stream>,
    bytes: u64,
    /// The last error, which the parser does not give back.
    error: Option<io::Error>,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let error = match self.stream.read(bytes) {
            Ok(0) => {
                io::Error::new(ErrorKind::UnexpectedEof, "the server has closed the connection")
            }
            Ok(count) => {
                self.bytes += count as u64;
                return Ok(count);
            }
            Err(error) => error,
        };
        let kind = error.kind();
        self.error = Some(error);
        // The parser would try again at once.
        Err(if kind == ErrorKind::Interrupted { ErrorKind::WouldBlock } else { kind }.into())
    }
}

pub(crate) struct Connection {
    counted: Counted,
    /// Keeps the part of a reply that has arrived.
    parser: Parser,
}

impl Connection {
    /// Connects to a server. Its name is resolved anew, and each of its addresses gets `limit`.
    pub(crate) fn open(server: &Server, limit: Duration) -> io::Result<Connection> {
        let stream: Box<dyn Stream> = match server.addr() {
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(SLICE.min(limit)))?;
                stream.set_write_timeout(Some(SLICE.min(limit)))?;
                Box::new(stream)
            }
            ConnectionAddr::TcpTls { host, port, .. } => {
                tls::wrap(server, host, connect(host, *port, limit)?)?
            }
            ConnectionAddr::Tcp(host, port) => Box::new(connect(host, *port, limit)?),
            _ => return Err(io::Error::new(ErrorKind::Unsupported, "an unknown kind of address")),
        };
        Ok(Connection::on(stream))
    }

    fn on(stream: Box<dyn Stream>) -> Connection {
        Connection { counted: Counted { stream, bytes: 0, error: None }, parser: Parser::new() }
    }

    /// Sends packed commands and reads their replies. After an error the connection is of no further
    /// use: replies may still be on their way.
    pub(crate) fn ask(
        &mut self,
        packed: &[u8],
        count: usize,
        mut wait: Wait<'_>,
    ) -> io::Result<Vec<Value>> {
        let mut silence = Silence { since: Instant::now(), seen: self.counted.bytes };
        self.send(packed, &mut silence, &mut wait)?;
        silence.seen = self.counted.bytes;
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            match self.parser.parse_value(&mut self.counted) {
                Ok(reply) => replies.push(reply),
                Err(malformed) => match self.counted.error.take() {
                    Some(error) if is_silence(&error) => {
                        silence.lasts(self.counted.bytes, &mut wait)?;
                    }
                    Some(error) => return Err(error),
                    None => return Err(io::Error::new(ErrorKind::InvalidData, malformed)),
                },
            }
        }
        Ok(replies)
    }

    fn send(
        &mut self,
        mut bytes: &[u8],
        silence: &mut Silence,
        wait: &mut Wait<'_>,
    ) -> io::Result<()> {
        let is_over = |error: &io::Error| !is_silence(error);
        while !bytes.is_empty() {
            match self.counted.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.counted.bytes += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if is_over(&error) => return Err(error),
                Err(_) => silence.lasts(self.counted.bytes, wait)?,
            }
        }
        loop {
            match self.counted.stream.flush() {
                Err(error) if is_over(&error) => return Err(error),
                Err(_) => silence.lasts(self.counted.bytes, wait)?,
                Ok(()) => return Ok(()),
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
    seen: u64,
}

impl Silence {
    /// A slice is over without a byte, or with a part of a reply.
    fn lasts(&mut self, bytes: u64, wait: &mut Wait<'_>) -> io::Result<()> {
        if bytes != self.seen {
            (self.seen, self.since) = (bytes, Instant::now());
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

fn connect(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut last = None;
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SLICE.min(limit)))?;
                stream.set_write_timeout(Some(SLICE.min(limit)))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn ask(
        parts: Vec<&'static [u8]>,
        ask: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Vec<Value>> {
        let mut connection = Connection::on(Box::new(Parts(parts.into_iter(), false)));
        let wait = Wait { limit: Duration::from_secs(3_600), doubt: Duration::ZERO, ask };
        connection.ask(b"words", 2, wait)
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
}
