//! The thread of the control socket. It exists while there are clients, or while no signal tells of
//! them.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::connection::{Connection, Fate};
use super::interrupt::Calls;
use super::{SERVING, Service, listener, lock_socket};
use crate::descriptor::OwnDescriptor;

/// Clients that are served at once. A further one takes the place of the oldest idle one; if none is
/// idle, it is told so and closed.
pub const CONNECTIONS_MAX: usize = 32;
/// How long clients wait if the process has no descriptor for one more. Until a client is accepted,
/// the listener stays readable, so a poll of it would return at once.
const PAUSE: Duration = Duration::from_millis(250);

/// Ends the service, also if it unwinds.
struct Serving;

impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.store(false, Ordering::SeqCst);
    }
}

/// The thread's function.
pub(super) fn serve(service: &'static dyn Service) {
    // Clients look into processes when the machine is in trouble.
    crate::thread::respond_soon();
    loop {
        let serving = Serving;
        let calls = Calls::begin();
        let mut clients = Clients { service, connections: Vec::new(), accepts_at: None };
        loop {
            calls.rearm();
            let listener = listener::current();
            let any = clients.accept_from(listener.as_deref(), &calls);
            let stays = listener.as_ref().is_some_and(|listener| !listener.is_by_signal());
            if !any && !stays && clients.is_empty() {
                break;
            }
            clients.wait(listener.map(|listener| listener.number()), &calls);
            clients.serve(Instant::now());
        }
        drop((clients, calls));
        // The store before the look: the README shows why no client is missed.
        drop(serving);
        if !lock_socket().wants_thread() || SERVING.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

/// The clients.
struct Clients {
    service: &'static dyn Service,
    connections: Vec<Connection>,
    /// When the next client is accepted, if the process has no descriptor for it.
    accepts_at: Option<Instant>,
}

impl Clients {
    /// Whether none is connected, and none waits for a descriptor.
    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.accepts_at.is_none()
    }

    /// Accepts those that wait at the socket, unless a pause lasts. False if none did. Without a socket,
    /// as the program has closed it, the clients that are connected stay.
    fn accept_from(&mut self, listener: Option<&listener::Listening>, calls: &Calls) -> bool {
        match listener {
            Some(listener) => self.accept_if_due(Instant::now(), || listener.accept(calls)),
            None => {
                self.accepts_at = None;
                false
            }
        }
    }

    /// Accepts those that wait, unless a pause lasts. False if none did.
    fn accept_if_due(
        &mut self,
        now: Instant,
        mut accept: impl FnMut() -> io::Result<OwnDescriptor>,
    ) -> bool {
        if self.accepts_at.is_some_and(|at| at > now) {
            return false;
        }
        self.accepts_at = None;
        let mut any = false;
        // Those that come meanwhile have to wait until the others were served.
        for _ in 0..CONNECTIONS_MAX {
            match accept() {
                Ok(client) => self.welcome(client),
                Err(error) => {
                    // Any other error would come again at once, as the client still waits.
                    let none = [libc::EAGAIN, libc::ECONNABORTED, libc::EINTR, libc::EBADF];
                    let is_passed = error.raw_os_error().is_some_and(|error| none.contains(&error));
                    self.accepts_at = (!is_passed).then(|| now + PAUSE);
                    break;
                }
            }
            any = true;
        }
        any
    }

    fn welcome(&mut self, client: OwnDescriptor) {
        let now = Instant::now();
        let reason = if !client.get().is_some_and(may_connect) {
            "only this process's user and root may connect".to_owned()
        } else if self.has_room(now) {
            self.connections.push(Connection::new(client, self.service, now));
            return;
        } else {
            format!("{CONNECTIONS_MAX} clients are connected and busy, which is the most")
        };
        Connection::refuse(client, &self.service.refuse(&reason));
    }

    /// Whether there is a place for one more client. If all are taken, the oldest idle client loses its
    /// own.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        // Those that are gone leave, and requests that have arrived are answered.
        self.serve(now);
        if self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        let idle = self.connections.iter().enumerate();
        let idle = idle.filter_map(|(at, client)| Some((client.idle_since()?, at))).min();
        let Some((_, at)) = idle else { return false };
        let reason = "the connection was idle, and its place was needed for another client";
        self.connections.remove(at).make_room(&self.service.refuse(reason));
        true
    }

    /// Waits until there is something to do, or another thread ends the wait.
    fn wait(&self, listener: Option<RawFd>, calls: &Calls) {
        let mut files = self.watched(listener);
        let left = self.until().map(|at| at.saturating_duration_since(Instant::now()));
        let left = match self.connections.iter().any(Connection::is_due) {
            true => Some(Duration::ZERO),
            false => left.map(|left| left + Duration::from_millis(1)),
        };
        if poll(&mut files, left, calls) == Err(libc::EINVAL) {
            // The process may have fewer files open than these: all are served after a pause.
            let _ = poll(&mut [], Some(PAUSE), calls);
        }
    }

    /// The files to poll. A client whose descriptor the program has closed is dropped when it is
    /// served.
    fn watched(&self, listener: Option<RawFd>) -> Vec<libc::pollfd> {
        let watched = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let listener = listener.filter(|_| self.accepts_at.is_none());
        let listener = listener.map(|number| watched(number, libc::POLLIN));
        let clients = self.connections.iter();
        let clients = clients.map(|client| watched(client.number(), client.wants()));
        listener.into_iter().chain(clients).collect()
    }

    /// When there is something to do at the latest.
    fn until(&self) -> Option<Instant> {
        self.connections.iter().filter_map(Connection::drop_at).chain(self.accepts_at).min()
    }

    /// A turn of each client.
    fn serve(&mut self, now: Instant) {
        let service = self.service;
        self.connections.retain_mut(|client| client.serve(service, now) == Fate::Stays);
    }
}

