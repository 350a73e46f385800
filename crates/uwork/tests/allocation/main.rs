//! What allocates nothing. Counted per thread, by the allocator of this process.

mod percpu;
#[path = "../support/mod.rs"]
mod support;
mod task;
mod workqueues;

use support::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
