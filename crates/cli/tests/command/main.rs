//! The command `uwork`: the output, the files and the exit code of each subcommand.

mod process;
mod sim;
mod sum;
mod top;
mod topology;
