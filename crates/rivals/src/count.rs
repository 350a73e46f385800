//! Numbers that many threads add to: what a per-CPU counter is compared with.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::alloc::BareLists;

/// A number that is added to, and read now and then.
pub trait Count: Sync {
    /// Adds.
    fn add(&self, number: i64);

    /// The sum of what was added before.
    fn sum(&self) -> i64;
}

/// One word for all.
impl Count for AtomicI64 {
    #[inline(always)]
    fn add(&self, number: i64) {
        self.fetch_add(number, Ordering::Relaxed);
    }

    fn sum(&self) -> i64 {
        self.load(Ordering::Relaxed)
    }
}

/// A word for each CPU without any protection: right only while one thread adds.
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
        // SAFETY: see the type: one thread.
        *unsafe { self.0.here() } += number;
    }

    fn sum(&self) -> i64 {
        // SAFETY: as above.
        self.0.all().map(|part| unsafe { *part }).sum()
    }
}

/// A word for each thread, which has it for itself, and a list of all of them for who wants the sum. One for the
/// program, as a `thread_local!` is: nothing is looked up.
pub struct PerThread;

/// On cache lines of its own.
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
            // Nobody else writes it.
            let sum = part.0.load(Ordering::Relaxed).wrapping_add(number);
            part.0.store(sum, Ordering::Relaxed);
        });
    }

    fn sum(&self) -> i64 {
        let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}
