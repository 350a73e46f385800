//! What the host must do on a thread before that thread runs an item of a queue: numbers that the
//! engine stores and passes on, and that only the host understands.

use std::ptr;

use crate::sync::{AtomicPtr, Ordering};

/// The demands of a queue. They are added at any time and removed with the queue.
pub struct Demands {
    /// The one that was added last. A list of boxes, which this owns.
    last: AtomicPtr<Demand>,
}

struct Demand {
    number: usize,
    earlier: *mut Demand,
}

// SAFETY: demands do not change once they are in the list.
unsafe impl Sync for Demands {}
// SAFETY: as above.
unsafe impl Send for Demands {}

/// Some of a queue's demands, copied, for a thread that holds neither the queue nor a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    numbers: [usize; Wanted::MAX],
    count: usize,
}

impl Wanted {
    /// The most demands that are copied at a time.
    const MAX: usize = 8;

    /// Adds a demand. False if there is no room.
    pub fn add(&mut self, number: usize) -> bool {
        let Some(place) = self.numbers.get_mut(self.count) else { return false };
        *place = number;
        self.count += 1;
        true
    }

    /// The demands, in the order in which they were added.
    pub fn numbers(&self) -> &[usize] {
        &self.numbers[..self.count]
    }
}

impl Demands {
    pub(crate) fn new() -> Demands {
        Demands { last: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds a demand, for the items that are queued from now on. Returns false if the queue makes it
    /// already.
    pub fn add(&self, number: usize) -> bool {
        let demand = Box::into_raw(Box::new(Demand { number, earlier: ptr::null_mut() }));
        let mut last = self.last.load(Ordering::Acquire);
        loop {
            if self.contains(number) {
                // SAFETY: from a box, and in no list.
                drop(unsafe { Box::from_raw(demand) });
                return false;
            }
            // SAFETY: as above.
            unsafe { (*demand).earlier = last };
            // Release: a thread that finds the demand sees its fields.
            match self.last.compare_exchange(last, demand, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => last = now,
            }
        }
    }

    fn contains(&self, number: usize) -> bool {
        let mut found = false;
        self.for_each(|demand| found |= demand == number);
        found
    }

    /// Calls `f` with each demand, the last one first.
    #[inline(always)]
    pub fn for_each(&self, mut f: impl FnMut(usize)) {
        let mut next = self.last.load(Ordering::Acquire);
        // SAFETY: null, or a demand of the list, which is freed with the list.
        while let Some(demand) = unsafe { next.as_ref() } {
            f(demand.number);
            next = demand.earlier;
        }
    }
}

impl Drop for Demands {
    fn drop(&mut self) {
        let mut next = self.last.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: a box of the list, of which no thread has a reference.
            next = unsafe { Box::from_raw(next) }.earlier;
        }
    }
}
