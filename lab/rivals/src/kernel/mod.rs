//! The structure of the kernel's workqueue: one lock per pool protects the list of items and the
//! idle workers.
//!
//! A submission takes the lock, links the item and picks an idle worker. A worker takes the lock
//! for each item, and kicks the next worker while items remain. The wake-up happens under the lock
//! or, with `DEFER`, after it: the state before and after the change that moved `wake_up_process()`
//! out of `pool->lock`. The busy hash, max_active, flush and cancel are missing; the kernel does
//! more work per item.

mod item;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::cpus::{self, Slots};
use crate::load::{Pool, Producer};
use crate::progress::Progress;
use item::{Item, List};

struct WorkerPool<const DEFER: bool> {
    state: Mutex<State>,
    /// Set by each worker before it first becomes idle.
    threads: Box<[OnceLock<Thread>]>,
}

/// The fields that the pool lock guards.
struct State {
    worklist: List,
    /// A stack: the worker that became idle last is woken first. A woken worker removes itself, so
    /// several kicks can pick the same worker; `unpark` makes no system call for a thread that is
    /// already woken.
    idle: Vec<usize>,
    stopping: bool,
}

impl State {
    /// The worker to wake, if there is work and an idle worker.
    fn pick(&self) -> Option<usize> {
        if self.worklist.is_empty() { None } else { self.idle.last().copied() }
    }
}

impl<const DEFER: bool> WorkerPool<DEFER> {
    fn new(workers: usize) -> Self {
        let state =
            State { worklist: List::new(), idle: Vec::with_capacity(workers), stopping: false };
        Self { state: Mutex::new(state), threads: (0..workers).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn wake(&self, picked: Option<usize>) {
        if let Some(thread) = picked.and_then(|worker| self.threads[worker].get()) {
            thread.unpark();
        }
    }

    /// # Safety
    ///
    /// The caller has set the item's PENDING, and the item lives until it has run.
    #[inline]
    unsafe fn queue(&self, item: &Item) {
        let mut state = self.lock();
        // SAFETY: by this function's contract.
        unsafe { state.worklist.push_back(item) };
        let picked = state.pick();
        if DEFER {
            drop(state);
        }
        self.wake(picked);
    }

    fn work(&self, me: usize) {
        self.threads[me].set(thread::current()).expect("each worker starts once");
        let mut state = self.lock();
        loop {
            state.idle.retain(|worker| *worker != me);
            while let Some(item) = state.worklist.pop_front() {
                // SAFETY: the item was just removed from the list, and no other thread gets it.
                state = unsafe { self.process(state, item) };
            }
            if state.stopping {
                return;
            }
            state.idle.push(me);
            drop(state);
            thread::park();
            state = self.lock();
        }
    }

    /// Kicks the next worker, then runs one item with the lock released.
    ///
    /// # Safety
    ///
    /// The item came from this pool's worklist, and no other thread gets it.
    #[inline]
    unsafe fn process<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        item: *const Item,
    ) -> MutexGuard<'a, State> {
        let picked = state.pick();
        if !DEFER {
            self.wake(picked);
        }
        // SAFETY: by this function's contract.
        let function = unsafe { Item::start(item) };
        drop(state);
        if DEFER {
            self.wake(picked);
        }
        // SAFETY: the item lives until it has counted, and this function does not touch it
        // afterwards.
        unsafe { function(item) };
        self.lock()
    }

    fn stop(&self) {
        self.lock().stopping = true;
        self.threads.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
    }
}

/// One pool for all, or one per CPU.
pub(crate) struct KernelShape<const DEFER: bool> {
    slots: Slots,
    pools: Vec<Arc<WorkerPool<DEFER>>>,
    workers: Vec<JoinHandle<()>>,
}

impl<const DEFER: bool> KernelShape<DEFER> {
    /// One pool, `workers` workers.
    pub(crate) fn system(workers: usize) -> Self {
        Self::new(Slots::one(), workers)
    }

    /// A pool and a pinned worker per CPU.
    pub(crate) fn per_cpu() -> Self {
        Self::new(Slots::per_cpu(), 1)
    }

    fn new(slots: Slots, workers_per_pool: usize) -> Self {
        let pools: Vec<_> =
            slots.cpus.iter().map(|_| Arc::new(WorkerPool::new(workers_per_pool))).collect();
        let mut workers = Vec::new();
        for (pool, cpu) in pools.iter().zip(&slots.cpus) {
            for me in 0..workers_per_pool {
                let (pool, cpu) = (Arc::clone(pool), *cpu);
                workers.push(thread::spawn(move || {
                    cpu.into_iter().for_each(cpus::pin);
                    pool.work(me);
                }));
            }
        }
        Self { slots, pools, workers }
    }
}

impl<const DEFER: bool> Drop for KernelShape<DEFER> {
    fn drop(&mut self) {
        self.pools.iter().for_each(|pool| pool.stop());
        for worker in self.workers.drain(..) {
            worker.join().expect("the load's items do not panic");
        }
    }
}

/// One producer and its items.
pub(crate) struct Queuer<'a, const DEFER: bool> {
    shape: &'a KernelShape<DEFER>,
    items: Box<[Item]>,
}

impl<const DEFER: bool> Pool for KernelShape<DEFER> {
    type Producer<'a> = Queuer<'a, DEFER>;

    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        outstanding: usize,
    ) -> Queuer<'a, DEFER> {
        Queuer { shape: self, items: (0..outstanding).map(|_| Item::new(progress)).collect() }
    }
}

impl<const DEFER: bool> Producer for Queuer<'_, DEFER> {
    #[inline]
    unsafe fn submit(&mut self, index: usize) {
        let item = &self.items[index];
        if item.set_pending() {
            // SAFETY: PENDING was set here, and the caller keeps the producer, which owns the
            // items, until all have run.
            unsafe { self.shape.pools[self.shape.slots.here()].queue(item) };
        }
    }
}
