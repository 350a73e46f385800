//! The command `uwork-lab`: the output, the files and the exit code of each subcommand.

mod bench;
mod bench_blocking;
mod bench_bridge;
mod bench_guest;
mod bench_open;
mod bench_percpu;
mod bench_power;
mod bench_progress;
mod bench_taskwork;
#[path = "../../../../crates/uwork/tests/support/guard.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod guard;
mod hold;
#[path = "../../../../crates/uwork/tests/support/left_out.rs"]
mod left_out;
#[path = "../../../../crates/uwork/tests/support/owned.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod owned;
#[path = "../../../../crates/uwork/tests/support/patience.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod patience;
mod serve;
