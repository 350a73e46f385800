//! Counters that many threads add to, to compare a per-CPU counter with.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::alloc::BareLists;

/// A counter with frequent additions and rare reads.
pub trait Count: Sync {
    /// Adds.
    fn add(&self, number: i64);

    /// The sum of all earlier additions.
    fn sum(&self) -> i64;
}

/// One word for all threads.
impl Count for AtomicI64 {
    #[inline(always)]
    fn add(&self, number: i64) {
        self.fetch_add(number, Ordering::Relaxed);
    }

    fn sum(&self) -> i64 {
        self.load(Ordering::Relaxed)
    }
}

/// A word for each CPU without any protection, valid only while a single thread adds.
pub struct Bare(BareLists<i64>);

impl Bare {
    /// Zero.
    pub fn new() -> Self {
        Self(BareLists::new(|_| 0))
    }
}

impl Default for Bare {
    fn default() -> Self {
        Self::new()
    }
}

impl Count for Bare {
    #[inline(always)]
    fn add(&self, number: i64) {
        // SAFETY: only one thread adds, as the type requires.
        *unsafe { self.0.here() } += number;
    }

    fn sum(&self) -> i64 {
        // SAFETY: as above.
        self.0.all().map(|part| unsafe { *part }).sum()
    }
}

/// A private word for each thread, and a list of all words for readers of the sum. There is one
/// such counter in the program, as with `thread_local!`, so an addition needs no lookup.
pub struct PerThread;

/// A word on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Part(AtomicI64);

static PARTS: Mutex<Vec<Arc<Part>>> = Mutex::new(Vec::new());

thread_local! {
    static PART: Arc<Part> = {
        let part = Arc::<Part>::default();
        PARTS.lock().unwrap_or_else(PoisonError::into_inner).push(part.clone());
        part
    };
}

impl Count for PerThread {
    #[inline(always)]
    fn add(&self, number: i64) {
        PART.with(|part| {
            // This thread is the only writer.
            let sum = part.0.load(Ordering::Relaxed).wrapping_add(number);
            part.0.store(sum, Ordering::Relaxed);
        });
    }

    fn sum(&self) -> i64 {
        let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}
