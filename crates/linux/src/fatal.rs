//! The end of a process that cannot continue: a message on standard error, then an abort.
//!
//! Used where a panic would unwind with locks held, or would leave threads waiting for ever. It
//! neither allocates nor takes a lock, so that it can be called anywhere.

use std::fmt::{self, Write};

/// Room for one message.
const LINE: usize = 512;

/// A message that is cut at the end of its buffer.
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

/// Prints the reason and aborts the process.
#[cold]
pub(super) fn abort(what: fmt::Arguments<'_>) -> ! {
    let mut line = Line { text: [0; LINE], used: 0 };
    let _ = writeln!(line, "uwork: {what}; the process ends here");
    // SAFETY: the line is live and of the given length. A failure cannot be reported.
    unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.used) };
    std::process::abort();
}

/// The calling thread's `errno`.
pub(super) fn errno() -> i32 {
    // SAFETY: the address is the calling thread's own `errno`.
    unsafe { *libc::__errno_location() }
}

/// An errno that prints its text, for the errors that filters and limits cause.
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
