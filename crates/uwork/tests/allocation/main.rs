//! Operations that allocate nothing. The allocator of this process counts per thread.

mod percpu;
#[path = "../support/mod.rs"]
mod support;
mod task;
mod workqueues;

use support::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
