//! The end of a process that cannot go on: a message on standard error, then an abort.
//!
//! Used where a panic would unwind with locks held, or would leave threads that wait for ever. It neither allocates
//! nor takes a lock, so that it can be called anywhere.

use std::fmt::{self, Write};

/// Room for one message.
const LINE: usize = 512;

/// A message that is cut where there is no more room.
struct Line {
    text: [u8; LINE],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.len().min(LINE - self.used);
        self.text[self.used..self.used + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        Ok(())
    }
}

/// Says what is missing, with the number of the system's error, and aborts the process.
#[cold]
pub(super) fn abort(what: fmt::Arguments<'_>) -> ! {
    let mut line = Line { text: [0; LINE], used: 0 };
    let _ = writeln!(line, "uwork: {what}; the process ends here");
    // SAFETY: the line is live and as long as said. Nobody can be told if this fails.
    unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.used) };
    std::process::abort();
}

/// The calling thread's last error of the system, as a number that fits into a message.
pub(super) fn errno() -> i32 {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

/// The name of an error of the system's, where it is one of those that filters and limits lead to.
pub(super) struct Errno(pub(super) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::EPERM => f.write_str("Operation not permitted"),
            libc::EACCES => f.write_str("Permission denied"),
            libc::ENOSYS => f.write_str("Function not implemented"),
            libc::ENOMEM => f.write_str("Cannot allocate memory"),
            libc::EINVAL => f.write_str("Invalid argument"),
            number => write!(f, "error {number}"),
        }
    }
}
