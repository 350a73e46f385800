//! The main loop of a server thread. Each turn waits, processes events and messages, and sends
//! replies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use uwork::task;

use super::config::{Config, Receiver};
use super::connection::Connection;
use super::dispatch::Thread;
use super::driver::{Driver, Event, Sent, Token};
use super::failure::Patience;
use super::handover::Item;
use super::listener::BACKLOG;
use super::post::{self, Inbox};
use super::session::Session;
use super::shared::Shared;
use super::slab::Slab;
use crate::resp::Limits;

/// Maximum number of expired keys removed in a turn; the next turn removes more.
const EXPIRED_MAX: usize = 256;
/// Interval of the check for idle connections.
const IDLE_LOOK_MS: u64 = 500;
/// Delay before the next attempt to accept when no descriptors are left.
const ACCEPT_AGAIN_MS: u64 = 50;
/// While the server stops: interval of the check whether the peer has acknowledged all output.
const PART_LOOK_MS: u64 = 2;

/// Delay before a wait that the system refused is retried.
const WAIT_AGAIN: Duration = Duration::from_millis(1);

/// One thread of a server.
pub(crate) struct Reactor<D> {
    driver: D,
    thread: Thread,
    connections: Slab<Connection>,
    /// Connections that may have output, or may be over.
    listed: Vec<Token>,
    inbox: Inbox,
    /// Present in the thread that accepts.
    listener: Option<OwnedFd>,
    accept_at: Option<u64>,
    idle_at: Option<u64>,
    /// When the server must have stopped; set while it stops.
    deadline: Option<u64>,
    /// The stop was requested in this turn.
    has_just_stopped: bool,
    /// Connections that end as soon as the peer has acknowledged all output.
    parting: Vec<Token>,
    is_drained: bool,
    patience: Patience,
}

impl<D: Driver> Reactor<D> {
    pub(crate) fn new(
        driver: D,
        shared: Arc<Shared>,
        index: usize,
        listener: Option<OwnedFd>,
    ) -> Self {
        let thread = Thread::new(shared, index);
        let idle_at = thread.shared.config.idle_max.map(|_| thread.now + IDLE_LOOK_MS);
        Self {
            driver,
            connections: Slab::default(),
            listed: Vec::new(),
            inbox: Inbox::default(),
            accept_at: listener.as_ref().map(|_| thread.now),
            listener,
            idle_at,
            deadline: None,
            has_just_stopped: false,
            parting: Vec::new(),
            is_drained: false,
            patience: Patience::default(),
            thread,
        }
    }

