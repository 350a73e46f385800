//! What a thread is at, from `/proc/self/task/TID/stat`.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use uwork_engine::host::Activity;

/// As much of the file as is read: the name, which comes before the state, has 15 bytes at most, but may
/// be escaped.
const READ_MAX: usize = 128;

/// The file of a thread of this process, and nothing if it is gone, there is no `/proc`, or no file to be had.
/// Allocates nothing.
pub(super) fn open(thread: u64) -> Option<OwnedFd> {
    let mut path = [0_u8; 48];
    write!(&mut path[..47], "/proc/self/task/{thread}/stat").ok()?;
    // SAFETY: the path ends with a zero byte.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: a file that was just opened, and that nobody else knows of.
    (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
}

/// What the thread of this file is at. One system call, 3 us; nothing if the thread is gone.
pub(super) fn activity_by(file: &OwnedFd) -> Option<Activity> {
    let mut text = [0_u8; READ_MAX];
    // SAFETY: the buffer is live and as long as said; the file is open.
    let read = unsafe { libc::pread(file.as_raw_fd(), text.as_mut_ptr().cast(), text.len(), 0) };
    activity_in(text.get(..usize::try_from(read).ok()?)?)
}

/// What a thread of this process is at. Nothing if it is gone, or there is no `/proc`. Three system calls,
/// 7 us, and several times as much after a pause.
pub(super) fn activity(thread: u64) -> Option<Activity> {
    activity_by(&open(thread)?)
}

/// The state in the first part of such a file: `TID (NAME) STATE ...`, where the name may be anything.
fn activity_in(stat: &[u8]) -> Option<Activity> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    match stat.get(name_ends + 1..)? {
        [b' ', b'R', ..] => Some(Activity::Runs),
        // Sleeps, waits for a disk or a page, idles in the kernel.
        [b' ', b'S' | b'D' | b'I', ..] => Some(Activity::Sleeps { since: None }),
        [b' ', b'T' | b't', ..] => Some(Activity::Stopped),
        // Dead, or a state that is not known.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_behind_any_name() {
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
    fn this_thread_runs_and_no_thread_is_nothing() {
        assert_eq!(activity(super::super::super::thread::id()), Some(Activity::Runs));
        assert_eq!(activity(u64::MAX), None);
        assert_eq!(activity(0), None);
    }

    #[test]
    fn a_thread_in_a_read_sleeps() {
        use std::io::Read;
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                tell.send(super::super::super::thread::id()).unwrap();
                let _ = reader.read(&mut [0]);
            });
            let thread = told.recv().unwrap();
            while activity(thread) != Some(Activity::Sleeps { since: None }) {
                std::thread::yield_now();
            }
            assert!(writer.as_raw_fd() >= 0);
            drop(writer);
        });
    }
}
