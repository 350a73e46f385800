//! Waits: for an item, for a queue, and declared by an item; and what takes a pending item back, a
//! cancel or a helping waiter.

mod block;
pub(crate) mod cancel;
mod dependency;
mod flush;
mod help;
mod notes;

pub use block::Context;
pub use cancel::DepthError;
pub use help::Helped;
