//! For the C interface, whose items are laid out in a header, and whose functions are C's. No part of the
//! API: what is here follows the needs of that one crate.

use std::marker::{PhantomData, PhantomPinned};
use std::sync::OnceLock;

use uwork_engine::host::{Host, Report};
pub use uwork_engine::percpu::{CpuLock, Place, Recursion, Token};
pub use uwork_engine::{Context, ForeignFn, Work as RawWork};
use uwork_engine::{Delayed, Graced};

use crate::delayed::DelayedWork;
use crate::item::Work;
use crate::linux::Linux;
pub use crate::percpu::cache::raw::{Capacity, RawCache, capacity};
pub use crate::percpu::calls::{call as percpu_call, flush as percpu_flush};
pub use crate::percpu::forks::{Registration, give_up};
pub use crate::percpu::locks::Locks;
use crate::rcu::RcuWork;

/// Where in an item its function is, in bytes.
pub const FUNCTION_OFFSET: usize = RawWork::FUNCTION_OFFSET;
/// The last word of an item that was never queued; all others but the function are zero.
pub const IDLE_SPOT: u64 = RawWork::IDLE_SPOT;
/// The byte of a delayed item that is 1 if it is deferrable; all others behind the work are zero.
pub const DEFERRABLE_OFFSET: usize = Delayed::<Linux>::DEFERRABLE_OFFSET;

/// An idle item whose run calls `func` with the item's address, instead of what `T` says.
pub fn work<T, const ID: u64>(func: ForeignFn) -> Work<T, ID> {
    Work { raw: RawWork::foreign(func), marker: PhantomData, pinned: PhantomPinned }
}

/// Whether an item is disabled, so that queueing it would be refused.
pub fn is_disabled<T, const ID: u64>(work: &Work<T, ID>) -> bool {
    work.raw.disable_depth() > 0
}

/// The same, with a timer.
pub fn delayed_work<T, const ID: u64>(
    func: ForeignFn,
    deferrable: bool,
    slack: std::time::Duration,
) -> DelayedWork<T, ID> {
    let raw = Delayed::foreign(func, deferrable).with_slack(crate::delayed::nanos(slack));
    DelayedWork { raw, marker: PhantomData, pinned: PhantomPinned }
}

/// The same, that can wait for a grace period.
pub fn rcu_work<T, const ID: u64>(func: ForeignFn) -> RcuWork<T, ID> {
    RcuWork { raw: Graced::foreign(func), marker: PhantomData, pinned: PhantomPinned }
}

/// The address of the item that the calling thread runs, as a [`Work`], and its function: a foreign one's
/// address, or a number that is none.
pub fn current_item() -> Option<(usize, usize)> {
    let running = crate::linux::started()?.current_work()?;
    Some((running.item, running.func))
}

/// Ends the calling thread's read sides, but for the first so many, and says whose they were.
pub type EndReadSides = fn(u32) -> Option<String>;

static END_READ_SIDES: OnceLock<EndReadSides> = OnceLock::new();

/// The calling thread has `count` read sides now. `end` is called, on this thread, where an item has returned
/// with more of them than it has found.
#[inline]
pub fn set_read_sides(count: u32, end: EndReadSides) {
    if END_READ_SIDES.get().is_none() {
        let _ = END_READ_SIDES.set(end);
    }
    if let Some(engine) = crate::linux::started() {
        // SAFETY: the host's promise for the calling thread.
        unsafe { &*engine.host().thread() }.set_read_sides(count);
    }
}

/// An item before the one that the calling thread runs, of the same stretch, has left all of the thread's read
/// sides: ends them, and reports it.
pub fn end_left_read_sides() {
    if let Some(engine) = crate::linux::started() {
        engine.end_read_sides(0);
    }
}

pub(crate) fn end_read_sides(keep: u32) -> Option<String> {
    END_READ_SIDES.get().and_then(|end| end(keep))
}

/// Where the calling thread is.
pub fn context() -> Context {
    crate::linux::started().map_or_else(Context::default, |engine| engine.context())
}

/// Whether what [`current_item`] has said is a foreign function.
pub fn is_foreign(function: usize) -> bool {
    function >> (usize::BITS - 1) == 0
}

/// An item's address and that of its function.
pub type ItemAndFunction = (usize, usize);

static STANDS_FOR: OnceLock<fn(usize) -> Option<ItemAndFunction>> = OnceLock::new();

/// For a language that queues items of its own in place of the user's: asks `stands_for` of every item that a report or
/// a dump shows, by its address, for which one it stands. It may be called on any thread, with no locks held.
pub fn show_instead(stands_for: fn(usize) -> Option<ItemAndFunction>) {
    let _ = STANDS_FOR.set(stands_for);
}

/// See [`show_instead`].
pub(crate) fn stands_for(item: usize) -> Option<ItemAndFunction> {
    STANDS_FOR.get().and_then(|stands_for| stands_for(item))
}

/// The name of the function at an address, if the program's symbols tell it.
pub fn function_name(address: usize) -> Option<String> {
    crate::symbols::name(address)
}

/// A report in words. `None` for one that somebody else has told of already.
pub fn report_text(report: &Report) -> Option<String> {
    (!matches!(report, Report::ItemPanicked { .. })).then(|| report.to_string())
}
