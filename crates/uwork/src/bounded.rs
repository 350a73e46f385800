//! A bound on how many closures and items wait in a queue: back-pressure for their producers.
//!
//! A layer over [`Queue`], which knows nothing of it. Each submission needs a place, from its
//! reservation to the start of its run. `uwork_engine::places` counts the free places and the
//! producers that wait, and shows that no producer sleeps while a place is free.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uwork_engine::QueueError;
use uwork_engine::places::Places;
use uwork_linux::futex::{Forever, Until};
use uwork_linux::{Error, forks};
use uwork_policy::flags::Flags;

use crate::error::RejectedError;
use crate::join::JoinHandle;
use crate::queue::Queue;

/// A queue in which at most `capacity` closures and items wait. A producer that finds it full waits,
/// waits for a while, or gets its closure back. Clones share the bound.
///
/// A closure occupies its place until it starts, is cancelled or is refused. Those that run do not
/// count: [`Builder::max_active`](crate::Builder::max_active) bounds them. What other callers submit
/// to the queue itself is neither bounded nor counted.
///
/// A producer that waits inside an item of another queue is declared as [blocking](crate::blocking).
/// Producers that wait are admitted in no particular order. A paused queue keeps its places taken. In a
/// forked child all places are free, as the items that have them are the parent's; a queue with
/// [`fork_inherited`](crate::Builder::fork_inherited) keeps them taken there until its items start.
///
/// ```
/// use uwork::{BoundedQueue, ErrorKind, Queue};
/// let queue = Queue::builder("bounded").max_active(1).build()?;
/// let bounded = BoundedQueue::new(&queue, 2)?;
/// queue.pause()?;
/// let first = bounded.spawn(|| 1)?;
/// let second = bounded.try_spawn(|| 2)?;
/// let rejected = bounded.try_spawn(|| 3).err().expect("two wait");
/// assert_eq!(rejected.error.kind(), ErrorKind::Full);
/// queue.resume()?;
/// assert_eq!(first.join().unwrap() + second.join().unwrap(), 3);
/// let third = bounded.spawn(rejected.item)?;
/// assert_eq!(third.join().unwrap(), 3);
/// # Ok::<(), uwork::Error>(())
/// ```
#[derive(Clone)]
pub struct BoundedQueue {
    queue: Queue,
    bound: Arc<Bound>,
}

/// The places of a process.
struct Bound {
    places: Places,
    /// A child has the items that have places, and their places with them.
    is_inherited: bool,
    /// Twice the number of forks before the process to which the places belong; one more while a thread
    /// makes them that process's.
    process: AtomicU64,
}

impl Bound {
    fn places(&self) -> &Places {
        // Acquire pairs with the release in `renew`: the counts.
        let is_ours = self.process.load(Ordering::Acquire) == 2 * u64::from(forks());
        if !is_ours && !self.is_inherited {
            self.renew();
        }
        &self.places
    }

    /// In a forked child: frees the places of the parent's items. A fork during this call leaves a mark
    /// of the parent's, which a grandchild replaces as any other.
    #[cold]
    fn renew(&self) {
        let (ours, renews) = (2 * u64::from(forks()), 2 * u64::from(forks()) + 1);
        loop {
            let seen = self.process.load(Ordering::Acquire);
            if seen == ours {
                return;
            }
            let take =
                || self.process.compare_exchange(seen, renews, Ordering::AcqRel, Ordering::Relaxed);
            if seen != renews && take().is_ok() {
                self.places.renew();
                // Release pairs with the acquire in `places`.
                return self.process.store(ours, Ordering::Release);
            }
            std::thread::yield_now();
        }
    }
}

/// A place in a [`BoundedQueue`], free again when this is dropped.
///
/// For items that are fields of the caller's types: the item keeps the reservation from its
/// submission to the start of its run.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use uwork::{BoundedQueue, Queue, Reservation, Work};
///
/// struct Job { work: Work<Job>, place: Mutex<Option<Reservation>> }
/// uwork::has_work!(impl HasWork for Job { work });
/// impl uwork::WorkItem for Job {
///     type Pointer = Arc<Job>;
///     fn run(this: Arc<Job>) {
///         drop(this.place.lock().unwrap().take());
///     }
/// }
/// let queue = Queue::builder("reserved").build()?;
/// let bounded = BoundedQueue::new(&queue, 8)?;
/// let job = Arc::new(Job { work: Work::new(), place: Mutex::default() });
/// *job.place.lock().unwrap() = Some(bounded.reserve()?);
/// assert!(queue.enqueue(job).is_queued());
/// queue.flush()?;
/// assert_eq!(bounded.free(), 8);
/// # Ok::<(), uwork::Error>(())
/// ```
#[must_use = "a reservation that is dropped frees its place"]
pub struct Reservation {
    bound: Arc<Bound>,
    /// The number of forks when the place was taken: it is one of that process.
    forks: u32,
}

