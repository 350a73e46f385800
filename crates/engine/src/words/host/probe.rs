//! Points on an item's way that tracing tools can see: the kernel's workqueue tracepoints.

use crate::words::item::{ItemFn, ItemName, Work};

/// The values of the kernel's tracepoint `workqueue_queue_work`.
#[derive(Clone, Copy, Debug)]
pub struct SubmissionProbe<'a> {
    /// The item and its function.
    pub item: ItemProbe,
    /// The queue's name.
    pub queue: &'a str,
    /// The CPU that the caller has named, or the caller's.
    pub requested_cpu: u32,
    /// The pool's CPU; None if it has several.
    pub cpu: Option<u32>,
}

/// The values of the other tracepoints.
#[derive(Clone, Copy, Debug)]
pub struct ItemProbe {
    /// The item's address.
    pub item: usize,
    /// The address of its function's code.
    pub function: usize,
    /// The identity of that function.
    identity: usize,
}

impl ItemProbe {
    pub(crate) fn of(item: &Work) -> ItemProbe {
        ItemProbe::new(std::ptr::from_ref(item).addr(), item.func())
    }

    pub(crate) fn new(item: usize, function: ItemFn) -> ItemProbe {
        ItemProbe { item, function: function.address(), identity: function.identity() }
    }

    /// The name that the function gives itself. Asks the function, so the caller holds no lock.
    pub fn name(&self) -> Option<ItemName> {
        // SAFETY: the identity of an item's function.
        unsafe { ItemFn::from_identity(self.identity) }.name()
    }
}

/// A tracepoint of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemPoint {
    /// `workqueue_activate_work`: a worker takes the item in a batch.
    Activated,
    /// `workqueue_execute_start`: its function is about to be called.
    Started,
    /// `workqueue_execute_end`: its function has returned or panicked. The item may be freed already.
    Ended,
}
