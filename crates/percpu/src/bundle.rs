//! Items collected for each CPU and handed on in bulk: the pattern of the kernel's folio batches
//! and of `lru_add_drain_all`.

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Drain;

use uwork_engine::percpu::Sections;
use uwork_linux::Error;

use super::Mode;
use super::error::recursion;
use super::forks::Registration;
use super::mode::chosen;
use super::parts::{Held, Lost, Parts};
use super::singles::Singles;
use super::underway::{Begun, InProgress};

/// Bundles with a sink: an item goes to the bundle of the caller's CPU, a full bundle to the sink.
///
/// A child after `fork` has the same bundles, except those whose lock another thread held: these
/// are empty in the child, and their items are not dropped.
///
/// ```
/// use std::sync::Arc;
/// use uwork::percpu::{Bundle, Counter};
///
/// let sunk = Arc::new(Counter::new());
/// let bundle = Bundle::new(16, {
///     let sunk = sunk.clone();
///     move |items: std::vec::Drain<'_, i64>| sunk.add(items.sum())
/// });
/// (0..100).for_each(|item| bundle.add(item));
/// bundle.drain_all()?;
/// assert_eq!(sunk.sum(), 4950);
/// # Ok::<(), uwork::Error>(())
/// ```
pub struct Bundle<T> {
    /// A part without capacity has lent its buffer to a thread that empties it, or never had one.
    parts: Parts<Vec<T>>,
    capacity: usize,
    sink: Sink<T>,
    singles: Singles<T>,
    sinks: Box<Sinks>,
    /// Makes the sinks' state known to forks, so it is dropped before that, by [`Bundle::drop`].
    registration: Option<Registration>,
}

/// The calls of the sink in progress. A child of a fork replaces it, as the other threads do not
/// exist there.
#[derive(Default)]
struct Sinks(UnsafeCell<State>);

#[derive(Default)]
struct State {
    /// Calls of the sink for bundles that were full.
    underway: InProgress,
    /// Held by the draining thread, until the sink has returned.
    draining: Mutex<()>,
    /// The token of the thread that holds `draining`; 0 if it is free.
    drainer: AtomicU64,
}

/// A drain in progress; dropped also if the sink unwinds.
struct Draining<'a> {
    drainer: &'a AtomicU64,
    // Released after `drainer` was cleared.
    _lock: MutexGuard<'a, ()>,
}

impl Draining<'_> {
    fn begin(State { draining, drainer, .. }: &State) -> Draining<'_> {
        // The mutex guards no data, so poison means nothing.
        let _lock = draining.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: a fork checks for its own thread only.
        drainer.store(chosen().rseq.token().value(), Ordering::Relaxed);
        Draining { drainer, _lock }
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.drainer.store(0, Ordering::Relaxed);
    }
}

// SAFETY: accessed by shared references only, except in a child of a fork, which has one thread.
unsafe impl Sync for Sinks {}

