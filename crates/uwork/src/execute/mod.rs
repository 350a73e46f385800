//! Closures without a handle: one block with the item in it, and no outcome.
//!
//! The block has the item first and the closure behind it. Until its push no other thread can reach
//! it, and after that only its worker does: no handle cancels it, flushes it or reads its state. So
//! the submitter takes the item's ownership by a plain store, and no thread counts references. The
//! push releases the store, and the worker that takes the inbox acquires it.
//!
//! What remains beside the push and the start, of which each is one locked instruction: to take a
//! block, an addition; to free it, a count in the worker's own memory ([`arena`]). `spawn` has an
//! allocation of its own, a `fetch_or` at the submission and two changes of the outcome.

mod arena;
mod batch;

pub use batch::EnqueuedAll;

use std::alloc::Layout;
use std::ptr::NonNull;

use uwork_engine::{Action, ItemName, QueueError, Queued, Work as RawWork};

use arena::Chunk;

use crate::error::RejectedError;
use crate::queue::Queue;

/// A closure that runs once, and no thread waits for it.
#[repr(C)]
struct Block<F> {
    /// First, so that the address of the work is that of the block.
    work: RawWork,
    /// The chunk that it lies in. None: it has an allocation of its own.
    chunk: Option<NonNull<Chunk>>,
    closure: F,
}

impl<F: FnOnce() + Send + 'static> Block<F> {
    #[inline]
    fn new(closure: F) -> NonNull<Block<F>> {
        let work = RawWork::new(perform::<F>);
        let layout = Layout::new::<Block<F>>();
        let place = if arena::fits(layout) { arena::take(layout) } else { None };
        match place {
            Some((at, chunk)) => {
                let block = at.cast();
                // SAFETY: the place is for this layout, and ours.
                unsafe { block.write(Block { work, chunk: Some(chunk), closure }) };
                block
            }
            None => NonNull::from(Box::leak(Box::new(Block { work, chunk: None, closure }))),
        }
    }
}

/// Frees the block and returns its closure.
///
/// # Safety
/// `block` came from [`Block::new`], and belongs to the caller, who does not use it afterwards.
#[inline]
unsafe fn into_closure<F>(block: NonNull<Block<F>>) -> F {
    // SAFETY: by this function's contract.
    match unsafe { block.as_ref() }.chunk {
        Some(chunk) => {
            // SAFETY: the block is not used afterwards; the work has no destructor to run.
            let closure = unsafe { std::ptr::read(&raw const (*block.as_ptr()).closure) };
            // SAFETY: the chunk of this block, which is free from here on.
            unsafe { arena::free(chunk) };
            closure
        }
        // SAFETY: it came from a box.
        None => unsafe { Box::from_raw(block.as_ptr()) }.closure,
    }
}

/// # Safety
/// `work` is the first field of a block that this call uses up.
unsafe fn perform<F: FnOnce()>(work: NonNull<RawWork>, action: Action) {
    let block = work.cast::<Block<F>>();
    match action {
        // The block is free while the closure runs, which may be long. A panic goes to the worker,
        // which reports it.
        Action::Run => {
            // SAFETY: by this function's contract.
            let closure = unsafe { into_closure(block) };
            closure();
        }
        // SAFETY: by this function's contract.
        Action::Release => drop(unsafe { into_closure(block) }),
        // SAFETY: the engine asked for the name.
        Action::Name => unsafe { ItemName::of_type::<F>(0).report(work) },
    }
}

fn refused<T>(item: T) -> RejectedError<T> {
    RejectedError { item, error: QueueError::Refused.into() }
}

impl Queue {
    /// Queues a closure and returns no handle. It cannot be waited for alone, cancelled or asked
    /// for; [`Queue::flush`], [`Queue::drain`] and the end of the queue wait for it as for every
    /// item. [`Queue::spawn`] is for closures with a result.
    ///
    /// The caller's earlier writes are visible to the closure. A panic in it is reported as that of
    /// an item without a handle ([`Report::ItemPanicked`](crate::Report::ItemPanicked), [`panics`](crate::panics)), and
    /// the worker continues. If a [`shutdown`](crate::shutdown()) cancels it, it is dropped without
    /// a run.
    ///
    /// # Errors
    /// The queue drains or is destroyed, and the caller is not one of its items. The closure is
    /// returned.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// static DONE: AtomicU32 = AtomicU32::new(0);
    ///
    /// let queue = uwork::Queue::builder("execute").build()?;
    /// for _ in 0..10 {
    ///     queue.execute(|| { DONE.fetch_add(1, Ordering::Relaxed); })?;
    /// }
    /// queue.flush()?;
    /// assert_eq!(DONE.load(Ordering::Relaxed), 10);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[inline]
    pub fn execute<F>(&self, closure: F) -> Result<(), RejectedError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let block = Block::new(closure);
        // SAFETY: the block stays live and in place until `perform` frees it. It is new.
        match unsafe { self.0.queue_unshared(block.cast()) } {
            Queued::Yes => Ok(()),
            // SAFETY: the queue did not take the block.
            _ => Err(refused(unsafe { into_closure(block) })),
        }
    }
}
