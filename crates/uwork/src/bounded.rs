//! A bound on how many closures and items wait in a queue: back-pressure for their producers.
//!
//! A layer over [`Queue`], which knows nothing of it. Each submission needs a place, from its
//! reservation to the start of its run. `uwork_engine::places` counts the free places and the
//! producers that wait, and shows that no producer sleeps while a place is free.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uwork_engine::QueueError;
use uwork_engine::places::Places;
use uwork_linux::Error;
use uwork_linux::futex::{Forever, Until};

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
/// Producers that wait are admitted in no particular order. A paused queue keeps its places taken. A
/// forked child begins with the places as they are; those of lost items are not released there.
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
    places: Arc<Places>,
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
pub struct Reservation(Arc<Places>);

impl BoundedQueue {
    /// A bound of `capacity` for closures and items that are submitted through this value and its
    /// clones.
    ///
    /// # Errors
    /// `capacity` is 0, or more than 2^40 - 1.
    pub fn new(queue: &Queue, capacity: usize) -> Result<BoundedQueue, Error> {
        let places = Places::new(capacity).ok_or(QueueError::BadCapacity)?;
        Ok(BoundedQueue { queue: queue.clone(), places: Arc::new(places) })
    }

    /// The queue below.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// How many closures and items may wait.
    pub fn capacity(&self) -> usize {
        self.places.capacity()
    }

    /// How many places are free. The answer may be out of date on return.
    pub fn free(&self) -> usize {
        self.places.free()
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
        match self.places.try_take() {
            true => Ok(Reservation(self.places.clone())),
            false => Err(self.full()),
        }
    }

    fn reserve_until(&self, deadline: Option<Instant>) -> Result<Reservation, Error> {
        if self.queue.0.runs_here() {
            return Err(QueueError::WouldDeadlock.into());
        }
        let wait = || match deadline {
            Some(deadline) => self.places.take(&Until(deadline)),
            None => self.places.take(&Forever),
        };
        if self.places.try_take() || crate::blocking(wait) {
            return Ok(Reservation(self.places.clone()));
        }
        Err(self.full())
    }

    fn full(&self) -> Error {
        QueueError::Full(self.capacity()).into()
    }

    /// Frees a place whose reservation was [forgotten](Reservation::forget).
    ///
    /// # Errors
    /// All places are free: no reservation was forgotten.
    pub fn release(&self) -> Result<(), Error> {
        match self.places.give(&Forever) {
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
            .field("waiting", &self.places.waiting())
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
        drop(unsafe { std::ptr::read(&raw mut this.0) });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let freed = self.0.give(&Forever);
        debug_assert!(freed, "a reservation has a place");
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}
