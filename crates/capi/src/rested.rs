//! Handles of queues that were destroyed, until they are used for others.
//!
//! Their lock is one of those that are held over a fork (`kernel/fork.c`): a child would find it held for ever by a
//! thread that it does not have. Who holds it asks the allocator for memory, which in the debug mode takes the lock of
//! the registry, and takes no other one.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_uint;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::queue::UwQueue;

type Handles = VecDeque<&'static UwQueue>;

/// How many are kept as they are before the oldest is used again.
const RESTING: usize = 4_096;

/// Oldest first.
static RESTED: Mutex<Handles> = Mutex::new(VecDeque::new());

fn rested() -> MutexGuard<'static, Handles> {
    RESTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The oldest one, if there are enough.
pub(crate) fn oldest() -> Option<&'static UwQueue> {
    let mut rested = rested();
    let reuse = rested.len() > RESTING && !crate::debug::is_on();
    reuse.then(|| rested.pop_front()).flatten()
}

/// Keeps the handle of a queue that was destroyed.
pub(crate) fn keep(handle: &'static UwQueue) {
    rested().push_back(handle);
}

/// How often a handle rests.
#[cfg(test)]
pub(crate) fn count_of(handle: *const UwQueue) -> usize {
    rested().iter().filter(|&&one| std::ptr::eq(one, handle)).count()
}

/// What is held from before a fork until after it. Not the thread's own, as one may fork when what is its own is gone.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Handles>>>);

// SAFETY: reached by the thread that forks only, while it has the lock.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// `enum uw_fork` of `kernel/fork.h`.
const PREPARE: c_uint = 0;

/// For `kernel/fork.c`: holds the lock over a fork, or lets it go again, in the parent and in the child.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn uw_rested_fork(at: c_uint) {
    let held = (at == PREPARE).then(rested);
    // SAFETY: the caller has the lock, from here on or since before the fork (see `Sync`); nobody keeps a reference.
    let before = unsafe { std::mem::replace(&mut *FORKING.0.get(), held) };
    drop(before);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Whether the thread sleeps.
    fn sleeps(thread: libc::pid_t) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    }

    // Catches: a fork that does not wait for whoever has the lock. Then its child waits for ever.
    #[test]
    fn a_child_finds_the_lock_free() {
        let held = rested();
        let (tell, told) = mpsc::channel();
        let forker = std::thread::spawn(move || {
            // SAFETY: asks for a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            let mut status = 0;
            // SAFETY: the child takes a lock, which its one thread may, and ends; the parent waits for it.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(10);
                    drop(rested());
                    libc::_exit(0);
                }
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            }
            status
        });
        let thread = told.recv().unwrap();
        // For the lock; or for a child that waits for it.
        while !sleeps(thread) {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(forker.join().unwrap(), 0);
    }
}
