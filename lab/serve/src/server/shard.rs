//! The keys that one thread owns, behind a lock, so that other threads can operate on them in place.
//!
//! The lock is held for one operation, or for the operations of one item. The owner waits for it.
//! Another thread only tries for a short time, because the holder may be preempted, or may be
//! moving a large table; it then hands its operations over.

use std::hint;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::keyspace::{Budget, Keyspace};

/// How often a foreign thread tries to take the lock: longer than an operation on a small value.
const TRIES: usize = 32;
/// No key will expire.
const NEVER: u64 = u64::MAX;

/// See the module.
#[repr(align(128))]
pub(crate) struct Shard {
    keys: Mutex<Keyspace>,
    /// The figures of `keys`, written by the lock's holder and read without the lock.
    len: AtomicUsize,
    expiring: AtomicUsize,
    next_expiry: AtomicU64,
}

/// What an operation in place has done.
pub(crate) struct Visited<R> {
    pub(crate) outcome: R,
    /// A key will now expire before any other: an owner that sleeps must learn of that.
    pub(crate) expires_earlier: bool,
}

impl Shard {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            keys: Mutex::new(Keyspace::new(Arc::clone(budget))),
            len: AtomicUsize::new(0),
            expiring: AtomicUsize::new(0),
            next_expiry: AtomicU64::new(NEVER),
        }
    }

    /// Operates on the keys. Only the owner calls this: it waits for the lock.
    ///
    /// # Panics
    /// A thread has panicked while it held the lock. The keys may be half changed, so the owner
    /// ends too, and the server with it.
    #[inline]
    pub(crate) fn operate<R>(&self, operate: impl FnOnce(&mut Keyspace) -> R) -> R {
        let keys = self.keys.lock().expect("no thread has panicked while it held the lock");
        self.visit(keys, operate).outcome
    }

    /// As `operate`, for a thread that is not the owner. Returns `None` if the lock stays held, or
    /// after a panic under the lock.
    #[inline]
    pub(crate) fn try_operate<R>(
        &self,
        operate: impl FnOnce(&mut Keyspace) -> R,
    ) -> Option<Visited<R>> {
        for _ in 0..TRIES {
            match self.keys.try_lock() {
                Ok(keys) => return Some(self.visit(keys, operate)),
                Err(TryLockError::Poisoned(_)) => return None,
                Err(TryLockError::WouldBlock) => hint::spin_loop(),
            }
        }
        None
    }

    #[inline]
    fn visit<R>(
        &self,
        mut keys: MutexGuard<'_, Keyspace>,
        operate: impl FnOnce(&mut Keyspace) -> R,
    ) -> Visited<R> {
        let outcome = operate(&mut keys);
        let next = keys.next_expiry().unwrap_or(NEVER);
        let expires_earlier = next < self.next_expiry.load(Ordering::Relaxed);
        // Release: a request whose sender has seen this operation's reply counts its key. The reply
        // itself orders them, since it is sent later and through the kernel.
        self.len.store(keys.len(), Ordering::Release);
        self.expiring.store(keys.expiring(), Ordering::Relaxed);
        self.next_expiry.store(next, Ordering::Relaxed);
        Visited { outcome, expires_earlier }
    }

    /// The number of keys, including expired keys that are not removed yet.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The number of keys that have a deadline.
    pub(crate) fn expiring(&self) -> usize {
        self.expiring.load(Ordering::Relaxed)
    }

    /// A time at or before the next expiry, if any key will expire.
    ///
    /// The owner reads it before it waits. A thread that makes it earlier afterwards sends the
    /// owner a message, which ends that wait.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        Some(self.next_expiry.load(Ordering::Relaxed)).filter(|&time| time != NEVER)
    }

    /// Holds the lock for a test.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> MutexGuard<'_, Keyspace> {
        self.keys.lock().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::keyspace::{Condition, Expiry};

    fn set(keys: &mut Keyspace, name: &[u8], expiry: Expiry) {
        keys.set((name[0].into(), name), b"1", expiry, Condition::Always, 1).unwrap();
    }

    #[test]
    fn a_foreign_thread_is_refused_while_the_lock_is_held() {
        let shard = Shard::new(&Arc::new(Budget::new(1 << 20)));
        let held = shard.hold();
        assert!(shard.try_operate(|keys| keys.len()).is_none());
        drop(held);
        assert_eq!(shard.try_operate(|keys| keys.len()).unwrap().outcome, 0);
    }

    // Catches: an owner that serves keys which a panic has left half changed.
    #[test]
    fn after_a_panic_under_the_lock_no_thread_operates_on_the_keys() {
        let shard = Shard::new(&Arc::new(Budget::new(1 << 20)));
        let panics = |operate: &dyn Fn()| catch_unwind(AssertUnwindSafe(operate)).is_err();
        let fail = |keys: &mut Keyspace| assert!(!keys.is_empty(), "on purpose");
        assert!(panics(&|| _ = shard.try_operate(fail)));
        assert!(shard.try_operate(|keys| keys.len()).is_none());
        assert!(panics(&|| _ = shard.operate(|keys| keys.len())));
    }

    #[test]
    fn only_an_earlier_expiry_concerns_the_owner() {
        let shard = Shard::new(&Arc::new(Budget::new(1 << 20)));
        let is_earlier = |name: &[u8], expiry| {
            let visited = shard.try_operate(|keys| set(keys, name, expiry)).unwrap();
            visited.expires_earlier
        };
        assert!(!is_earlier(b"a", Expiry::Never));
        assert!(is_earlier(b"b", Expiry::At(100)));
        assert!(!is_earlier(b"c", Expiry::At(200)));
        assert!(is_earlier(b"d", Expiry::At(50)));
        assert_eq!((shard.len(), shard.expiring(), shard.next_expiry()), (4, 3, Some(50)));
    }
}
