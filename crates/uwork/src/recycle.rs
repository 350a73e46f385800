//! Boxes that go around: buffers, [parcels](crate::combine::Parcel), whatever is made often and needed again at once.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The most boxes that a pool may keep.
const CAPACITY_MAX: usize = 1024;

/// Keeps a few boxes for the next who needs one: for each connection, for example, so that what one request has
/// used is there, and warm, for the next.
///
/// **Progress.** Wait-free: [`take`](Pool::take) and [`put`](Pool::put) look at each place once, and wait for
/// nobody. Under contention one may miss a box, or a place, that was there for a moment: the caller then makes a
/// new box, or drops one. A few dozen places at most is what this is for.
///
/// ```
/// use uwork::recycle::Pool;
///
/// let pool = Pool::<Vec<u8>>::new(2);
/// let mut buffer = pool.take_or(|| Vec::with_capacity(4096));
/// buffer.extend_from_slice(b"a request");
/// // As it is: whoever takes it clears it.
/// assert!(pool.put(buffer).is_ok());
/// assert_eq!(pool.take().unwrap().as_slice(), b"a request");
/// assert!(pool.take().is_none());
/// ```
pub struct Pool<T> {
    places: Box<[AtomicPtr<T>]>,
    /// Where the last box was put or taken: whoever puts looks from there upwards, whoever takes downwards. A hint, by
    /// which most find what they look for at the first or second place.
    near: AtomicUsize,
}

// SAFETY: a box in a place is nobody's until it was taken, by one.
unsafe impl<T: Send> Sync for Pool<T> {}
// SAFETY: it goes with its boxes.
unsafe impl<T: Send> Send for Pool<T> {}

impl<T> Pool<T> {
    /// An empty pool that keeps `capacity` boxes at most, 1,024 if more are asked for.
    pub fn new(capacity: usize) -> Pool<T> {
        let place = |_| AtomicPtr::new(ptr::null_mut());
        let places = (0..capacity.min(CAPACITY_MAX)).map(place).collect();
        Pool { places, near: AtomicUsize::new(0) }
    }

    /// Takes a box, as it was put.
    pub fn take(&self) -> Option<Box<T>> {
        let (from, count) = (self.near.load(Ordering::Relaxed), self.places.len());
        let found = (0..count).find_map(|step| {
            let at = (from + count - step) % count;
            let place = &self.places[at];
            // A look first: an exchange takes the line away from others.
            let there = !place.load(Ordering::Relaxed).is_null();
            // Acquire: what whoever put it wrote.
            let taken = there.then(|| place.swap(ptr::null_mut(), Ordering::Acquire));
            taken.filter(|taken| !taken.is_null()).inspect(|_| self.was_at(at))
        });
        // SAFETY: the pointer of a box that `put` gave up, and that nobody else can get.
        found.map(|found| unsafe { Box::from_raw(found) })
    }

    /// Takes a box, or makes one.
    pub fn take_or(&self, make: impl FnOnce() -> T) -> Box<T> {
        self.take().unwrap_or_else(|| Box::new(make()))
    }

    /// Keeps a box.
    ///
    /// # Errors
    /// All places are taken; the box comes back.
    pub fn put(&self, value: Box<T>) -> Result<(), Box<T>> {
        let value = Box::into_raw(value);
        let (from, count) = (self.near.load(Ordering::Relaxed), self.places.len());
        let kept = (0..count).map(|step| (from + step) % count).find(|&at| {
            let place = &self.places[at];
            place.load(Ordering::Relaxed).is_null()
                && place
                    // Release: what the caller wrote.
                    .compare_exchange(ptr::null_mut(), value, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        });
        if let Some(at) = kept {
            self.was_at(at);
        }
        // SAFETY: no place has it, so it is still ours.
        if kept.is_some() { Ok(()) } else { Err(unsafe { Box::from_raw(value) }) }
    }
}

impl<T> Pool<T> {
    fn was_at(&self, at: usize) {
        if self.near.load(Ordering::Relaxed) != at {
            self.near.store(at, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("capacity", &self.places.len()).finish_non_exhaustive()
    }
}
