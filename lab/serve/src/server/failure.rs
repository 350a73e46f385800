//! Handles a server thread that ends unexpectedly. Requests for its keys would never be answered,
//! so the whole server ends and reports the error.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::post;
use super::shared::Shared;

/// Maximum number of consecutive waits that may fail for a transient reason.
const FAILED_MAX: u32 = 1000;

/// Whether a thread has failed, and the function to call then.
#[derive(Default)]
pub(crate) struct Failure {
    has_happened: AtomicBool,
    call: Mutex<Option<Call>>,
}

type Call = Box<dyn FnOnce() + Send>;

impl Failure {
    pub(crate) fn has_happened(&self) -> bool {
        self.has_happened.load(Ordering::SeqCst)
    }

    /// Registers a function to call when a thread fails; calls it at once if a thread has failed
    /// already.
    pub(crate) fn on(&self, call: Call) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        // `on` stores the function before it reads the flag, and `happen` sets the flag before it
        // takes the function. So at least one of them sees both.
        if self.has_happened() {
            self.tell();
        }
    }

    fn happen(&self) {
        self.has_happened.store(true, Ordering::SeqCst);
        self.tell();
    }

    fn tell(&self) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(call) = call {
            call();
        }
    }
}

/// Runs when a server thread ends, in whatever way.
pub(crate) struct ThreadGuard {
    shared: Arc<Shared>,
    /// The thread ends on request.
    pub(crate) is_in_order: bool,
}

impl ThreadGuard {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), is_in_order: false }
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        post::close();
        if !self.is_in_order {
            self.shared.failure.happen();
            self.shared.posts.iter().for_each(|post| post.stop());
        }
    }
}

/// Decides whether a failed wait is retried.
#[derive(Default)]
pub(crate) struct Patience {
    failed: u32,
}

impl Patience {
    /// Whether the wait succeeded. If it returns `false`, the caller should retry after a pause.
    ///
    /// # Errors
    /// The error is not transient, or has persisted for too long.
    pub(crate) fn judge(&mut self, outcome: io::Result<()>) -> io::Result<bool> {
        let Err(error) = outcome else {
            self.failed = 0;
            return Ok(true);
        };
        let passes = [libc::ENOMEM, libc::EAGAIN, libc::EINTR];
        let is_passing = error.raw_os_error().is_some_and(|error| passes.contains(&error));
        self.failed += 1;
        if is_passing && self.failed <= FAILED_MAX { Ok(false) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::server::{Config, Io, Server};

    // Catches: a server that continues without one of its threads, so that clients wait forever.
    #[test]
    fn a_thread_that_panics_ends_the_server() {
        for io in [Io::Auto, Io::Epoll] {
            let address = "127.0.0.1:0".parse().unwrap();
            let server = Server::start(Config { address, threads: 2, io, ..Config::default() });
            let server = server.unwrap();
            let (told, has_failed) = mpsc::channel();
            let again = told.clone();
            server.on_failure(move || told.send(()).unwrap());
            let mut clients = [(); 4].map(|()| TcpStream::connect(server.address()).unwrap());
            for client in &mut clients {
                client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                client.write_all(b"PING\r\n").unwrap();
                client.read_exact(&mut [0; 7]).unwrap();
            }
            let shared = &server.running.as_ref().unwrap().shared;
            shared.posts[1].panic();
            has_failed.recv().unwrap();
            for client in &mut clients {
                // The connection may be closed or reset.
                let end = client.read(&mut [0; 7]).map_err(|error| error.kind());
                assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
            }
            server.on_failure(move || again.send(()).unwrap());
            has_failed.recv().unwrap();
            assert_eq!(server.stop().unwrap_err().to_string(), "it panicked");
        }
    }

    #[test]
    fn a_failed_wait_is_retried_after_a_transient_error() {
        let failed = |code| Err(io::Error::from_raw_os_error(code));
        let mut patience = Patience::default();
        for _ in 0..FAILED_MAX {
            assert!(!patience.judge(failed(libc::ENOMEM)).unwrap());
        }
        assert!(patience.judge(Ok(())).unwrap());
        for _ in 0..FAILED_MAX {
            assert!(!patience.judge(failed(libc::EAGAIN)).unwrap());
        }
        assert!(patience.judge(failed(libc::EAGAIN)).is_err());
        assert!(Patience::default().judge(failed(libc::EBADF)).is_err());
    }
}
