//! Support for the C interface, whose items are laid out in a header and whose functions are C
//! functions. Not part of the public API: these items follow the needs of that one crate.

use std::marker::{PhantomData, PhantomPinned};
use std::sync::OnceLock;

use uwork_engine::host::{Host, Report};
pub use uwork_engine::percpu::{CpuLock, Place, Recursion, Token};
pub use uwork_engine::{Context, ForeignFn, Work as RawWork};
use uwork_engine::{Delayed, Graced};

use crate::item::{DelayedWork, Work, nanos};
use crate::linux::Linux;
pub use crate::percpu::cache::raw::{Capacity, RawCache, capacity};
pub use crate::percpu::calls::{call as percpu_call, flush as percpu_flush};
pub use crate::percpu::forks::{Registration, give_up};
pub use crate::percpu::locks::Locks;
use crate::rcu::RcuWork;

/// The offset in bytes of the function in an item.
pub const FUNCTION_OFFSET: usize = RawWork::FUNCTION_OFFSET;
/// The last word of an item that was never queued; all other words, except the function, are zero.
pub const IDLE_PLACEMENT: u64 = RawWork::IDLE_PLACEMENT;
/// The byte of a delayed item that is 1 if it is deferrable; all other bytes after the work are
/// zero.
pub const DEFERRABLE_OFFSET: usize = Delayed::<Linux>::DEFERRABLE_OFFSET;

/// An idle item whose run calls `func` with the item's address, in place of the implementation of
/// `T`.
pub fn work<T, const ID: u64>(func: ForeignFn) -> Work<T, ID> {
    Work { raw: RawWork::foreign(func), marker: PhantomData, pinned: PhantomPinned }
}

/// Whether an item is disabled, so that queueing it would be refused.
pub fn is_disabled<T, const ID: u64>(work: &Work<T, ID>) -> bool {
    work.raw.disable_depth() > 0
}

/// As [`work`], with a timer.
pub fn delayed_work<T, const ID: u64>(
    func: ForeignFn,
    deferrable: bool,
    slack: std::time::Duration,
) -> DelayedWork<T, ID> {
    let raw = Delayed::foreign(func, deferrable).with_slack(nanos(slack));
    DelayedWork { raw, marker: PhantomData, pinned: PhantomPinned }
}

/// As [`work`], for an item that can wait for a grace period.
pub fn rcu_work<T, const ID: u64>(func: ForeignFn) -> RcuWork<T, ID> {
    RcuWork { raw: Graced::foreign(func), marker: PhantomData, pinned: PhantomPinned }
}

/// The address of the item that the calling thread runs, as a [`Work`], and its function: the
/// address of a foreign function, or a number that is not an address (see [`is_foreign`]).
pub fn current_item() -> Option<(usize, usize)> {
    let running = crate::linux::started()?.current_work()?;
    Some((running.item, running.func))
}

/// Ends the calling thread's read sides except the given number of outermost ones, and returns the
/// name of their owner.
pub type EndReadSides = fn(u32) -> Option<String>;

static END_READ_SIDES: OnceLock<EndReadSides> = OnceLock::new();

/// Records that the calling thread is in `count` read sides now. If an item returns with more of
/// them than it started with, the engine calls `end` on this thread.
#[inline]
pub fn set_read_sides(count: u32, end: EndReadSides) {
    if END_READ_SIDES.get().is_none() {
        let _ = END_READ_SIDES.set(end);
    }
    if let Some(engine) = crate::linux::started() {
        // SAFETY: the host guarantees a live entry for the calling thread.
        unsafe { &*engine.host().thread() }.set_read_sides(count);
    }
}

/// Ends all read sides of the calling thread, and reports it: an earlier item of the same stretch
/// of runs left them open.
pub fn end_left_read_sides() {
    if let Some(engine) = crate::linux::started() {
        engine.end_read_sides(0);
    }
}

pub(crate) fn end_read_sides(keep: u32) -> Option<String> {
    END_READ_SIDES.get().and_then(|end| end(keep))
}

/// The calling thread's context.
pub fn context() -> Context {
    crate::linux::started().map_or_else(Context::default, |engine| engine.context())
}

/// Whether the function that [`current_item`] returned is a foreign function's address.
pub fn is_foreign(function: usize) -> bool {
    function >> (usize::BITS - 1) == 0
}

/// An item's address and that of its function.
pub type ItemAndFunction = (usize, usize);

static REPRESENTED_ITEM: OnceLock<fn(usize) -> Option<ItemAndFunction>> = OnceLock::new();

/// Registers `represented_item`, for a language binding that queues items of its own in place of the
/// user's. Reports and dumps call it with the address of every item that they show, to get the
/// user's item that it represents. Any thread may call it, with no locks held.
pub fn set_representative(represented_item: fn(usize) -> Option<ItemAndFunction>) {
    let _ = REPRESENTED_ITEM.set(represented_item);
}

/// See [`set_representative`].
pub(crate) fn represented_item(item: usize) -> Option<ItemAndFunction> {
    REPRESENTED_ITEM.get().and_then(|represented_item| represented_item(item))
}

/// The name of the function at an address, if the program's symbols contain it.
pub fn function_name(address: usize) -> Option<String> {
    crate::symbols::name(address)
}

/// The text of a report. `None` for a panic of an item, which the panic hook has reported already.
pub fn report_text(report: &Report) -> Option<String> {
    (!matches!(report, Report::ItemPanicked { .. })).then(|| report.to_string())
}
