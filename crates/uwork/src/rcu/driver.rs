//! Makes grace periods end: an epoch moves on only when somebody pushes it.
//!
//! One item of a queue of the library's own, called by the first arrival and by nobody before. In each
//! run it looks several times in a row, as an epoch takes two steps and each look makes at most one.
//! If a reader is in the way it arms itself, with growing pauses. When the engine says that no item has
//! arrived it just returns: the next arrival calls it again. Its item is never run twice at once, so
//! what it keeps between runs is its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::builder::Builder;
use crate::delayed::DelayedWork;
use crate::item::{Enqueued, WorkItem};
use crate::linux::engine;
use crate::own_queue::own_queue;
use crate::queue::Queue;

/// Looks in one run: two steps of the epoch, one more to find what they set free, one to spare.
const LOOKS: u32 = 4;
/// The pause after the first run that did not see the end, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// Pushes the epochs of one era on.
pub(super) struct Driver {
    work: DelayedWork<Driver>,
    /// The last grace period that has ended, by number.
    ended: AtomicU64,
    /// Taken by its run only.
    progress: Mutex<Progress>,
}

struct Progress {
    /// The number of the grace period that began last.
    begun: u64,
    /// Whether it is on.
    on: bool,
    pause: Duration,
}

crate::has_delayed_work!(impl HasDelayedWork for Driver { work });

impl Driver {
    pub(super) fn new() -> Driver {
        Driver {
            work: DelayedWork::new(),
            ended: AtomicU64::new(0),
            progress: Mutex::new(Progress { begun: 0, on: false, pause: PAUSE_MIN }),
        }
    }
}

/// Its queue makes progress without new threads, as the kernel's `rcu_gp` does.
fn queue() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    own_queue(&QUEUE, "uwork/rcu_gp", Builder::mem_reclaim)
}

/// Makes what [`call`] needs.
///
/// # Panics
/// No thread can be made.
pub(super) fn prepare() {
    queue();
}

/// Somebody waits for a grace period and nobody drives.
pub(super) fn call() {
    run_after(Duration::ZERO);
}

fn run_after(pause: Duration) {
    match queue().enqueue_delayed(&super::era().driver, pause) {
        Enqueued::Queued | Enqueued::Pending(_) => {}
        // The process was shut down, and what waited was let go of.
        Enqueued::Refused(_) => engine().abandon_grace(),
        Enqueued::Disabled(_) => unreachable!("nobody else has the driver"),
    }
}

impl Progress {
    fn begin(&mut self, ended: &'static AtomicU64) {
        self.begun += 1;
        self.on = true;
        self.pause = PAUSE_MIN;
        let number = self.begun;
        // Pushed by the next flush, which is on this thread and in this run. It runs when every
        // guard that exists then is gone, on whichever thread finds that out.
        //
        // Release: whoever sees the number sees what was done under those guards.
        super::pin().defer(move || ended.store(number, Ordering::Release));
    }

    /// Pushes the epoch on by a step, if no reader is in the way. True if the period has ended.
    fn look(&self, ended: &AtomicU64) -> bool {
        super::pin().flush();
        ended.load(Ordering::Acquire) == self.begun
    }
}

impl WorkItem for Driver {
    type Pointer = &'static Driver;

    fn run(this: &'static Driver) {
        let mut progress = this.progress.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOKS {
            if !progress.on {
                if !engine().begin_grace() {
                    return;
                }
                progress.begin(&this.ended);
            }
            if progress.look(&this.ended) {
                progress.on = false;
                engine().end_grace();
            }
        }
        let pause = if progress.on { progress.pause } else { Duration::ZERO };
        progress.pause = (progress.pause * 2).min(PAUSE_MAX);
        drop(progress);
        run_after(pause);
    }
}
