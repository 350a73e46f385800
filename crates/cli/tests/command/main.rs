//! The command `uwork`, each subcommand by its output, its files and its exit code.

mod bench;
mod bench_blocking;
mod bench_percpu;
mod bench_progress;
mod bench_taskwork;
mod serve;
mod sum;
mod topology;
