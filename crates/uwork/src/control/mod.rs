//! The control socket: how operators look into this process from outside, and change attributes.
//!
//! A process that has made a queue listens on a Unix socket, in a folder of its user's:
//! `$XDG_RUNTIME_DIR/uwork`, or `uwork-UID` in `/run`, `/dev/shm` or `/tmp`. Only the process's user
//! and root may connect. The command `uwork` is the client; the protocol is in
//! `crates/linux/src/control/README.md`. A process that gets no socket says so once, by
//! [`Report::NoControlSocket`](crate::Report::NoControlSocket). Until a client connects, the socket
//! costs no thread and no wake-up; in a program that uses `SIGURG` it costs a thread that sleeps.
//! `UWORK_CONTROL=0` in the environment switches it off. A forked child opens a socket of its own
//! when it uses a queue.
//!
//! ```
//! let queue = uwork::Queue::builder("seen").max_active(3).build()?;
//! assert_eq!(uwork::control::answer("get devices/seen/max_active"), "ok 2\n3\n");
//! # drop(queue);
//! # Ok::<(), uwork::Error>(())
//! ```

mod metrics;
mod pools;
mod protocol;
mod status;
mod trace;

use std::path::PathBuf;
use std::time::Duration;

pub use metrics::add_metrics;
pub use protocol::{VERSION, answer};

/// Runs shorter than this have no stack in an answer, unless the request says otherwise.
const LONG: Duration = Duration::from_millis(100);

/// What the socket's thread calls.
struct Service;

impl uwork_linux::control::Service for Service {
    fn greeting(&self) -> String {
        protocol::greeting()
    }

    fn session(&self) -> Box<dyn uwork_linux::control::Session> {
        Box::new(Session::default())
    }

    fn refuse(&self, reason: &str) -> String {
        protocol::refusal("closed", reason)
    }
}

/// A client of the socket.
#[derive(Default)]
struct Session {
    begun: Option<trace::Begun>,
}

impl uwork_linux::control::Session for Session {
    fn answer(&mut self, request: &str) -> String {
        protocol::answer_to(request, &mut self.begun)
    }

    fn is_busy(&self) -> bool {
        self.begun.as_ref().is_some_and(trace::Begun::goes_on)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.begun.take().into_iter().for_each(trace::Begun::end);
    }
}

/// Has the socket opened, and takes the signal of `UWORK_DUMP_SIGNAL`, at the first call.
#[inline]
pub(crate) fn offer() {
    if uwork_linux::control::offer(&Service) {
        uwork_linux::control::call_on_signal_of_environment(write_dump);
    }
}

/// Where sockets are, for the command `uwork`.
#[doc(hidden)]
pub mod place {
    pub use uwork_linux::control::{FOLDER, NOTE, PLACES};
}

/// The path of this process's socket.
///
/// # Errors
/// The reason why it has none, in one line. The socket opens some time after the first queue was
/// made, on a thread of the library's.
///
/// ```
/// match uwork::control::socket() {
///     Ok(path) => println!("{}", path.display()),
///     Err(reason) => println!("no control socket: {reason}"),
/// }
/// ```
pub fn socket() -> Result<PathBuf, String> {
    uwork_linux::control::socket()
}

/// Has each `signal` to this process write [`dump`](fn@crate::dump) to standard error, with the stacks
/// of the items that run for 100 ms or longer: for machines where no client can connect.
///
/// The handler only wakes the watcher, whatever the signal interrupts; a thread of the library's
/// writes. Signals that come before it begins count as one. The handler has `SA_RESTART`. Nothing is
/// written before a queue was made. A second call adds a signal. `UWORK_DUMP_SIGNAL=USR2` in the
/// environment does the same at the first queue, without code in the program; a program that has
/// more rights than its user ignores it. If the program sets the signal to its default, the handler is
/// installed again within a second while items run; a signal that comes before ends the process.
///
/// # Errors
/// The reason, in a line: the signal has a handler already, is ignored, cannot be handled, reports
/// faults, as SIGSEGV does, or is meant to end or stop a process, as SIGTERM is.
///
/// ```
/// const SIGUSR2: i32 = 12;
/// const SIGKILL: i32 = 9;
/// assert_eq!(uwork::control::dump_on_signal(SIGUSR2), Ok(()));
/// assert!(uwork::control::dump_on_signal(SIGKILL).is_err());
/// ```
pub fn dump_on_signal(signal: i32) -> Result<(), String> {
    uwork_linux::control::call_on_signal(signal, write_dump)
}

fn write_dump() {
    let runs = crate::long_runs(LONG);
    uwork_linux::print(&format!("{}\n{runs}", crate::dump()));
}
