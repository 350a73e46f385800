//! What an item shares with the handle that waits for its result, and with the frame that it is on: words
//! and their transitions. The library builds its handles on them.
//!
//! | type | decides |
//! |---|---|
//! | [`Outcome`] | when the result is delivered, which side frees the task, which waiter is woken |
//! | [`Polled`] | which thread has a future: the worker that polls it, or the thread that gives it up |
//! | [`Held`] | when a frame with an item on it may end |

mod held;
mod outcome;
mod polled;

pub use held::Held;
pub use outcome::Outcome;
pub use polled::{Polled, Why};