impl Sinks {
    fn get(&self) -> &State {
        // SAFETY: written only by the single thread of a child, before its fork returns.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// `it` points to a `Sinks`, and the caller is the only thread of a child.
    unsafe fn child(it: NonNull<()>) -> bool {
        // SAFETY: by this function's contract.
        let state = unsafe { it.cast::<Sinks>().as_ref() }.0.get();
        // SAFETY: as above.
        let (underway, drainer) = unsafe { ((*state).underway.child(), &(*state).drainer) };
        let is_ours = drainer.load(Ordering::Relaxed) == chosen().rseq.token().value();
        // SAFETY: as above. A value that another thread may have held is overwritten, not dropped.
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

/// How a child treats a bundle whose lock another thread held: its items belong to the parent.
struct Forget;

impl<T> Lost<Vec<T>> for Forget {
    fn lost(held: &mut Held<'_, Vec<T>>) {
        // SAFETY: this thread has the lock. The old value may be half written, or its buffer may
        // belong to another thread by now, so it is not dropped.
        unsafe { held.value().write(Vec::new()) };
        held.set_used(0);
    }
}

type Sink<T> = Box<dyn Fn(Drain<'_, T>) + Send + Sync>;

/// The maximum number of items in a bundle.
const CAPACITY_MAX: usize = 1 << 20;

impl<T: Send> Bundle<T> {
    /// Bundles of up to `capacity` items each. `sink` is called without locks held, by the thread
    /// that adds the last item to a bundle, or drains; several threads may call it at the same time.
    /// Items that it leaves in the bundle are dropped. It may add to the bundle, but not drain it.
    ///
    /// # Panics
    /// `capacity` is 0 or more than a million (2^20).
    pub fn new(capacity: usize, sink: impl Fn(Drain<'_, T>) + Send + Sync + 'static) -> Bundle<T> {
        Bundle::over(Parts::new::<Forget>(|_| Vec::new()), capacity, Box::new(sink))
    }

    #[cfg(test)]
    pub(super) fn in_mode(
        mode: super::Mode,
        capacity: usize,
        sink: impl Fn(Drain<'_, T>) + Send + Sync + 'static,
    ) -> Bundle<T> {
        Bundle::over(Parts::in_mode::<Forget>(mode, |_| Vec::new()), capacity, Box::new(sink))
    }

    fn over(parts: Parts<Vec<T>>, capacity: usize, sink: Sink<T>) -> Bundle<T> {
        assert!(
            (1..=CAPACITY_MAX).contains(&capacity),
            "a bundle of {capacity} items: 1 to {CAPACITY_MAX} are allowed"
        );
        let singles = Singles::new(parts.len());
        let sinks = Box::<Sinks>::default();
        // SAFETY: on the heap, and in place until the registration is dropped.
        let registration = unsafe { Registration::other(NonNull::from(&*sinks), Sinks::child) };
        Bundle { parts, capacity, sink, singles, sinks, registration: Some(registration) }
    }

    /// Adds an item to the bundle of the caller's CPU. Some ten instructions, plus the sink's work
    /// if that bundle is full. Never waits: while the holder of its lock is preempted, the item goes
    /// to the sink by itself.
    ///
    /// # Panics
    /// If the sink panics.
    #[inline]
    pub fn add(&self, item: T) {
        let Some(mut held) = self.parts.try_here() else { return self.sink_one(item) };
        let used = held.len();
        // A full bundle is handed on at once, so a bundle with a buffer has room.
        if used < held.capacity() && used + 1 < self.capacity {
            held.push(item);
            held.set_used(used as u32 + 1);
            return;
        }
        if held.capacity() == 0 {
            drop(held);
            return self.add_to_new(item);
        }
        // Counted before `set_used(0)`: a drain that then skips this CPU as empty finds the call in
        // `underway`, and waits until the sink has these items.
        let begun = self.sinks.get().underway.begin();
        let mut bundle = std::mem::take(&mut *held);
        held.set_used(0);
        drop(held);
        bundle.push(item);
        self.sink(bundle, Some(begun));
    }

    /// Adds the item to a bundle that needs a buffer first.
    #[cold]
    fn add_to_new(&self, item: T) {
        let mut bundle = Vec::new();
        if bundle.try_reserve_exact(self.capacity).is_err() {
            // Without memory the sink gets it by itself.
            return self.sink_one(item);
        }
        bundle.push(item);
        if self.capacity == 1 {
            return self.sink(bundle, None);
        }
        match self.parts.try_here() {
            Some(mut held) if held.capacity() == 0 => {
                *held = bundle;
                held.set_used(1);
            }
            // The thread has moved to another CPU, or another thread was faster here.
            held => {
                drop(held);
                self.sink(bundle, None);
            }
        }
    }

    #[cold]
    fn sink_one(&self, item: T) {
        let cpu = uwork_linux::current_cpu();
        self.singles.with(cpu, item, |bundle| self.call_sink(bundle));
    }

    fn call_sink(&self, bundle: &mut Vec<T>) {
        if !bundle.is_empty() {
            self.sinks.get().underway.inside(|| (self.sink)(bundle.drain(..)));
        }
    }

    /// Hands a bundle to the sink, and its buffer back to a CPU that has none. `begun`, for a thread
    /// that took items of other threads, is dropped when the sink has returned.
    fn sink(&self, mut bundle: Vec<T>, begun: Option<Begun<'_>>) {
        self.call_sink(&mut bundle);
        drop(begun);
        bundle.clear();
        if let Some(mut held) = self.parts.try_here()
            && held.capacity() == 0
        {
            std::mem::swap(&mut *held, &mut bundle);
        }
    }

    /// Hands the items in the bundles of all CPUs to the sink, in the calling thread, and returns
    /// their number. On return, the sink has returned for every item whose [`Bundle::add`] returned
    /// before the call: if another thread is handing some of them on, this waits for it. Items
    /// whose `add` is in progress may or may not be included.
    ///
    /// One thread drains at a time, others wait for it. So a sink must not wait for a thread that
    /// drains the same bundle, and the sinks of two bundles must not drain each other's bundle.
    ///
    /// The mode decides how other CPUs are accessed: see [`Mode`](super::Mode). CPUs with an empty
    /// bundle are left alone; the others get an empty buffer in place of the one taken.
    ///
    /// # Errors
    /// The caller is in the sink of this bundle, and would wait for its own return
    /// ([`ErrorKind::WouldDeadlock`](uwork_linux::ErrorKind::WouldDeadlock)). No item was handed on.
    ///
    /// # Panics
    /// If the sink panics, after it was called for all bundles; with the first payload. In a thread
    /// hook, which must not wait for the sink on other threads.
    pub fn drain_all(&self) -> Result<usize, Error> {
        uwork_linux::engine().assert_outside_hooks();
        let State { underway, .. } = self.sinks.get();
        if underway.is_inside() {
            return Err(recursion());
        }
        let _draining = Draining::begin(self.sinks.get());
        let cpus: Vec<u32> = self.parts.in_use().collect();
        // In mode 0 workers visit all CPUs at once. Otherwise this thread visits one after the
        // other, and one spare buffer suffices.
        let at_once = if self.parts.mode() == Mode::Local { cpus.len().max(1) } else { 1 };
        let mut spares = Vec::new();
        let (mut items, mut visited, mut panic) = (0, Ok(()), None);
        for cpus in cpus.chunks(at_once) {
            spares.resize_with(cpus.len(), Vec::new);
            // The vector of the previous CPU may have no capacity, if its buffer was lent. Without
            // memory the next `add` there tries again.
            spares.iter_mut().for_each(|spare| _ = spare.try_reserve_exact(self.capacity));
            visited = visited.and(self.swap(cpus, &mut spares));
            for bundle in &mut spares {
                items += bundle.len();
                let outcome = catch_unwind(AssertUnwindSafe(|| self.call_sink(bundle)));
                panic = panic.or(outcome.err());
            }
        }
        underway.wait();
        panic.map_or_else(|| visited.map(|()| items), |payload| resume_unwind(payload))
    }

    /// Swaps the bundles of these CPUs with the same number of empty ones. So, unless memory was short,
    /// the next [`Bundle::add`] on each finds a buffer, and does not allocate.
    fn swap(&self, cpus: &[u32], spares: &mut [Vec<T>]) -> Result<(), Error> {
        let spares = Mutex::new(spares.iter_mut());
        self.parts.visit_all(cpus.iter().copied(), |_, mut held| {
            let spare = spares.lock().expect("no panic under this lock").next();
            std::mem::swap(&mut *held, spare.expect("one for each CPU"));
            held.set_used(0);
        })
    }

    /// The number of items in the bundle of a CPU now; 0 for CPUs that do not exist.
    pub fn len_on(&self, cpu: u32) -> usize {
        if cpu < self.parts.len() { self.parts.used(cpu) as usize } else { 0 }
    }
}

impl<T> Drop for Bundle<T> {
    /// Hands the remaining items of all CPUs on. A panic of the sink is resumed after it was called
    /// for all bundles.
    fn drop(&mut self) {
        self.registration = None;
        let mut panic = None;
        for (_, bundle) in self.parts.values_mut() {
            if !bundle.is_empty() {
                let outcome = catch_unwind(AssertUnwindSafe(|| (self.sink)(bundle.drain(..))));
                panic = panic.or(outcome.err());
            }
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl<T> fmt::Debug for Bundle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tests::counting::counted;
    use crate::tests::{cpus, modes, on_cpu};

    // Catches: an add that finds its CPU's lock held, as by a drain, and allocates a buffer for its
    // item.
    #[test]
    fn an_add_that_finds_the_lock_taken_allocates_nothing() {
        for mode in modes() {
            let sunk = Arc::new(AtomicU64::new(0));
            let bundle = Bundle::in_mode(mode, 8, {
                let sunk = sunk.clone();
                move |items: Drain<'_, u64>| _ = sunk.fetch_add(items.sum(), Ordering::Relaxed)
            });
            for cpu in cpus() {
                on_cpu(cpu, || {
                    let held = bundle.parts.lock_of(cpu).expect("the lock is free");
                    let before = (counted(), sunk.load(Ordering::Relaxed));
                    (0..100).for_each(|_| bundle.add(1));
                    let after = (counted(), sunk.load(Ordering::Relaxed));
                    assert_eq!(after, (before.0, before.1 + 100), "mode {mode}, CPU {cpu}");
                    drop(held);
                });
            }
        }
    }
}
