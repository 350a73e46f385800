//! The words that an item shares with the handle that waits for its result, and with the stack
//! frame that holds it, and their transitions. The library builds its handles on them.
//!
//! | type | decides |
//! |---|---|
//! | [`Outcome`] | when the result is delivered, which side frees the task, which waiter is woken |
//! | [`Polled`] | which thread owns a future: the worker that polls it or the thread that drops it; its submitter |
//! | [`Held`] | when a frame that holds an item may end |
//! | [`Hooked`] | whether a thread may call a thread hook, and when a remover may return |

mod held;
mod hooked;
mod outcome;
mod polled;

pub use held::Held;
pub use hooked::{Hooked, Owner};
pub use outcome::Outcome;
pub use polled::{Pending, Polled, Why};
