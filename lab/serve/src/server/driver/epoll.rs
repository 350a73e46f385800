//! The epoll driver, used if the kernel lacks io_uring or refuses it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};
use uwork::task::{self, Notifier};

use super::{Driver, Event, Sent, Token};
use crate::server::config::Notify;

/// Maximum number of events taken from the kernel in one call.
const EVENTS_MAX: usize = 256;
/// Maximum number of connections accepted in a turn; the next turn accepts more.
const ACCEPTED_MAX: usize = 64;
/// Maximum number of bytes received in one call.
const BYTES_MAX: usize = 64 * 1024;
/// The listener's user data, in place of a token.
const LISTENER: u64 = u64::MAX;
const NOTIFIER: u64 = u64::MAX - 1;

/// The state of a registered connection.
#[derive(Clone, Copy)]
struct Registered {
    /// Open until [`Event::Gone`] is reported.
    socket: RawFd,
    receives: bool,
    sends: bool,
    /// Its end or its failure was reported.
    is_over: bool,
    /// Removed from the epoll set: both directions have ended, and epoll would report that forever,
    /// whatever flags are set.
    is_deaf: bool,
}

/// See the module.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    /// `None` if threads are notified by signals.
    notifier: Option<Notifier>,
    connections: Vec<Option<Registered>>,
    /// Open as long as it is registered.
    listener: Option<RawFd>,
    /// How many more connections this turn may accept.
    accepts: usize,
    ready: Vec<libc::epoll_event>,
    /// How many entries of `ready` are processed.
    at: usize,
    told: VecDeque<Event>,
    bytes: Box<[u8]>,
    received: usize,
}

impl Epoll {
    /// Creates a driver for the calling thread.
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
        // SAFETY: the connection's socket is open until `Gone` is reported, and no entry exists
        // after that.
        let socket = unsafe { BorrowedFd::borrow_raw(registered.socket) };
        // `modify` can only fail for lack of memory, which is treated as a failure of the
        // connection.
        if epoll::modify(&self.epoll, socket, EventData::new_u64(token as u64), flags).is_err() {
            self.told.push_back(Event::Broken(token));
        }
    }

    /// Accepts a waiting connection, if there is one.
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

    /// Removes a connection from the epoll set whose receiving direction was over before. Reports
    /// it as broken only if the socket has an error: after an orderly close of both directions,
    /// output may still be pending.
    fn hung_up(&mut self, token: Token) -> Option<Event> {
        let registered = self.connections.get_mut(token).and_then(Option::as_mut)?;
        // SAFETY: as in `change`.
        let socket = unsafe { BorrowedFd::borrow_raw(registered.socket) };
        if !std::mem::replace(&mut registered.is_deaf, true) {
            // The socket is registered, so this cannot fail.
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
            // The listener is registered, so this cannot fail.
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
            // The socket is registered, so this cannot fail.
            let _ = epoll::delete(&self.epoll, socket);
        }
        self.told.push_back(Event::Gone(token));
    }

    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        let most = if self.told.is_empty() { most } else { Some(Duration::ZERO) };
        // Rounded up, so that the deadline has passed when the wait times out.
        let round = |most: Duration| most.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        let timeout_ms = most.map_or(-1, round);
        let (epoll, events) = (self.epoll.as_fd().as_raw_fd(), self.ready.as_mut_ptr());
        let wait = || {
            // SAFETY: the buffer has room for EVENTS_MAX events, and no other code accesses it
            // during the call.
            let count = unsafe { libc::epoll_wait(epoll, events, EVENTS_MAX as i32, timeout_ms) };
            usize::try_from(count).map_err(|_| io::Error::last_os_error())
        };
        let count = match &self.notifier {
            Some(notifier) => notifier.wait(wait).unwrap_or(Ok(0)),
            None => {
                let events = events.expose_provenance();
                let epoll = epoll as usize;
                let arguments = [epoll, events, EVENTS_MAX, timeout_ms as usize, 0, 0];
                // SAFETY: as above; the signal mask is null.
                unsafe { task::syscall(libc::SYS_epoll_pwait, arguments) }
            }
        };
        let count = match count {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            count => count?,
        };
        // SAFETY: the kernel has initialized `count` events.
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

    /// A driver with one connection that has reported the end of the peer's stream, and the peer.
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

    /// The event of the next wait, which returns as soon as there is one.
    fn next(driver: &mut Epoll) -> Option<Event> {
        driver.wait(None).unwrap();
        driver.next()
    }

    fn has_no_event(driver: &mut Epoll) -> bool {
        driver.wait(Some(Duration::ZERO)).unwrap();
        driver.ready.is_empty() && driver.next().is_none()
    }

    #[test]
    fn a_reset_after_a_half_close_is_reported_once() {
        let (mut driver, socket, other) = half_closed();
        assert!(has_no_event(&mut driver));
        // Closing a socket with unread input resets the connection.
        rustix::net::send(&socket, b"reply", SendFlags::empty()).unwrap();
        drop(other);
        assert!(matches!(next(&mut driver), Some(Event::Broken(0))));
        assert!(has_no_event(&mut driver));
        driver.remove(0, socket.as_fd());
        assert!(matches!(driver.next(), Some(Event::Gone(0))));
    }

    #[test]
    fn an_orderly_close_of_both_directions_wakes_no_thread_and_is_not_an_error() {
        let (mut driver, socket, _other) = half_closed();
        rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap();
        assert!(next(&mut driver).is_none());
        assert!(has_no_event(&mut driver));
        driver.remove(0, socket.as_fd());
        assert!(matches!(driver.next(), Some(Event::Gone(0))));
    }
}
