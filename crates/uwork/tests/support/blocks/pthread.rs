//! Mutexes of the C library that the test holds.

use std::cell::UnsafeCell;

use super::Obstacle;

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex may be used by several threads, and is only used through its functions.
unsafe impl Sync for Mutex {}
// SAFETY: the mutexes are at their last address before the first is locked.
unsafe impl Send for Mutex {}

/// The mutexes do not move, as a mutex in use requires.
pub(super) struct Mutexes(Box<[Mutex]>);

impl Mutexes {
    /// Mutexes that the caller holds.
    pub(super) fn locked(places: usize) -> Mutexes {
        let fresh = || Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mutexes = Mutexes((0..places).map(|_| fresh()).collect());
        (0..places).for_each(|place| mutexes.lock(place));
        mutexes
    }

    fn lock(&self, place: usize) {
        // SAFETY: an initialised mutex, which this thread does not hold.
        let outcome = unsafe { libc::pthread_mutex_lock(self.0[place].0.get()) };
        assert_eq!(outcome, 0);
    }
}

impl Obstacle for Mutexes {
    fn block(&self, place: usize) {
        self.lock(place);
        self.release(place);
    }

    fn release(&self, place: usize) {
        // SAFETY: an initialised mutex, which this thread holds: the creator's thread, or the
        // item's in `block`.
        let outcome = unsafe { libc::pthread_mutex_unlock(self.0[place].0.get()) };
        assert_eq!(outcome, 0);
    }
}