/// As poll(2), without a limit of time if `timeout` is `None`.
fn poll(
    files: &mut [libc::pollfd],
    timeout: Option<Duration>,
    calls: &Calls,
) -> Result<usize, i32> {
    let mut timeout = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    });
    let timeout = timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let arguments = [files.as_mut_ptr().expose_provenance(), files.len()];
    let arguments = [arguments[0], arguments[1], timeout.expose_provenance(), 0, 0, 0];
    // SAFETY: the structures are live, and of the given length.
    unsafe { calls.call(libc::SYS_ppoll, arguments) }
}

/// Whether the other end belongs to this process's user, or to root.
fn may_connect(client: RawFd) -> bool {
    // SAFETY: no arguments; cannot fail.
    peer_of(client).is_some_and(|peer| peer.uid == 0 || peer.uid == unsafe { libc::geteuid() })
}

/// The process at the other end.
pub(super) fn peer_of(client: RawFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure is live and of the given length.
    let outcome = unsafe {
        libc::getsockopt(
            client,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    (outcome == 0).then_some(peer)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::control::Session;
    use crate::descriptor::Expected;

    struct Mute;

    impl Service for Mute {
        fn greeting(&self) -> String {
            String::new()
        }

        fn session(&self) -> Box<dyn Session> {
            Box::new(Begun(false))
        }

        fn refuse(&self, _: &str) -> String {
            String::new()
        }
    }

    /// Whether the client has begun something.
    struct Begun(bool);

    impl Session for Begun {
        fn answer(&mut self, request: &str) -> String {
            self.0 |= request == "begin";
            match request {
                "long" => "x".repeat(1 << 20),
                "byte" => "x".to_owned(),
                _ => String::new(),
            }
        }

        fn is_busy(&self) -> bool {
            self.0
        }
    }

    impl Clients {
        fn none() -> Clients {
            Clients { service: &Mute, connections: Vec::new(), accepts_at: None }
        }

        /// Adds a client, whose end is returned.
        fn connect(&mut self, now: Instant) -> UnixStream {
            let (server, client) = UnixStream::pair().expect("a pair");
            let server = OwnDescriptor::open(Expected::Socket, || server.into_raw_fd());
            self.connections.push(Connection::new(server.expect("room"), &Mute, now));
            client
        }
    }

    // Catches: a busy client that loses its place; a request that has arrived and is not answered.
    #[test]
    fn busy_clients_keep_their_places_and_the_oldest_idle_one_makes_room() {
        let mut clients = Clients::none();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut others = Vec::new();
        for number in 0..CONNECTIONS_MAX {
            assert!(clients.has_room(start));
            let mut other = clients.connect(start);
            // Its answer is longer than the system's buffers.
            if number != 3 && number != 4 {
                other.write_all(b"long\n").expect("room");
            }
            others.push(other);
        }
        others[3].write_all(b"short\n").expect("room");
        assert!(clients.has_room(at(1)), "the fifth");
        assert_eq!(clients.connections.len(), CONNECTIONS_MAX - 1);
        assert_eq!(others[4].read(&mut [0]).expect("the end"), 0);
        let _other = clients.connect(at(2));
        assert!(clients.has_room(at(3)), "the fourth, which was idle since its answer");
        assert_eq!(others[3].read(&mut [0]).expect("the end"), 0);
    }

    // Catches: a client that sends without end, and has all others wait.
    #[test]
    fn each_client_has_one_answer_in_a_turn() {
        let mut clients = Clients::none();
        let now = Instant::now();
        let mut others = [(); 2].map(|()| clients.connect(now));
        others[0].write_all(&b"byte\n".repeat(3_000)).expect("room");
        others[1].write_all(b"byte\nbyte\n").expect("room");
        others.iter().for_each(|other| other.set_nonblocking(true).expect("a socket"));
        for answered in [1, 1, 0, 0] {
            clients.serve(now);
            let answers = others.each_mut().map(|other| other.read(&mut [0; 9]).unwrap_or(0));
            assert_eq!(answers, [1, answered]);
            assert!(
                clients.connections[0].is_due() && clients.connections[0].idle_since().is_none()
            );
        }
        assert!(!clients.connections[1].is_due());
    }

    // Catches: a trace that ends, as its client's place was given to another.
    #[test]
    fn a_client_that_has_begun_something_keeps_its_place() {
        let mut clients = Clients::none();
        let start = Instant::now();
        let mut others: Vec<_> = (0..CONNECTIONS_MAX).map(|_| clients.connect(start)).collect();
        others[0].write_all(b"begin\n").expect("room");
        let later = start + Duration::from_secs(1);
        for _ in 0..2 * CONNECTIONS_MAX {
            assert!(clients.has_room(later));
            others.push(clients.connect(later));
        }
        let mut ended = |at: usize| {
            others[at].set_nonblocking(true).expect("a socket");
            others[at].read(&mut [0]).is_ok()
        };
        assert_eq!([0, 1, 2].map(&mut ended), [false, true, true]);
    }

    // Catches: a thread that spins, as the client that it cannot accept makes each poll return.
    #[test]
    fn without_descriptors_the_listener_rests_until_the_next_attempt() {
        for error in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            let attempts = Cell::new(0);
            let refused = || {
                attempts.set(attempts.get() + 1);
                Err(io::Error::from_raw_os_error(error))
            };
            let mut clients = Clients::none();
            let now = Instant::now();
            for round in 1..5 {
                let now = now + round * PAUSE;
                assert!(!clients.accept_if_due(now, refused));
                assert!(!clients.accept_if_due(now + PAUSE / 2, refused));
                assert_eq!((attempts.get(), clients.until()), (round, Some(now + PAUSE)));
                assert!(clients.watched(Some(0)).is_empty());
            }
            let none = || Err(io::Error::from_raw_os_error(libc::EAGAIN));
            assert!(!clients.accept_if_due(now + 9 * PAUSE, none));
            assert_eq!((clients.until(), clients.watched(Some(0)).len()), (None, 1));
        }
    }
}
