//! Children of a fork whose failure must not end the test.
//!
//! The thread that forks waits for the child. So a child ends with the thread that forked it: it
//! cannot outlive a test that has failed, and needs no limit of time of its own.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};

use super::WAIT_MAX;
use super::guard::{Guard, Hang, KnownChild, begin_in_forked_child};
use super::stderr::{line, report_panics_of_children};

/// Runs `f` in a child, and panics here if it panics, crashes or hangs there.
#[track_caller]
pub(crate) fn in_child(f: impl FnOnce()) {
    match fork() {
        None => {
            let outcome = catch_unwind(AssertUnwindSafe(f));
            leave(outcome.is_ok())
        }
        Some(status) => assert_eq!(status, 0, "the child has failed"),
    }
}

/// Forks. `None` in the child, which continues on its only thread. In the parent: the exit status of
/// the child, once it has ended. Kills the child and panics if it hangs.
#[track_caller]
pub(crate) fn fork() -> Option<i32> {
    // Before the fork, for the hook.
    report_panics_of_children();
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: the child uses uwork, which allows it, and this test's own code.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", Error::last_os_error()),
        0 => {
            begin_in_forked_child();
            end_with_parent(parent);
            None
        }
        child => Some(status_of(child)),
    }
}

/// Ends a child. Runs nothing that its parent has registered for its own exit.
pub(crate) fn leave(is_right: bool) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(i32::from(!is_right)) }
}

/// The process with which this one ends; 0 for none.
static PARENT: AtomicI32 = AtomicI32::new(0);

/// Requests the end of this process when the thread that created it ends.
pub(crate) fn end_with_parent(parent: libc::pid_t) {
    PARENT.store(parent, Ordering::Relaxed);
    // SAFETY: numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Otherwise the parent has ended before the request, which never takes effect.
        if libc::getppid() != parent {
            libc::_exit(1);
        }
    }
}

/// Repeats the request of [`end_with_parent`], if there was one: a change of the user revokes it.
pub(crate) fn end_with_parent_still() {
    let parent = PARENT.load(Ordering::Relaxed);
    if parent != 0 {
        end_with_parent(parent);
    }
}

/// The exit status of a child, once it has ended. Kills it and panics if it hangs.
#[track_caller]
pub(crate) fn status_of(child: libc::pid_t) -> i32 {
    let known = KnownChild::new(child);
    // Longer than the child's own waits, which know what they wait for.
    let outcome = until_ended(child, Guard::of_child(WAIT_MAX * 2, child));
    if outcome.is_err() {
        line(&format!("the child {child} hangs; its threads:\n{}", threads_of(child)));
        // SAFETY: no pointers; the child was not waited for, so its number is its own.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: the status is live.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    drop(known);
    assert_eq!(waited, child);
    outcome.unwrap_or_else(|hang| panic!("the child {hang}"));
    status
}

/// The name, the state and the system call of each thread of a process, and where it sleeps.
pub(crate) fn threads_of(process: libc::pid_t) -> String {
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let shown = |thread: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit_once(") ").map_or("?", |(_, behind)| &behind[..1]).to_owned();
        let [name, sleeps_in, call] = ["comm", "wchan", "syscall"].map(read);
        format!("  {} {state} in {sleeps_in}: {}", name.trim_end(), call.trim_end())
    };
    threads.map(shown).collect::<Vec<_>>().join("\n")
}

/// Waits until a child has ended, without collecting its status.
pub(crate) fn until_ended(child: libc::pid_t, mut guard: Guard) -> Result<(), Hang> {
    let ended = descriptor_of(child);
    while !has_ended(&ended, guard.turn().as_millis() as libc::c_int) {
        guard.look()?;
    }
    Ok(())
}

/// Readable once the child has ended.
fn descriptor_of(child: libc::pid_t) -> OwnedFd {
    // SAFETY: numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as libc::c_int;
    assert!(descriptor >= 0, "pidfd_open: {}", Error::last_os_error());
    // SAFETY: just opened, and no other owner has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn has_ended(child: &OwnedFd, timeout_ms: libc::c_int) -> bool {
    let mut one = libc::pollfd { fd: child.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, live. An interrupted poll counts as a timeout.
    unsafe { libc::poll(&raw mut one, 1, timeout_ms) == 1 }
}
