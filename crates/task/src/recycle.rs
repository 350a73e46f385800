//! A pool of reusable buffers: [parcels](crate::combine::Parcel), or any boxed values that are
//! allocated often and soon needed again.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The most boxes that a pool may keep.
const CAPACITY_MAX: usize = 1024;

/// Keeps a few boxes for reuse: for example one pool per connection, so that the buffer of one
/// request is available, and warm in the cache, for the next.
///
/// **Progress.** Wait-free: [`take`](Pool::take) and [`put`](Pool::put) check each slot once, and
/// never wait for another thread. Under contention a call may miss a box or a free slot that
/// existed for a moment: the caller then makes a new box, or drops one. Meant for a few dozen slots
/// at most.
///
/// ```
/// use uwork::recycle::Pool;
///
/// let pool = Pool::<Vec<u8>>::new(2);
/// let mut buffer = pool.take_or(|| Vec::with_capacity(4096));
/// buffer.extend_from_slice(b"a request");
/// // `put` does not clear the buffer. Its next user clears it.
/// assert!(pool.put(buffer).is_ok());
/// assert_eq!(pool.take().unwrap().as_slice(), b"a request");
/// assert!(pool.take().is_none());
/// ```
pub struct Pool<T> {
    slots: Box<[AtomicPtr<T>]>,
    /// The slot of the last put or take: a put searches upwards from it, a take downwards. A hint,
    /// by which most searches end at the first or second slot.
    hint: AtomicUsize,
}

// SAFETY: the pool owns a box in a slot; an atomic exchange gives it to one taker.
unsafe impl<T: Send> Sync for Pool<T> {}
// SAFETY: the boxes move with the pool.
unsafe impl<T: Send> Send for Pool<T> {}

impl<T> Pool<T> {
    /// An empty pool that keeps at most `capacity` boxes, and never more than 1,024.
    pub fn new(capacity: usize) -> Pool<T> {
        let slot = |_| AtomicPtr::new(ptr::null_mut());
        let slots = (0..capacity.min(CAPACITY_MAX)).map(slot).collect();
        Pool { slots, hint: AtomicUsize::new(0) }
    }

    /// Takes a box, with the contents that it was put with. None if no box was found.
    pub fn take(&self) -> Option<Box<T>> {
        let (from, count) = (self.hint.load(Ordering::Relaxed), self.slots.len());
        let found = (0..count).find_map(|step| {
            let at = (from + count - step) % count;
            let slot = &self.slots[at];
            // A load first: an exchange takes the cache line exclusively.
            let there = !slot.load(Ordering::Relaxed).is_null();
            // Acquire: the writes of the thread that put it; the partner of the release in `put`.
            let taken = there.then(|| slot.swap(ptr::null_mut(), Ordering::Acquire));
            taken.filter(|taken| !taken.is_null()).inspect(|_| self.set_hint(at))
        });
        // SAFETY: the pointer of a box that `put` released, and the swap removed it from the pool.
        found.map(|found| unsafe { Box::from_raw(found) })
    }

    /// Takes a box, or makes one with `make`.
    pub fn take_or(&self, make: impl FnOnce() -> T) -> Box<T> {
        self.take().unwrap_or_else(|| Box::new(make()))
    }

    /// Puts a box into the pool.
    ///
    /// # Errors
    /// All slots are full; the box is returned.
    pub fn put(&self, value: Box<T>) -> Result<(), Box<T>> {
        let value = Box::into_raw(value);
        let (from, count) = (self.hint.load(Ordering::Relaxed), self.slots.len());
        let kept = (0..count).map(|step| (from + step) % count).find(|&at| {
            let slot = &self.slots[at];
            slot.load(Ordering::Relaxed).is_null()
                && slot
                    // Release: the caller's writes, for the acquire in `take`.
                    .compare_exchange(ptr::null_mut(), value, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        });
        if let Some(at) = kept {
            self.set_hint(at);
        }
        // SAFETY: no slot has it, so this call still owns it.
        if kept.is_some() { Ok(()) } else { Err(unsafe { Box::from_raw(value) }) }
    }
}

impl<T> Pool<T> {
    fn set_hint(&self, at: usize) {
        if self.hint.load(Ordering::Relaxed) != at {
            self.hint.store(at, Ordering::Relaxed);
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
        f.debug_struct("Pool").field("capacity", &self.slots.len()).finish_non_exhaustive()
    }
}
