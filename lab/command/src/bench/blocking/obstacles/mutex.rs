//! pthread mutexes that the releasing thread holds until a block ends.

use std::cell::UnsafeCell;

use super::Obstacle;

struct Raw(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex may be shared by threads, and is only accessed through its functions.
unsafe impl Sync for Raw {}
// SAFETY: one thread creates the mutexes, and none is locked before it is at its final address.
unsafe impl Send for Raw {}

/// The mutexes. They do not move, as POSIX requires of a mutex in use.
pub(super) struct Mutexes(Box<[Raw]>);

impl Mutexes {
    pub(super) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Raw(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))).collect())
    }

    fn lock(&self, place: usize) {
        // SAFETY: an initialised mutex, which this thread does not hold (contract of `Obstacle`).
        let result = unsafe { libc::pthread_mutex_lock(self.0[place].0.get()) };
        assert_eq!(result, 0, "a mutex that this thread does not hold can be locked");
    }

    fn unlock(&self, place: usize) {
        // SAFETY: an initialised mutex, which this thread holds (contract of `Obstacle`).
        let result = unsafe { libc::pthread_mutex_unlock(self.0[place].0.get()) };
        assert_eq!(result, 0, "a mutex that this thread holds can be unlocked");
    }
}

impl Obstacle for Mutexes {
    fn set_up(&self, place: usize) {
        self.lock(place);
    }

    fn block(&self, place: usize) {
        self.lock(place);
        self.unlock(place);
    }

    fn release(&self, place: usize) {
        self.unlock(place);
    }
}
