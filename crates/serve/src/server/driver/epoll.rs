//! epoll: the driver where the kernel has no io_uring, or refuses it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};
use uwork::task::{self, Notifier};

use super::{Driver, Event, Sent, Token};
use crate::server::config::Notify;

/// Events that are taken from the system at once.
const EVENTS_MAX: usize = 256;
/// Connections that are accepted in a turn; the others come with the next one.
const ACCEPTED_MAX: usize = 64;
/// Bytes that are received at once.
const BYTES_MAX: usize = 64 * 1024;
/// In place of a token.
const LISTENER: u64 = u64::MAX;
const NOTIFIER: u64 = u64::MAX - 1;

/// What is registered for a connection.
#[derive(Clone, Copy)]
struct Registered {
    /// Open until [`Event::Gone`] is told.
    socket: RawFd,
    receives: bool,
    sends: bool,
    /// Its end, or its failure, was told.
    is_over: bool,
    /// Both sides have ended: the system would tell it again and again, whatever is asked for.
    is_deaf: bool,
}

/// See the module.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    /// `None` where signals tell the thread.
    notifier: Option<Notifier>,
    connections: Vec<Option<Registered>>,
    /// Open as long as it is registered.
    listener: Option<RawFd>,
    /// So many connections more may be accepted now, if there are any.
    accepts: usize,
    ready: Vec<libc::epoll_event>,
    /// How many of `ready` have been looked at.
    at: usize,
    told: VecDeque<Event>,
    bytes: Box<[u8]>,
    received: usize,
}

impl Epoll {
    /// A driver of the calling thread's.
    pub(crate) fn new(notify: Notify) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let notifier = match notify {
            Notify::Light => Some(task::notifier()?),
            Notify::Signal => None,
        };
        if let Some(notifier) = &notifier {
            epoll::add(&epoll, notifier, EventData::new_u64(NOTIFIER), EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            notifier,
            connections: Vec::new(),
            listener: None,
            accepts: 0,
            ready: Vec::with_capacity(EVENTS_MAX),
            at: 0,
            told: VecDeque::new(),
            bytes: vec![0; BYTES_MAX].into_boxed_slice(),
            received: 0,
        })
    }

    fn change(&mut self, token: Token, change: impl FnOnce(&mut Registered)) {
        let Some(registered) = self.connections.get_mut(token).and_then(Option::as_mut) else {
            return;
        };
        change(registered);
        let Registered { receives, sends, is_deaf, .. } = *registered;
        if is_deaf {
            return;
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, receives);
        flags.set(EventFlags::OUT, sends);
        // SAFETY: the connection's socket is open until `Gone` was told, and then there is no entry.
        let socket = unsafe { BorrowedFd::borrow_raw(registered.socket) };
        // It can fail only for want of memory; then it is as if the connection had failed.
        if epoll::modify(&self.epoll, socket, EventData::new_u64(token as u64), flags).is_err() {
            self.told.push_back(Event::Broken(token));
        }
    }

    /// A connection that waits, if any does.
    fn accept_next(&mut self) -> Option<Event> {
        self.accepts = self.accepts.checked_sub(1)?;
        // SAFETY: the listener is open as long as it is registered.
        let listener = unsafe { BorrowedFd::borrow_raw(self.listener?) };
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Some(Event::Accepted(socket)),
            Err(error) => {
                self.accepts = 0;
                let error = io::Error::from(error);
                let is_passing = matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                );
                (!is_passing).then_some(Event::NotAccepted(error))
            }
        }
    }

    fn receive(&mut self, token: Token, failed: bool) -> Option<Event> {
        let registered = self.connections.get(token).copied().flatten()?;
        if registered.is_over && failed {
            return self.hung_up(token);
        }
        if registered.is_over || (!registered.receives && !failed) {
            return None;
        }
        // SAFETY: as in `change`.
        let socket = unsafe { BorrowedFd::borrow_raw(registered.socket) };
        let event = match rustix::net::recv(socket, &mut self.bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Event::Ended(token),
            Ok((_, received)) => {
                self.received = received;
                return Some(Event::Received(token));
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if !failed => return None,
            Err(_) => Event::Broken(token),
        };
        self.change(token, |registered| {
            (registered.receives, registered.is_over) = (false, true);
        });
        Some(event)
    }

    /// Hears no more of a connection that was over in this direction before. Broken only where there is an error: two
    /// sides that have ended in order may have something to send still.
    fn hung_up(&mut self, token: Token) -> Option<Event> {
        let registered = self.connections.get_mut(token).and_then(Option::as_mut)?;
        // SAFETY: as in `change`.
        let socket = unsafe { BorrowedFd::borrow_raw(registered.socket) };
        if !std::mem::replace(&mut registered.is_deaf, true) {
            // It is registered, so this does not fail.
            let _ = epoll::delete(&self.epoll, socket);
        }
        let is_broken = !matches!(sockopt::socket_error(socket), Ok(Ok(())));
        is_broken.then_some(Event::Broken(token))
    }

    fn look(&mut self, ready: libc::epoll_event) -> Option<Event> {
        let libc::epoll_event { events, u64: data } = ready;
        if data == LISTENER {
            self.accepts = ACCEPTED_MAX;
            return None;
        }
        if data == NOTIFIER {
            return None;
        }
        let token = data as Token;
        let failed = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        if events & libc::EPOLLOUT as u32 != 0 {
            self.change(token, |registered| registered.sends = false);
            self.told.push_back(Event::Sent(token, 0));
        }
        if failed || events & libc::EPOLLIN as u32 != 0 {
            return self.receive(token, failed);
        }
        None
    }
}

