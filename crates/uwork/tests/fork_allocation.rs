//! A fork's handlers do not call the allocator. An allocator that registered its own handlers after
//! the library holds its locks at that time, so an allocation would wait for the calling thread
//! itself. Here the allocator of this process reports that as an error.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::forked::fork;
use support::gate::Gate;
use support::items::{Job, Later};
use support::{queue, watchdog};
use uwork::percpu::{Bundle, Cache, Counter, PerCpu};
use uwork::rcu::RcuWork;
use uwork::{Queue, WorkItem};

thread_local! {
    /// Whether the thread is in the handlers of a fork.
    static FORKS: Cell<bool> = const { Cell::new(false) };
    /// How often the thread has called the allocator in the handlers.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// The system's allocator, with locks that are held while a thread forks.
struct Locked;

fn note() {
    let _ = FORKS.try_with(|forks| {
        if forks.get() {
            CALLS.set(CALLS.get() + 1);
        }
    });
}

// SAFETY: every call is forwarded to the system's allocator unchanged; the counter allocates
// nothing.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise, forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note();
        // SAFETY: the caller's promise, forwarded.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise, forwarded.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Locked = Locked;

extern "C" fn lock() {
    FORKS.set(true);
}

extern "C" fn unlock() {
    FORKS.set(false);
}

/// Registers the allocator's handlers, later than the library's: before a fork they run first,
/// after it last.
fn register() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: functions of this program, which do not unwind.
        assert_eq!(unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) }, 0);
    }
}

/// Forks. Returns the handlers' calls of the allocator before the fork and in the parent, and in
/// the child.
fn calls_of_a_fork() -> (u32, u32) {
    CALLS.set(0);
    let Some(status) = fork() else {
        let calls = i32::try_from(CALLS.get().min(100)).unwrap_or(100);
        // SAFETY: ends the child.
        unsafe { libc::_exit(calls) };
    };
    let calls = CALLS.get();
    assert!(libc::WIFEXITED(status), "{status:#x}");
    (calls, libc::WEXITSTATUS(status) as u32)
}

/// An item that waits for a grace period.
struct Graced {
    work: RcuWork<Graced>,
}

uwork::has_work!(impl HasRcuWork for Graced { work });

impl WorkItem for Graced {
    type Pointer = Arc<Graced>;

    fn run(_this: Arc<Graced>) {}
}

// Catches: a list that is allocated for the locks, for the state to forget, or for the state to
// release.
#[test]
fn the_handlers_of_a_fork_do_not_call_the_allocator() {
    let _watchdog = watchdog();
    let bare = calls_of_a_fork();
    register();
    assert_eq!(bare, (0, 0), "nothing was registered");
    assert_eq!(calls_of_a_fork(), (0, 0), "nothing was used");
    let mut queues: Vec<Queue> = vec![
        queue("unbound").build().unwrap(),
        queue("percpu").per_cpu().build().unwrap(),
        queue("ordered").ordered().build().unwrap(),
        queue("reclaim").mem_reclaim().build().unwrap(),
        queue("dedicated").dedicated().build().unwrap(),
        queue("bh").bh().build().unwrap(),
        queue("limited").max_active(1).build().unwrap(),
    ];
    assert_eq!(calls_of_a_fork(), (0, 0), "idle queues");
    // More queues than fit into the first allocation of each list.
    queues.extend((0..100).map(|_| queue("many").build().unwrap()));
    assert_eq!(calls_of_a_fork(), (0, 0), "many queues");
    // Per-CPU data of every kind.
    let (data, counter) = (PerCpu::new(|_| 0_u64), Counter::new());
    let caches: Vec<Cache<[u64; 8]>> = (0..40).map(|_| Cache::new("cache")).collect();
    let batch = Bundle::new(16, |_| {});
    caches.iter().for_each(|cache| drop(cache.alloc([0; 8])));
    batch.add(1);
    counter.add(1);
    assert_eq!(calls_of_a_fork(), (0, 0), "per-CPU data");
    let guard = data.lock_local().unwrap();
    assert_eq!(calls_of_a_fork(), (0, 0), "a CPU's lock is held");
    drop(guard);
    // Items that run, wait behind them, are armed, and wait for a grace period.
    let (started, may_end) = (Gate::new(), Gate::new());
    let reader = uwork::rcu::read_lock();
    let graced = Arc::new(Graced { work: RcuWork::new() });
    assert!(queues[0].enqueue_rcu(graced.clone()).is_queued());
    let held = Job::held(&started, &may_end);
    assert!(queues[6].enqueue(held.clone()).is_queued());
    started.wait();
    let jobs: Vec<_> = (0..50).map(|_| Job::counting()).collect();
    jobs.iter().for_each(|job| assert!(queues[6].enqueue(job.clone()).is_queued()));
    let later: Vec<_> = (0..50).map(|_| Later::counting()).collect();
    for (number, item) in later.iter().enumerate() {
        let queue = &queues[number % 7];
        assert!(queue.enqueue_delayed(item.clone(), Duration::from_secs(3_600)).is_queued());
    }
    assert_eq!(calls_of_a_fork(), (0, 0), "items of every kind");
    // Inside an item, whose thread has a continuation in the child.
    let inside = queues[1].spawn(calls_of_a_fork).join().unwrap();
    assert_eq!(inside, (0, 0), "inside an item");
    drop(reader);
    may_end.open();
    later.iter().for_each(|item| _ = item.work.cancel());
    queues.iter().for_each(|queue| queue.drain().unwrap());
    drop((counter, batch, data));
}
