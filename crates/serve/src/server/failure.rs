//! What happens when a thread ends that was not told to: nobody answers for its keys any more, so that the server
//! ends with it, and says so.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::post;
use super::shared::Shared;

/// So many waits in a row may fail for a reason that passes.
const FAILED_MAX: u32 = 1000;

/// Whether a thread has failed, and who is to be told.
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

    /// Has the function called when a thread has failed: at once if one has.
    pub(crate) fn on(&self, call: Call) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        // Whoever comes second, this or `happen`, sees what the other has done.
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

/// What a thread of the server leaves behind, however it ends.
pub(crate) struct Ending {
    shared: Arc<Shared>,
    /// It was told to end.
    pub(crate) is_in_order: bool,
}

impl Ending {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), is_in_order: false }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        post::close();
        if !self.is_in_order {
            self.shared.failure.happen();
            self.shared.posts.iter().for_each(|post| post.stop());
        }
    }
}

/// How a thread takes it that it cannot wait.
#[derive(Default)]
pub(crate) struct Patience {
    failed: u32,
}

impl Patience {
    /// Whether it has waited; if not, it should try again, after a while.
    ///
    /// # Errors
    /// The reason does not pass, or has not for long.
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

    // Catches: a server of which a thread is missing, whose clients wait for ever.
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
                // Closed, in whichever way.
                let end = client.read(&mut [0; 7]).map_err(|error| error.kind());
                assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
            }
            server.on_failure(move || again.send(()).unwrap());
            has_failed.recv().unwrap();
            assert_eq!(server.stop().unwrap_err().to_string(), "it panicked");
        }
    }

    #[test]
    fn a_wait_that_fails_is_tried_again_where_the_reason_passes() {
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
