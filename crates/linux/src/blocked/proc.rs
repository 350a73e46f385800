//! The state of a thread, from `/proc/self/task/TID/stat`.

use std::io::Write;
use std::os::fd::RawFd;

use uwork_engine::host::Activity;

use crate::descriptor::{Expected, OwnDescriptor, briefly, is_passing};

/// How much of the file is read: the name, which precedes the state, has at most 15 bytes, but may
/// be escaped.
const READ_MAX: usize = 128;

/// The reason for which a thread's state is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The thread has ended.
    Ended,
    /// The process, or the system, has no descriptor left, or the program has closed it at once.
    Exhausted,
    /// The system does not show the state of threads, not even of this one: the error's number.
    Hidden(i32),
}

fn read(thread: u64) -> Result<Option<Activity>, i32> {
    briefly(Expected::Process, || open_stat(thread), activity_by)
}

/// Whether the system shows the state of threads.
///
/// # Errors
/// The number of the system's error.
pub(super) fn is_there() -> Result<(), i32> {
    read(crate::thread::id())?.map(drop).ok_or(libc::EIO)
}

/// The state of a thread of this process. Five system calls, 8 us, and several times as much after a
/// pause; allocates nothing.
pub(super) fn activity(thread: u64) -> Result<Activity, Unknown> {
    match read(thread) {
        Ok(activity) => activity.ok_or(Unknown::Ended),
        Err(error) if is_passing(error) => Err(Unknown::Exhausted),
        // An ended thread gives the same error as a missing `/proc`.
        Err(_) => match is_there() {
            Err(error) if !is_passing(error) => Err(Unknown::Hidden(error)),
            _ => Err(Unknown::Ended),
        },
    }
}

/// How long the calling thread has waited for a CPU, in nanoseconds: the second number of its
/// `schedstat`. `None` if the system does not tell. Eight system calls at most, some microseconds.
pub(crate) fn run_delay() -> Option<u64> {
    let path = c"/proc/thread-self/schedstat";
    // SAFETY: the path ends with a zero byte.
    let open = || unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    briefly(Expected::Process, open, run_delay_by).ok()?
}

fn run_delay_by(file: RawFd) -> Option<u64> {
    let mut text = [0_u8; READ_MAX];
    // SAFETY: the buffer is live and of the given length.
    let read = unsafe { libc::pread(file, text.as_mut_ptr().cast(), text.len(), 0) };
    let text = std::str::from_utf8(text.get(..usize::try_from(read).ok()?)?).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The file of a thread of this process, to stay open.
///
/// # Errors
/// The number of the system's error.
pub(super) fn open(thread: u64) -> Result<OwnDescriptor, i32> {
    let opened = OwnDescriptor::open(Expected::Process, || open_stat(thread));
    opened.map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// A new descriptor, or -1 with the error in `errno`.
fn open_stat(thread: u64) -> RawFd {
    let mut path = [0_u8; 48];
    // A path that does not fit is cut, and names no file.
    let _ = write!(&mut path[..47], "/proc/self/task/{thread}/stat");
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

/// The state of the thread of an open file. One system call, 3 us; `None` if the thread has ended, or
/// if the file is another one: reading that changes nothing in it.
pub(super) fn activity_by(file: RawFd) -> Option<Activity> {
    let mut text = [0_u8; READ_MAX];
    // SAFETY: the buffer is live and of the given length.
    let read = unsafe { libc::pread(file, text.as_mut_ptr().cast(), text.len(), 0) };
    activity_in(text.get(..usize::try_from(read).ok()?)?)
}

/// The state in the first part of such a file: `TID (NAME) STATE ...`, where the name can contain
/// any bytes.
fn activity_in(stat: &[u8]) -> Option<Activity> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    match stat.get(name_ends + 1..)? {
        [b' ', b'R', ..] => Some(Activity::Runs),
        // Sleeps, waits for a disk or a page, idles in the kernel.
        [b' ', b'S' | b'D' | b'I', ..] => Some(Activity::Sleeps { since: None }),
        [b' ', b'T' | b't', ..] => Some(Activity::Stopped),
        // Dead, or an unknown state.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_parsed_after_any_thread_name() {
        let sleeps = Some(Activity::Sleeps { since: None });
        for (stat, wanted) in [
            ("12 (uw/0) S 1 12", sleeps),
            ("12 (uw/0) D 1 12", sleeps),
            ("12 (uw/0) R 1 12", Some(Activity::Runs)),
            ("12 (a) R (b) S) t 1 12", Some(Activity::Stopped)),
            ("12 (uw/0) T 1", Some(Activity::Stopped)),
            ("12 (uw/0) X 1", None),
            ("12 (uw/0) Z 1", None),
            ("12 (uw/0)", None),
            ("12 uw S 1", None),
            ("", None),
        ] {
            assert_eq!(activity_in(stat.as_bytes()), wanted, "{stat}");
        }
    }

    #[test]
    fn this_thread_runs_and_a_missing_thread_has_no_state() {
        assert_eq!(is_there(), Ok(()));
        assert_eq!(activity(crate::thread::id()), Ok(Activity::Runs));
        assert_eq!(activity(u64::MAX), Err(Unknown::Ended));
        assert_eq!(activity(0), Err(Unknown::Ended));
    }

    #[test]
    fn a_thread_in_a_read_sleeps() {
        use std::io::Read;
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                tell.send(crate::thread::id()).unwrap();
                let _ = reader.read(&mut [0]);
            });
            let thread = told.recv().unwrap();
            while activity(thread) != Ok(Activity::Sleeps { since: None }) {
                std::thread::yield_now();
            }
            drop(writer);
        });
    }
}
