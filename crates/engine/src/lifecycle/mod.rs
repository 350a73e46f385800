//! The states of the whole engine: a change of its CPUs or settings, a freeze, a fork, a shutdown, and the
//! release of items that a shutdown took.

pub(crate) mod cpus;
pub(crate) mod disposal;
pub(crate) mod fork;
pub(crate) mod freeze;
pub(crate) mod housekeeping;
pub(crate) mod reach;
pub(crate) mod shutdown;

pub use fork::Forking;
pub use freeze::FreezeError;
pub use housekeeping::Housekeeping;
