//! The io_uring driver: one system call for everything that a turn receives and sends.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::net::Shutdown;
use uwork::ring::{Buffer, Completion, Reactor, TOKEN_MAX};

use super::{Driver, Event, Sent, Token};

/// Maximum number of operations submitted at once.
const ENTRIES: u32 = 1024;
/// The number of receive buffers, and their size in bytes: 4 MiB for each thread.
const BUFFERS: u16 = 256;
const BUFFER_BYTES: u32 = 16 * 1024;
/// Larger outputs do not fit into a socket buffer at once, so their completion is always requested.
const SILENT_MAX: usize = 1 << 20;
/// The listener's token; each connection has two tokens.
const ACCEPT: u64 = TOKEN_MAX;

/// Results of an operation that was cancelled, or that ended only for the moment.
const NO_BUFFERS: i32 = libc::ENOBUFS;
const CANCELLED: i32 = libc::ECANCELED;
const AGAIN: [i32; 2] = [libc::EAGAIN, libc::EINTR];

fn receiving(token: Token) -> u64 {
    token as u64 * 2
}

fn sending(token: Token) -> u64 {
    token as u64 * 2 + 1
}

/// The operations in progress for a connection.
#[derive(Clone, Copy)]
struct Ongoing {
    /// Open until [`Event::Gone`] is reported.
    socket: RawFd,
    is_receiving: bool,
    is_sending: bool,
    /// Length of the send in progress, in bytes.
    asked: usize,
    /// The send posts a completion only if it does not send all bytes.
    is_silent: bool,
    /// The socket did not take all bytes, so the next send waits for room.
    is_full: bool,
    /// Whether to start another receive when the current one ends.
    wants: bool,
    is_removed: bool,
}

/// See the module.
pub(crate) struct Ring {
    reactor: Reactor,
    connections: Vec<Option<Ongoing>>,
    listener: Option<RawFd>,
    told: VecDeque<Event>,
    /// Connections with silent sends, in the order of submission.
    silent: Vec<Token>,
    /// Some silent sends were not submitted by the last submission.
    is_behind: bool,
    received: Option<Buffer>,
}

impl Ring {
    /// Creates a driver for the calling thread.
    pub(crate) fn new() -> io::Result<Self> {
        let reactor = Reactor::builder().entries(ENTRIES).buffers(BUFFERS, BUFFER_BYTES).build()?;
        Ok(Self {
            reactor,
            connections: Vec::new(),
            listener: None,
            told: VecDeque::new(),
            silent: Vec::new(),
            is_behind: false,
            received: None,
        })
    }

    fn ongoing(&mut self, token: Token) -> Option<&mut Ongoing> {
        self.connections.get_mut(token).and_then(Option::as_mut)
    }

    /// Starts to receive, if wanted and not in progress already.
    fn receive(&mut self, token: Token) {
        let Some(ongoing) = self.ongoing(token) else { return };
        if ongoing.is_receiving || !ongoing.wants || ongoing.is_removed {
            return;
        }
        ongoing.is_receiving = true;
        // SAFETY: the connection's socket is open until `Gone` is reported, and no entry exists
        // after that.
        let socket = unsafe { BorrowedFd::borrow_raw(ongoing.socket) };
        if self.reactor.recv_multi(&socket, receiving(token)).is_err() {
            self.ended(token, |ongoing| ongoing.is_receiving = false);
            self.told.push_back(Event::Broken(token));
        }
    }

    /// Notes the end of an operation. After the last operation of a removed connection, reports
    /// `Gone`.
    fn ended(&mut self, token: Token, change: impl FnOnce(&mut Ongoing)) {
        let Some(ongoing) = self.ongoing(token) else { return };
        change(ongoing);
        if ongoing.is_removed && !ongoing.is_receiving && !ongoing.is_sending {
            self.connections[token] = None;
            self.told.push_back(Event::Gone(token));
        }
    }

    fn accepted(&mut self, completion: Completion) -> Option<Event> {
        let more = completion.more();
        match completion.into_fd() {
            Ok(socket) => {
                if let (false, Some(listener)) = (more, self.listener) {
                    // SAFETY: the listener is open as long as it is recorded here.
                    let listener = unsafe { BorrowedFd::borrow_raw(listener) };
                    if let Err(error) = self.reactor.accept_multi(&listener, ACCEPT) {
                        self.told.push_back(Event::NotAccepted(error));
                    }
                }
                Some(Event::Accepted(socket))
            }
            Err(error) if error.raw_os_error() == Some(CANCELLED) => None,
            Err(error) => Some(Event::NotAccepted(error)),
        }
    }

    fn was_received(&mut self, token: Token, completion: Completion) -> Option<Event> {
        let (result, more) = (completion.result(), completion.more());
        let buffer = completion.into_buffer();
        let event = match result {
            Ok(0) => Some(Event::Ended(token)),
            Ok(_) => {
                self.received = buffer;
                Some(Event::Received(token))
            }
            Err(error) => match error.raw_os_error() {
                Some(NO_BUFFERS | CANCELLED) => None,
                Some(error) if AGAIN.contains(&error) => None,
                _ => Some(Event::Broken(token)),
            },
        };
        let is_over = matches!(event, Some(Event::Ended(_) | Event::Broken(_)));
        if !more {
            self.ended(token, |ongoing| {
                ongoing.is_receiving = false;
                ongoing.wants &= !is_over;
            });
            self.receive(token);
        }
        event
    }

