//! A connected socket. The program may close every descriptor, and its next file may get the number of
//! this one: each use looks whether the number is still the socket's, and a close too.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix};
use uwork::foreign::StreamSocket;

use super::Stream;

pub(crate) struct Socket(StreamSocket);

impl Socket {
    pub(super) fn to_address(address: SocketAddr, limit: Duration) -> io::Result<Socket> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = connected(family, &address, limit)?;
        set_tcp_nodelay(socket.get()?, true)?;
        Ok(Socket(socket))
    }

    pub(super) fn to_path(path: &Path, limit: Duration) -> io::Result<Socket> {
        connected(AddressFamily::UNIX, &SocketAddrUnix::new(path)?, limit).map(Socket)
    }

    /// The longest wait of a read or write from now on.
    pub(super) fn set_slice(&self, slice: Duration) -> io::Result<()> {
        set_socket_timeout(self.0.get()?, Timeout::Recv, Some(slice))?;
        Ok(set_socket_timeout(self.0.get()?, Timeout::Send, Some(slice))?)
    }
}

/// Connects within `limit`: the system's limit for a write is one for a connection, too.
fn connected(
    family: AddressFamily,
    address: &impl SocketAddrArg,
    limit: Duration,
) -> io::Result<StreamSocket> {
    let socket = StreamSocket::open(family.as_raw().into())?;
    let late = || io::Error::new(ErrorKind::TimedOut, format!("no connection in {limit:?}"));
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(late());
        }
        set_socket_timeout(socket.get()?, Timeout::Send, Some(left))?;
        match rustix::net::connect(socket.get()?, address) {
            // The connection goes on.
            Err(Errno::INTR) => {}
            // Of a path with a full queue; of a host that does not answer, at once and after a signal.
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY) => return Err(late()),
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(socket),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (count, _) = rustix::net::recv(self.0.get()?, bytes, RecvFlags::empty())?;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0.get()?, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Socket {
    fn is_over(&self) -> bool {
        let Ok(socket) = self.0.get() else { return true };
        // Bytes may be there: TLS sends some that belong to no reply. HUP and ERR need not be asked for.
        let mut waits = [PollFd::new(&socket, PollFlags::RDHUP)];
        matches!(poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    extern "C" fn ignore(_signal: libc::c_int) {}

    /// Whether a connection to this port waits for its server.
    fn is_connecting(port: u16) -> bool {
        const SYN_SENT: &str = "02";
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(2);
            let to_port = words.next().is_some_and(|to| to.ends_with(&format!(":{port:04X}")));
            to_port && words.next() == Some(SYN_SENT)
        })
    }

    // Catches: a connection whose end of time is another error after a signal.
    #[test]
    fn a_connection_that_a_signal_has_interrupted_costs_its_limit_like_any_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // SAFETY: the socket is open. A second call changes the length of its queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // While the queue is full, the system drops the packets of further connections.
        let fill = |_: u8| TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let queue: Vec<io::Result<TcpStream>> = (0..3).map(fill).collect();
        assert!(queue[0].is_ok() && queue[2].is_err());
        // SAFETY: the action is live, and its handler does nothing. No other test sends this signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as libc::sighandler_t;
            let set = libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
            assert_eq!(set, 0);
        }
        let (tell, told) = channel();
        let connecting = thread::spawn(move || {
            // SAFETY: the call has no preconditions.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            Socket::to_address(address, Duration::from_secs(1)).err().unwrap()
        });
        let number = told.recv().unwrap();
        while !is_connecting(address.port()) && !connecting.is_finished() {
            thread::yield_now();
        }
        // SAFETY: the thread is not joined, so the number is its own.
        unsafe { libc::pthread_kill(number, libc::SIGUSR2) };
        let error = connecting.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}
