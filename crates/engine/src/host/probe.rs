//! Points on an item's way that tracing tools can see: the kernel's workqueue tracepoints.

use crate::item::Work;

/// The values of the kernel's tracepoint `workqueue_queue_work`.
#[derive(Clone, Copy, Debug)]
pub struct SubmissionProbe<'a> {
    /// The item and its function.
    pub item: ItemProbe,
    /// The queue's name.
    pub queue: &'a str,
    /// The CPU in whose pod the item was queued.
    pub requested_cpu: u32,
    /// The pool's CPU; None if its pod has several.
    pub cpu: Option<u32>,
}

/// The values of the other tracepoints.
#[derive(Clone, Copy, Debug)]
pub struct ItemProbe {
    /// The item's address.
    pub item: usize,
    /// The address of its function's code.
    pub function: usize,
}

impl ItemProbe {
    pub(crate) fn of(item: &Work) -> ItemProbe {
        ItemProbe { item: std::ptr::from_ref(item).addr(), function: item.func().address() }
    }
}

/// A tracepoint of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemPoint {
    /// `workqueue_activate_work`: a worker takes the item in a batch.
    Activated,
    /// `workqueue_execute_start`: its function is about to be called.
    Started,
    /// `workqueue_execute_end`: its function has returned. The item may be freed already.
    Ended,
}
