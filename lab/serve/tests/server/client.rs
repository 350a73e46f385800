//! Servers to test, and a client that checks every byte.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use uwork_serve::{Config, ForeignKeys, Io, Notify, Receiver, Replies, Server, Spares};

use crate::address::Address;
use crate::patience::{Patience, until};

/// How often a read checks for progress.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A write that takes longer is a hang, whatever the process does.
const WRITE_MAX: Duration = Duration::from_secs(600);

/// Reads from a socket whose timeout is [`LOOK_EVERY`], until bytes arrive or the process makes no
/// progress.
pub(crate) struct Patient<R>(pub(crate) R);

impl<R: Read> Read for Patient<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut patience = Patience::new();
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    patience.look().map_err(|hang| io::Error::other(hang.to_string()))?;
                }
                outcome => return outcome,
            }
        }
    }
}

/// A configuration with a free port and few threads.
pub(crate) fn config(threads: usize) -> Config {
    Config { address: "127.0.0.1:0".parse().unwrap(), threads, ..Config::default() }
}

/// The same at an address where nothing listens when the server has ended.
pub(crate) fn at(address: &Address, config: Config) -> Config {
    Config { address: address.socket(), ..config }
}

/// The configurations that must not change the server's replies.
pub(crate) fn configs() -> Vec<Config> {
    vec![
        config(1),
        config(3),
        Config { io: Io::Epoll, ..config(2) },
        Config { notify: Notify::Signal, foreign_keys: ForeignKeys::HandedOver, ..config(3) },
        Config { io: Io::Epoll, notify: Notify::Signal, ..config(2) },
        Config { receiver: Receiver::Dedicated, ..config(2) },
        Config { receiver: Receiver::Dedicated, io: Io::Epoll, ..config(1) },
        Config { receiver: Receiver::Dedicated, replies: Replies::Locked, ..config(2) },
        Config { receiver: Receiver::Dedicated, replies: Replies::Returned, ..config(2) },
        Config { foreign_keys: ForeignKeys::HandedOver, ..config(3) },
        Config { foreign_keys: ForeignKeys::HandedOver, io: Io::Epoll, ..config(2) },
        Config { spares: Spares::Freed, foreign_keys: ForeignKeys::HandedOver, ..config(2) },
    ]
}

pub(crate) fn start(config: Config) -> Server {
    Server::start(config).unwrap()
}

/// Calls the test with a server of each configuration, and passes its name for messages.
pub(crate) fn with_each(test: impl Fn(&Server)) {
    for config in configs() {
        eprintln!("with {config:?}");
        let server = start(config);
        test(&server);
        server.stop().unwrap();
    }
}

/// A client connection.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        stream.set_write_timeout(Some(WRITE_MAX)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// A reader of the connection's bytes.
    pub(crate) fn bytes(&self) -> Patient<&TcpStream> {
        Patient(&self.0)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Waits until the server's side of the connection has received everything that was sent.
    pub(crate) fn wait_until_delivered(&self) {
        until("the server has received the requests", || {
            let mut unsent: libc::c_int = 1;
            let socket = self.0.as_raw_fd();
            // SAFETY: the socket is open, and the request writes one int.
            let outcome = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut unsent) };
            assert_eq!(outcome, 0);
            unsent == 0
        });
    }

    /// Whether bytes, or the end of the connection, have arrived.
    pub(crate) fn has_input(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let peeked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).unwrap();
        !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Reads bytes, which must equal `expected`.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        let mut len = 0;
        while len < got.len() && expected.starts_with(&got[..len]) {
            match self.bytes().read(&mut got[len..]) {
                Ok(0) => break,
                Ok(bytes) => len += bytes,
                Err(error) => panic!("{error} after '{}'", got[..len].escape_ascii()),
            }
        }
        let got = &got[..len];
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(300)].escape_ascii().to_string();
        assert!(got == expected, "'{}' instead of '{}'", shown(got), shown(expected));
    }

    /// Sends the request, and reads bytes that must equal `reply`.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(reply);
    }

    /// Reads a line; returns it without its end.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.line_or_end().expect("the connection has ended")
    }

    /// Reads a line. `None` at the end of the connection.
    #[track_caller]
    pub(crate) fn line_or_end(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            match self.bytes().read(&mut byte) {
                Ok(0) => return None,
                Ok(_) => line.push(byte[0]),
                Err(error) if is_closed(&error) => return None,
                Err(error) => panic!("{error} after '{}'", line.escape_ascii()),
            }
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8(line).unwrap())
    }

    /// Reads a bulk string.
    pub(crate) fn bulk(&mut self) -> Vec<u8> {
        let header = self.line();
        let len: usize = header.strip_prefix('$').expect("a bulk string").parse().unwrap();
        let mut bytes = vec![0; len + 2];
        self.bytes().read_exact(&mut bytes).unwrap();
        assert!(bytes.ends_with(b"\r\n"));
        bytes.truncate(len);
        bytes
    }

    /// The bytes up to the end of the connection, whether closed or reset.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.bytes().read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if is_closed(&error) => {}
            Err(error) => panic!("not closed: {error}"),
        }
        bytes
    }

    pub(crate) fn sends_no_more(&self) {
        match self.0.shutdown(Shutdown::Write) {
            // The server has closed the connection first.
            Err(error) if error.kind() == ErrorKind::NotConnected => {}
            outcome => outcome.unwrap(),
        }
    }
}

pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// A request in the form that client libraries send: an array of bulk strings.
pub(crate) fn request<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.as_ref().len()).bytes());
        bytes.extend_from_slice(arg.as_ref());
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A number from `INFO`.
pub(crate) fn info(client: &mut Client, name: &str) -> u64 {
    client.send("INFO\r\n");
    let text = String::from_utf8(client.bulk()).unwrap();
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix)).expect("the figure");
    line.parse().unwrap()
}

/// Waits until a number from `INFO` is as wanted.
#[track_caller]
pub(crate) fn wait_for_info(client: &mut Client, name: &str, is_reached: impl Fn(u64) -> bool) {
    let mut last = 0;
    until(&format!("{name} is as wanted"), || {
        last = info(client, name);
        is_reached(last)
    });
}
