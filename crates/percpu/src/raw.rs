//! What `uwork` and the C interface build on: locks at any address, memory of any layout, calls in
//! progress, and their registration for forks. Not part of the public API.

pub use crate::cache::depot::Source;
pub use crate::cache::raw::{Capacity, RawCache, capacity};
pub use crate::calls::{call, flush};
pub use crate::forks::{Registration, give_up};
pub use crate::locks::Locks;
pub use crate::mode::fix_local;
