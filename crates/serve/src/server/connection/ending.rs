//! The end of a connection: why it comes, what is said, and what is given back.

use std::os::fd::AsRawFd;

use rustix::net::Shutdown;

use super::Connection;
use crate::command::operation::OUT_OF_MEMORY;
use crate::resp::{ProtocolError, reply};
use crate::server::dispatch::Thread;

/// Why a connection ends.
pub(super) enum LastWords {
    /// The input is no request.
    Protocol(ProtocolError),
    /// There was no room for what arrived.
    OutOfMemory,
}

impl Connection {
    /// The other side sends no more; what it has sent is still answered.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// The server stops: what the system has received for it by now is the last that is looked at.
    pub(crate) fn stop(&mut self) {
        let left = rustix::io::ioctl_fionread(&self.socket).unwrap_or(0);
        self.left = Some(usize::try_from(left).unwrap_or(usize::MAX));
        self.has_ended |= left == 0;
    }

    /// Tells the other side that all was sent. Whether it has got everything: only then can the socket be closed
    /// without a loss, as more may have arrived that was not looked at.
    pub(crate) fn part(&mut self) -> bool {
        if !self.has_parted {
            self.has_parted = true;
            // Where that fails there is nobody to wait for.
            self.is_broken |= rustix::net::shutdown(&self.socket, Shutdown::Write).is_err();
        }
        let mut unsent: libc::c_int = 0;
        // SAFETY: the socket is open, and the request writes one int.
        let told = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
        self.is_broken || told != 0 || unsent == 0
    }

    /// Nothing can be sent or received any more.
    pub(crate) fn fail(&mut self) {
        self.is_broken = true;
    }

    /// Whether all is said and done, so that it can be closed.
    pub(crate) fn is_over(&self) -> bool {
        let is_owed = self.is_awaited() || !self.output.is_empty() || !self.sending.is_empty();
        self.is_broken || (!is_owed && (self.is_closing || self.has_ended))
    }

    /// No more requests, and an error once the replies that are owed are out.
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
            // As it came, where the text has what can be printed only.
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

    /// Ends the connection for want of memory.
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

    /// Gives its memory back for the next use.
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
