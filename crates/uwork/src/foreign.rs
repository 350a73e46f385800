//! For the C interface, whose items are laid out in a header and not made by Rust code. No part of the
//! API: what is here follows the needs of that one crate.

use uwork_engine::Work as RawWork;
use uwork_engine::host::Report;

use crate::item::{WorkItem, perform};
use crate::linux::engine;

/// Where in a [`Work`](crate::Work) its function is, in bytes. An item in which that is not
/// [`function_of`] was not made by [`Work::new`](crate::Work::new).
pub const FUNCTION_OFFSET: usize = RawWork::FUNCTION_OFFSET;

/// What is at [`FUNCTION_OFFSET`] in every item of `T`.
pub fn function_of<T: WorkItem<ID>, const ID: u64>() -> usize {
    let function: unsafe fn(std::ptr::NonNull<RawWork>, uwork_engine::Action) = perform::<T, ID>;
    function as usize
}

/// The address of the item that the calling thread runs, as a [`Work`](crate::Work), and its
/// function, as [`function_of`].
pub fn current_item() -> Option<(usize, usize)> {
    engine().current_work().map(|running| (running.item, running.func))
}

/// The name of the function at an address, if the program's symbols tell it.
pub fn function_name(address: usize) -> Option<String> {
    crate::symbols::name(address)
}

/// A report in words. `None` for one that somebody else has told of already.
pub fn report_text(report: &Report) -> Option<String> {
    crate::linux::text(report)
}
