//! Drives grace periods to their end: an epoch advances only when a thread advances it.
//!
//! The driver is one item of a queue of the library's own. The first item that begins to wait for a
//! grace period queues it; otherwise it is idle. In each run it tries several times in a row, as an
//! epoch takes two steps and each try makes at most one. If a reader delays it, it arms itself,
//! with growing pauses. When the engine reports that no item has arrived, it returns: the next
//! arrival queues it again. The item never runs twice at once, so its state between runs needs no
//! further protection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::item::{DelayedWork, Enqueued, WorkItem};
use crate::queue::Queue;
use uwork_linux::engine;
use uwork_linux::library_queue::library_queue;
use uwork_linux::readers;

/// Tries in one run: two steps of the epoch, one more to run the deferred functions, one in
/// reserve.
const TRIES: u32 = 4;
/// The pause after the first run that did not reach the end, and the longest pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// Advances the epochs of one era.
pub(super) struct Driver {
    work: DelayedWork<Driver>,
    /// The last grace period that has ended, by number.
    ended: AtomicU64,
    /// Locked by the driver's run only.
    progress: Mutex<Progress>,
}

struct Progress {
    /// The number of the grace period that began last.
    begun: u64,
    /// Whether that grace period is in progress.
    on: bool,
    pause: Duration,
}

crate::has_work!(impl HasDelayedWork for Driver { work });

impl Driver {
    pub(super) fn new() -> Driver {
        Driver {
            work: DelayedWork::new(),
            ended: AtomicU64::new(0),
            progress: Mutex::new(Progress { begun: 0, on: false, pause: PAUSE_MIN }),
        }
    }
}

/// The driver's queue, which makes progress without new threads, as the kernel's `rcu_gp` does.
fn queue() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    library_queue(&QUEUE, "uwork/rcu_gp", |name| {
        Queue::builder(name).mem_reclaim().system().build()
    })
}

/// Makes the queue that [`call`] needs.
///
/// # Panics
/// No thread can be created.
pub(super) fn prepare() {
    queue();
}

/// Queues the driver: an item waits for a grace period, and the driver is idle.
pub(super) fn call() {
    run_after(Duration::ZERO);
}

fn run_after(pause: Duration) {
    match queue().enqueue_delayed(&super::era().driver, pause) {
        Enqueued::Queued | Enqueued::Pending(_) => {}
        // The process was shut down, and the waiting items were released.
        Enqueued::Refused(_) => engine().abandon_grace(),
        Enqueued::Disabled(_) => unreachable!("only this module has the driver"),
    }
}

impl Progress {
    fn begin(&mut self, ended: &'static AtomicU64) {
        self.begun += 1;
        self.on = true;
        self.pause = PAUSE_MIN;
        let number = self.begun;
        // The next flush, on this thread and in this run, hands this closure to the collector. It
        // runs when every guard that exists at that time is dropped, on the thread that detects
        // that.
        //
        // Release, for the acquire in `advance`: a thread that sees the number sees what was done
        // under those guards.
        super::pin().defer(move || ended.store(number, Ordering::Release));
    }

    /// Advances the epoch by a step, if no reader delays it. True if the grace period has ended.
    ///
    /// Guards from before a fork are in no epoch of this process. All of them are older than every
    /// grace period in it, and there will be no more of them, so one look at any time suffices.
    fn advance(&self, ended: &AtomicU64) -> bool {
        super::pin().flush();
        ended.load(Ordering::Acquire) == self.begun && !readers::is_inherited()
    }
}

impl WorkItem for Driver {
    type Pointer = &'static Driver;

    fn run(this: &'static Driver) {
        let mut progress = this.progress.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            if !progress.on {
                if !engine().begin_grace() {
                    return;
                }
                progress.begin(&this.ended);
            }
            if progress.advance(&this.ended) {
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
