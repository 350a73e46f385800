//! The names of listeners, which their connections have as well. A socket without such a name may have
//! got the number of a connection that the program has closed.
//!
//! Connections of a transparent proxy (`IP_TRANSPARENT`) have the addresses that their clients meant, so
//! they may be without such a name.

use std::os::fd::RawFd;
use std::rc::Rc;

/// The longest path, of unix(7).
const PATH: usize = 108;

/// See the module. A connection's address may be more precise than its listener's, so the port alone
/// is compared.
#[derive(Clone)]
pub(super) enum Name {
    /// Of another family, or of no socket. It equals no name.
    Unknown,
    /// The family and the port.
    Port(libc::sa_family_t, u32),
    Path([libc::c_char; PATH]),
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        match (self, other) {
            (Name::Port(family, port), Name::Port(of_family, of_port)) => {
                (family, port) == (of_family, of_port)
            }
            (Name::Path(path), Name::Path(of_path)) => path == of_path,
            _ => false,
        }
    }
}

impl Name {
    pub(super) fn of(socket: RawFd) -> Name {
        // SAFETY: zeros are a valid value.
        let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&name) as libc::socklen_t;
        let at = (&raw mut name).cast();
        // SAFETY: the structures are live and of the given length.
        if unsafe { libc::getsockname(socket, at, &raw mut length) } != 0 {
            return Name::Unknown;
        }
        match libc::c_int::from(name.ss_family) {
            libc::AF_INET | libc::AF_INET6 => {
                // SAFETY: both families have the port there.
                let port = unsafe { (*at.cast::<libc::sockaddr_in>()).sin_port };
                Name::Port(name.ss_family, port.into())
            }
            libc::AF_VSOCK => {
                // SAFETY: of this family.
                let port = unsafe { (*at.cast::<libc::sockaddr_vm>()).svm_port };
                Name::Port(name.ss_family, port)
            }
            libc::AF_UNIX => {
                // SAFETY: of this family, and zeros behind the path.
                let path = unsafe { (*at.cast::<libc::sockaddr_un>()).sun_path };
                // A listener has a path, or an abstract name. Other sockets may have neither.
                if path == [0; PATH] { Name::Unknown } else { Name::Path(path) }
            }
            _ => Name::Unknown,
        }
    }
}

/// The names of the listeners of the accepts with one token.
#[derive(Clone, Default)]
pub(in crate::ring) struct Names(Rc<Vec<Name>>);

impl Names {
    /// Whether this socket, which the system has made for such an accept, still is that one: the program
    /// may have closed it, and have made another one.
    pub(in crate::ring) fn are_of(&self, socket: RawFd) -> bool {
        self.0.contains(&Name::of(socket))
    }
}

/// The accepts in progress.
#[derive(Default)]
pub(super) struct Accepts(Vec<Accept>);

/// Those with one token.
struct Accept {
    token: u64,
    count: usize,
    names: Names,
}

impl Accepts {
    /// An accept of this listener begins.
    pub(super) fn begin(&mut self, token: u64, listener: RawFd) {
        let name = Name::of(listener);
        match self.0.iter_mut().find(|accept| accept.token == token) {
            Some(accept) => {
                accept.count += 1;
                if !accept.names.0.contains(&name) {
                    Rc::make_mut(&mut accept.names.0).push(name);
                }
            }
            None => self.0.push(Accept { token, count: 1, names: Names(Rc::new(vec![name])) }),
        }
    }

    /// The names of the listeners, for a completion of an accept. `is_last`: the accept has ended.
    pub(super) fn names(&mut self, token: u64, is_last: bool) -> Names {
        let Some(at) = self.0.iter().position(|accept| accept.token == token) else {
            return Names::default();
        };
        self.0[at].count -= usize::from(is_last);
        match self.0[at].count {
            0 => self.0.swap_remove(at).names,
            _ => self.0[at].names.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    // Catches: a socket of the program's that is closed, as neither it nor the listener has a name.
    #[test]
    fn a_socket_without_a_name_is_of_no_listener() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let mut accepts = Accepts::default();
        accepts.begin(1, reader.as_raw_fd());
        let names = accepts.names(1, false);
        assert!(!names.are_of(reader.as_raw_fd()));
        let pair = UnixStream::pair().expect("sockets");
        assert!(!names.are_of(pair.0.as_raw_fd()));
        // Neither has a path.
        accepts.begin(1, pair.1.as_raw_fd());
        accepts.begin(1, UnixDatagram::unbound().expect("a socket").as_raw_fd());
        assert!(!accepts.names(1, false).are_of(pair.0.as_raw_fd()));
    }

    // Catches: names that are kept for as long as the reactor exists; names that are dropped before the
    // last of several accepts with one token has ended.
    #[test]
    fn names_are_kept_until_the_last_accept_has_ended() {
        let mut accepts = Accepts::default();
        let connected = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound");
            let client = TcpStream::connect(address).expect("it listens");
            let (accepted, _) = listener.accept().expect("a client");
            (listener, client, accepted)
        };
        for _ in 0..3 {
            let (one, other) = (connected(), connected());
            accepts.begin(7, one.0.as_raw_fd());
            accepts.begin(7, other.0.as_raw_fd());
            for names in [accepts.names(7, true), accepts.names(7, true)] {
                assert!(names.are_of(one.2.as_raw_fd()) && names.are_of(other.2.as_raw_fd()));
                assert!(!names.are_of(one.1.as_raw_fd()));
            }
            assert!(accepts.0.is_empty());
        }
    }
}