    /// Runs turns until the server has stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        loop {
            let most = self.until_next();
            self.thread.looks_again = false;
            if !self.patience.judge(self.driver.wait(most))? {
                // A resource is exhausted, and no event reports when it is available again.
                std::thread::sleep(WAIT_AGAIN);
            }
            // Moves the messages of task work into the inbox.
            task::run_once();
            self.thread.now = self.thread.shared.now();
            self.thread.spare.yield_to_others();
            self.look_into_inbox();
            while let Some(event) = self.driver.next() {
                self.handle(event);
            }
            if std::mem::take(&mut self.has_just_stopped) {
                // The events of this turn included all input that had arrived before the stop.
                for token in self.connections.tokens() {
                    self.with(token, |connection, _| connection.stop());
                }
            }
            for token in std::mem::take(&mut self.parting) {
                self.after(token);
            }
            self.look_at_clock();
            self.thread.publish();
            self.flush();
            if self.is_done() {
                return Ok(());
            }
        }
    }

    /// The time until the next deadline; `None` waits without a limit.
    fn until_next(&self) -> Option<Duration> {
        if self.thread.looks_again {
            return Some(Duration::ZERO);
        }
        let part_at = (!self.parting.is_empty()).then_some(self.thread.now + PART_LOOK_MS);
        let next_expiry = self.thread.shared.shard(self.thread.index).next_expiry();
        let times = [part_at, next_expiry, self.accept_at, self.idle_at, self.deadline];
        let next = times.into_iter().flatten().min()?;
        Some(Duration::from_millis(next.saturating_sub(self.thread.now)))
    }

    fn look_at_clock(&mut self) {
        let now = self.thread.now;
        let shard = self.thread.shared.shard(self.thread.index);
        if shard.next_expiry().is_some_and(|time| time <= now) {
            shard.operate(|keys| keys.expire(now, EXPIRED_MAX));
        }
        if self.accept_at.is_some_and(|time| time <= now) {
            self.accept_at = None;
            self.accept();
        }
        if self.idle_at.is_some_and(|time| time <= now) {
            self.idle_at = Some(now + IDLE_LOOK_MS);
            self.close_idle();
        }
    }

    fn look_into_inbox(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        post::swap(&mut inbox);
        #[cfg(test)]
        assert!(!inbox.panics, "for the test");
        for item in inbox.items.drain(..) {
            self.look_at(item);
        }
        for socket in inbox.connections.drain(..) {
            self.take_over(socket);
        }
        if std::mem::take(&mut inbox.stops) {
            self.stop();
        }
        self.inbox = inbox;
    }

    fn look_at(&mut self, mut item: Item) {
        let body = item.as_mut().body();
        if !body.is_done {
            return self.thread.carry_out(item);
        }
        let token = body.connection;
        let Some(connection) = self.connections.get_mut(token) else { return };
        connection.take_back(token, &mut self.thread, item);
        self.after(token);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted(socket) => self.accepted(socket),
            Event::NotAccepted(_) => {
                if let Some(listener) = &self.listener {
                    self.driver.refuse(listener.as_fd());
                    self.accept_at = Some(self.thread.now + ACCEPT_AGAIN_MS);
                }
            }
            Event::Received(token) => {
                let Some(connection) = self.connections.get_mut(token) else { return };
                connection.receive(token, &mut self.thread, self.driver.bytes());
                self.after(token);
            }
            Event::Ended(token) => self.with(token, |connection, _| connection.end()),
            Event::Broken(token) => self.with(token, |connection, _| connection.fail()),
            Event::Sent(token, bytes) => self.with(token, |connection, thread| {
                connection.is_sending = false;
                connection.sent(thread, bytes);
                connection.go_on(token, thread);
            }),
            Event::Gone(token) => self.with(token, |connection, _| connection.is_gone = true),
        }
    }

    fn with(&mut self, token: Token, change: impl FnOnce(&mut Connection, &mut Thread)) {
        if let Some(connection) = self.connections.get_mut(token) {
            change(connection, &mut self.thread);
            self.after(token);
        }
    }

    /// Lists the connection, so that `flush` settles it at the end of the turn.
    fn after(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if !connection.is_listed {
            connection.is_listed = true;
            self.listed.push(token);
        }
    }

    /// Sends pending output, and closes connections that are over.
    fn flush(&mut self) {
        let mut at = 0;
        // A send can unblock stored requests, whose replies list further output. So the list may
        // grow during this loop.
        while let Some(&token) = self.listed.get(at) {
            at += 1;
            self.settle(token);
        }
        self.listed.clear();
    }

    fn settle(&mut self, token: Token) {
        let Self { driver, thread, connections, .. } = self;
        let Some(connection) = connections.get_mut(token) else { return };
        connection.is_listed = false;
        while connection.has_output() && !connection.is_removed {
            // SAFETY: the connection does not touch these bytes until they are sent, and lives
            // until `Gone`.
            let sent = unsafe {
                let bytes: *const [u8] = connection.unsent();
                driver.send(token, connection.socket(), &*bytes, connection.awaits_sent())
            };
            match sent {
                Ok(Sent::Now(bytes)) => {
                    connection.sent(thread, bytes);
                    connection.go_on(token, thread);
                }
                Ok(Sent::Later) => connection.is_sending = true,
                Err(_) => connection.fail(),
            }
        }
        if connection.is_paused != connection.is_full() && !connection.is_removed {
            connection.is_paused = !connection.is_paused;
            if connection.is_paused {
                driver.pause(token, connection.socket());
            } else {
                driver.resume(token, connection.socket());
            }
        }
        connection.wait_for_round(thread);
        let is_stopping = self.deadline.is_some();
        if connection.is_over() && !connection.is_removed {
            if is_stopping && !connection.part() {
                self.parting.push(token);
                return;
            }
            connection.is_removed = true;
            driver.remove(token, connection.socket());
        }
        if connection.is_gone && !connection.is_awaited() {
            let connection = self.connections.remove(token);
            connection.dismantle(&mut self.thread);
            self.thread.shared.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        if self.driver.accept(listener.as_fd()).is_err() {
            self.accept_at = Some(self.thread.now + ACCEPT_AGAIN_MS);
        }
    }

    fn accepted(&mut self, socket: OwnedFd) {
        let shared = &self.thread.shared;
        // Only this thread increments the counter.
        if shared.clients.load(Ordering::Relaxed) >= shared.config.clients_max {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            let text = b"-ERR max number of clients reached\r\n";
            // Best effort: the socket is closed in any case.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&socket, text, flags);
            return;
        }
        shared.clients.fetch_add(1, Ordering::Relaxed);
        let thread = shared.thread_of_connection();
        // While the server stops, other threads may have ended already.
        if thread == self.thread.index || self.deadline.is_some() {
            return self.add(socket);
        }
        // Counts as busy while in flight, so that the threads with keys keep running until it
        // arrives.
        shared.busy.fetch_add(1, Ordering::Relaxed);
        if shared.posts[thread].connection(socket).is_err() {
            shared.busy.fetch_sub(1, Ordering::AcqRel);
            shared.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes over a connection that another thread has accepted and counted as busy.
    fn take_over(&mut self, socket: OwnedFd) {
        self.add(socket);
        if std::mem::take(&mut self.is_drained) {
            // The thread had already given up its own busy count, so it keeps this one in its
            // place.
            return;
        }
        self.thread.shared.busy.fetch_sub(1, Ordering::AcqRel);
    }

    fn add(&mut self, socket: OwnedFd) {
        let config = &self.thread.shared.config;
        let limits = Limits { bulk_max: config.request_max, request_max: config.request_max };
        let address = rustix::net::getpeername(&socket).ok().flatten();
        let address = address.and_then(|address| address.try_into().ok());
        let session = Session::new(self.thread.shared.next_id(), address, self.thread.now);
        self.thread.shared.roster.note(&session);
        let mut connection = Connection::new(socket, limits, session, &self.thread);
        if self.deadline.is_some() {
            // Requests that the client has sent already are answered.
            connection.stop();
        }
        let token = self.connections.insert(connection);
        let socket = self.connections.get_mut(token).expect("it is new").socket();
        if self.driver.add(token, socket).is_err() {
            self.with(token, |connection, _| connection.fail());
        }
        self.after(token);
    }

    fn close_idle(&mut self) {
        let Some(most) = self.thread.shared.config.idle_max else { return };
        let (turn_began, now) = (self.thread.now, self.thread.shared.now());
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        let is_late = |connection: &mut Connection| connection.is_idle_for(most, turn_began, now);
        for token in self.connections.tokens() {
            if self.connections.get_mut(token).is_some_and(is_late) {
                self.with(token, |connection, _| connection.fail());
            }
        }
    }

    /// Stops accepting and receiving. Input that has arrived is still answered.
    fn stop(&mut self) {
        let most = self.thread.shared.config.drain_max;
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        self.deadline = Some(self.thread.now.saturating_add(most));
        self.accept_at = None;
        if let Some(listener) = self.listener.take() {
            self.driver.refuse(listener.as_fd());
            // Waiting connections may have sent requests, which closing the listener would discard.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            // Bounded by the backlog, in case clients keep connecting as fast as this loop accepts.
            for _ in 0..=BACKLOG {
                match rustix::net::accept_with(&listener, flags) {
                    Ok(socket) => self.accepted(socket),
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(_) => break,
                }
            }
        }
        self.has_just_stopped = true;
    }

    fn is_done(&mut self) -> bool {
        if self.thread.shared.failure.has_happened() {
            // A failed thread never answers, so waiting for its replies is useless.
            return true;
        }
        let Some(deadline) = self.deadline else { return false };
        let shared = &self.thread.shared;
        if self.connections.is_empty() && !self.is_drained {
            self.is_drained = true;
            // A thread keeps serving its keys until no thread has a connection that may request
            // them.
            if shared.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.posts.iter().for_each(|post| post.wake());
            }
        }
        let all_are = shared.busy.load(Ordering::Acquire) == 0;
        all_are || self.thread.now >= deadline
    }
}

/// The number of threads of a server with this configuration.
pub(crate) fn threads(config: &Config) -> usize {
    config.threads + usize::from(config.receiver == Receiver::Dedicated)
}
