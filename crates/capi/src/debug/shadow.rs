//! Shadows: the objects that the engine queues instead of the program's items.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use uwork::rcu::RcuWork;
use uwork::{DelayedWork, Work, WorkItem};

use super::{abort, memory, named};
use crate::item::{Kind, UwWork, UwWorkFn};

/// The item that a shadow belongs to.
pub(crate) struct Owner {
    /// The item's address. Constant after creation.
    item: usize,
    /// Its function. Changed when the item is initialised again, while the shadow is idle.
    func: AtomicUsize,
    /// How often the item was initialised. Changed after the function.
    inits: AtomicU32,
    kind: Kind,
    slack_ns: u64,
}

impl Owner {
    pub(super) fn new(item: usize, func: usize, kind: Kind, slack_ns: u64) -> Owner {
        Owner { item, func: AtomicUsize::new(func), inits: AtomicU32::new(0), kind, slack_ns }
    }

    pub(super) fn func(&self) -> usize {
        self.func.load(Ordering::Relaxed)
    }

    pub(super) fn set_func(&self, func: usize) {
        self.func.store(func, Ordering::Relaxed);
        self.inits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn inits(&self) -> u32 {
        self.inits.load(Ordering::Acquire)
    }

    pub(super) fn is_for(&self, kind: Kind, slack_ns: u64) -> bool {
        self.kind == kind && self.slack_ns == slack_ns
    }

    /// Whether it was created with this slack.
    pub(super) fn is_for_slack(&self, slack_ns: u64) -> bool {
        self.slack_ns == slack_ns
    }

    pub(super) fn user(&self) -> *mut UwWork {
        std::ptr::with_exposed_provenance_mut(self.item)
    }

    /// The item's name for a message.
    pub(super) fn named(&self) -> String {
        named(self.item, self.func())
    }

    /// The message with which the process must end, if the item is damaged.
    pub(super) fn damage(&self) -> Option<String> {
        let what = memory::damage(self.item, self.func())?;
        Some(format!("{} is queued, and {what}", self.named()))
    }

    fn run(&self) {
        if let Some(text) = self.damage() {
            abort(&text);
        }
        let item = self.user();
        // SAFETY: its memory is as it was after the initialisation.
        let func: UwWorkFn =
            NonNull::new(item).and_then(|item| unsafe { crate::item::func(item).read() });
        let func = func.expect("an item has a function");
        // SAFETY: the function belongs to this item (uwork.h).
        uwork::foreign::must_return(|| unsafe { func(item) });
    }
}

/// The shadow of an item, with or without a timer.
pub(crate) struct TimedShadow {
    pub(super) owner: Owner,
    work: DelayedWork<TimedShadow>,
}

uwork::has_work!(impl HasDelayedWork for TimedShadow { work });

impl WorkItem for TimedShadow {
    type Pointer = &'static TimedShadow;

    fn run(this: &'static TimedShadow) {
        this.owner.run();
    }
}

/// The shadow of an item that can wait for a grace period.
pub(crate) struct GracedShadow {
    pub(super) owner: Owner,
    work: RcuWork<GracedShadow>,
}

uwork::has_work!(impl HasRcuWork for GracedShadow { work });

impl WorkItem for GracedShadow {
    type Pointer = &'static GracedShadow;

    fn run(this: &'static GracedShadow) {
        this.owner.run();
    }
}

impl TimedShadow {
    pub(super) fn new(owner: Owner) -> TimedShadow {
        let slack = Duration::from_nanos(if owner.was_found() { 0 } else { owner.slack_ns });
        let deferrable = owner.kind == Kind::Deferrable;
        let work = if deferrable { DelayedWork::deferrable() } else { DelayedWork::new() };
        TimedShadow { owner, work: work.with_slack(slack) }
    }

    pub(crate) fn plain(&'static self) -> &'static Work<TimedShadow> {
        // SAFETY: a delayed work begins with a work; both types are transparent.
        unsafe { NonNull::from(&self.work).cast().as_ref() }
    }

    pub(crate) fn delayed(&'static self) -> &'static DelayedWork<TimedShadow> {
        &self.work
    }

    pub(crate) fn pointer(&'static self) -> &'static TimedShadow {
        self
    }
}

impl GracedShadow {
    pub(super) fn new(owner: Owner) -> GracedShadow {
        GracedShadow { owner, work: RcuWork::new() }
    }

    pub(crate) fn plain(&'static self) -> &'static Work<GracedShadow> {
        // SAFETY: an RCU work begins with a work; both types are transparent.
        unsafe { NonNull::from(&self.work).cast().as_ref() }
    }

    pub(crate) fn graced(&'static self) -> &'static RcuWork<GracedShadow> {
        &self.work
    }

    pub(crate) fn pointer(&'static self) -> &'static GracedShadow {
        self
    }
}