impl BoundedQueue {
    /// A bound of `capacity` for closures and items that are submitted through this value and its
    /// clones.
    ///
    /// # Errors
    /// `capacity` is 0, or more than 2^40 - 1.
    pub fn new(queue: &Queue, capacity: usize) -> Result<BoundedQueue, Error> {
        let places = Places::new(capacity).ok_or(QueueError::BadCapacity)?;
        let is_inherited = queue.flags().contains(Flags::FORK_INHERITED);
        let process = AtomicU64::new(2 * u64::from(forks()));
        let bound = Arc::new(Bound { places, is_inherited, process });
        Ok(BoundedQueue { queue: queue.clone(), bound })
    }

    /// The queue below.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// How many closures and items may wait.
    pub fn capacity(&self) -> usize {
        self.bound.places.capacity()
    }

    /// How many places are free. The answer may be out of date on return.
    pub fn free(&self) -> usize {
        self.bound.places().free()
    }

    /// As [`Queue::spawn`]; waits for a free place first.
    ///
    /// # Errors
    /// The caller is in an item of this queue, which would wait for itself; also while there are free
    /// places. The closure comes back.
    pub fn spawn<F, R>(&self, closure: F) -> Result<JoinHandle<R>, RejectedError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_with(self.reserve(), closure)
    }

    /// As [`BoundedQueue::spawn`], but waits for `limit` at most.
    ///
    /// # Errors
    /// As [`BoundedQueue::spawn`], and [`Full`](crate::ErrorKind::Full) if no place became free in
    /// time. The closure comes back.
    pub fn spawn_timeout<F, R>(
        &self,
        closure: F,
        limit: Duration,
    ) -> Result<JoinHandle<R>, RejectedError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_with(self.reserve_timeout(limit), closure)
    }

    /// As [`Queue::spawn`], if a place is free. Never waits, and so is for items of the queue too.
    ///
    /// # Errors
    /// [`Full`](crate::ErrorKind::Full): no place is free. The closure comes back.
    pub fn try_spawn<F, R>(&self, closure: F) -> Result<JoinHandle<R>, RejectedError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_with(self.try_reserve(), closure)
    }

    fn spawn_with<F, R>(
        &self,
        reservation: Result<Reservation, Error>,
        closure: F,
    ) -> Result<JoinHandle<R>, RejectedError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match reservation {
            Ok(reservation) => Ok(self.queue.spawn(move || {
                drop(reservation);
                closure()
            })),
            Err(error) => Err(RejectedError { item: closure, error }),
        }
    }

    /// Waits for a free place.
    ///
    /// # Errors
    /// The caller is in an item of this queue, which would wait for itself; also while there are free
    /// places.
    pub fn reserve(&self) -> Result<Reservation, Error> {
        self.reserve_until(None)
    }

    /// As [`BoundedQueue::reserve`], but waits for `limit` at most.
    ///
    /// # Errors
    /// As [`BoundedQueue::reserve`], and [`Full`](crate::ErrorKind::Full) if no place became free in
    /// time.
    pub fn reserve_timeout(&self, limit: Duration) -> Result<Reservation, Error> {
        self.reserve_until(Instant::now().checked_add(limit))
    }

    /// Takes a place if one is free. Never waits.
    ///
    /// # Errors
    /// [`Full`](crate::ErrorKind::Full): no place is free.
    pub fn try_reserve(&self) -> Result<Reservation, Error> {
        match self.bound.places().try_take() {
            true => Ok(self.reserved()),
            false => Err(self.full()),
        }
    }

    fn reserve_until(&self, deadline: Option<Instant>) -> Result<Reservation, Error> {
        self.queue.0.engine().assert_may_wait();
        if self.queue.0.runs_here() {
            return Err(QueueError::WouldDeadlock.into());
        }
        let places = self.bound.places();
        let wait = || match deadline {
            Some(deadline) => places.take(&Until(deadline)),
            None => places.take(&Forever),
        };
        if places.try_take() || crate::blocking(wait) {
            return Ok(self.reserved());
        }
        Err(self.full())
    }

    /// The place that the caller has taken.
    fn reserved(&self) -> Reservation {
        Reservation { bound: self.bound.clone(), forks: forks() }
    }

    fn full(&self) -> Error {
        QueueError::Full(self.capacity()).into()
    }

    /// Frees a place whose reservation was [forgotten](Reservation::forget).
    ///
    /// # Errors
    /// All places are free: no reservation was forgotten.
    pub fn release(&self) -> Result<(), Error> {
        match self.bound.places().give(&Forever) {
            true => Ok(()),
            false => Err(QueueError::NotReserved.into()),
        }
    }
}

impl fmt::Debug for BoundedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedQueue")
            .field("name", &self.queue.name())
            .field("capacity", &self.capacity())
            .field("free", &self.free())
            .field("waiting", &self.bound.places().waiting())
            .finish()
    }
}

impl Reservation {
    /// Keeps the place without this value, for items that cannot hold it. [`BoundedQueue::release`]
    /// frees the place.
    pub fn forget(self) {
        // The count of references is released all the same: only the place stays taken.
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once; the value is not dropped or used after this.
        drop(unsafe { std::ptr::read(&raw mut this.bound) });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.forks != forks() && !self.bound.is_inherited {
            // A place of the parent's, which is free in this child.
            return;
        }
        let freed = self.bound.places().give(&Forever);
        debug_assert!(freed, "a reservation has a place");
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}
