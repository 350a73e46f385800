//! Batches: many closures or items for one push.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use uwork_engine::payload::drop_payload;
use uwork_engine::{Chain, Queued, Work as RawWork, WorkPointer};

use super::{Block, into_closure, refused};
use crate::error::RejectedError;
use crate::item::{Enqueued, WorkItem, field};
use crate::queue::{Queue, enqueued};

/// How many items [`Queue::enqueue_all`] takes from its iterator before it queues them.
const GROUP: usize = 64;

/// Blocks that are not queued yet. Dropped with them: the closures do not run.
struct Blocks<F: FnOnce() + Send + 'static> {
    chain: Chain,
    closures: std::marker::PhantomData<F>,
}

impl<F: FnOnce() + Send + 'static> Blocks<F> {
    /// Removes the closure that was added last.
    fn pop(&mut self) -> Option<F> {
        let block = self.chain.remove_last()?.cast::<Block<F>>();
        // SAFETY: the chain has only blocks of this type, and had this one alone.
        Some(unsafe { into_closure(block) })
    }
}

impl<F: FnOnce() + Send + 'static> Drop for Blocks<F> {
    fn drop(&mut self) {
        // Blocks are left only if the iterator has panicked. That panic goes on to the caller; one of a
        // closure that is dropped beside it would abort the process, so it ends here.
        while let Some(closure) = self.pop() {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(closure))) {
                drop_payload(payload);
            }
        }
    }
}

/// What became of the items of [`Queue::enqueue_all`].
#[derive(Debug)]
#[must_use = "the items that were not queued are in here"]
pub struct EnqueuedAll<P> {
    /// How many items were queued.
    pub queued: usize,
    /// The others, in their order, each with the reason. Never [`Enqueued::Queued`].
    pub returned: Vec<Enqueued<P>>,
}

impl Queue {
    /// Queues the closures of an iterator, as [`Queue::execute`] does, with one push for all of
    /// them and one wake at most. They are in the queue in the iterator's order. Returns their
    /// number.
    ///
    /// All or nothing: none is queued before the iterator has ended. If the iterator panics, none
    /// is queued at all; those that it gave are dropped, and the panic continues. A closure that
    /// panics while it is dropped then does not stop that.
    ///
    /// # Errors
    /// The queue drains or is destroyed, and the caller is not one of its items. The closures are
    /// returned, in their order.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// static SUM: AtomicU32 = AtomicU32::new(0);
    ///
    /// let queue = uwork::Queue::builder("execute-all").build()?;
    /// let add = |n| move || { SUM.fetch_add(n, Ordering::Relaxed); };
    /// assert_eq!(queue.execute_all((1..=100).map(add))?, 100);
    /// queue.flush()?;
    /// assert_eq!(SUM.load(Ordering::Relaxed), 5_050);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn execute_all<I>(&self, closures: I) -> Result<usize, RejectedError<Vec<I::Item>>>
    where
        I: IntoIterator,
        I::Item: FnOnce() + Send + 'static,
    {
        let mut blocks =
            Blocks::<I::Item> { chain: Chain::new(), closures: std::marker::PhantomData };
        for closure in closures {
            // SAFETY: the block is new, and stays in place until it is freed.
            unsafe { blocks.chain.append(Block::new(closure).cast()) };
        }
        let count = blocks.chain.len();
        // SAFETY: as in `execute`, for each block.
        match unsafe { self.0.queue_chain(std::mem::take(&mut blocks.chain)) } {
            Ok(()) => Ok(count),
            Err(chain) => {
                blocks.chain = chain;
                let mut back = Vec::with_capacity(count);
                while let Some(closure) = blocks.pop() {
                    back.push(closure);
                }
                back.reverse();
                Err(refused(back))
            }
        }
    }

    /// Queues the items of an iterator, each as [`Queue::enqueue`] does, with one push for up to 64
    /// of them. They are in the queue in the iterator's order. Allocates only if an item is
    /// returned.
    ///
    /// An item that is pending already, also one that the iterator gives twice, is returned as
    /// [`Enqueued::Pending`], and the others are queued. Items that have run before are pushed one
    /// by one.
    ///
    /// # Panics
    /// If the iterator panics. The items that it gave before are queued up to the last full 64; the
    /// rest are released.
    ///
    /// ```
    /// use std::sync::Arc;
    /// struct Job { work: uwork::Work<Job> }
    /// uwork::has_work!(impl HasWork for Job { work });
    /// impl uwork::WorkItem for Job {
    ///     type Pointer = Arc<Job>;
    ///     fn run(_this: Arc<Job>) {}
    /// }
    /// let queue = uwork::Queue::builder("enqueue-all").build()?;
    /// let jobs: Vec<_> = (0..100).map(|_| Arc::new(Job { work: uwork::Work::new() })).collect();
    /// let outcome = queue.enqueue_all(jobs.iter().cloned());
    /// assert_eq!((outcome.queued, outcome.returned.len()), (100, 0));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn enqueue_all<P, const ID: u64>(
        &self,
        items: impl IntoIterator<Item = P>,
    ) -> EnqueuedAll<P>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P>,
    {
        let mut all = EnqueuedAll { queued: 0, returned: Vec::new() };
        let mut items = items.into_iter();
        let mut group: [Option<P>; GROUP] = [const { None }; GROUP];
        loop {
            let mut len = 0;
            while len < GROUP {
                let Some(item) = items.next() else { break };
                group[len] = Some(item);
                len += 1;
            }
            // From here to the end of the group no code of the user runs.
            let mut values = [NonNull::<P::Target>::dangling(); GROUP];
            let mut works = [NonNull::<RawWork>::dangling(); GROUP];
            for (index, item) in group[..len].iter_mut().filter_map(Option::take).enumerate() {
                values[index] = item.into_raw();
                works[index] = field::<P::Target, ID>(values[index]);
            }
            all.queued += len;
            let outcome = |index: usize, outcome: Queued| {
                all.queued -= 1;
                // SAFETY: from `into_raw`, and not queued.
                all.returned.push(unsafe { enqueued(values[index], outcome) });
            };
            // SAFETY: the pointers keep the items live and in place; each is taken back when its
            // item has run, was cancelled, or by `outcome`.
            unsafe { self.0.queue_each(&works[..len], outcome) };
            if len < GROUP {
                return all;
            }
        }
    }
}
