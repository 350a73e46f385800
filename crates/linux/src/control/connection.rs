//! One client: the lines that it sends, and the output that it has not read yet.
//!
//! Only one answer is kept at a time. While the client has not read it, its further requests stay
//! in the system's buffer.

use std::io::{Error, ErrorKind};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::{Service, Session};
use crate::descriptor::OwnDescriptor;

/// The longest line of a client, with its newline.
pub const LINE_MAX: usize = 4096;
/// The longest answer. A longer one is refused.
pub const OUTPUT_MAX: usize = 8 << 20;
/// A client that reads nothing of its answer for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Connection {
    descriptor: OwnDescriptor,
    session: Box<dyn Session>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of the output was sent.
    sent: usize,
    /// When the client last read something of its output.
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
    /// Sends the greeting, which fits into the system's buffer.
    pub(super) fn new(
        descriptor: OwnDescriptor,
        service: &dyn Service,
        now: Instant,
    ) -> Connection {
        let (input, output) = (Vec::new(), service.greeting().into_bytes());
        let (session, sent, read_at, ends) = (service.session(), 0, now, false);
        let mut new = Connection { descriptor, session, input, output, sent, read_at, ends };
        new.flush(now);
        new
    }

    /// Says a last word and closes the connection.
    pub(super) fn refuse(descriptor: OwnDescriptor, last: &str) {
        // What does not fit into the system's buffer is lost.
        let _ = send(&descriptor, last.as_bytes());
    }

    /// The descriptor's number, for a poll(2).
    pub(super) fn number(&self) -> RawFd {
        self.descriptor.number()
    }

    /// The events of poll(2) to wait for.
    pub(super) fn wants(&self) -> i16 {
        if self.output.is_empty() { libc::POLLIN } else { libc::POLLOUT }
    }

    /// Since when the client has read all of its output, and has sent no whole line that is received.
    /// `None` while it has output to read, or something goes on that it has begun.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.output.is_empty() && !self.has_line() && !self.session.is_busy();
        is_idle.then_some(self.read_at)
    }

    /// Says a last word to a client that is idle, and closes the connection.
    pub(super) fn make_room(self, last: &str) {
        let _ = send(&self.descriptor, last.as_bytes());
    }

    /// When the client is dropped if it reads nothing.
    pub(super) fn drop_at(&self) -> Option<Instant> {
        (!self.output.is_empty()).then(|| self.read_at + PATIENCE)
    }

    /// Whether a request has been received that has its answer in the next turn.
    pub(super) fn is_due(&self) -> bool {
        self.output.is_empty() && self.has_line()
    }

    /// Whether a line has been received as a whole, or is too long.
    fn has_line(&self) -> bool {
        self.input.contains(&b'\n') || self.input.len() >= LINE_MAX
    }

    /// A turn of this client: sends and receives what is possible without waiting, and answers one
    /// request. After it a further request is due, or none has arrived, or the client has output to
    /// read.
    pub(super) fn serve(&mut self, service: &dyn Service, now: Instant) -> Fate {
        if !self.flush(now) || self.drop_at().is_some_and(|at| at <= now) {
            return Fate::Ends;
        }
        let mut is_answered = false;
        while self.output.is_empty() {
            match self.has_line() {
                _ if self.ends => return Fate::Ends,
                true if is_answered => break,
                true => {
                    self.answer_next(service);
                    (is_answered, self.read_at) = (true, now);
                    if !self.flush(now) {
                        return Fate::Ends;
                    }
                }
                false => match self.receive() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(()) => return Fate::Ends,
                },
            }
        }
        Fate::Stays
    }

    /// Answers the first line, which [`Connection::has_line`] has found.
    fn answer_next(&mut self, service: &dyn Service) {
        let end = self.input.iter().position(|&byte| byte == b'\n');
        let answer = match end {
            None => {
                self.ends = true;
                service.refuse(&format!("a line has at most {LINE_MAX} bytes"))
            }
            Some(end) => {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                match std::str::from_utf8(&line[..end]) {
                    Ok(line) => self.session.answer(line.strip_suffix('\r').unwrap_or(line)),
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
    }

    /// Receives more of a line. False if nothing has arrived; an error if the client is gone.
    fn receive(&mut self) -> Result<bool, ()> {
        let mut buffer = [0; LINE_MAX];
        let room = LINE_MAX - self.input.len().min(LINE_MAX);
        match receive(&self.descriptor, &mut buffer[..room]) {
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
            match send(&self.descriptor, &self.output[self.sent..]) {
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
        // A child that was made without fork handlers may have a copy of the descriptor.
        if let Some(number) = self.descriptor.get() {
            // SAFETY: no pointers.
            unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
        }
    }
}

/// The number of a client's descriptor, unless the program has closed it.
fn number(client: &OwnDescriptor) -> Result<RawFd, Error> {
    client.get().ok_or_else(|| Error::from(ErrorKind::NotConnected))
}

fn transferred(bytes: isize) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| Error::last_os_error())
}

/// As a write, but raises no signal if the client is gone.
fn send(client: &OwnDescriptor, bytes: &[u8]) -> Result<usize, Error> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the bytes are live.
    transferred(unsafe { libc::send(number(client)?, bytes.as_ptr().cast(), bytes.len(), flags) })
}

fn receive(client: &OwnDescriptor, buffer: &mut [u8]) -> Result<usize, Error> {
    let (into, size) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the buffer is live and of the given length.
    transferred(unsafe { libc::recv(number(client)?, into, size, libc::MSG_DONTWAIT) })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
