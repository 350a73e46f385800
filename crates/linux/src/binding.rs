//! Functions that a language binding registers, such as the C interface: the engine asks them about
//! items and read sides that only the binding knows.

use std::sync::OnceLock;

use uwork_engine::host::Host;

use crate::first_use;
use crate::process::started;

/// Ends the calling thread's read sides except the given number of outermost ones, and returns the
/// name of their owner.
pub type EndReadSides = fn(u32) -> Option<String>;

static END_READ_SIDES: OnceLock<EndReadSides> = OnceLock::new();

/// Records that the calling thread is in `count` read sides now. If an item returns with more of
/// them than it started with, the engine calls `end` on this thread.
#[inline]
pub fn set_read_sides(count: u32, end: EndReadSides) {
    first_use::once(&END_READ_SIDES, || end);
    if let Some(engine) = started() {
        // SAFETY: the host guarantees a live entry for the calling thread.
        unsafe { &*engine.host().thread() }.set_read_sides(count);
    }
}

/// Ends all read sides of the calling thread, and reports it: an earlier item of the same batch
/// left them open.
pub fn end_left_read_sides() {
    if let Some(engine) = started() {
        engine.end_read_sides(0);
    }
}

pub(crate) fn end_read_sides(keep: u32) -> Option<String> {
    END_READ_SIDES.get().and_then(|end| end(keep))
}

/// An item's address and that of its function.
pub type ItemAndFunction = (usize, usize);

static REPRESENTED_ITEM: OnceLock<fn(usize) -> Option<ItemAndFunction>> = OnceLock::new();

/// Registers `represented_item`, for a language binding that queues items of its own in place of the
/// user's. Reports and dumps call it with the address of every item that they show, to get the
/// user's item that it represents. Any thread may call it, with no locks held.
pub fn set_representative(represented_item: fn(usize) -> Option<ItemAndFunction>) {
    first_use::once(&REPRESENTED_ITEM, || represented_item);
}

/// See [`set_representative`].
pub fn represented_item(item: usize) -> Option<ItemAndFunction> {
    REPRESENTED_ITEM.get().and_then(|represented_item| represented_item(item))
}
