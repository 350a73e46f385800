//! The references that keep a queue, and its end when the last one is dropped.
//!
//! Two counts: handles keep a queue in use, owners keep its memory. Timers reference the memory
//! weakly and are no users: an expiry holds the memory for an instant only.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::queue::{QueueError, QueueSpec, Wq};
use crate::words::host::{Host, Report};
use crate::words::inbox::Node;
use crate::words::sync::Link;

/// A handle to a queue. Dropping the last handle closes the queue and waits until its items have
/// run. If the dropping thread is inside a work item or a thread hook, a separate thread does the
/// waiting.
pub struct Queue<H: Host> {
    /// A direct pointer to the queue that `handle` keeps, to save an indirection.
    wq: NonNull<Wq<H>>,
    handle: Arc<Handle<H>>,
}

// SAFETY: `wq` is a shared reference in all but name, kept by `handle`.
unsafe impl<H: Host> Send for Queue<H> {}
// SAFETY: as above.
unsafe impl<H: Host> Sync for Queue<H> {}

/// Keeps a queue's memory, for a short access without a handle. Its drop does not wait.
pub struct QueueMemory<H: Host>(Option<Arc<Owner<H>>>);

impl<H: Host> Drop for QueueMemory<H> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Owner::let_go);
    }
}

/// Counts the users.
struct Handle<H: Host>(Arc<Owner<H>>);

/// Owns the memory.
pub(crate) struct Owner<H: Host>(ManuallyDrop<Box<Wq<H>>>);

impl<H: Host> Owner<H> {
    pub(crate) fn wq(&self) -> &Wq<H> {
        &self.0
    }

    /// Waits until the items have run. Others may keep the memory for an instant, but not the name, nor
    /// the queue's part in the caps of its pools.
    fn end(&self) {
        self.wq().settle();
        self.wq().end_limits();
        self.wq().release_name();
    }

    /// Releases an owner that was held for a short access. Does not wait: if it has become the last
    /// owner of a queue with items in it, a separate thread waits.
    pub(crate) fn let_go(owner: Arc<Owner<H>>) {
        if let Some(last) = Arc::into_inner(owner) {
            last.go();
        }
    }

    /// Drops the last owner, without waiting.
    pub(crate) fn go(self) {
        if !self.wq().is_idle() {
            let engine = self.wq().engine().clone();
            drop_on_own_thread(&engine, self);
        }
    }
}

// SAFETY: the link is a field of the queue that has no other use.
unsafe impl<H: Host> Node for Wq<H> {
    unsafe fn set_next(this: *mut Self, next: *mut Self) {
        // SAFETY: by this function's contract.
        unsafe { (*this).next_unreleased.set(Link(next)) };
    }

    unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: by this function's contract.
        unsafe { (*this).next_unreleased.get().0 }
    }
}

impl<H: Host> Owner<H> {
    /// As [`Owner::let_go`], if no memory may be freed: the queue of a last owner is kept for
    /// `release_unreleased_queues`.
    pub(crate) fn release_later(owner: Arc<Owner<H>>) {
        // The registry's weak entry keeps the count's memory until the owner is dropped.
        let Some(last) = Arc::into_inner(owner) else { return };
        let mut last = ManuallyDrop::new(last);
        // SAFETY: taken once: `last` is not dropped here.
        let wq = Box::into_raw(unsafe { ManuallyDrop::take(&mut last.0) });
        // SAFETY: live, and ours alone. The queue keeps its engine.
        unsafe { (*wq).engine().left.push(wq) };
    }
}

/// Releases the queues whose last reference a fork held. The caller holds no locks.
#[inline]
pub(crate) fn release_unreleased_queues<H: Host>(engine: &Engine<H>) {
    if !engine.left.is_empty() {
        release_all_left(engine);
    }
}

#[cold]
fn release_all_left<H: Host>(engine: &Engine<H>) {
    let mut next = engine.left.take_all();
    while !next.is_null() {
        let wq = next;
        // SAFETY: from `release_later`, which made it of a box; taken once, and so ours alone.
        let last = unsafe {
            next = <Wq<H> as Node>::next(wq);
            Owner(ManuallyDrop::new(Box::from_raw(wq)))
        };
        last.go();
    }
}

impl<H: Host> Clone for Queue<H> {
    fn clone(&self) -> Self {
        Queue { wq: self.wq, handle: self.handle.clone() }
    }
}

