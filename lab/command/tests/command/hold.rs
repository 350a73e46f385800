//! `uwork-lab bench workqueue --hold`: a process to look at.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::owned::{Folder, Owned};
use crate::patience::until;

#[test]
fn a_held_process_answers_on_its_socket_and_names_the_commands() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "workqueue", "--hold"]);
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("UWORK_CONTROL");
    let mut held = Owned::spawn(command.stdout(Stdio::piped()));
    let pid = held.id();
    let lines = BufReader::new(held.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: Vec<String> = lines.take(9).collect();
    assert!(lines[0].starts_with(&format!("process {pid} floods the queue `bench`")), "{lines:?}");
    let names: Vec<&str> =
        lines[1..].iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(names, ["ls", "get", "set", "monitor", "top", "trace", "dump", "doctor"]);

    let name = format!("{pid}-");
    let mut connected = None;
    until("the socket of the process is open", || {
        assert!(held.ended().is_none(), "the process has ended");
        let files = std::fs::read_dir(folder.path().join("uwork")).into_iter().flatten().flatten();
        let mut own = files.filter(|file| file.file_name().to_str().unwrap().starts_with(&name));
        connected = own.next().and_then(|file| UnixStream::connect(file.path()).ok());
        connected.is_some()
    });
    let mut stream = connected.unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    assert!(answers.next().unwrap().starts_with("uwork-control 1 "));
    writeln!(stream, "get devices/bench/affinity_scope").unwrap();
    assert!(answers.next().unwrap().starts_with("ok "));
    assert!(answers.next().unwrap().starts_with("default"));
    // `uwork dump --json` works on it.
    writeln!(stream, "dump json").unwrap();
    assert!(answers.next().unwrap().starts_with("ok "));
}
