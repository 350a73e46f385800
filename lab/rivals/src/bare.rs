//! The limit: only the work that any intrusive design must do, without any of the features that
//! make a pool useful.
//!
//! A push is one compare-and-swap; a worker takes all items and calls each, newest first. Without a
//! pending bit, an item can neither be queued twice nor cancelled nor waited for. There is no
//! order, no limit and no fairness.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::thread::{self, JoinHandle};

use crate::cpus::{self, Slots};
use crate::futex;
use crate::load::{Pool, Producer};
use crate::progress::Progress;

struct Item {
    next: AtomicPtr<Item>,
    /// Takes a pointer, because the item may be freed before the function returns, which a
    /// reference would forbid.
    function: unsafe fn(*const Item),
    progress: &'static Progress,
}

/// # Safety
///
/// The item is alive until it has counted.
unsafe fn count(item: *const Item) {
    // SAFETY: the item has not counted yet, so it is alive.
    let progress = unsafe { (*item).progress };
    progress.complete();
}

#[derive(Default)]
#[repr(align(128))]
struct Stack {
    head: AtomicPtr<Item>,
    idle: Idle,
    stopping: AtomicBool,
}

/// On its own cache line, because producers read it only when they push onto an empty stack.
#[derive(Default)]
#[repr(align(128))]
struct Idle {
    sleepers: AtomicU32,
    /// Changes with every wake-up; the futex word.
    sequence: AtomicU32,
}

impl Stack {
    #[inline]
    fn push(&self, item: &Item) {
        let this = ptr::from_ref(item).cast_mut();
        let mut head = self.head.load(Relaxed);
        loop {
            item.next.store(head, Relaxed);
            // SeqCst, partner of `sleep`: either the worker that goes to sleep takes this item, or
            // this load sees the sleeping worker. Otherwise the item could stay without a wake-up.
            match self.head.compare_exchange_weak(head, this, SeqCst, Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // A push onto a non-empty stack relies on the wake-up by the push that found it empty.
        if head.is_null() && self.idle.sleepers.load(SeqCst) > 0 {
            self.idle.sequence.fetch_add(1, SeqCst);
            futex::wake(&self.idle.sequence, 1);
        }
    }

    fn work(&self) {
        loop {
            let mut item = self.head.swap(ptr::null_mut(), Acquire);
            if item.is_null() {
                item = self.sleep();
                if item.is_null() && self.stopping.load(SeqCst) {
                    return;
                }
            }
            while !item.is_null() {
                let current = item;
                // SAFETY: a pushed item stays alive until it has counted (contract of
                // `Producer::submit`), and taking the stack made this worker the only one to run
                // it.
                let function = unsafe {
                    item = (*current).next.load(Relaxed);
                    (*current).function
                };
                // SAFETY: as above; nothing touches the item after this.
                unsafe { function(current) };
            }
        }
    }

    /// Sleeps unless there are items; returns the items that it took.
    fn sleep(&self) -> *mut Item {
        let sequence = self.idle.sequence.load(SeqCst);
        self.idle.sleepers.fetch_add(1, SeqCst);
        let item = self.head.swap(ptr::null_mut(), SeqCst);
        if item.is_null() && !self.stopping.load(SeqCst) {
            futex::wait(&self.idle.sequence, sequence);
        }
        self.idle.sleepers.fetch_sub(1, SeqCst);
        item
    }

    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.idle.sequence.fetch_add(1, SeqCst);
        futex::wake(&self.idle.sequence, i32::MAX);
    }
}

/// One stack for all workers, or one per CPU, each with its pinned worker.
pub(crate) struct Bare {
    slots: Slots,
    stacks: Vec<Arc<Stack>>,
    workers: Vec<JoinHandle<()>>,
}

impl Bare {
    /// One stack, `workers` workers.
    pub(crate) fn system(workers: usize) -> Self {
        Self::new(Slots::one(), workers)
    }

    /// A stack and a pinned worker per CPU.
    pub(crate) fn per_cpu() -> Self {
        Self::new(Slots::per_cpu(), 1)
    }

    fn new(slots: Slots, workers_per_stack: usize) -> Self {
        let stacks: Vec<Arc<Stack>> = slots.cpus.iter().map(|_| Arc::default()).collect();
        let mut workers = Vec::new();
        for (stack, cpu) in stacks.iter().zip(&slots.cpus) {
            for _ in 0..workers_per_stack {
                let (stack, cpu) = (Arc::clone(stack), *cpu);
                workers.push(thread::spawn(move || {
                    cpu.into_iter().for_each(cpus::pin);
                    stack.work();
                }));
            }
        }
        Self { slots, stacks, workers }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.stacks.iter().for_each(|stack| stack.stop());
        for worker in self.workers.drain(..) {
            worker.join().expect("the load's items do not panic");
        }
    }
}

/// One producer and its items.
pub(crate) struct Pusher<'a> {
    pool: &'a Bare,
    items: Box<[Item]>,
}

impl Pool for Bare {
    type Producer<'a> = Pusher<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, outstanding: usize) -> Pusher<'a> {
        let item = |_| Item { next: AtomicPtr::default(), function: count, progress };
        Pusher { pool: self, items: (0..outstanding).map(item).collect() }
    }
}

impl Producer for Pusher<'_> {
    #[inline]
    unsafe fn submit(&mut self, index: usize) {
        self.pool.stacks[self.pool.slots.here()].push(&self.items[index]);
    }
}
