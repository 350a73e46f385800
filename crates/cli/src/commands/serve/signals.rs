//! The signals that end the server.

use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc::Sender;

/// Why the server ends.
pub(super) enum End {
    /// It was told to, by the signal of this name.
    Signal(&'static str),
    /// A thread of it has failed.
    Failure,
}

/// SIGINT and SIGTERM, held back from now on, for this thread and those that it starts.
pub(super) struct Signals(libc::sigset_t);

impl Signals {
    pub(super) fn block() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is made by the first call and changed by the others; the signals exist.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            set.assume_init()
        };
        // SAFETY: the set is live; the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        Self(set)
    }

    /// Tells of the first one. The second one ends the process at once, with the status that shells give it.
    pub(super) fn tell(self, of: Sender<End>) -> io::Result<()> {
        let wait = move || {
            // Whoever is not interested any more is ending already.
            let _ = of.send(End::Signal(self.wait().1));
            let (signal, name) = self.wait();
            eprintln!("uwork serve: {name} once more: ended at once");
            std::process::exit(128 + signal);
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }

    /// Waits for one.
    fn wait(&self) -> (i32, &'static str) {
        let mut signal = 0;
        // SAFETY: both are live. It fails only for a signal that does not exist.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        (signal, if signal == libc::SIGINT { "SIGINT" } else { "SIGTERM" })
    }
}
