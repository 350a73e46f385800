//! The item of an arrival: its demand, and the times of its life. All items exist before the first
//! arrival, so no runner allocates one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use uwork::{Work, WorkItem};
use uwork_rivals::open;

use super::clock;
use super::plan::Arrival;
use super::spin::Spin;

/// The value of a time that has not been recorded.
const NOT_YET: u64 = 0;

/// An item, alone on its cache lines. Times are those of [`clock::now_ns`].
#[repr(align(128))]
pub(super) struct Item {
    work: Work<Item>,
    compute_ns: u64,
    sleep: Duration,
    spin: Spin,
    submitted_ns: AtomicU64,
    ended_ns: AtomicU64,
    computed_ns: AtomicU64,
}

uwork::has_work!(impl HasWork for Item { work });

impl WorkItem for Item {
    type Pointer = &'static Item;

    fn run(this: &'static Item) {
        this.perform();
    }
}

impl open::Item for Item {
    fn run(&'static self) {
        self.perform();
    }
}

impl Item {
    pub(super) fn new(arrival: &Arrival, spin: Spin) -> Self {
        Self {
            work: Work::new(),
            compute_ns: arrival.demand.compute.as_nanos() as u64,
            sleep: arrival.demand.sleep,
            spin,
            submitted_ns: AtomicU64::new(NOT_YET),
            ended_ns: AtomicU64::new(NOT_YET),
            computed_ns: AtomicU64::new(0),
        }
    }

    fn perform(&self) {
        if self.compute_ns > 0 {
            self.computed_ns.store(self.spin.compute(self.compute_ns), Ordering::Relaxed);
        }
        if self.sleep > Duration::ZERO {
            thread::sleep(self.sleep);
        }
        // Release: partner of the load in `ended_ns`. The reader of this time sees `computed_ns`.
        self.ended_ns.store(clock::now_ns(), Ordering::Release);
    }

    /// Records the time just before the submission.
    pub(super) fn submitted_at(&self, now_ns: u64) {
        self.submitted_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(super) fn submitted_ns(&self) -> u64 {
        self.submitted_ns.load(Ordering::Relaxed)
    }

    /// `None` until the item has ended.
    pub(super) fn ended_ns(&self) -> Option<u64> {
        let ended_ns = self.ended_ns.load(Ordering::Acquire);
        (ended_ns != NOT_YET).then_some(ended_ns)
    }

    /// The CPU time of the item.
    pub(super) fn computed_ns(&self) -> u64 {
        self.computed_ns.load(Ordering::Relaxed)
    }
}
