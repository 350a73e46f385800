//! The command `uwork`: the output, the files and the exit code of each subcommand.

mod answering;
mod bridge;
mod crowd;
mod doctor;
mod evicted;
mod file_systems;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../uwork/tests/support/filter.rs"]
mod filter;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../uwork/tests/support/guard.rs"]
mod guard;
mod hostile;
mod json;
mod kinds;
mod left_behind;
#[path = "../../../uwork/tests/support/left_out.rs"]
mod left_out;
mod observed;
mod pipes;
mod process;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../uwork/tests/support/random.rs"]
mod random;
mod report;
mod sim;
mod strangers;
mod sum;
mod top;
mod topology;
mod trace;
mod untrusted;
#[path = "../../../uwork/tests/support/users.rs"]
mod users;
