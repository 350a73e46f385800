//! The state of a thread, from `/proc/self/task/TID/stat`.

use std::io::{Error, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::host::Activity;

/// How much of the file is read: the name, which precedes the state, has at most 15 bytes, but may
/// be escaped.
const READ_MAX: usize = 128;

/// A descriptor held in reserve: if the process has reached its limit of open files, closing it
/// frees one for this module. Holds its number plus 1, or `NO_RESERVE`.
static RESERVE: AtomicU32 = AtomicU32::new(NO_RESERVE);
const NO_RESERVE: u32 = 0;

/// Whether the system shows the state of threads.
pub(super) fn is_there() -> bool {
    activity(super::super::thread::id()).is_some()
}

/// The state of a thread of this process. None if the thread has ended, or `/proc` is missing.
/// Three system calls, 7 us, and several times as much after a pause; allocates nothing.
pub(crate) fn activity(thread: u64) -> Option<Activity> {
    let file = match open(thread) {
        Err(libc::EMFILE | libc::ENFILE) => {
            // If another thread takes the freed descriptor first, this attempt fails.
            release_reserve();
            open(thread)
        }
        file => file,
    };
    let activity = file.ok().and_then(|file| activity_by(&file));
    hold_reserve();
    activity
}

/// The file of a thread of this process, or the error's number.
pub(super) fn open(thread: u64) -> Result<OwnedFd, i32> {
    let mut path = [0_u8; 48];
    write!(&mut path[..47], "/proc/self/task/{thread}/stat").map_err(|_| libc::ENAMETOOLONG)?;
    // SAFETY: the path ends with a zero byte.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    // SAFETY: opened above, and owned by this function.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// The state of this file's thread. One system call, 3 us; None if the thread has ended.
pub(super) fn activity_by(file: &OwnedFd) -> Option<Activity> {
    let mut text = [0_u8; READ_MAX];
    // SAFETY: the buffer is live and of the given length; the file is open.
    let read = unsafe { libc::pread(file.as_raw_fd(), text.as_mut_ptr().cast(), text.len(), 0) };
    activity_in(text.get(..usize::try_from(read).ok()?)?)
}

fn hold_reserve() {
    if RESERVE.load(Ordering::Relaxed) != NO_RESERVE {
        return;
    }
    // SAFETY: no pointers.
    let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    let number = (file + 1) as u32;
    let held = RESERVE.compare_exchange(NO_RESERVE, number, Ordering::Relaxed, Ordering::Relaxed);
    if file >= 0 && held.is_err() {
        // SAFETY: made above, and owned by this function.
        unsafe { libc::close(file) };
    }
}

/// Closes the reserved descriptor, if any.
pub(super) fn release_reserve() {
    let number = RESERVE.swap(NO_RESERVE, Ordering::Relaxed);
    if number != NO_RESERVE {
        // SAFETY: an unused descriptor of this module; the thread that swaps it out closes it.
        unsafe { libc::close((number - 1) as i32) };
    }
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
