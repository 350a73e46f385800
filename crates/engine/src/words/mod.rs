//! The first room: all that imports no scheduler. Atomics, lists and queues in memory, items, the host's
//! interface, per-CPU locks, task work, and the data of dumps. Each protocol has its models.

pub mod combine;
pub mod deque;
pub mod dump;
pub mod embedded;
pub mod exchange;
pub mod futex;
pub mod host;
pub(crate) mod inbox;
pub(crate) mod item;
pub mod payload;
pub mod percpu;
pub mod places;
pub(crate) mod plural;
pub(crate) mod pointer;
pub(crate) mod slab;
pub mod sync;
pub mod task;
pub(crate) mod trace;
pub(crate) mod wake;
