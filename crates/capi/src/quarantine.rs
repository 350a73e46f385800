//! The quarantine: handles of destroyed queues, until they are reused.
//!
//! The quarantine's lock is one of those that are held over a fork (`kernel/src/fork.c`). Otherwise a
//! child could inherit it locked by a thread that does not exist in the child. A thread that holds
//! it allocates memory, which in the debug mode takes the lock of the registry. It takes no other
//! lock.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_uint;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::queue::UwQueue;

type Handles = VecDeque<&'static UwQueue>;

/// How many handles stay in quarantine before the oldest is reused.
const QUARANTINE_MIN: usize = 4_096;

/// The handles, oldest first.
static QUARANTINE: Mutex<Handles> = Mutex::new(VecDeque::new());

fn handles() -> MutexGuard<'static, Handles> {
    QUARANTINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The oldest handle, if the quarantine is full. The debug mode never reuses a handle.
pub(crate) fn oldest() -> Option<&'static UwQueue> {
    let mut handles = handles();
    let reuse = handles.len() > QUARANTINE_MIN && !crate::debug::is_on();
    reuse.then(|| handles.pop_front()).flatten()
}

/// Puts the handle of a destroyed queue into quarantine.
pub(crate) fn keep(handle: &'static UwQueue) {
    handles().push_back(handle);
}

/// How often a handle is in quarantine.
#[cfg(test)]
pub(crate) fn count_of(handle: *const UwQueue) -> usize {
    handles().iter().filter(|&&one| std::ptr::eq(one, handle)).count()
}

/// The guard that is held from before a fork until after it. It is not a thread-local, because a
/// thread may fork after its thread-locals were destroyed.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Handles>>>);

// SAFETY: only the forking thread reaches it, and only while it holds the lock.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// `enum uw_fork` of `kernel/src/fork.h`.
const PREPARE: c_uint = 0;

/// For `kernel/src/fork.c`: takes the lock before a fork, and releases it afterwards, in the parent and
/// in the child.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn uw_quarantine_fork(at: c_uint) {
    let held = (at == PREPARE).then(handles);
    // SAFETY: the caller holds the lock, from here on or since before the fork (see `Sync`). No
    // reference is kept.
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

    // Catches: a fork that does not wait for the holder of the lock. The child then waits forever.
    #[test]
    fn the_lock_is_free_in_a_forked_child() {
        let held = handles();
        let (tell, told) = mpsc::channel();
        let forker = std::thread::spawn(move || {
            // SAFETY: asks for a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            let mut status = 0;
            // SAFETY: the child has one thread. It takes a lock and exits; the parent waits for it.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(10);
                    drop(handles());
                    libc::_exit(0);
                }
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            }
            status
        });
        let thread = told.recv().unwrap();
        // Either the forking thread waits for the lock, or the child does and the parent waits for
        // the child.
        while !sleeps(thread) {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(forker.join().unwrap(), 0);
    }
}
