//! Ways to collect items and pass them on in batches, to compare per-CPU batches with.
//!
//! Each passes [`CAPACITY`] items at once to the same sink.

use std::cell::{Cell, RefCell};
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use crossbeam_queue::SegQueue;

use crate::alloc::BareLists;

/// Items of a batch.
pub const CAPACITY: usize = 64;

/// Takes items, and passes them on in batches.
pub trait Collect: Sync {
    /// Adds an item.
    fn add(&self, item: u64);

    /// Passes on the remaining items that the calling thread can reach. Each thread calls it at its
    /// end.
    fn finish(&self);
}

/// The destination of the items: it counts and sums them, so that a lost item is noticed.
#[derive(Default)]
pub struct Sink {
    items: AtomicU64,
    sum: AtomicU64,
}

impl Sink {
    /// Takes a batch.
    pub fn take(&self, items: &[u64]) {
        self.items.fetch_add(items.len() as u64, Ordering::Relaxed);
        self.sum.fetch_add(items.iter().sum(), Ordering::Relaxed);
    }

    /// Takes the items that `next` returns, at most one batch.
    fn take_from(&self, next: impl FnMut() -> Option<u64>) {
        let (mut batch, mut items) = ([0; CAPACITY], 0);
        for (place, item) in batch.iter_mut().zip(iter::from_fn(next)) {
            *place = item;
            items += 1;
        }
        self.take(&batch[..items]);
    }

    /// The number of received items, and their sum.
    pub fn taken(&self) -> (u64, u64) {
        (self.items.load(Ordering::Relaxed), self.sum.load(Ordering::Relaxed))
    }
}

/// A vector under a mutex.
pub struct MutexVec<'a> {
    sink: &'a Sink,
    items: Mutex<Vec<u64>>,
}

impl<'a> MutexVec<'a> {
    /// An empty collector.
    pub fn new(sink: &'a Sink) -> Self {
        Self { sink, items: Mutex::new(Vec::with_capacity(CAPACITY)) }
    }
}

impl Collect for MutexVec<'_> {
    #[inline(always)]
    fn add(&self, item: u64) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.push(item);
        if items.len() == CAPACITY {
            // Copied, so that the sink runs outside the lock and no buffer is allocated under it.
            let mut batch = [0; CAPACITY];
            batch.copy_from_slice(&items);
            items.clear();
            drop(items);
            self.sink.take(&batch);
        }
    }

    fn finish(&self) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        self.sink.take(&items);
        items.clear();
    }
}

/// crossbeam's unbounded queue. It does not report when a batch is complete, so each thread takes
/// one batch out for each batch that it has put in.
pub struct Segments<'a> {
    sink: &'a Sink,
    items: SegQueue<u64>,
}

thread_local! {
    static PUT_IN: Cell<usize> = const { Cell::new(0) };
}

impl<'a> Segments<'a> {
    /// An empty collector.
    pub fn new(sink: &'a Sink) -> Self {
        Self { sink, items: SegQueue::new() }
    }

    fn hand_on(&self) {
        self.sink.take_from(|| self.items.pop());
    }
}

impl Collect for Segments<'_> {
    #[inline(always)]
    fn add(&self, item: u64) {
        self.items.push(item);
        let put_in = PUT_IN.get() + 1;
        PUT_IN.set(put_in % CAPACITY);
        if put_in == CAPACITY {
            self.hand_on();
        }
    }

    fn finish(&self) {
        while !self.items.is_empty() {
            self.hand_on();
        }
    }
}

/// A bounded channel of crossbeam: a thread that finds it full takes its contents out.
pub struct Channel<'a> {
    sink: &'a Sink,
    ends: (Sender<u64>, Receiver<u64>),
}

impl<'a> Channel<'a> {
    /// An empty collector.
    pub fn new(sink: &'a Sink) -> Self {
        Self { sink, ends: crossbeam_channel::bounded(CAPACITY) }
    }

    fn hand_on(&self) {
        self.sink.take_from(|| self.ends.1.try_recv().ok());
    }
}

impl Collect for Channel<'_> {
    #[inline(always)]
    fn add(&self, item: u64) {
        while let Err(TrySendError::Full(_)) = self.ends.0.try_send(item) {
            self.hand_on();
        }
    }

    fn finish(&self) {
        while !self.ends.1.is_empty() {
            self.hand_on();
        }
    }
}

/// A vector for each CPU without any protection, valid only while a single thread adds.
pub struct Bare<'a> {
    sink: &'a Sink,
    parts: BareLists<Vec<u64>>,
}

impl<'a> Bare<'a> {
    /// An empty collector.
    pub fn new(sink: &'a Sink) -> Self {
        Self { sink, parts: BareLists::new(|_| Vec::with_capacity(CAPACITY)) }
    }
}

impl Collect for Bare<'_> {
    #[inline(always)]
    fn add(&self, item: u64) {
        // SAFETY: only one thread adds, as the type requires.
        push(unsafe { self.parts.here() }, item, self.sink);
    }

    fn finish(&self) {
        for part in self.parts.all() {
            // SAFETY: as above.
            let part = unsafe { &mut *part };
            self.sink.take(part);
            part.clear();
        }
    }
}

/// A vector for each thread: fast, and inaccessible to other threads.
pub struct PerThread<'a> {
    sink: &'a Sink,
}

thread_local! {
    static ITEMS: RefCell<Vec<u64>> = RefCell::new(Vec::with_capacity(CAPACITY));
}

impl<'a> PerThread<'a> {
    /// An empty collector.
    pub fn new(sink: &'a Sink) -> Self {
        Self { sink }
    }
}

impl Collect for PerThread<'_> {
    #[inline(always)]
    fn add(&self, item: u64) {
        ITEMS.with(|items| push(&mut items.borrow_mut(), item, self.sink));
    }

    fn finish(&self) {
        ITEMS.with(|items| {
            let mut items = items.borrow_mut();
            self.sink.take(&items);
            items.clear();
        });
    }
}

#[inline(always)]
fn push(items: &mut Vec<u64>, item: u64, sink: &Sink) {
    items.push(item);
    if items.len() == CAPACITY {
        sink.take(items);
        items.clear();
    }
}
