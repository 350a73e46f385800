//! The thread of the control socket. It exists while there are clients.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::connection::{Connection, Fate};
use super::{SERVING, Service, listener};
use crate::first_use;

/// Clients that are served at once; a further one is told so and closed.
pub const CONNECTIONS_MAX: usize = 32;
const NO_FILE: RawFd = -1;

/// The descriptors of the clients, for the child of a fork.
static FILES: [AtomicI32; CONNECTIONS_MAX] = [const { AtomicI32::new(NO_FILE) }; CONNECTIONS_MAX];

/// Ends the service, also if it unwinds.
struct Serving;

impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.store(false, Ordering::SeqCst);
    }
}

/// The thread's function.
pub(super) fn serve(service: &'static dyn Service) {
    loop {
        let serving = Serving;
        let mut clients = Clients { service, places: BTreeMap::new() };
        while let Some(file) = listener::file() {
            if !clients.accept(file) && clients.places.is_empty() {
                break;
            }
            clients.wait(file);
            clients.serve();
        }
        drop(clients);
        // The store before the look: the README shows why no client is missed.
        drop(serving);
        if !is_waiting() || SERVING.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

/// Whether a client waits to be accepted.
fn is_waiting() -> bool {
    let Some(fd) = listener::file() else { return false };
    let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::poll(&raw mut file, 1, 0) == 1 }
}

/// The clients, by their place in [`FILES`].
struct Clients {
    service: &'static dyn Service,
    places: BTreeMap<usize, Connection>,
}

impl Clients {
    /// Accepts those that wait. False if none did.
    fn accept(&mut self, listener: RawFd) -> bool {
        let mut any = false;
        // Those that come meanwhile have to wait until the others were served.
        for _ in 0..CONNECTIONS_MAX {
            let Some(stream) = self.accept_one(listener) else { break };
            any = true;
            if let Some(stream) = stream {
                let place = stream.0;
                let greeting = self.service.greeting();
                self.places.insert(place, Connection::new(stream.1, greeting, Instant::now()));
            }
        }
        any
    }

    /// Accepts a client: its place and its stream, or nothing if it was refused. None if no client
    /// waits.
    fn accept_one(&self, listener: RawFd) -> Option<Option<(usize, UnixStream)>> {
        // A fork waits until the new descriptor is known.
        let making = first_use::making();
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is wanted.
        let file =
            unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if file < 0 {
            return None;
        }
        // SAFETY: the descriptor is new, and owned by this function.
        let stream = unsafe { UnixStream::from_raw_fd(file) };
        let free = (0..CONNECTIONS_MAX).find(|place| !self.places.contains_key(place));
        let permitted = may_connect(&stream);
        if let (Some(place), true) = (free, permitted) {
            FILES[place].store(file, Ordering::SeqCst);
            return Some(Some((place, stream)));
        }
        drop(making);
        let reason = match permitted {
            true => format!("{CONNECTIONS_MAX} clients are connected, which is the most"),
            false => "only this process's user and root may connect".to_owned(),
        };
        Connection::refuse(stream, &self.service.refuse(&reason));
        Some(None)
    }

    /// Waits until there is something to do.
    fn wait(&self, listener: RawFd) {
        let watched = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let clients =
            self.places.values().map(|client| watched(client.as_raw_fd(), client.wants()));
        let mut files: Vec<_> =
            std::iter::once(watched(listener, libc::POLLIN)).chain(clients).collect();
        let first = self.places.values().filter_map(Connection::drop_at).min();
        let left = first.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(-1, |left| (left + Duration::from_millis(1)).as_millis() as i32);
        // SAFETY: the structures are live. An error is as good as a return without an event.
        unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, timeout) };
    }

    fn serve(&mut self) {
        let (service, now) = (self.service, Instant::now());
        let ended = |(&place, client): (&usize, &mut Connection)| {
            (client.serve(service, now) == Fate::Ends).then_some(place)
        };
        let ended: Vec<usize> = self.places.iter_mut().filter_map(ended).collect();
        ended.into_iter().for_each(|place| self.close(place));
    }

    fn close(&mut self, place: usize) {
        // First, so that no child closes a file that has got the number since.
        FILES[place].store(NO_FILE, Ordering::SeqCst);
        self.places.remove(&place);
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let places: Vec<usize> = self.places.keys().copied().collect();
        places.into_iter().for_each(|place| self.close(place));
    }
}

/// Whether the other end belongs to this process's user, or to root.
fn may_connect(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure is live and of the given length.
    let outcome = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    // SAFETY: no arguments; cannot fail.
    outcome == 0 && (peer.uid == 0 || peer.uid == unsafe { libc::geteuid() })
}

/// In a forked child. Async-signal-safe.
pub(super) fn close_inherited() {
    for place in &FILES {
        let file = place.swap(NO_FILE, Ordering::SeqCst);
        if file != NO_FILE {
            // SAFETY: a copy of the parent's; the thread that uses it does not exist here.
            unsafe { libc::close(file) };
        }
    }
}
