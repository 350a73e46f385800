//! The rules of the policy, a file for each.

mod admission;
mod cpuset;
mod deadlock;
mod machines;
mod percpu;
mod scopes;
