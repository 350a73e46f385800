//! Closures as task work: a boxed item.

use std::any::TypeId;
use std::ptr::NonNull;

use uwork_engine::task::{TaskCalls, TaskWork as RawWork};

use super::item::guarded;

/// A closure and its item, which comes first.
#[repr(C)]
pub(super) struct Closure<F> {
    work: RawWork,
    function: F,
}

impl<F: FnOnce() + Send + 'static> Closure<F> {
    const CALLS: &'static TaskCalls = &TaskCalls { run: Self::run, of: TypeId::of::<F> };

    /// Boxes the closure. The returned item must be run or taken back once.
    pub(super) fn leak(function: F) -> NonNull<RawWork> {
        let closure = Box::new(Closure { work: RawWork::new(Self::CALLS), function });
        // SAFETY: a box is not null.
        unsafe { NonNull::new_unchecked(Box::into_raw(closure)) }.cast()
    }

    /// # Safety
    /// `work` came from `leak`, and was not taken back.
    pub(super) unsafe fn take_back(work: NonNull<RawWork>) -> F {
        // SAFETY: by this function's contract; the work is the first field.
        unsafe { Box::from_raw(work.cast::<Closure<F>>().as_ptr()) }.function
    }

    unsafe fn run(work: NonNull<RawWork>) {
        // SAFETY: the list hands each item back once.
        guarded(unsafe { Self::take_back(work) });
    }
}
