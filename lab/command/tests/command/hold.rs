//! `uwork-lab bench workqueue --hold`: a process to look at.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Killed on drop, and by the system when the thread that has started it ends in another way.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_held_process_answers_on_its_socket_and_names_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "workqueue", "--hold"]).env("XDG_RUNTIME_DIR", folder.path());
    // SAFETY: the closure makes one system call, without pointers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut held = Held(command.stdout(Stdio::piped()).spawn().unwrap());
    let pid = held.0.id();
    let lines = BufReader::new(held.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: Vec<String> = lines.take(9).collect();
    assert!(lines[0].starts_with(&format!("process {pid} floods the queue `bench`")), "{lines:?}");
    let names: Vec<&str> =
        lines[1..].iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(names, ["ls", "get", "set", "monitor", "top", "trace", "dump", "doctor"]);

    let path = folder.path().join(format!("uwork/{pid}.sock"));
    let mut stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) => assert!(held.0.try_wait().unwrap().is_none(), "the process has ended"),
        }
        std::thread::yield_now();
    };
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    assert!(answers.next().unwrap().starts_with("uwork-control 1 "));
    writeln!(stream, "get devices/bench/affinity_scope").unwrap();
    assert!(answers.next().unwrap().starts_with("ok "));
    assert!(answers.next().unwrap().starts_with("default"));
    // `uwork dump --json` works on it.
    writeln!(stream, "dump json").unwrap();
    assert!(answers.next().unwrap().starts_with("ok "));
}