    fn was_sent(&mut self, token: Token, completion: Completion) -> Option<Event> {
        let sent = match completion.result() {
            Ok(sent) => sent as usize,
            Err(error) => {
                if !error.raw_os_error().is_some_and(|error| AGAIN.contains(&error)) {
                    self.told.push_back(Event::Broken(token));
                }
                0
            }
        };
        self.sent(token, sent);
        None
    }

    fn sent(&mut self, token: Token, sent: usize) {
        // `Sent` must precede `Gone`, which `ended` may add.
        self.told.push_back(Event::Sent(token, sent));
        self.ended(token, |ongoing| {
            ongoing.is_full = sent < ongoing.asked;
            (ongoing.is_sending, ongoing.is_silent) = (false, false);
        });
    }

    /// Reports the silent sends as sent. Called after all completions are processed: a silent send
    /// without a completion has sent all its bytes.
    fn end_silent(&mut self) {
        self.is_behind = !self.silent.is_empty() && !self.reactor.all_submitted();
        if self.is_behind {
            return;
        }
        let mut silent = std::mem::take(&mut self.silent);
        for token in silent.drain(..) {
            if let Some(&mut Ongoing { is_silent: true, asked, .. }) = self.ongoing(token) {
                self.sent(token, asked);
            }
        }
        self.silent = silent;
    }
}

impl Driver for Ring {
    const NAME: &'static str = "io_uring";

    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<()> {
        self.listener = Some(listener.as_raw_fd());
        self.reactor.accept_multi(&listener, ACCEPT)
    }

    fn refuse(&mut self, _: BorrowedFd<'_>) {
        self.listener = None;
        // If the submission queue has no room, the next connection is accepted and closed.
        let _ = self.reactor.cancel_accept(ACCEPT);
        let _ = self.reactor.submit();
    }

    fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()> {
        if token >= self.connections.len() {
            self.connections.resize(token + 1, None);
        }
        self.connections[token] = Some(Ongoing {
            socket: socket.as_raw_fd(),
            is_receiving: false,
            is_sending: false,
            asked: 0,
            is_silent: false,
            is_full: false,
            wants: true,
            is_removed: false,
        });
        self.receive(token);
        Ok(())
    }

    fn pause(&mut self, token: Token, _: BorrowedFd<'_>) {
        let Some(ongoing) = self.ongoing(token) else { return };
        ongoing.wants = false;
        if ongoing.is_receiving {
            // If the submission queue has no room, some more bytes are received than intended.
            let _ = self.reactor.cancel_recv(receiving(token));
        }
    }

    fn resume(&mut self, token: Token, _: BorrowedFd<'_>) {
        if let Some(ongoing) = self.ongoing(token) {
            ongoing.wants = true;
        }
        self.receive(token);
    }

    unsafe fn send(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        is_awaited: bool,
    ) -> io::Result<Sent> {
        let is_full = self.ongoing(token).is_some_and(|ongoing| ongoing.is_full);
        let is_silent = !is_full && !is_awaited && bytes.len() <= SILENT_MAX;
        // SAFETY: by this function's contract the bytes stay valid; `Sent` reports the end of the
        // operation.
        unsafe {
            if is_silent {
                self.reactor.try_send(&socket, bytes, sending(token))?;
                self.silent.push(token);
            } else {
                self.reactor.send(&socket, bytes, sending(token))?;
            }
        }
        if let Some(ongoing) = self.ongoing(token) {
            (ongoing.is_sending, ongoing.asked, ongoing.is_silent) = (true, bytes.len(), is_silent);
        }
        Ok(Sent::Later)
    }

    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>) {
        let Some(ongoing) = self.ongoing(token) else { return };
        ongoing.is_removed = true;
        let Ongoing { is_receiving, is_sending, .. } = *ongoing;
        let reactor = &mut self.reactor;
        let is_refused = (is_receiving && reactor.cancel_recv(receiving(token)).is_err())
            || (is_sending && reactor.cancel(sending(token)).is_err());
        if is_refused {
            // If the submission queue has no room, a shutdown of the socket ends the operations
            // instead. It fails if the peer has closed the connection; then the operations end by
            // themselves.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        self.ended(token, |_| ());
    }

    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        if self.told.is_empty() && !self.is_behind {
            self.reactor.wait(most).map(drop)
        } else {
            self.reactor.submit()
        }
    }

    fn next(&mut self) -> Option<Event> {
        self.received = None;
        loop {
            if let Some(event) = self.told.pop_front() {
                return Some(event);
            }
            let Some(completion) = self.reactor.next() else {
                self.end_silent();
                return self.told.pop_front();
            };
            let token = (completion.token() / 2) as Token;
            let event = match completion.token() {
                ACCEPT => self.accepted(completion),
                operation if operation == sending(token) => self.was_sent(token, completion),
                _ => self.was_received(token, completion),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        self.received.as_deref().unwrap_or_default()
    }
}
