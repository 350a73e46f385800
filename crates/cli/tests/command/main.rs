//! The command `uwork`: the output, the files and the exit code of each subcommand.

mod answering;
mod bridge;
mod process;
mod report;
mod sim;
mod sum;
mod top;
mod topology;
