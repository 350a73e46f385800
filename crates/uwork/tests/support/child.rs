//! A test in a process of its own, for changes that affect a whole process: limits, privileges and
//! thresholds.
//!
//! The thread that starts the process waits for it. So the process ends with that thread: it cannot
//! outlive a test that has failed.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::panic::Location;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;

use super::TEST_MAX;
use super::forked::{end_with_parent, end_with_parent_still, threads_of, until_ended};
use super::guard::{Guard, KnownChild, progress};
use super::left_out;
use super::stderr::line;

/// The test for which a process was started.
const ALONE: &str = "UWORK_TEST_ALONE";
/// The process that started it.
const STARTED_BY: &str = "UWORK_TEST_STARTED_BY";

/// Whether this process was started for a test.
pub(crate) fn is_started() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Whether this process was started for `test`. If so, it ends with the process that started it.
fn is_alone(test: &str) -> bool {
    let is_alone = std::env::var_os(ALONE).is_some_and(|chosen| chosen == test);
    if is_alone {
        let starter = std::env::var(STARTED_BY).expect("set with the test");
        end_with_parent(starter.parse().expect("a number"));
    }
    is_alone
}

/// This test binary again, with one test: the one of this name in the caller's file, which is a
/// module of the binary or all of it.
#[track_caller]
fn command(test: &str) -> Command {
    let file = Path::new(Location::caller().file());
    let module = file.file_stem().and_then(|stem| stem.to_str()).expect("a source file");
    let in_module = format!("{module}::{test}");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, &in_module, "--nocapture", "--test-threads=1"]).env(ALONE, test);
    command.env(STARTED_BY, std::process::id().to_string());
    // A client of another test, which asks all processes, would wake the watcher and add a thread.
    command.env("UWORK_CONTROL", "0");
    command
}

/// The output of a process, which is killed if it hangs: later than its own watchdog ends it.
fn finished(mut command: Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("a process");
    let pid = process.id() as libc::pid_t;
    let known = KnownChild::new(pid);
    let (mut out, mut err) =
        (process.stdout.take().expect("a pipe"), process.stderr.take().expect("a pipe"));
    let stdout = thread::spawn(move || all_of(&mut out));
    let stderr = thread::spawn(move || all_of(&mut err));
    let hang = until_ended(pid, Guard::of_child(TEST_MAX * 2, pid)).err();
    if hang.is_some() {
        line(&format!("the process {pid} hangs; its threads:\n{}", threads_of(pid)));
        process.kill().expect("our child");
    }
    let status = process.wait().expect("our child");
    drop(known);
    let [stdout, mut stderr] = [stdout, stderr].map(|read| read.join().expect("no panic"));
    if let Some(hang) = hang {
        stderr.extend(format!("the process {hang}\n").bytes());
    }
    Output { status, stdout, stderr }
}

fn all_of(pipe: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).expect("a pipe");
    bytes
}

/// Runs `body` in a process of its own: this test binary again, with only the calling test, whose
/// name is `test`. Panics with the output of that process if it fails.
#[track_caller]
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    alone_with(test, |_| {}, body);
}

/// As [`alone`], with a prepared environment.
#[track_caller]
pub(crate) fn alone_with(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) {
    if let Some(said) = stderr_of(test, prepare, body) {
        eprint!("{said}");
    }
}

/// As [`alone`], once for each of these values of an environment variable, and without another one.
#[track_caller]
pub(crate) fn alone_each(
    test: &str,
    variable: &str,
    values: &[&str],
    without: &str,
    body: impl Fn(&str),
) {
    if is_alone(test) {
        return body(&std::env::var(variable).expect("set by the starting process"));
    }
    for value in values {
        let prepare = |command: &mut Command| _ = command.env_remove(without).env(variable, value);
        alone_with(test, prepare, || {});
    }
}

/// As [`alone_with`]. In the starting process, returns what the started one wrote to its standard
/// error.
#[track_caller]
pub(crate) fn stderr_of(
    test: &str,
    prepare: impl FnOnce(&mut Command),
    body: impl FnOnce(),
) -> Option<String> {
    if is_alone(test) {
        body();
        return None;
    }
    let mut command = command(test);
    prepare(&mut command);
    let output = finished(command);
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    // A wrong test name would run no test at all.
    let passed = output.status.success() && out.contains("1 passed");
    assert!(passed, "{test} in a process of its own: {}\n{out}{err}", output.status);
    // What the caller prints is dropped if the test passes.
    err.lines().filter(|said| said.contains(left_out::MARK)).for_each(line);
    Some(err)
}

/// As [`stderr_of`], for a process that may end in any way: its exit status, and its standard error.
#[track_caller]
pub(crate) fn ending_of(
    test: &str,
    prepare: impl FnOnce(&mut Command),
    body: impl FnOnce(),
) -> Option<(ExitStatus, String)> {
    if is_alone(test) {
        limit(libc::RLIMIT_CORE, 0);
        body();
        return None;
    }
    let mut command = command(test);
    prepare(&mut command);
    let output = finished(command);
    Some((output.status, String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The prefix of the lines that a process sends to the one that started it.
const SAYS: &str = "says: ";

/// A process of its own with which this one communicates, line by line.
pub(crate) struct Other {
    process: Child,
    _known: KnownChild,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// As [`alone_with`], but while `body` runs in a process of its own, this one communicates with
    /// it. In that process the result is `None`.
    #[track_caller]
    pub(crate) fn start(
        test: &str,
        prepare: impl FnOnce(&mut Command),
        body: impl FnOnce(),
    ) -> Option<Other> {
        if is_alone(test) {
            body();
            return None;
        }
        let mut command = command(test);
        prepare(&mut command);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let questions = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let _known = KnownChild::new(process.id() as libc::pid_t);
        Some(Other { process, _known, questions, answers })
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.process.id() as libc::pid_t
    }

    pub(crate) fn ask(&mut self, what: &str) {
        writeln!(self.questions, "{what}").expect("it listens");
    }

    /// The next line that the process sends.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        let lines = self.answers.by_ref().map(|line| line.expect("text"));
        // The output of the test harness is in between.
        let said = lines.filter_map(|line| Some(line.split_once(SAYS)?.1.to_owned())).next();
        progress();
        said.expect("it has more to say")
    }

    /// Waits for the process's end, which must be a success.
    #[track_caller]
    pub(crate) fn end(mut self) {
        let status = self.process.wait().expect("our child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a line to the process that started this one.
pub(crate) fn say(what: &str) {
    println!("{SAYS}{what}");
}

/// The next line from the process that started this one; `None` if that process has ended.
pub(crate) fn asked() -> Option<String> {
    std::io::stdin().lines().next().map(|line| line.expect("text"))
}

/// Drops all privileges of the process, if it has any.
pub(crate) fn become_nobody() {
    const NOBODY: u32 = 65_534;
    // SAFETY: no pointers but an empty list; glibc changes all threads.
    let outcome = unsafe {
        if libc::geteuid() != 0 {
            return;
        }
        libc::setgroups(0, std::ptr::null())
            | libc::setresgid(NOBODY, NOBODY, NOBODY)
            | libc::setresuid(NOBODY, NOBODY, NOBODY)
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    end_with_parent_still();
}

/// Sets the soft limit of a resource; the hard limit bounds it.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, value: u64) {
    let mut both = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is live.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut both) }, 0);
    both.rlim_cur = value.min(both.rlim_max);
    // SAFETY: as above.
    let outcome = unsafe { libc::setrlimit(resource, &raw const both) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}
