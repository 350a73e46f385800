//! Tests in processes that the command looks into, and bounded waits.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use uwork::{Queue, control};

use crate::guard::{Guard, KnownChild, in_turns};

/// How long the process may make no progress in one wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// The test for which a process was started.
const ALONE: &str = "UWORK_TEST_ALONE";

/// Whether this process was started for the test of this path.
pub(crate) fn is_observed(test: &str) -> bool {
    std::env::var_os(ALONE).is_some_and(|chosen| chosen == test)
}

/// Runs `body` in a process of its own: this test program again, with the test of this path only,
/// and with a folder of its own for its socket. Neither other tests nor other processes of this
/// machine change its state or its list of processes. Panics with its output if it fails.
pub(crate) fn observed(test: &str, body: impl FnOnce()) {
    observed_of(test, |_| std::env::current_exe().unwrap(), body);
}

/// As [`observed`], with a copy of this program that has no symbols, named `stripped`.
pub(crate) fn observed_stripped(test: &str, body: impl FnOnce()) {
    let stripped = |folder: &Path| {
        let copy = folder.join("stripped");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&copy).arg(std::env::current_exe().unwrap());
        assert!(strip.status().unwrap().success(), "strip, which comes with the linker");
        copy
    };
    observed_of(test, stripped, body);
}

/// As [`observed`], with the program that `program` returns for the folder.
fn observed_of(test: &str, program: impl FnOnce(&Path) -> PathBuf, body: impl FnOnce()) {
    if is_observed(test) {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(program(folder.path()));
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, test)
        .env("XDG_RUNTIME_DIR", folder.path())
        // What the process leaves behind if it is killed ends with the folder.
        .env("TMPDIR", &temporary)
        .env_remove("UWORK_CONTROL")
        .stdin(Stdio::null());
    // SAFETY: the closure makes one system call, without pointers.
    unsafe {
        // It ends with the thread that has started it, in whichever way that ends.
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let files = ["out", "err"].map(|name| folder.path().join(name));
    let [out, err] = files.each_ref().map(|path| File::create(path).unwrap());
    let mut child = command.stdout(out).stderr(err).spawn().unwrap();
    let known = KnownChild::new(child.id() as libc::pid_t);
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let status = in_turns(WAIT_MAX * 2, |turn| {
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&turn.try_into().unwrap()));
        child.try_wait().unwrap()
    });
    let status = status.map_err(|hang| {
        child.kill().unwrap();
        child.wait().unwrap();
        format!("hangs: {hang}")
    });
    drop(known);
    let [out, err] =
        files.map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
    // A wrong path would run no test at all.
    let passed = status.as_ref().is_ok_and(ExitStatus::success) && out.contains("1 passed");
    assert!(passed, "{test} in a process of its own: {status:?}\n{out}{err}");
}

/// A queue of this process in the tree, and the process's number. Returns when the socket is open.
#[track_caller]
pub(crate) fn looked_at(name: &str) -> (Queue, String) {
    let queue = Queue::builder(name).sysfs().build().unwrap();
    until(control::socket, |_| true);
    (queue, std::process::id().to_string())
}

/// Another process with a queue of this name, whose state a test may change. It is killed when this
/// is dropped.
pub(crate) struct Other {
    child: Child,
    /// Open until the end: the runner of the tests may write more.
    _stdout: BufReader<ChildStdout>,
    pub(crate) socket: String,
}

/// Set in that process.
const OTHER: &str = "UWORK_TEST_OTHER";

impl Other {
    /// Starts the process: this test program again, with the test of this path, which is
    /// [`observed`]. In that process it does not return.
    pub(crate) fn start(test: &str, queue: &str) -> Other {
        if std::env::var_os(OTHER).is_some() {
            let (_queue, _) = looked_at(queue);
            println!("\n{}", control::socket().unwrap().display());
            // Until the end of the input, which is that of the parent.
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            std::process::exit(0);
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(OTHER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = stdout.by_ref().lines().map(Result::unwrap);
        let socket = lines.find(|line| line.ends_with(".sock")).unwrap();
        Other { child, _stdout: stdout, socket }
    }

    pub(crate) fn number(&self) -> String {
        self.child.id().to_string()
    }

    /// Returns when it has stopped.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
        let stat = || fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        until(stat, |stat| stat.contains(") T "));
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls `turn` until its value is as wanted. Panics with the last one if that is a hang.
#[track_caller]
pub(crate) fn until<T, E: std::fmt::Debug>(
    mut turn: impl FnMut() -> Result<T, E>,
    is_wanted: impl Fn(&T) -> bool,
) -> T
where
    T: std::fmt::Debug,
{
    let mut guard = Guard::new(WAIT_MAX);
    loop {
        let found = turn();
        match found {
            Ok(found) if is_wanted(&found) => return found,
            found => {
                if let Err(hang) = guard.poll() {
                    panic!("{hang}: {found:#?}");
                }
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn temporary_files_of_an_observed_process_are_in_the_folder_that_its_starter_removes() {
    let test = "observed::temporary_files_of_an_observed_process_are_in_the_folder_that_its_starter_removes";
    observed(test, || {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").unwrap();
        assert!(tempfile::tempdir().unwrap().path().starts_with(folder));
    });
}

/// Children of `nohup` ignore some signals, and so do those that a script starts with `&`. This command
/// ignores none.
pub(crate) fn with_default_signals(command: &mut Command) {
    // SAFETY: the calls are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let signals = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGALRM];
            for signal in signals.into_iter().chain([libc::SIGUSR1, libc::SIGUSR2]) {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}
