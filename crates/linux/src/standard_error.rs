//! What the library prints: directly, without the standard library's lock of standard error.
//!
//! No handler of a fork holds that lock. A thread of the program that is in the middle of a write at
//! the fork, to a full pipe for example, leaves it locked in the child for ever.

/// Writes a text to standard error, with one system call if the system takes it all: then lines of
/// several threads do not mix. A failure cannot be reported.
pub fn print(text: &str) {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        // SAFETY: the text is live, and of this length.
        let written = unsafe { libc::write(libc::STDERR_FILENO, left.as_ptr().cast(), left.len()) };
        match usize::try_from(written) {
            Ok(count) => left = &left[count..],
            Err(_) if crate::fatal::errno() == libc::EINTR => {}
            Err(_) => return,
        }
    }
}
