//! One module per subcommand; each has `Args` and `run`.

/// Writes a line to standard output, escaped as by `print`; returns from the function on an error.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::commands::say_line(format_args!($($text)*))?
    };
}

/// Writes a line to standard error, as by `one_line`. Nothing can report that its reader has
/// gone.
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::commands::complain_line(format_args!($($text)*))
    };
}

pub(crate) mod about;
#[cfg(feature = "bridge")]
pub(crate) mod bridge;
pub(crate) mod json;
#[cfg(feature = "process")]
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod scope;
#[cfg(any(feature = "bridge", feature = "process"))]
pub(crate) mod signals;
#[cfg(feature = "sim")]
pub(crate) mod sim;
pub(crate) mod sum;
pub(crate) mod topology;

use std::fmt;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::printable::{in_a_line, printable};

/// A user error: one line that states what is wrong and which values are allowed. The exit code is
/// 2.
#[derive(Debug)]
pub(crate) struct UserError(pub(crate) String);

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.0))
    }
}

/// A text with parts of others' as one line, for a reader.
pub(crate) fn one_line(text: &str) -> String {
    in_a_line(&without_numbers(text))
}

/// The text of errors of the system without their numbers, which the standard library appends to
/// the words.
pub(crate) fn without_numbers(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut parts = text.split(NUMBER);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => out + rest,
        _ => out + NUMBER + part,
    })
}

/// A file that another program may have made non-blocking, as a terminal that several share: it waits
/// for room.
pub(crate) struct Patient<W>(pub(crate) W);

impl<W: AsFd> Patient<W> {
    /// Calls `f` again as long as there is no room.
    fn repeat<T>(&mut self, f: impl Fn(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match f(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<W: io::Write + AsFd> io::Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.repeat(|out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.repeat(W::flush)
    }
}

/// Prints to standard output, as [`written`] does. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<ExitCode, UserError> {
    written(text).map(|_| ExitCode::SUCCESS)
}

/// Writes to standard output, escaped by [`printable`]. False if its reader has gone, as `head`
/// does: a command with more output ends then, without a message.
pub(crate) fn written(text: &str) -> Result<bool, UserError> {
    written_raw(printable(text).as_bytes())
}

/// As [`written`], for a payload that the user wants as it is.
pub(crate) fn written_raw(bytes: &[u8]) -> Result<bool, UserError> {
    let mut out = Patient(io::stdout().lock());
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(UserError(format!("standard output: {error}"))),
    }
}

/// See `say!`.
pub(crate) fn say_line(text: fmt::Arguments<'_>) -> Result<(), UserError> {
    print(&format!("{text}\n")).map(|_| ())
}

/// See `complain!`.
pub(crate) fn complain_line(text: fmt::Arguments<'_>) {
    let _ =
        Patient(io::stderr()).write_all(format!("{}\n", one_line(&text.to_string())).as_bytes());
}

/// Waits for `time` at most. True as soon as the reader of standard output has closed it: an idle
/// command would learn that from its next line only.
pub(crate) fn reader_goes_within(time: Duration) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut watched = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
        // A time beyond the range of the system's is longer than any interval.
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut watched, timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) => {
                let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
                return watched[0].revents().intersects(gone);
            }
            Err(Errno::INTR) => {}
            Err(_) => {
                std::thread::sleep(left);
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: lines of a consumer that are dropped, since its standard error does not block.
    #[test]
    fn a_file_that_does_not_block_is_waited_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        let text = vec![b'x'; 1 << 20];
        let (all, mut out) = (text.clone(), Patient(writer));
        let writing = std::thread::spawn(move || out.write_all(&all).and_then(|()| out.flush()));
        let mut read = Vec::new();
        io::Read::read_to_end(&mut reader, &mut read).unwrap();
        writing.join().unwrap().unwrap();
        assert!(read == text);
        drop(reader);
        let (reader, writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        drop(reader);
        let error = Patient(writer).write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn an_error_has_the_words_of_the_system_and_not_its_number() {
        let full = io::Error::from_raw_os_error(28);
        let said = UserError(format!("a: {full}; b: {full}.")).to_string();
        assert_eq!(said, "a: No space left on device; b: No space left on device.");
        assert_eq!(without_numbers("a file (os error x)"), "a file (os error x)");
        assert_eq!(without_numbers("a (os error "), "a (os error ");
        let several = UserError("x\nuwork: process 1 is fine\t".to_owned()).to_string();
        assert_eq!(several, "x\\u000auwork: process 1 is fine\\u0009", "one line");
    }
}
