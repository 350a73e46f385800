//! The name of a listener, which its connections have as well. A socket without it may have got the
//! number of a connection that the program has closed.

use std::os::fd::RawFd;

/// The longest path, of unix(7).
const PATH: usize = 108;

/// See the module. A connection's address may be more precise than its listener's, so the port alone
/// is compared.
#[derive(PartialEq, Eq)]
pub(super) enum Name {
    Unknown,
    /// The family and the port.
    Port(libc::sa_family_t, libc::in_port_t),
    Path([libc::c_char; PATH]),
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
                Name::Port(name.ss_family, port)
            }
            libc::AF_UNIX => {
                // SAFETY: of this family, and zeros behind the path.
                Name::Path(unsafe { (*at.cast::<libc::sockaddr_un>()).sun_path })
            }
            _ => Name::Unknown,
        }
    }
}
