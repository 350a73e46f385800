//! The rules of the policy, one file for each.

mod admission;
mod batch;
mod cpuset;
mod deadlock;
mod machines;
mod percpu;
mod scopes;
