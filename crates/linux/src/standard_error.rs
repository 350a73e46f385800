//! What the library prints: directly, without the standard library's lock of standard error.
//!
//! No handler of a fork holds that lock. A thread of the program that is in the middle of a write at
//! the fork, to a full pipe for example, leaves it locked in the child for ever.
//!
//! A write to a pipe without a reader raises SIGPIPE for the calling thread, which may be one of the
//! program's, and one to a file beyond the limit of sizes (`ulimit -f`) raises SIGXFSZ. Their default
//! actions would end the program, so the signals do not leave this module.

use std::mem::MaybeUninit;

/// Writes a text to standard error, with one system call if the system takes it all: then lines of
/// several threads do not mix. A failure cannot be reported.
pub fn print(text: &str) {
    let mut without_signal = WithoutSignal::begin();
    let mut left = text.as_bytes();
    while !left.is_empty() {
        // SAFETY: the text is live, and of this length.
        let written = unsafe { libc::write(libc::STDERR_FILENO, left.as_ptr().cast(), left.len()) };
        match usize::try_from(written) {
            Ok(count) => left = &left[count..],
            Err(_) if crate::fatal::errno() == libc::EINTR => {}
            Err(_) => {
                without_signal.raised = match crate::fatal::errno() {
                    libc::EPIPE => libc::SIGPIPE,
                    libc::EFBIG => libc::SIGXFSZ,
                    _ => 0,
                };
                return;
            }
        }
    }
}

/// The signals that a write raises.
const SIGNALS: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// The calling thread blocks the signals until this is dropped, which discards the one that a write has
/// raised. Async-signal-safe.
struct WithoutSignal {
    before: libc::sigset_t,
    pending: libc::sigset_t,
    /// The signal that a write has raised; 0 if none.
    raised: i32,
}

impl WithoutSignal {
    fn begin() -> WithoutSignal {
        let blocked = set_of(&SIGNALS);
        // SAFETY: the sets are live; zeros are a valid value.
        unsafe {
            let [mut before, mut pending] =
                [MaybeUninit::<libc::sigset_t>::zeroed().assume_init(); 2];
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
            libc::sigpending(&raw mut pending);
            WithoutSignal { before, pending, raised: 0 }
        }
    }
}

impl Drop for WithoutSignal {
    fn drop(&mut self) {
        // SAFETY: the sets and the time are live; no information about the signal is wanted.
        unsafe {
            if self.raised != 0 && libc::sigismember(&raw const self.pending, self.raised) == 0 {
                let (raised, at_once) =
                    (set_of(&[self.raised]), libc::timespec { tv_sec: 0, tv_nsec: 0 });
                libc::sigtimedwait(&raw const raised, std::ptr::null_mut(), &raw const at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the set is live, and emptied before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::status_of;

    // Catches: a report that ends a program in C whose standard error has no reader.
    #[test]
    fn a_pipe_without_a_reader_ends_no_program() {
        // SAFETY: the child makes only calls that are safe after a fork; the numbers are live.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut pipe = [0; 2];
                libc::pipe(pipe.as_mut_ptr());
                libc::dup2(pipe[1], libc::STDERR_FILENO);
                libc::close(pipe[0]);
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                print("a report\n");
                // The signal is not delivered later either, and the mask is the one before.
                let mut mask = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
                libc::_exit(libc::sigismember(&raw const mask, libc::SIGPIPE));
            }
            child
        };
        assert_eq!(status_of(child), 0, "ended by a signal, or with the signal blocked");
    }

    // Catches: a report that ends a program in C whose standard error is a file that may not grow.
    #[test]
    fn a_file_at_its_limit_ends_no_program() {
        // SAFETY: the child makes only calls that are safe after a fork; what they are given is live.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                let file = libc::memfd_create(c"limited".as_ptr(), 0);
                libc::dup2(file, libc::STDERR_FILENO);
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                print("a report\n");
                let mut mask = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
                let is_written = libc::lseek(file, 0, libc::SEEK_END) != 0;
                libc::_exit(
                    i32::from(is_written) * 2 + libc::sigismember(&raw const mask, libc::SIGXFSZ),
                );
            }
            child
        };
        assert_eq!(
            status_of(child),
            0,
            "ended by a signal, or with it blocked (1), or not refused (2)"
        );
    }
}