impl Driver for Epoll {
    const NAME: &'static str = "epoll";

    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(&self.epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        self.listener = Some(listener.as_raw_fd());
        Ok(())
    }

    fn refuse(&mut self, listener: BorrowedFd<'_>) {
        if self.listener.take().is_some() {
            // It is registered, so this does not fail.
            let _ = epoll::delete(&self.epoll, listener);
        }
    }

    fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token as u64), EventFlags::IN)?;
        if token >= self.connections.len() {
            self.connections.resize(token + 1, None);
        }
        let socket = socket.as_raw_fd();
        self.connections[token] = Some(Registered {
            socket,
            receives: true,
            sends: false,
            is_over: false,
            is_deaf: false,
        });
        Ok(())
    }

    fn pause(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.change(token, |registered| registered.receives = false);
    }

    fn resume(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.change(token, |registered| registered.receives = !registered.is_over);
    }

    unsafe fn send(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        _: bool,
    ) -> io::Result<Sent> {
        match rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(Sent::Now(sent)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                self.change(token, |registered| registered.sends = true);
                Ok(Sent::Later)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>) {
        let registered = self.connections.get_mut(token).and_then(Option::take);
        if registered.is_some_and(|registered| !registered.is_deaf) {
            // It is registered, so this does not fail.
            let _ = epoll::delete(&self.epoll, socket);
        }
        self.told.push_back(Event::Gone(token));
    }

    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        let most = if self.told.is_empty() { most } else { Some(Duration::ZERO) };
        // Rounded up: at the end of it the time is over.
        let round = |most: Duration| most.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        let timeout_ms = most.map_or(-1, round);
        let (epoll, events) = (self.epoll.as_fd().as_raw_fd(), self.ready.as_mut_ptr());
        let wait = || {
            // SAFETY: there is room for so many events, and nobody else looks at them.
            let count = unsafe { libc::epoll_wait(epoll, events, EVENTS_MAX as i32, timeout_ms) };
            usize::try_from(count).map_err(|_| io::Error::last_os_error())
        };
        let count = match &self.notifier {
            Some(notifier) => notifier.wait(wait).unwrap_or(Ok(0)),
            None => {
                let events = events.expose_provenance();
                let epoll = epoll as usize;
                let arguments = [epoll, events, EVENTS_MAX, timeout_ms as usize, 0, 0];
                // SAFETY: as above; there is no mask of signals.
                unsafe { task::syscall(libc::SYS_epoll_pwait, arguments) }
            }
        };
        let count = match count {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            count => count?,
        };
        // SAFETY: the system has written so many.
        unsafe { self.ready.set_len(count) };
        self.at = 0;
        Ok(())
    }

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Some(event);
            }
            if let Some(event) = self.accept_next() {
                return Some(event);
            }
            let ready = *self.ready.get(self.at)?;
            self.at += 1;
            if let Some(event) = self.look(ready) {
                return Some(event);
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.received]
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// A driver with one connection, of which it has told that the other side has ended; and the other side.
    fn half_closed() -> (Epoll, OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = OwnedFd::from(listener.accept().unwrap().0);
        let mut driver = Epoll::new(Notify::Light).unwrap();
        driver.add(0, socket.as_fd()).unwrap();
        other.shutdown(Shutdown::Write).unwrap();
        assert!(matches!(next(&mut driver), Some(Event::Ended(0))));
        (driver, socket, other)
    }

    /// What the next wait brings, which ends as soon as the system has something to tell.
    fn next(driver: &mut Epoll) -> Option<Event> {
        driver.wait(None).unwrap();
        driver.next()
    }

    fn has_nothing_to_tell(driver: &mut Epoll) -> bool {
        driver.wait(Some(Duration::ZERO)).unwrap();
        driver.ready.is_empty() && driver.next().is_none()
    }

    #[test]
    fn a_reset_behind_a_half_close_is_told_once() {
        let (mut driver, socket, other) = half_closed();
        assert!(has_nothing_to_tell(&mut driver));
        // With something unread, closing is a reset.
        rustix::net::send(&socket, b"reply", SendFlags::empty()).unwrap();
        drop(other);
        assert!(matches!(next(&mut driver), Some(Event::Broken(0))));
        assert!(has_nothing_to_tell(&mut driver));
        driver.remove(0, socket.as_fd());
        assert!(matches!(driver.next(), Some(Event::Gone(0))));
    }

    #[test]
    fn two_sides_that_have_ended_wake_nobody_and_are_not_broken() {
        let (mut driver, socket, _other) = half_closed();
        rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap();
        assert!(next(&mut driver).is_none());
        assert!(has_nothing_to_tell(&mut driver));
        driver.remove(0, socket.as_fd());
        assert!(matches!(driver.next(), Some(Event::Gone(0))));
    }
}
