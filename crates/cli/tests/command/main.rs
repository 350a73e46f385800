//! The command `uwork`: the output, the files and the exit code of each subcommand.

mod answering;
mod bridge;
mod observed;
mod process;
mod report;
mod sim;
mod sum;
mod top;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../uwork/tests/support"]
mod support {
    pub(crate) mod child;
    pub(crate) mod guard;
}
mod topology;
