//! pthread mutexes that the releasing thread holds until it is time.

use std::cell::UnsafeCell;

use super::Obstacle;

struct Raw(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used by several threads, and is only used through its
// functions.
unsafe impl Sync for Raw {}
// SAFETY: the mutexes are made by one thread and not locked before they are at their last address.
unsafe impl Send for Raw {}

/// They stay where they are, as a mutex in use must.
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
