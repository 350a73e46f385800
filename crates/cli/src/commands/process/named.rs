//! What a process is called.

use std::fs;

use crate::client::printable;

/// The name of the command, which the process may have chosen. Empty if the process has ended.
pub(super) fn command_of(process: u32) -> String {
    let command = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    printable(command.trim_end()).replace(['\n', '\t'], "?")
}
