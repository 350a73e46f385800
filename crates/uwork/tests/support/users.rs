//! Processes of several users, beside folders that no other test sees. Needs root.

use std::fs;
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::guard::{KnownChild, begin_in_forked_child};
use super::left_out::left_out;

/// Users without names, as a test must not be one that exists.
pub(crate) const ALICE: u32 = 70_001;
pub(crate) const BOB: u32 = 70_002;

/// The folders in which processes may have their sockets.
pub(crate) const PLACES: [&str; 3] = ["/run", "/dev/shm", "/tmp"];

/// Whether this process may make folders for itself, and processes of other users.
pub(crate) fn may_be_others() -> bool {
    // In a thread of its own, whose namespace ends with it.
    let tried = std::thread::spawn(|| {
        // SAFETY: no pointers.
        unsafe { libc::geteuid() == 0 && libc::unshare(libc::CLONE_NEWNS) == 0 }
    });
    let may = tried.join().expect("no panic");
    if !may {
        left_out("a test of several users", "this user is not root with CAP_SYS_ADMIN");
    }
    may
}

fn check(outcome: libc::c_int, what: &str) {
    assert_eq!(outcome, 0, "{what}: {}", Error::last_os_error());
}

fn mount(at: &str, flags: libc::c_ulong, data: &str) {
    let [kind, path, data] =
        ["tmpfs", at, data].map(|text| std::ffi::CString::new(text).expect("no zero"));
    // SAFETY: the strings are live.
    let outcome = unsafe {
        libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    };
    check(outcome, at);
}

/// Gives the calling thread, and the processes that it starts, empty [`PLACES`] of their own.
pub(crate) fn own_places() {
    // SAFETY: the strings are live.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS), "a namespace");
        let (root, none) = (c"/".as_ptr(), std::ptr::null());
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(none, root, none, flags, none.cast()), "a tree of its own");
    }
    for (place, mode) in PLACES.iter().zip(["755", "1777", "1777"]) {
        mount(place, 0, &format!("mode={mode}"));
    }
}

/// Makes a place read-only, as it is in many containers.
pub(crate) fn make_read_only(place: &str) {
    mount(place, libc::MS_REMOUNT | libc::MS_RDONLY, "");
}

/// A folder of a user's.
pub(crate) fn folder_of(user: u32, path: impl AsRef<Path>, mode: u32) -> PathBuf {
    let path = path.as_ref();
    fs::create_dir_all(path).expect("room");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root");
    chown(path, Some(user), Some(user)).expect("root");
    path.to_owned()
}

/// Makes this process one of the user's, for good.
pub(crate) fn become_user(user: u32) {
    // SAFETY: no pointers but an empty list; glibc changes all threads.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()), "no groups");
        check(libc::setresgid(user, user, user), "a group");
        check(libc::setresuid(user, user, user), "a user");
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// The end of a child's conversation with its parent.
pub(crate) struct Parent {
    reads: std::io::PipeReader,
    says: std::io::PipeWriter,
}

impl Parent {
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.says, "{line}").expect("the parent reads");
    }

    /// Returns when the parent drops its [`Process`].
    pub(crate) fn wait(&mut self) {
        let _ = self.reads.read(&mut [0]);
    }
}

/// A child of this process, which ends when the value is dropped.
pub(crate) struct Process {
    /// Its number here.
    pub(crate) pid: u32,
    says: BufReader<std::io::PipeReader>,
    waits: std::io::PipeWriter,
    _known: KnownChild,
}

impl Process {
    /// Runs `body` in a child, which has used nothing of uwork's yet.
    pub(crate) fn start(body: impl FnOnce(&mut Parent)) -> Process {
        let (reads, waits) = std::io::pipe().expect("a pipe");
        let (said, says) = std::io::pipe().expect("a pipe");
        // SAFETY: the child uses uwork, which allows it, and this test's own code.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", Error::last_os_error()),
            0 => {
                begin_in_forked_child();
                drop((waits, said));
                // SAFETY: numbers only.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let mut parent = Parent { reads, says };
                let outcome = catch_unwind(AssertUnwindSafe(|| body(&mut parent)));
                std::process::exit(i32::from(outcome.is_err()))
            }
            pid => {
                let (says, _known) = (BufReader::new(said), KnownChild::new(pid));
                Process { pid: pid as u32, says, waits, _known }
            }
        }
    }

    /// The next line that it tells. Panics if it has ended.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("text");
        assert!(line.ends_with('\n'), "process {} has ended", self.pid);
        line.trim_end().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Later children have the pipe as well, so that its end is no sign. The process may have ended.
        let _ = self.waits.write_all(b".");
        let mut status = 0;
        // SAFETY: our child; the structure is live.
        unsafe { libc::waitpid(self.pid as libc::pid_t, &raw mut status, 0) };
        if !std::thread::panicking() {
            assert_eq!(status, 0, "process {} has failed", self.pid);
        }
    }
}
