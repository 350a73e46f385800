//! A dump on a signal: chosen by the program, or by the environment.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};

use uwork::control;

use crate::scene;
use crate::support::child::{alone_each, alone_with};
use crate::support::signals::set_all_to_default;
use crate::support::{queue, until, watchdog};

#[test]
fn a_signal_writes_a_dump_with_stacks() {
    let _watchdog = watchdog();
    scene("a_signal_writes_a_dump_with_stacks", || {
        // Also without a socket: the signal needs the watcher alone.
        let queue = queue("signalled").build().unwrap();
        let written = StandardError::keep();
        control::dump_on_signal(libc::SIGUSR1).unwrap();
        control::dump_on_signal(libc::SIGUSR1).expect("again changes nothing");
        let stopped = control::dump_on_signal(libc::SIGSTOP).unwrap_err();
        assert!(stopped.contains("cannot be handled"), "{stopped}");
        let fault = control::dump_on_signal(libc::SIGFPE).unwrap_err();
        assert_eq!(fault, format!("signal {} reports faults", libc::SIGFPE));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let waits = queue.spawn(move || held.recv().is_err());
        let text = || written.text();
        until("a dump has the item and its stack", || {
            // SAFETY: no pointers; the handler is installed.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
            text().contains(queue.name()) && text().contains("\nstacks of 1 workers\n")
        });
        assert!(text().contains("a_signal_writes_a_dump_with_stacks"), "{}", text());
        drop(release);
        assert!(waits.join().unwrap());
    });
}

#[test]
fn the_environment_names_the_signal_for_a_dump() {
    let _watchdog = watchdog();
    let test = "the_environment_names_the_signal_for_a_dump";
    let prepare = |command: &mut std::process::Command| {
        command.env("UWORK_CONTROL", "0").env("UWORK_DUMP_SIGNAL", "SIGUSR2");
    };
    alone_with(test, prepare, || {
        let written = StandardError::keep();
        let queue = queue("signalled").build().unwrap();
        until("a dump", || {
            // SAFETY: no pointers; the handler is installed.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
            let text = written.text();
            text.contains(queue.name()) && text.contains("\nstacks of ")
        });
    });
}

/// What the process writes to its standard error, in a file without a name: none is left behind if the process is
/// killed.
struct StandardError(File);

impl StandardError {
    fn keep() -> StandardError {
        // SAFETY: the name ends with a zero.
        let number = unsafe { libc::memfd_create(c"stderr".as_ptr(), 0) };
        assert!(number >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just opened, and it has no other owner; standard error is this file from here on.
        unsafe {
            assert_eq!(libc::dup2(number, 2), 2);
            StandardError(File::from_raw_fd(number))
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(format!("/proc/self/fd/{}", self.0.as_raw_fd())).unwrap()
    }
}

impl Drop for StandardError {
    /// The reason of a failure is in the file.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.text());
        }
    }
}

/// What is called for a signal.
fn action_of(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: zeros are a valid value; a query, and the structure is live.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        action.sa_sigaction
    }
}

// Catches: a signal for a dump that ends a daemon; a handler of the program's that is replaced.
#[test]
fn a_signal_for_a_dump_has_its_handler_again_after_all_were_set_to_their_defaults() {
    let _watchdog = watchdog();
    let test = "a_signal_for_a_dump_has_its_handler_again_after_all_were_set_to_their_defaults";
    scene(test, || {
        let queue = queue("signalled").build().unwrap();
        let signals = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGRTMIN()];
        signals.into_iter().for_each(|signal| control::dump_on_signal(signal).unwrap());
        let own = action_of(libc::SIGUSR1);
        set_all_to_default();
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        until("the handlers are there again", || {
            queue.spawn(|| ()).join().unwrap();
            action_of(libc::SIGUSR1) == own && action_of(libc::SIGRTMIN()) == own
        });
        // All were looked at in one go.
        assert_eq!(action_of(libc::SIGUSR2), libc::SIG_IGN, "the program's");
    });
}

#[test]
fn a_signal_for_a_dump_that_cannot_be_taken_is_reported() {
    let _watchdog = watchdog();
    let test = "a_signal_for_a_dump_that_cannot_be_taken_is_reported";
    let wrong = ["USR3", "9", "SIG", "8", "11", "2", "15"];
    alone_each(test, "UWORK_DUMP_SIGNAL", &wrong, "UWORK_WORKERS", |wrong| {
        static SAID: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
        uwork::set_reporter(|report| SAID.lock().unwrap().push_str(&report.to_string())).unwrap();
        let _queue = queue("unsignalled").build().unwrap();
        let said = SAID.lock().unwrap();
        let starts = format!("UWORK_DUMP_SIGNAL={wrong:?} is ignored: allowed are HUP, QUIT, ");
        assert!(said.starts_with(&starts), "{said}");
        let reason = match wrong {
            "9" => "; signal 9 cannot be handled: ",
            "8" => "; signal 8 reports faults",
            "2" => "; signal 2 is meant to end or stop a process",
            "15" => "; signal 15 is meant to end or stop a process",
            "11" => "; signal 11 reports faults",
            _ => "numbers of signals that have no handler",
        };
        assert!(said.contains(reason), "{said}");
    });
}
