//! The command `uwork-lab`: the output, the files and the exit code of each subcommand.

mod bench;
mod bench_blocking;
mod bench_bridge;
mod bench_open;
mod bench_percpu;
mod bench_power;
mod bench_progress;
mod bench_taskwork;
mod hold;
#[path = "../../../../crates/uwork/tests/support/left_out.rs"]
mod left_out;
mod serve;
