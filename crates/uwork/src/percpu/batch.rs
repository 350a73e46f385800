//! Items collected for each CPU and handed on in bulk: the shape of the kernel's folio batches and of
//! `lru_add_drain_all`.

use std::fmt;
use std::sync::Mutex;
use std::vec::Drain;

use super::parts::{Held, Lost, Parts};
use crate::error::Error;

/// Batches with a sink: an item goes to the batch of the CPU that the caller is on, a full batch to the sink.
///
/// A child after `fork` has the batches as they were, but for those whose lock another thread held: these are
/// empty there, and their items are not dropped.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use uwork::percpu::Batch;
///
/// static SUNK: AtomicUsize = AtomicUsize::new(0);
/// let batch = Batch::new(16, |items| { SUNK.fetch_add(items.len(), Ordering::Relaxed); });
/// (0..100).for_each(|item| batch.add(item));
/// batch.drain_all()?;
/// assert_eq!(SUNK.load(Ordering::Relaxed), 100);
/// # Ok::<(), uwork::Error>(())
/// ```
pub struct Batch<T> {
    /// A part without capacity has lent its buffer to somebody who empties it, or never had one.
    parts: Parts<Vec<T>>,
    capacity: usize,
    sink: Sink<T>,
}

/// A child's way with a batch that another thread held: its items are the parent's.
struct Forget;

impl<T> Lost<Vec<T>> for Forget {
    fn lost(held: &mut Held<'_, Vec<T>>) {
        // SAFETY: we have the lock. What is overwritten may be half written, or another's by now, so it is not
        // dropped.
        unsafe { held.value().write(Vec::new()) };
        held.set_used(0);
    }
}

type Sink<T> = Box<dyn Fn(Drain<'_, T>) + Send + Sync>;

/// Items of a batch, at most.
const CAPACITY_MAX: usize = 1 << 20;

impl<T: Send> Batch<T> {
    /// Batches of up to `capacity` items each. `sink` is called without locks by whoever adds the last item to a
    /// batch, or drains; at any time from several threads. What it leaves of the items is dropped.
    ///
    /// # Panics
    /// `capacity` is 0 or more than a million (2^20).
    pub fn new(capacity: usize, sink: impl Fn(Drain<'_, T>) + Send + Sync + 'static) -> Batch<T> {
        Batch::over(Parts::new::<Forget>(|_| Vec::new()), capacity, Box::new(sink))
    }

    #[cfg(test)]
    pub(super) fn in_mode(
        mode: super::Mode,
        capacity: usize,
        sink: impl Fn(Drain<'_, T>) + Send + Sync + 'static,
    ) -> Batch<T> {
        Batch::over(Parts::in_mode::<Forget>(mode, |_| Vec::new()), capacity, Box::new(sink))
    }

    fn over(parts: Parts<Vec<T>>, capacity: usize, sink: Sink<T>) -> Batch<T> {
        assert!(
            (1..=CAPACITY_MAX).contains(&capacity),
            "a batch of {capacity} items: 1 to {CAPACITY_MAX} are allowed"
        );
        Batch { parts, capacity, sink }
    }

    /// Adds an item to the batch of the CPU that the caller is on. Some ten instructions, and the sink's work where
    /// that batch is full. Waits for nobody: while its lock's holder is preempted, the item goes to the sink by
    /// itself.
    ///
    /// # Panics
    /// If the sink does.
    #[inline]
    pub fn add(&self, item: T) {
        let Some(mut held) = self.parts.try_here() else { return self.sink_one(item) };
        let used = held.len();
        // A batch is handed on when it is full, so one with a buffer has room.
        if used < held.capacity() && used + 1 < self.capacity {
            held.push(item);
            held.set_used(used as u32 + 1);
            return;
        }
        if held.capacity() == 0 {
            drop(held);
            return self.add_to_new(item);
        }
        let mut batch = std::mem::take(&mut *held);
        held.set_used(0);
        drop(held);
        batch.push(item);
        self.sink(batch);
    }

    /// Adds the item to a batch that needs a buffer first.
    #[cold]
    fn add_to_new(&self, item: T) {
        let mut batch = Vec::with_capacity(self.capacity);
        batch.push(item);
        if self.capacity == 1 {
            return self.sink(batch);
        }
        match self.parts.try_here() {
            Some(mut held) if held.capacity() == 0 => {
                *held = batch;
                held.set_used(1);
            }
            // We were moved, or somebody else was here.
            held => {
                drop(held);
                self.sink(batch);
            }
        }
    }

    #[cold]
    fn sink_one(&self, item: T) {
        (self.sink)(vec![item].drain(..));
    }

    /// Hands a batch on, and its buffer back to a CPU that has none.
    fn sink(&self, mut batch: Vec<T>) {
        (self.sink)(batch.drain(..));
        batch.clear();
        if let Some(mut held) = self.parts.try_here()
            && held.capacity() == 0
        {
            std::mem::swap(&mut *held, &mut batch);
        }
    }

    /// Hands on what is in the batches of all CPUs; the sink is called by the caller. How many items. Everything
    /// that was added before the call has gone to the sink when it returns, or is in the sink already.
    ///
    /// Reaches other CPUs as the mode says: see [`Mode`](super::Mode). CPUs whose batch is empty are left alone.
    ///
    /// # Errors
    /// None that a user of the batch can cause; the type is that of its like.
    ///
    /// # Panics
    /// If the sink does; the items of batches that it was not called for are dropped.
    pub fn drain_all(&self) -> Result<usize, Error> {
        let batches = Mutex::new(Vec::new());
        let visited = self.parts.visit_all(
            |cpu| self.parts.used(cpu) > 0,
            |_, mut held| {
                let batch = std::mem::take(&mut *held);
                held.set_used(0);
                drop(held);
                batches.lock().expect("nobody panics under it").push(batch);
            },
        );
        let mut items = 0;
        for batch in batches.into_inner().expect("nobody panics under it") {
            items += batch.len();
            self.sink(batch);
        }
        visited.map(|()| items)
    }

    /// How many items are in the batch of a CPU, by now; 0 for CPUs that the machine does not have.
    pub fn len_on(&self, cpu: u32) -> usize {
        if cpu < self.parts.len() { self.parts.used(cpu) as usize } else { 0 }
    }
}

impl<T> Drop for Batch<T> {
    /// Hands on what is left, whatever CPU it is on. If the sink panics, the rest is dropped.
    fn drop(&mut self) {
        for (_, batch) in self.parts.values_mut() {
            if !batch.is_empty() {
                (self.sink)(batch.drain(..));
            }
        }
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
