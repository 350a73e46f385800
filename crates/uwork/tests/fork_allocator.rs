//! An allocator that registers fork handlers at its first use, as a linked jemalloc does. Before a
//! fork the handler that was registered last runs first. If that were the allocator's, the thread
//! that forks would hold its lock while it waits for the library's locks, whose holders allocate.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use support::flag::SetOnDrop;
use support::forked::{in_child, status_of};
use support::queue;

/// A lock that works before `main`, and that a forked child unlocks.
struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made for several threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

extern "C" fn lock() {
    // SAFETY: a static.
    unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: a static, locked by this thread.
    unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
}

/// The system's allocator behind a lock, which the thread that forks holds meanwhile.
struct Locked;

impl Locked {
    fn locked<R>(call: impl FnOnce() -> R) -> R {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.swap(true, Ordering::Relaxed) {
            // SAFETY: functions of this program, which do not unwind.
            unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
        }
        lock();
        let result = call();
        unlock();
        result
    }
}

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, forwarded.
        Locked::locked(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, forwarded.
        Locked::locked(|| unsafe { System.dealloc(pointer, layout) });
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise, forwarded.
        Locked::locked(|| unsafe { System.realloc(pointer, layout, size) })
    }
}

#[global_allocator]
static ALLOCATOR: Locked = Locked;

/// Forks of a process whose other thread allocates within the library's locks.
const FORKS: u32 = 300;

// Catches: handlers of the library's that are registered before the allocator's. The forks are a
// child's, which ends if it hangs: a watchdog of its own would allocate too.
#[test]
fn a_fork_does_not_wait_for_locks_whose_holders_allocate() {
    in_child(|| {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(queue("made").build().unwrap());
                }
            });
            let _ends = SetOnDrop(&is_over);
            for _ in 0..FORKS {
                // SAFETY: the child only ends.
                let child = unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::_exit(0);
                    }
                    child
                };
                assert_eq!(status_of(child), 0);
            }
        });
    });
}
