//! Items collected for each CPU and handed on in bulk: the shape of the kernel's folio batches and of
//! `lru_add_drain_all`.

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Drain;

use uwork_engine::percpu::Sections;

use super::Mode;
use super::error::recursion;
use super::forks::Registration;
use super::mode::chosen;
use super::parts::{Held, Lost, Parts};
use super::singles::Singles;
use super::underway::{Begun, Underway};
use crate::error::Error;

/// Batches with a sink: an item goes to the batch of the CPU that the caller is on, a full batch to the sink.
///
/// A child after `fork` has the batches as they were, but for those whose lock another thread held: these are
/// empty there, and their items are not dropped.
///
/// ```
/// use std::sync::Arc;
/// use uwork::percpu::{Batch, Counter};
///
/// let sunk = Arc::new(Counter::new());
/// let batch = Batch::new(16, {
///     let sunk = sunk.clone();
///     move |items: std::vec::Drain<'_, i64>| sunk.add(items.sum())
/// });
/// (0..100).for_each(|item| batch.add(item));
/// batch.drain_all()?;
/// assert_eq!(sunk.sum(), 4950);
/// # Ok::<(), uwork::Error>(())
/// ```
pub struct Batch<T> {
    /// A part without capacity has lent its buffer to somebody who empties it, or never had one.
    parts: Parts<Vec<T>>,
    capacity: usize,
    sink: Sink<T>,
    singles: Singles<T>,
    sinks: Box<Sinks>,
    /// Dropped before the sinks' state, which it tells forks of; in this order by [`Batch::drop`].
    registration: Option<Registration>,
}

/// Whose sink is where. Replaced by a child of a fork, which has none of the other threads.
#[derive(Default)]
struct Sinks(UnsafeCell<State>);

#[derive(Default)]
struct State {
    /// Calls of the sink for batches that were full.
    underway: Underway,
    /// Held by who drains, until the sink has returned.
    draining: Mutex<()>,
    /// The token of the thread that holds it; 0: nobody.
    drainer: AtomicU64,
}

/// A drain, until it is dropped: also where something unwinds.
struct Draining<'a> {
    drainer: &'a AtomicU64,
    // Given up behind the word.
    _lock: MutexGuard<'a, ()>,
}

impl Draining<'_> {
    fn begin(State { draining, drainer, .. }: &State) -> Draining<'_> {
        // Nothing is in it.
        let _lock = draining.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: a fork asks for that of its own thread.
        drainer.store(chosen().rseq.token().value(), Ordering::Relaxed);
        Draining { drainer, _lock }
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.drainer.store(0, Ordering::Relaxed);
    }
}

// SAFETY: reached by shared references only, but for a child of a fork that has one thread.
unsafe impl Sync for Sinks {}

impl Sinks {
    fn get(&self) -> &State {
        // SAFETY: it is written by a child's only thread only, before it returns from fork.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// `it` is one of these, and the caller the only thread of a child.
    unsafe fn child(it: NonNull<()>) -> bool {
        // SAFETY: by this function's contract.
        let state = unsafe { it.cast::<Sinks>().as_ref() }.0.get();
        // SAFETY: as above.
        let (underway, drainer) = unsafe { ((*state).underway.child(), &(*state).drainer) };
        let is_ours = drainer.load(Ordering::Relaxed) == chosen().rseq.token().value();
        // SAFETY: as above. What another thread may have held is overwritten, not dropped.
        unsafe {
            (&raw mut (*state).underway).write(underway);
            if !is_ours {
                (&raw mut (*state).draining).write(Mutex::new(()));
                (&raw mut (*state).drainer).write(AtomicU64::new(0));
            }
        }
        true
    }
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
    /// batch, or drains; at any time from several threads. What it leaves of the items is dropped. It may add to the
    /// batch, but not drain it.
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
        let singles = Singles::new(parts.len());
        let sinks = Box::<Sinks>::default();
        // SAFETY: on the heap, where it stays until the registration is dropped.
        let registration = unsafe { Registration::other(NonNull::from(&*sinks), Sinks::child) };
        Batch { parts, capacity, sink, singles, sinks, registration: Some(registration) }
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
        let begun = self.sinks.get().underway.begin();
        let mut batch = std::mem::take(&mut *held);
        held.set_used(0);
        drop(held);
        batch.push(item);
        self.sink(batch, Some(begun));
    }

    /// Adds the item to a batch that needs a buffer first.
    #[cold]
    fn add_to_new(&self, item: T) {
        let mut batch = Vec::with_capacity(self.capacity);
        batch.push(item);
        if self.capacity == 1 {
            return self.sink(batch, None);
        }
        match self.parts.try_here() {
            Some(mut held) if held.capacity() == 0 => {
                *held = batch;
                held.set_used(1);
            }
            // We were moved, or somebody else was here.
            held => {
                drop(held);
                self.sink(batch, None);
            }
        }
    }

    #[cold]
    fn sink_one(&self, item: T) {
        let cpu = crate::linux::current_cpu();
        self.singles.with(cpu, item, |batch| self.call_sink(batch));
    }

