//! Work items for tests: shared, safe to use, and checked for which side holds a reference.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::{
    Action, Busy, Delayed, DepthError, Helped, ItemName, QueueError, Queued, Rearmed, Work,
};

use crate::host::VirtualHost;
use crate::setup::{VirtualEngine, VirtualQueue};

/// A work item with a timer and a closure. The engine holds a reference while the item is queued.
/// It begins a cache line, so that costs do not depend on the allocator.
#[repr(C, align(64))]
pub struct Item {
    /// First field: its address is that of the item.
    delayed: Delayed<VirtualHost>,
    body: Box<dyn Fn() + Send + Sync>,
    /// References that the engine holds, or is being offered.
    engine_has: AtomicU32,
    /// How often the engine released the item without running it. An `Arc`, so a reader may outlive
    /// the item.
    released: Arc<AtomicU32>,
}

/// # Safety
/// The engine's promise: an `Item` that was queued, and now belongs to the function.
unsafe fn call(work: NonNull<Work>, action: Action) {
    if action == Action::Name {
        // SAFETY: by this function's contract.
        return unsafe { ItemName { type_name: "test::Item", id: 0, number: 0 }.report(work) };
    }
    // SAFETY: the reference that was given up when the item was queued. `engine_has` checks that it
    // exists, in case the engine calls twice.
    let item = unsafe {
        let item: *const Item = work.as_ptr().cast();
        let had = (*item).engine_has.fetch_sub(1, Ordering::Relaxed);
        assert!(had > 0, "an item is run that is not queued");
        Arc::from_raw(item)
    };
    match action {
        Action::Run => (item.body)(),
        _ => {
            item.released.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// As [`call`], for items of another function.
///
/// # Safety
/// As of [`call`].
unsafe fn call_other(work: NonNull<Work>, action: Action) {
    if action == Action::Name {
        // SAFETY: by this function's contract.
        return unsafe { ItemName { type_name: "test::OtherItem", id: 0, number: 0 }.report(work) };
    }
    // SAFETY: by this function's contract.
    unsafe { call(work, action) }
}

impl Item {
    /// An item whose timer has no slack.
    pub fn new(body: impl Fn() + Send + Sync + 'static) -> Arc<Item> {
        Item::of(Delayed::new(call), body)
    }

    /// The same, with another function than all other items.
    pub fn of_other_function(body: impl Fn() + Send + Sync + 'static) -> Arc<Item> {
        Item::of(Delayed::new(call_other), body)
    }

    /// An item whose timer may expire up to `slack_ns` later.
    pub fn with_slack(slack_ns: u64, body: impl Fn() + Send + Sync + 'static) -> Arc<Item> {
        Item::of(Delayed::new(call).with_slack(slack_ns), body)
    }

    /// An item for which no idle worker wakes.
    pub fn deferrable(body: impl Fn() + Send + Sync + 'static) -> Arc<Item> {
        Item::of(Delayed::deferrable(call), body)
    }

    fn of(delayed: Delayed<VirtualHost>, body: impl Fn() + Send + Sync + 'static) -> Arc<Item> {
        Arc::new(Item {
            delayed,
            body: Box::new(body),
            engine_has: AtomicU32::new(0),
            released: Arc::new(AtomicU32::new(0)),
        })
    }

    fn delayed(self: &Arc<Self>) -> NonNull<Delayed<VirtualHost>> {
        NonNull::new(Arc::as_ptr(self).cast_mut()).expect("not null").cast()
    }

    fn work(self: &Arc<Self>) -> NonNull<Work> {
        self.delayed().cast()
    }

    /// Creates a reference for the engine.
    fn lend(self: &Arc<Self>) {
        self.engine_has.fetch_add(1, Ordering::Relaxed);
        let _ = Arc::into_raw(self.clone());
    }

    /// Drops the engine's reference, which it did not take or has returned.
    fn take_back(self: &Arc<Self>) {
        let had = self.engine_has.fetch_sub(1, Ordering::Relaxed);
        assert!(had > 0, "an item comes back that was not queued");
        // SAFETY: the reference of `lend`.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(self)) });
    }

    fn offer(self: &Arc<Self>, queue: impl FnOnce() -> Queued) -> Queued {
        self.lend();
        let queued = queue();
        if queued != Queued::Yes {
            self.take_back();
        }
        queued
    }

    /// As `Queue::queue`.
    pub fn queue(self: &Arc<Self>, queue: &VirtualQueue) -> Queued {
        // SAFETY: the reference that was lent keeps the item where it is.
        self.offer(|| unsafe { queue.queue(self.work()) })
    }

    /// As `Queue::queue_on`.
    pub fn queue_on(self: &Arc<Self>, queue: &VirtualQueue, cpu: u32) -> Queued {
        // SAFETY: the reference that was lent keeps the item where it is.
        self.offer(|| unsafe { queue.queue_on(cpu, self.work()) }.expect("a CPU of the machine"))
    }

    /// As `queue_on`, for a CPU that may be missing: then the item is refused.
    pub fn try_queue_on(self: &Arc<Self>, queue: &VirtualQueue, cpu: u32) -> Queued {
        // SAFETY: the reference that was lent keeps the item where it is.
        self.offer(|| unsafe { queue.queue_on(cpu, self.work()) }.unwrap_or(Queued::Refused))
    }

    /// As `Queue::queue_node`, for an unbound queue.
    pub fn queue_node(self: &Arc<Self>, queue: &VirtualQueue, node: u32) -> Queued {
        self.offer(|| {
            // SAFETY: the reference that was lent keeps the item where it is.
            unsafe { queue.queue_node(Some(node), self.work()) }.expect("an unbound queue")
        })
    }

    /// As `Queue::queue_each`, for items that are not pending.
    pub fn queue_each(items: &[Arc<Self>], queue: &VirtualQueue) {
        let works: Vec<_> = items.iter().map(Item::work).collect();
        items.iter().for_each(Item::lend);
        // SAFETY: the references that were lent keep the items where they are.
        unsafe { queue.queue_each(&works, |at, queued| panic!("item {at}: {queued:?}")) };
    }

    /// As `Queue::queue_delayed`.
    pub fn queue_delayed(
        self: &Arc<Self>,
        queue: &VirtualQueue,
        cpu: Option<u32>,
        delay_ns: u64,
    ) -> Queued {
        // SAFETY: the reference that was lent keeps the item where it is.
        let outcome = || unsafe { queue.queue_delayed(cpu, self.delayed(), delay_ns) };
        self.offer(|| outcome().expect("a CPU of the machine"))
    }

    /// As `Queue::mod_delayed`.
    pub fn mod_delayed(
        self: &Arc<Self>,
        queue: &VirtualQueue,
        delay_ns: u64,
    ) -> Result<Rearmed, QueueError> {
        self.lend();
        // SAFETY: the reference that was lent keeps the item where it is.
        let outcome = unsafe { queue.mod_delayed(None, self.delayed(), delay_ns) };
        if outcome != Ok(Rearmed::Armed) {
            self.take_back();
        }
        outcome
    }

    /// As `Engine::cancel`.
    pub fn cancel(self: &Arc<Self>, engine: &VirtualEngine) -> bool {
        // SAFETY: live, as we have a reference.
        let was_pending = unsafe { engine.cancel(self.work()) };
        self.returned(was_pending)
    }

    /// As `Engine::cancel_sync`.
    pub fn cancel_sync(self: &Arc<Self>, engine: &VirtualEngine) -> Result<bool, DepthError> {
        // SAFETY: live, as we have a reference.
        unsafe { engine.cancel_sync(self.work()) }.map(|was_pending| self.returned(was_pending))
    }

    /// As `Engine::disable`.
    pub fn disable(self: &Arc<Self>, engine: &VirtualEngine) -> Result<bool, DepthError> {
        // SAFETY: live, as we have a reference.
        unsafe { engine.disable(self.work()) }.map(|was_pending| self.returned(was_pending))
    }

    /// As `Engine::enable`.
    pub fn enable(self: &Arc<Self>, engine: &VirtualEngine) -> Result<bool, DepthError> {
        // SAFETY: live, as we have a reference.
        unsafe { engine.enable(self.work()) }
    }

    fn returned(self: &Arc<Self>, was_pending: bool) -> bool {
        if was_pending {
            self.take_back();
        }
        was_pending
    }

    /// As `Engine::flush_work`.
    pub fn flush(self: &Arc<Self>, engine: &VirtualEngine) -> bool {
        // SAFETY: live, as we have a reference.
        unsafe { engine.flush_work(self.work()) }
    }

    /// As `Engine::flush_delayed`.
    pub fn flush_delayed(self: &Arc<Self>, engine: &VirtualEngine) -> bool {
        // SAFETY: live, as we have a reference.
        unsafe { engine.flush_delayed(self.delayed()) }
    }

    /// As `Engine::help`.
    pub fn help(self: &Arc<Self>, engine: &VirtualEngine) -> Helped {
        // SAFETY: live, as we have a reference.
        unsafe { engine.help(self.work()) }
    }

    /// Whether it is queued or armed.
    pub fn is_pending(&self) -> bool {
        self.delayed.work().is_pending()
    }

    /// As `Engine::busy`.
    pub fn busy(&self, engine: &VirtualEngine) -> Busy {
        engine.busy(self.delayed.work())
    }

    /// The counter of the engine's releases without a run.
    pub fn releases(&self) -> Arc<AtomicU32> {
        self.released.clone()
    }

    /// How often the engine released the item without running it.
    pub fn released(&self) -> u32 {
        self.released.load(Ordering::Relaxed)
    }
}
