//! Who keeps a queue, and what happens when nobody does any more.
//!
//! Two counts: handles keep a queue in use, owners keep its memory. Timers own memory weakly and use
//! nothing: an expiry holds the memory for an instant and does not count as a user.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::host::{Host, Report, WorkerSpec};
use crate::inbox::Node;
use crate::queue::{QueueError, QueueSpec, Wq};
use crate::sync::Link;

/// A handle to a queue. When the last one goes, the queue is closed and worked off; whoever drops
/// it waits for that, unless it is inside a work item: then a thread of its own does the waiting.
pub struct Queue<H: Host> {
    /// What `handle` keeps: the way to it without a detour.
    wq: NonNull<Wq<H>>,
    handle: Arc<Handle<H>>,
}

// SAFETY: `wq` is a shared reference in all but name, kept by `handle`.
unsafe impl<H: Host> Send for Queue<H> {}
// SAFETY: as above.
unsafe impl<H: Host> Sync for Queue<H> {}

/// Counts the users.
struct Handle<H: Host>(Arc<Owner<H>>);

/// Owns the memory.
pub(crate) struct Owner<H: Host>(ManuallyDrop<Box<Wq<H>>>);

impl<H: Host> Owner<H> {
    pub(crate) fn wq(&self) -> &Wq<H> {
        &self.0
    }

    /// Lets go of an owner that was held for a look. Does not wait: if it has become the last one of
    /// a queue with items in it, a thread of its own does that.
    pub(crate) fn let_go(owner: Arc<Owner<H>>) {
        if let Some(last) = Arc::into_inner(owner) {
            last.go();
        }
    }

    /// Drops the last owner, without waiting.
    fn go(self) {
        if !self.wq().is_idle() {
            let engine = self.wq().engine().clone();
            drop_elsewhere(&engine, self);
        }
    }
}

// SAFETY: the link is a field of the queue, for nothing else.
unsafe impl<H: Host> Node for Wq<H> {
    unsafe fn set_next(this: *mut Self, next: *mut Self) {
        // SAFETY: by this function's contract.
        unsafe { (*this).next_left.set(Link(next)) };
    }

    unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: by this function's contract.
        unsafe { (*this).next_left.get().0 }
    }
}

impl<H: Host> Owner<H> {
    /// As [`Owner::let_go`], where no memory may be freed: what was kept last waits for
    /// [`Engine::release_left`].
    pub(crate) fn let_go_later(owner: Arc<Owner<H>>) {
        // The registry's weak entry keeps the count's memory until the owner is dropped.
        let Some(last) = Arc::into_inner(owner) else { return };
        let mut last = ManuallyDrop::new(last);
        // SAFETY: taken once: the owner is not dropped here.
        let wq = Box::into_raw(unsafe { ManuallyDrop::take(&mut last.0) });
        // SAFETY: live, and ours alone. The queue keeps its engine.
        unsafe { (*wq).engine().left().push(wq) };
    }
}

impl<H: Host> Engine<H> {
    /// Gives up the queues that a fork was the last to keep. Without locks held.
    #[inline]
    pub(crate) fn release_left(&self) {
        if !self.left().is_empty() {
            self.release_all_left();
        }
    }

    #[cold]
    fn release_all_left(&self) {
        let mut next = self.left().take_all();
        while !next.is_null() {
            let wq = next;
            // SAFETY: from `let_go_later`, which has made it of a box; taken off once, and so ours alone.
            let last = unsafe {
                next = <Wq<H> as Node>::next(wq);
                Owner(ManuallyDrop::new(Box::from_raw(wq)))
            };
            last.go();
        }
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
    /// Makes a queue.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing is left behind.
    pub fn new(engine: &Arc<Engine<H>>, spec: QueueSpec) -> Result<Queue<H>, QueueError> {
        engine.release_left();
        let owner = Arc::new(Owner(ManuallyDrop::new(Wq::new(engine, spec)?)));
        // First listed, then fitted again if the CPUs have changed since: a change publishes first
        // and then goes through the list, so that it finds the queue or the queue sees it.
        engine.registry().register(&owner);
        // The same with a shutdown: whoever does that says so first and then goes through the queues.
        engine.shut_late_queue(owner.wq());
        let queue = Queue { wq: NonNull::from(owner.wq()), handle: Arc::new(Handle(owner)) };
        queue.refit()?;
        Ok(queue)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner<H>> {
        &self.handle.0
    }

    /// Takes no more items, waits until the queue is empty, and stays so. Later items are refused.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn destroy(&self) -> Result<(), QueueError> {
        self.drain()?;
        self.close_gate();
        self.settle();
        Ok(())
    }
}

/// Whether the calling thread must not wait for a queue: what it waits for may be behind it.
fn must_not_wait<H: Host>(engine: &Engine<H>) -> bool {
    // SAFETY: the host's promise for the calling thread.
    let thread = unsafe { &*engine.host().thread() };
    !thread.worker().is_null() || !thread.frame().is_null()
}

/// Lets a thread of its own drop something that waits. False where no thread can be made: then it is never
/// dropped.
fn drop_elsewhere<H: Host, T: Send + 'static>(engine: &Engine<H>, what: T) -> bool {
    let spec = WorkerSpec { name: "uw/reaper".to_owned(), cpus: CpuSet::new(), nice: 0 };
    // Where no thread can be made, the memory is not given back; the queue is closed either way.
    let kept = ManuallyDrop::new(what);
    let reap = Box::new(move || drop(ManuallyDrop::into_inner(kept)));
    let outcome = engine.host().spawn(&spec, reap);
    let begun = outcome.is_ok();
    if let Err(error) = outcome {
        engine.report(Report::SpawnFailed { reason: error.0 });
    }
    begun
}

/// A queue that is worked off by a thread of its own. Until that is done somebody owns it: who goes
/// through all queues finds it.
struct Reaped<H: Host>(Arc<Owner<H>>);

impl<H: Host> Drop for Reaped<H> {
    fn drop(&mut self) {
        self.0.wq().settle();
        self.0.wq().release_name();
    }
}

impl<H: Host> Drop for Handle<H> {
    fn drop(&mut self) {
        let wq = self.0.wq();
        wq.close_gate();
        if must_not_wait(wq.engine()) {
            if !drop_elsewhere(wq.engine(), Reaped(self.0.clone())) {
                // The memory stays, for the items that are left; the name goes to whoever wants it.
                wq.release_name();
            }
        } else {
            wq.settle();
            // Others may keep the memory for an instant: not the name.
            wq.release_name();
        }
    }
}

impl<H: Host> Drop for Owner<H> {
    fn drop(&mut self) {
        self.wq().engine().registry().unregister(self);
        // SAFETY: taken once, here; nobody looks at the owner after its drop.
        let wq = unsafe { ManuallyDrop::take(&mut self.0) };
        // An expiry that was under way when the last handle went may still have queued its item.
        if must_not_wait(wq.engine()) && !wq.is_idle() {
            let engine = wq.engine().clone();
            drop_elsewhere(&engine, wq);
        }
    }
}
