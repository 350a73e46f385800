//! What a process is called: its command, its arguments and its user.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use super::apart::start_of;
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
    /// Without the command line, if that is not read in time.
    pub(super) fn of(process: u32, until: Instant) -> Named {
        if !is_proc_ours() {
            let command = command_of(process).unwrap_or_default();
            return Named { process, command, ..Named::default() };
        }
        let line = start_of(process, &format!("/proc/{process}/cmdline"), LINE_MAX, until);
        let line = String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ");
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
    use crate::commands::process::apart::tests::soon;

    #[test]
    fn this_process_has_a_name_a_user_and_a_command_line() {
        let own = Named::of(std::process::id(), soon());
        assert!(!own.command.is_empty() && !own.user.is_empty(), "{own:?}");
        assert!(own.arguments.contains("uwork"), "{own:?}");
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_000), "4000000000");
    }
}
