//! Support for the C interface, whose items are laid out in a header and whose functions are C
//! functions, and for the threads of the bridge. Not part of the public API: these items follow the
//! needs of those crates.

use std::marker::{PhantomData, PhantomPinned};

use uwork_engine::Delayed;
use uwork_engine::host::Report;
pub use uwork_engine::payload::payload_text;
pub use uwork_engine::percpu::{CpuLock, Place, Recursion, Token};
pub use uwork_engine::{Context, ForeignFn, Work as RawWork, must_return};
use uwork_linux::Linux;
pub use uwork_linux::binding::{
    EndReadSides, ItemAndFunction, end_left_read_sides, set_read_sides, set_representative,
};
pub use uwork_linux::cancel::{HeldOff, hold_off};
pub use uwork_linux::environment::variable;
pub use uwork_linux::forks;
pub use uwork_linux::hooks::may_run_items;
pub use uwork_linux::small_files::read as read_file;
pub use uwork_linux::symbols::name as function_name;
pub use uwork_linux::task::{ENDED as TASK_WORK_ENDED, has_ended as task_work_has_ended};
pub use uwork_linux::{
    StreamSocket, ThreadHandle, by_c_library, print, service_stack_size,
    start_joinable as start_thread,
};
#[cfg(feature = "percpu")]
pub use uwork_percpu::raw::{
    Capacity, Locks, RawCache, Registration, Source, call as percpu_call, capacity, fix_local,
    flush as percpu_flush, give_up,
};

use crate::item::{DelayedWork, Work, nanos};

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

/// Whether an item is disabled, so that a submission answers `Disabled`.
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
#[cfg(feature = "rcu")]
pub fn rcu_work<T, const ID: u64>(func: ForeignFn) -> crate::rcu::RcuWork<T, ID> {
    crate::rcu::RcuWork {
        raw: uwork_engine::Graced::foreign(func),
        marker: PhantomData,
        pinned: PhantomPinned,
    }
}

/// The address of the item that the calling thread runs, as a [`Work`], and its function: the
/// address of a foreign function, or a number that is not an address (see [`is_foreign`]).
pub fn current_item() -> Option<(usize, usize)> {
    let running = uwork_linux::started()?.current_work()?;
    Some((running.item, running.func))
}

/// The calling thread's context.
pub fn context() -> Context {
    uwork_linux::started().map_or_else(Context::default, |engine| engine.context())
}

/// [`blocking`](crate::blocking) for a binding's own waits, which cannot be unwound: in an item of a BH
/// queue it is reported once for each queue, and happens.
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    match uwork_linux::started() {
        Some(engine) => engine.declared_block(f),
        None => f(),
    }
}

/// Whether the function that [`current_item`] returned is a foreign function's address.
pub fn is_foreign(function: usize) -> bool {
    function >> (usize::BITS - 1) == 0
}

/// Ends the process with a message, because the system refuses futex(2) with this `errno`. For the
/// waits that a language binding makes itself.
pub fn futex_refused(errno: i32) -> ! {
    uwork_linux::futex::refused(errno)
}

/// The text of a report. `None` for a panic of an item, which the panic hook has reported already.
pub fn report_text(report: &Report) -> Option<String> {
    (!matches!(report, Report::ItemPanicked { .. })).then(|| report.to_string())
}

/// As [`Queue::spawn`](crate::Queue::spawn). None if there is no memory.
pub fn try_spawn<F, R>(queue: &crate::Queue, closure: F) -> Option<crate::JoinHandle<R>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    crate::join::try_spawn(queue, closure)
}
