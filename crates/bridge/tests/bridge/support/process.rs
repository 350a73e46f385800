//! Processes of jobs, whose begin and end a test sees without their numbers, which the system uses
//! again.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use super::owned::{Folder, pipe_at};
use super::patience::until;

/// A shell command for the background, in a folder with two named pipes. It runs until it is
/// killed, and at the latest until the test ends.
pub(crate) struct Background {
    folder: Folder,
    /// Keeps the command's input open.
    _input: File,
    output: File,
    /// What the command has written.
    said: Vec<u8>,
}

impl Background {
    pub(crate) fn new() -> Background {
        let folder = Folder::new();
        let input = pipe_at(&folder.path().join("input")).unwrap();
        let path = folder.path().join("output");
        drop(pipe_at(&path).unwrap());
        // It does not block in `open`, and it is no writer itself.
        let mut reading = OpenOptions::new();
        let output = reading.read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        Background { folder, _input: input, output, said: Vec::new() }
    }

    /// The command, which runs `first`. The shell variable `folder` must hold the path of the folder.
    pub(crate) fn command(first: &str) -> String {
        format!("{{ echo begun; {first}; exec cat; }} <$folder/input >$folder/output &")
    }

    pub(crate) fn folder(&self) -> String {
        self.folder.path().to_str().unwrap().to_owned()
    }

    /// Whether the command has begun at least once.
    pub(crate) fn has_begun(&mut self) -> bool {
        let mut said = std::mem::take(&mut self.said);
        self.read(&mut said);
        self.said = said;
        self.said.ends_with(b"begun\n")
    }

    /// Waits until no process of the command is left: none holds the output.
    pub(crate) fn wait_for_end(&mut self) {
        until("the process in the background has ended", || self.read(&mut Vec::new()));
    }

    /// Reads what was written, and returns whether no writer is left.
    fn read(&mut self, said: &mut Vec<u8>) -> bool {
        match self.output.read_to_end(said) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}
