//! Queues that the library keeps for itself: no user can drain or fill them up.

use std::sync::OnceLock;

use crate::builder::Builder;
use crate::error::ErrorKind;
use crate::first_use;
use crate::queue::Queue;

/// The queue in `cell`, made at first use, with a name that begins with `stem`.
///
/// # Panics
/// It cannot be made: there is no thread.
pub(crate) fn own_queue(
    cell: &'static OnceLock<Queue>,
    stem: &str,
    describe: fn(Builder) -> Builder,
) -> &'static Queue {
    first_use::once(cell, || {
        let mut name = stem.to_owned();
        loop {
            match describe(Queue::builder(name.as_str())).build() {
                Ok(queue) => return queue,
                // A user has a queue of that name.
                Err(error) if error.kind() == ErrorKind::NameTaken => name.push('\''),
                Err(error) => panic!("a queue of the library cannot be made: {error}"),
            }
        }
    })
}
