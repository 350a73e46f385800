//! The end of a connection: its reasons, the final error reply, and the release of memory.

use std::os::fd::AsRawFd;

use rustix::net::Shutdown;

use super::Connection;
use crate::command::operation::OUT_OF_MEMORY;
use crate::resp::{ProtocolError, reply};
use crate::server::dispatch::Thread;

/// Why a connection ends.
pub(super) enum LastWords {
    /// The input is not a valid request.
    Protocol(ProtocolError),
    /// There was no memory for the input.
    OutOfMemory,
}

impl Connection {
    /// The peer has closed its direction; requests that it sent before are still answered.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// The server stops: only input that the kernel has already received is still processed.
    pub(crate) fn stop(&mut self) {
        let left = rustix::io::ioctl_fionread(&self.socket).unwrap_or(0);
        self.left = Some(usize::try_from(left).unwrap_or(usize::MAX));
        self.has_ended |= left == 0;
    }

    /// Sends the end of the stream. Returns whether the peer has acknowledged everything. Only then
    /// can the socket be closed without loss: closing it with unread input resets the connection
    /// and discards unacknowledged output.
    pub(crate) fn part(&mut self) -> bool {
        if !self.has_parted {
            self.has_parted = true;
            // If the shutdown fails, the peer no longer exists.
            self.is_broken |= rustix::net::shutdown(&self.socket, Shutdown::Write).is_err();
        }
        let mut unsent: libc::c_int = 0;
        // SAFETY: the socket is open, and the request writes one int.
        let told = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
        self.is_broken || told != 0 || unsent == 0
    }

    /// The connection is broken: it can neither send nor receive.
    pub(crate) fn fail(&mut self) {
        self.is_broken = true;
    }

    /// Whether the connection can be closed, because it is broken, or is ending with all replies
    /// sent.
    pub(crate) fn is_over(&self) -> bool {
        let is_owed = self.is_awaited() || !self.output.is_empty() || !self.sending.is_empty();
        self.is_broken || (!is_owed && (self.is_closing || self.has_ended))
    }

    /// Stops processing requests, and writes an error after the pending replies.
    pub(super) fn end_for_want_of_memory(&mut self) {
        self.last_words = Some(LastWords::OutOfMemory);
        self.is_closing = true;
        self.parser.free();
        self.input.clear_or_free();
        if !self.is_awaited() {
            self.say_last_words();
        }
    }

    pub(super) fn say_last_words(&mut self) {
        match self.last_words.take() {
            // The client's byte is written unchanged; the text form of the error would escape it if
            // it is not printable.
            Some(LastWords::Protocol(ProtocolError::Expected(byte))) => {
                self.refuse_with(&[b"ERR Protocol error: expected '$', got '", &[byte], b"'"]);
            }
            Some(LastWords::Protocol(error)) => {
                self.refuse_with(&[b"ERR ", error.to_string().as_bytes()]);
            }
            Some(LastWords::OutOfMemory) => self.refuse(),
            None => {}
        }
    }

    /// Ends the connection with an out-of-memory error.
    pub(super) fn refuse(&mut self) {
        self.refuse_with(&[OUT_OF_MEMORY.as_bytes()]);
    }

    fn refuse_with(&mut self, text: &[&[u8]]) {
        self.last_words = None;
        if !self.session.is_mute() {
            reply::error_of(&mut self.output.bytes, text);
        }
        self.output.settle();
        self.is_closing = true;
        self.input.clear_or_free();
    }

    /// Recycles the connection's memory.
    pub(crate) fn dismantle(self, thread: &mut Thread) {
        thread.shared.roster.forget(self.session.id);
        thread.shared.budget.give(self.parser_bytes);
        if let Some(round) = self.round {
            thread.spare.keep(round);
        }
        [self.input, self.output, self.sending]
            .into_iter()
            .for_each(|buffer| thread.spare.give(buffer));
    }
}
