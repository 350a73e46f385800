//! Every operation at once, with exact counts at the end. `ci/stress.sh` runs these optimized, and in rounds.

mod everything;
mod percpu;
#[path = "../support/mod.rs"]
mod support;
mod task;