    fn call_sink(&self, batch: &mut Vec<T>) {
        if !batch.is_empty() {
            self.sinks.get().underway.inside(|| (self.sink)(batch.drain(..)));
        }
    }

    /// Hands a batch on, and its buffer back to a CPU that has none. What has begun ends when the sink has returned;
    /// it is for who has taken items that others added.
    fn sink(&self, mut batch: Vec<T>, begun: Option<Begun<'_>>) {
        self.call_sink(&mut batch);
        drop(begun);
        batch.clear();
        if let Some(mut held) = self.parts.try_here()
            && held.capacity() == 0
        {
            std::mem::swap(&mut *held, &mut batch);
        }
    }

    /// Hands on what is in the batches of all CPUs; the sink is called by the caller. How many items. When it
    /// returns, the sink has returned for every item whose [`Batch::add`] had returned before the call: for those
    /// that another thread is handing on, this waits. Items whose `add` is under way may or may not be among them.
    ///
    /// One thread drains at a time, others wait for it. So a sink must not wait for a thread that drains the same
    /// batch; nor may the sinks of two batches drain each other's.
    ///
    /// Reaches other CPUs as the mode says: see [`Mode`](super::Mode). CPUs whose batch is empty are left alone; the
    /// others get an empty buffer for the one that was taken.
    ///
    /// # Errors
    /// The caller is in the sink of this batch, whose return it would wait for
    /// ([`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock)). Nothing was handed on.
    ///
    /// # Panics
    /// If the sink does, after it was called for all batches; with the first panic.
    pub fn drain_all(&self) -> Result<usize, Error> {
        let State { underway, .. } = self.sinks.get();
        if underway.is_inside() {
            return Err(recursion());
        }
        let _draining = Draining::begin(self.sinks.get());
        let cpus: Vec<u32> = self.parts.in_use().collect();
        // Workers reach all CPUs at once. Otherwise one comes after the other, and one spare buffer does.
        let at_once = if self.parts.mode() == Mode::Local { cpus.len().max(1) } else { 1 };
        let mut spares = Vec::new();
        let (mut items, mut visited, mut panic) = (0, Ok(()), None);
        for cpus in cpus.chunks(at_once) {
            spares.resize_with(cpus.len(), Vec::new);
            // What a CPU gave may have no room: its buffer was lent.
            spares.iter_mut().for_each(|spare| spare.reserve_exact(self.capacity));
            visited = visited.and(self.swap(cpus, &mut spares));
            for batch in &mut spares {
                items += batch.len();
                let outcome = catch_unwind(AssertUnwindSafe(|| self.call_sink(batch)));
                panic = panic.or(outcome.err());
            }
        }
        underway.wait();
        panic.map_or_else(|| visited.map(|()| items), |payload| resume_unwind(payload))
    }

    /// Takes the batches of these CPUs for empty ones, of which there are as many. So the next [`Batch::add`] there
    /// finds a buffer, and allocates none.
    fn swap(&self, cpus: &[u32], spares: &mut [Vec<T>]) -> Result<(), Error> {
        let spares = Mutex::new(spares.iter_mut());
        self.parts.visit_all(cpus.iter().copied(), |_, mut held| {
            let spare = spares.lock().expect("nobody panics under it").next();
            std::mem::swap(&mut *held, spare.expect("one for each CPU"));
            held.set_used(0);
        })
    }

    /// How many items are in the batch of a CPU, by now; 0 for CPUs that the machine does not have.
    pub fn len_on(&self, cpu: u32) -> usize {
        if cpu < self.parts.len() { self.parts.used(cpu) as usize } else { 0 }
    }
}

impl<T> Drop for Batch<T> {
    /// Hands on what is left, whatever CPU it is on. A panic of the sink goes on when it was called for all of it.
    fn drop(&mut self) {
        self.registration = None;
        let mut panic = None;
        for (_, batch) in self.parts.values_mut() {
            if !batch.is_empty() {
                let outcome = catch_unwind(AssertUnwindSafe(|| (self.sink)(batch.drain(..))));
                panic = panic.or(outcome.err());
            }
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::percpu::tests::counting::counted;
    use crate::percpu::tests::{cpus, modes, on_cpu};

    // Catches: an item that finds its CPU's lock taken, as by a drain, and gets a buffer of its own.
    #[test]
    fn an_add_that_finds_the_lock_taken_allocates_nothing() {
        for mode in modes() {
            let sunk = Arc::new(AtomicU64::new(0));
            let batch = Batch::in_mode(mode, 8, {
                let sunk = sunk.clone();
                move |items: Drain<'_, u64>| _ = sunk.fetch_add(items.sum(), Ordering::Relaxed)
            });
            for cpu in cpus() {
                on_cpu(cpu, || {
                    let held = batch.parts.lock_of(cpu).expect("nobody has it");
                    let before = (counted(), sunk.load(Ordering::Relaxed));
                    (0..100).for_each(|_| batch.add(1));
                    let after = (counted(), sunk.load(Ordering::Relaxed));
                    assert_eq!(after, (before.0, before.1 + 100), "mode {mode}, CPU {cpu}");
                    drop(held);
                });
            }
        }
    }
}
