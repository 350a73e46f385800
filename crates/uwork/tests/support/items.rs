//! Items that run a closure, and count their runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uwork::{DelayedWork, Work, WorkItem};

use super::gate::Gate;

type Body<T> = Box<dyn Fn(&Arc<T>) + Send + Sync>;

/// The counters of every kind of item.
#[derive(Default)]
pub(crate) struct Tally {
    started: AtomicU32,
    finished: AtomicU32,
    running: AtomicBool,
    overlapped: AtomicBool,
}

impl Tally {
    /// Runs that have begun.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::SeqCst)
    }

    /// Runs that have ended.
    pub(crate) fn finished(&self) -> u32 {
        self.finished.load(Ordering::SeqCst)
    }

    /// Whether two runs ever overlapped.
    pub(crate) fn overlapped(&self) -> bool {
        self.overlapped.load(Ordering::SeqCst)
    }

    fn around(&self, body: impl FnOnce()) {
        if self.running.swap(true, Ordering::SeqCst) {
            self.overlapped.store(true, Ordering::SeqCst);
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        body();
        self.finished.fetch_add(1, Ordering::SeqCst);
        self.running.store(false, Ordering::SeqCst);
    }
}

/// An item.
pub(crate) struct Job {
    pub(crate) work: Work<Job>,
    pub(crate) tally: Tally,
    body: Body<Job>,
}

uwork::has_work!(impl HasWork for Job { work });

impl WorkItem for Job {
    type Pointer = Arc<Job>;

    fn run(this: Arc<Job>) {
        this.tally.around(|| (this.body)(&this));
    }
}

impl Job {
    pub(crate) fn new(body: impl Fn(&Arc<Job>) + Send + Sync + 'static) -> Arc<Job> {
        Arc::new(Job { work: Work::new(), tally: Tally::default(), body: Box::new(body) })
    }

    /// An item that only counts its runs.
    pub(crate) fn counting() -> Arc<Job> {
        Job::new(|_| {})
    }

    /// An item that signals its start, and declares a wait until it may end.
    pub(crate) fn held(started: &Gate, may_end: &Gate) -> Arc<Job> {
        let (started, may_end) = (started.clone(), may_end.clone());
        Job::new(move |_| {
            started.open();
            may_end.wait_blocking();
        })
    }

    /// The item's disable depth, as its `Debug` output shows it.
    pub(crate) fn disable_depth(&self) -> u32 {
        depth(&format!("{:?}", self.work))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("work", &self.work).finish_non_exhaustive()
    }
}

fn depth(text: &str) -> u32 {
    let (_, depth) = text.split_once("disable_depth: ").expect("Debug names the depth");
    let digits: String = depth.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// An item with a timer.
pub(crate) struct Later {
    pub(crate) work: DelayedWork<Later>,
    pub(crate) tally: Tally,
    body: Body<Later>,
}

uwork::has_work!(impl HasDelayedWork for Later { work });

impl WorkItem for Later {
    type Pointer = Arc<Later>;

    fn run(this: Arc<Later>) {
        this.tally.around(|| (this.body)(&this));
    }
}

impl Later {
    pub(crate) fn new(body: impl Fn(&Arc<Later>) + Send + Sync + 'static) -> Arc<Later> {
        Later::of(DelayedWork::new(), body)
    }

    /// With a given timer: one with slack, or a deferrable one.
    pub(crate) fn of(
        work: DelayedWork<Later>,
        body: impl Fn(&Arc<Later>) + Send + Sync + 'static,
    ) -> Arc<Later> {
        Arc::new(Later { work, tally: Tally::default(), body: Box::new(body) })
    }

    pub(crate) fn counting() -> Arc<Later> {
        Later::new(|_| {})
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("work", &self.work).finish_non_exhaustive()
    }
}
