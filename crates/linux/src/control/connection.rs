//! One client: the lines that it sends, and the output that it has not read yet.
//!
//! Only one answer is kept at a time. While the client has not read it, its further requests stay
//! in the system's buffer.

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::Service;

/// The longest line of a client, with its newline.
pub const LINE_MAX: usize = 4096;
/// The longest answer. A longer one is refused.
pub const OUTPUT_MAX: usize = 8 << 20;
/// A client that reads nothing of its answer for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of the output was sent.
    sent: usize,
    /// When the client last read something, while there is output.
    read_at: Instant,
    /// Close it as soon as the output was sent.
    ends: bool,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Ends,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, greeting: String, now: Instant) -> Connection {
        let (input, output) = (Vec::new(), greeting.into_bytes());
        Connection { stream, input, output, sent: 0, read_at: now, ends: false }
    }

    /// Says a last word and closes the connection.
    pub(super) fn refuse(stream: UnixStream, last: &str) {
        // What does not fit into the system's buffer is lost.
        let _ = send(&stream, last.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }

    /// The events of poll(2) to wait for.
    pub(super) fn wants(&self) -> i16 {
        if self.output.is_empty() { libc::POLLIN } else { libc::POLLOUT }
    }

    /// When the client is dropped if it reads nothing.
    pub(super) fn drop_at(&self) -> Option<Instant> {
        (!self.output.is_empty()).then(|| self.read_at + PATIENCE)
    }

    /// Sends and receives what is possible without waiting.
    pub(super) fn serve(&mut self, service: &dyn Service, now: Instant) -> Fate {
        if !self.flush(now) || self.drop_at().is_some_and(|at| at <= now) {
            return Fate::Ends;
        }
        while self.output.is_empty() {
            if self.ends {
                return Fate::Ends;
            }
            if !self.answer_next(service) {
                match self.receive() {
                    Ok(true) => continue,
                    Ok(false) => return Fate::Stays,
                    Err(()) => return Fate::Ends,
                }
            }
            self.read_at = now;
            if !self.flush(now) {
                return Fate::Ends;
            }
        }
        Fate::Stays
    }

    /// Answers the first complete line. False if there is none.
    fn answer_next(&mut self, service: &dyn Service) -> bool {
        let end = self.input.iter().position(|&byte| byte == b'\n');
        let answer = match end {
            None if self.input.len() < LINE_MAX => return false,
            None => {
                self.ends = true;
                service.refuse(&format!("a line has at most {LINE_MAX} bytes"))
            }
            Some(end) => {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                match std::str::from_utf8(&line[..end]) {
                    Ok(line) => service.answer(line.strip_suffix('\r').unwrap_or(line)),
                    Err(_) => {
                        self.ends = true;
                        service.refuse("a line is UTF-8")
                    }
                }
            }
        };
        self.output = match answer.len() {
            0..=OUTPUT_MAX => answer.into_bytes(),
            _ => {
                service.refuse(&format!("the answer has more than {OUTPUT_MAX} bytes")).into_bytes()
            }
        };
        true
    }

    /// Receives more of a line. False if nothing has arrived; an error if the client is gone.
    fn receive(&mut self) -> Result<bool, ()> {
        let mut buffer = [0; LINE_MAX];
        let room = LINE_MAX - self.input.len().min(LINE_MAX);
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) => Err(()),
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(()),
        }
    }

    /// Sends what the client reads. False if it is gone.
    fn flush(&mut self, now: Instant) -> bool {
        while self.sent < self.output.len() {
            match send(&self.stream, &self.output[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.read_at = now;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        // Frees the memory of a long answer.
        self.output = Vec::new();
        self.sent = 0;
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A child that was forked at the wrong moment may have a copy of the descriptor.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.stream.as_raw_fd()
    }
}

/// As a write, but raises no signal if the client is gone.
fn send(stream: &UnixStream, bytes: &[u8]) -> std::io::Result<usize> {
    // SAFETY: the bytes are live.
    let sent = unsafe {
        libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
