//! A value that is replaced seldom, without a lock. A fork by another thread finds it whole, and the
//! child reads and replaces it: a lock that a fork does not hold could stay locked there for ever.

use std::sync::atomic::{AtomicPtr, Ordering};

/// See the module. Each value is kept as long as this, because a reader may have it.
pub struct Latest<T>(AtomicPtr<Version<T>>);

struct Version<T> {
    value: T,
    /// The version that it replaced; null in the first one.
    before: *mut Version<T>,
}

impl<T: Send + Sync> Latest<T> {
    /// Without a value.
    pub const fn empty() -> Latest<T> {
        Latest(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The present value.
    pub fn get(&self) -> Option<&T> {
        self.value_of(self.0.load(Ordering::Acquire))
    }

    /// Replaces the value by what `next` makes of the present one. Calls it again if another thread
    /// has replaced that meanwhile.
    pub fn replace(&self, next: impl Fn(Option<&T>) -> T) -> &T {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let value = next(self.value_of(before));
            let version = Box::into_raw(Box::new(Version { value, before }));
            let swapped =
                self.0.compare_exchange(before, version, Ordering::AcqRel, Ordering::Acquire);
            match swapped {
                // SAFETY: just made, and from now on neither freed nor changed while `self` is borrowed.
                Ok(_) => return unsafe { &(*version).value },
                Err(now) => {
                    // SAFETY: just made, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(version) });
                    before = now;
                }
            }
        }
    }

    fn value_of(&self, version: *mut Version<T>) -> Option<&T> {
        // SAFETY: null, or a published version, which is neither freed nor changed while `self` is
        // borrowed.
        unsafe { version.as_ref() }.map(|version| &version.value)
    }
}

impl<T> Drop for Latest<T> {
    fn drop(&mut self) {
        let mut next = *self.0.get_mut();
        while !next.is_null() {
            // SAFETY: from `Box::into_raw`, and in this list once.
            next = unsafe { Box::from_raw(next) }.before;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_replacement_is_lost() {
        const EACH: usize = 1_000;
        static COUNT: Latest<usize> = Latest::empty();
        assert_eq!(COUNT.get(), None);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mine = *COUNT.replace(|count| count.map_or(1, |count| count + 1));
                        assert!(*COUNT.get().unwrap() >= mine);
                    }
                });
            }
        });
        assert_eq!(COUNT.get(), Some(&(2 * EACH)));
    }
}
