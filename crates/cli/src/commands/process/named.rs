//! What a process is called: its command, its arguments and its user.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use crate::peer::is_proc_ours;
use crate::printable::{self, in_a_line};

/// Characters of a command line that are shown.
const ARGUMENTS_MAX: usize = 60;
/// The bytes of it that are read. A process chooses where the kernel finds it, and how long it is.
const LINE_MAX: u64 = 64 << 10;

/// The name of the command, which the process may have chosen. None: the process has ended.
pub(super) fn command_of(process: u32) -> Option<String> {
    if !is_proc_ours() {
        return Some("-".to_owned());
    }
    Some(in_a_line(&printable::file(&format!("/proc/{process}/comm"))?))
}

/// A process as people know it.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) process: u32,
    pub(super) command: String,
    pub(super) user: String,
    /// The start of the command line.
    pub(super) arguments: String,
}

impl Named {
    pub(super) fn of(process: u32) -> Named {
        if !is_proc_ours() {
            let command = command_of(process).unwrap_or_default();
            return Named { process, command, ..Named::default() };
        }
        let line = start_of(&format!("/proc/{process}/cmdline"), LINE_MAX);
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let line = in_a_line(line.trim_end());
        let user = fs::metadata(format!("/proc/{process}")).map(|folder| folder.uid());
        Named {
            process,
            command: command_of(process).unwrap_or_default(),
            user: user.map_or_else(|_| "-".to_owned(), user_name),
            arguments: line.chars().take(ARGUMENTS_MAX).collect(),
        }
    }
}

/// The first bytes of a file in /proc whose text a process chooses. Empty if it cannot be read.
pub(crate) fn start_of(path: &str, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What was read before an error is kept.
    let _ = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    bytes
}

/// The name of a user, or the number of one without a name here.
fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| in_a_line(name))
    });
    name.unwrap_or_else(|| user.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: the memory of a command that a process fills by its command line.
    #[test]
    fn of_a_file_as_much_is_read_as_is_permitted() {
        assert_eq!(start_of("/dev/zero", 5), [0; 5]);
        assert!(start_of("/proc/none", 5).is_empty());
    }

    #[test]
    fn this_process_has_a_name_a_user_and_a_command_line() {
        let own = Named::of(std::process::id());
        assert!(!own.command.is_empty() && !own.user.is_empty(), "{own:?}");
        assert!(own.arguments.contains("uwork"), "{own:?}");
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_000), "4000000000");
    }
}
