//! The signals that end the server.

use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc::Sender;

/// Why the server stops.
pub(super) enum End {
    /// A signal with this name arrived.
    Signal(&'static str),
    /// A server thread failed.
    Failure,
}

/// SIGINT and SIGTERM, blocked in the calling thread and in the threads that it starts from now on.
pub(super) struct Signals(libc::sigset_t);

impl Signals {
    pub(super) fn block() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initializes the set before `sigaddset` changes it; the signal
        // numbers are valid.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            set.assume_init()
        };
        // SAFETY: the set is live; a null pointer for the old mask is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        Self(set)
    }

    /// Starts a thread that sends the first signal to `of`. A second signal ends the process at
    /// once with exit code 128 plus the signal's number, as shells report it.
    pub(super) fn tell(self, of: Sender<End>) -> io::Result<()> {
        let wait = move || {
            // If the receiver no longer exists, the server is stopping already.
            let _ = of.send(End::Signal(self.wait().1));
            let (signal, name) = self.wait();
            eprintln!("uwork-lab serve: {name} received again: exiting at once");
            std::process::exit(128 + signal);
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }

    /// Waits for one of the two signals.
    fn wait(&self) -> (i32, &'static str) {
        let mut signal = 0;
        // SAFETY: both pointers are live. The call fails only for an invalid signal number.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        (signal, if signal == libc::SIGINT { "SIGINT" } else { "SIGTERM" })
    }
}