impl<H: Host> std::ops::Deref for Queue<H> {
    type Target = Wq<H>;

    #[inline(always)]
    fn deref(&self) -> &Wq<H> {
        // SAFETY: the handle keeps the owner, the owner keeps the queue where it is.
        unsafe { self.wq.as_ref() }
    }
}

impl<H: Host> Queue<H> {
    /// Creates a queue.
    ///
    /// # Errors
    /// See [`QueueError`]; an error leaves nothing behind.
    pub fn new(engine: &Arc<Engine<H>>, spec: QueueSpec) -> Result<Queue<H>, QueueError> {
        Queue::create(engine, spec, None)
    }

    /// As [`Queue::new`]. If the name is taken, the queue gets the first free one of `name#2`,
    /// `name#3` and so on; in any case if the name is `reserved`.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn new_numbered(
        engine: &Arc<Engine<H>>,
        spec: QueueSpec,
        reserved: bool,
    ) -> Result<Queue<H>, QueueError> {
        Queue::create(engine, spec, Some(if reserved { 2 } else { 1 }))
    }

    fn create(
        engine: &Arc<Engine<H>>,
        spec: QueueSpec,
        numbered: Option<u32>,
    ) -> Result<Queue<H>, QueueError> {
        release_unreleased_queues(engine);
        let owner = Arc::new(Owner(ManuallyDrop::new(Wq::new(engine, spec, numbered)?)));
        // Register first, then refit if the CPUs have changed since. A change publishes the value
        // first and then visits the registered queues. So the change finds the queue, or the queue
        // sees the value.
        engine.registry.register(&owner);
        // The same with a shutdown, which sets its mark first and then visits the queues.
        engine.shutdown_state.shut_late_queue(owner.wq());
        let queue = Queue { wq: NonNull::from(owner.wq()), handle: Arc::new(Handle(owner)) };
        queue.refit(None)?;
        Ok(queue)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner<H>> {
        &self.handle.0
    }

    /// A reference that keeps the queue's memory, but not its use.
    pub fn memory(&self) -> QueueMemory<H> {
        QueueMemory(Some(self.owner().clone()))
    }

    /// Accepts no more items, and waits until the queue is empty. Later items are refused.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn destroy(&self) -> Result<(), QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        self.end_pauses();
        self.drain()?;
        self.gate.close();
        self.settle();
        self.end_limits();
        Ok(())
    }
}

/// Drops a value, whose drop waits, on a separate thread. False if no thread can be created: then
/// it is never dropped.
fn drop_on_own_thread<H: Host, T: Send + 'static>(engine: &Engine<H>, what: T) -> bool {
    let spec = engine.service("uw/reaper", CpuSet::new());
    // If no thread can be created, the memory is leaked; the queue is closed either way.
    let kept = ManuallyDrop::new(what);
    let reap = Box::new(move || drop(ManuallyDrop::into_inner(kept)));
    let outcome = engine.host().spawn(&spec, reap);
    let begun = outcome.is_ok();
    if let Err(error) = outcome {
        engine.caller().report(Report::SpawnFailed { reason: error.0 });
    }
    begun
}

/// A queue whose last items a separate thread waits for. It has an owner until then, so visits of
/// all queues find it.
struct Reaped<H: Host>(Arc<Owner<H>>);

impl<H: Host> Drop for Reaped<H> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<H: Host> Drop for Handle<H> {
    fn drop(&mut self) {
        let wq = self.0.wq();
        wq.gate.close();
        // No handle is left that could resume it.
        wq.end_pauses();
        if wq.engine().caller().thread.hands_over() {
            if !drop_on_own_thread(wq.engine(), Reaped(self.0.clone())) {
                // The memory stays, for the remaining items; the name can be used again.
                wq.release_name();
            }
        } else {
            self.0.end();
        }
    }
}

impl<H: Host> Drop for Owner<H> {
    fn drop(&mut self) {
        self.wq().engine().registry.unregister(self);
        // SAFETY: taken once, here; the owner is not accessed after its drop.
        let wq = unsafe { ManuallyDrop::take(&mut self.0) };
        // An expiry in progress when the last handle was dropped may still have queued its item.
        if wq.engine().caller().thread.hands_over() && !wq.is_idle() {
            let engine = wq.engine().clone();
            drop_on_own_thread(&engine, wq);
        }
    }
}
