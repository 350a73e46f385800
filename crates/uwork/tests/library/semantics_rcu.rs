//! Items that are queued after a grace period: row 13 of the kernel's promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::support::flag::SetOnDrop;
use crate::support::gate::{Gate, Log};
use crate::support::machine::in_the_wait;
use crate::support::{queue, until, watchdog, within};
use uwork::rcu::{RcuWork, is_read_locked, read_lock};
use uwork::{Enqueued, WorkItem};

/// An item that logs when it ran.
struct Reclaim {
    work: RcuWork<Reclaim>,
    log: Log<&'static str>,
    name: &'static str,
}

uwork::has_work!(impl HasRcuWork for Reclaim { work });

impl WorkItem for Reclaim {
    type Pointer = Arc<Reclaim>;

    fn run(this: Arc<Reclaim>) {
        this.log.push(this.name);
    }
}

fn item(log: &Log<&'static str>, name: &'static str) -> Arc<Reclaim> {
    Arc::new(Reclaim { work: RcuWork::new(), log: log.clone(), name })
}

/// A thread that holds a read side until it may end.
struct Reader {
    may_end: Gate,
    thread: std::thread::JoinHandle<()>,
}

impl Reader {
    fn begin() -> Reader {
        let (began, may_end) = (Gate::new(), Gate::new());
        let (theirs, until_then) = (began.clone(), may_end.clone());
        let thread = std::thread::spawn(move || {
            let guard = read_lock();
            theirs.open();
            until_then.wait();
            drop(guard);
        });
        began.wait();
        Reader { may_end, thread }
    }

    fn end(self) {
        self.may_end.open();
        self.thread.join().unwrap();
    }
}

/// Waits for one whole grace period that an item of its own begins. Every item that waited for an
/// earlier period, or for the same one, must have been queued by then.
fn another_grace_period(queue: &uwork::Queue, log: &Log<&'static str>) {
    let probe = item(log, "probe");
    assert!(queue.enqueue_rcu(probe.clone()).is_queued());
    assert!(within("a grace period", move || {
        probe.work.flush();
        !probe.work.is_pending()
    }));
}

// Catches: a grace period that ends at once, or that does not wait for an existing reader.
#[test]
fn s2_13_a_reader_delays_the_item() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let log = Log::new();
    let old = item(&log, "old");
    let reader = Reader::begin();
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    assert!(old.work.is_pending() && old.work.busy().pending);
    let flushed = old.clone();
    let flush = in_the_wait(move || flushed.work.flush());
    // A flush of the queue does not wait: the item is not on the queue yet.
    queue.flush().unwrap();
    assert_eq!(log.events(), [""; 0], "the reader is still there");
    flush.assert_waits();
    assert!(old.work.is_pending());
    log.push("reader ended");
    reader.end();
    assert!(flush.result(), "it has waited");
    assert_eq!(log.events(), ["reader ended", "old"]);
    assert!(!old.work.is_pending());
}

// Catches: a grace period that a later reader can extend, or that waits for all readers ever.
#[test]
fn s2_13_later_readers_delay_no_item() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let log = Log::new();
    let old = item(&log, "old");
    let first = Reader::begin();
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    // The driver is working: the period has begun. The readers overlap, so one is always active.
    let mut current = Reader::begin();
    first.end();
    until("the item has run", || {
        let next = Reader::begin();
        std::mem::replace(&mut current, next).end();
        log.has(&"old")
    });
    current.end();
}

// Catches: a false result that queues the item again after another period, or runs it twice.
#[test]
fn s2_13_only_a_true_result_begins_a_grace_period() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let log = Log::new();
    let old = item(&log, "old");
    let first = Reader::begin();
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    // The first item alone may have begun a period; delay the next one as well.
    let Enqueued::Pending(back) = queue.enqueue_rcu(old.clone()) else { panic!("pending") };
    assert!(Arc::ptr_eq(&back, &old));
    assert!(matches!(queue.enqueue(old.clone()), Enqueued::Pending(_)), "in no queue twice");
    drop(back);
    first.end();
    log.wait_for(&"old");
    another_grace_period(&queue, &log);
    assert_eq!(log.events(), ["old", "probe"], "one run for one true answer");

    old.work.disable().unwrap();
    assert!(matches!(queue.enqueue_rcu(old.clone()), Enqueued::Disabled(_)));
    another_grace_period(&queue, &log);
    assert_eq!(log.events(), ["old", "probe", "probe"]);
    assert_eq!(old.work.enable(), Ok(true));
    assert!(queue.enqueue_rcu(old.clone()).is_queued(), "once it has run it can be queued again");
    assert!(old.work.flush() || log.events().len() == 4);
    until("all references are back", || Arc::strong_count(&old) == 1);
}

// Catches: a false result that makes the item wait for readers that came after the true one.
#[test]
fn s2_13_a_false_result_extends_no_grace_period() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let log = Log::new();
    let old = item(&log, "old");
    let mut current = Reader::begin();
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    let mut refused = 0;
    until("it has run", || {
        // At each call a reader is active that was not active at the previous one.
        let next = Reader::begin();
        let answer = queue.enqueue_rcu(old.clone());
        refused += u32::from(!answer.is_queued());
        std::mem::replace(&mut current, next).end();
        answer.is_queued()
    });
    // True again, so the run has begun; its line may come a moment later.
    log.wait_for(&"old");
    assert!(refused > 0);
    current.end();
    log.wait_for_count(2);
    assert_eq!(log.events(), ["old", "old"]);
}

// Catches: an item that cannot be cancelled while it waits, or that runs all the same.
#[test]
fn an_item_that_waits_for_a_grace_period_can_be_cancelled() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let log = Log::new();
    let (old, kept) = (item(&log, "old"), item(&log, "kept"));
    let reader = Reader::begin();
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    assert!(queue.enqueue_rcu(kept.clone()).is_queued());
    let flushed = old.clone();
    let flush = in_the_wait(move || flushed.work.flush());
    assert!(Arc::ptr_eq(&old.work.cancel().expect("pending"), &old));
    assert!(flush.result(), "a cancel ends the flush");
    assert!(!old.work.is_pending() && old.work.cancel().is_none());
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    assert!(old.work.cancel_sync().unwrap().is_some(), "and does not wait for the reader");
    assert!(queue.enqueue_rcu(old.clone()).is_queued());
    assert!(old.work.disable_sync().unwrap().is_some());
    assert_eq!(Arc::strong_count(&old), 1);
    reader.end();
    log.wait_for(&"kept");
    another_grace_period(&queue, &log);
    assert!(!log.has(&"old"));
}

// Catches: a flush that waits for its own caller's guard.
#[test]
fn a_reader_cannot_wait_for_its_own_grace_period() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let log = Log::new();
    let old = item(&log, "old");
    let (theirs, its_queue) = (old.clone(), queue.clone());
    let answer = within("a flush by a reader", move || {
        let outer = read_lock();
        let inner = read_lock();
        assert!(its_queue.enqueue_rcu(theirs.clone()).is_queued());
        drop(outer);
        let answers = (is_read_locked(), theirs.work.flush(), theirs.work.is_pending());
        drop(inner);
        answers
    });
    assert_eq!(answer, (true, false, true));
    assert!(!is_read_locked());
    log.wait_for(&"old");
}

// Catches: an item that keeps its queue alive, or is lost with its pointer when the queue is
// destroyed.
#[test]
fn a_destroyed_queue_drops_items_that_wait_for_a_grace_period() {
    let _watchdog = watchdog();
    let gone = queue("rcu").build().unwrap();
    let log = Log::new();
    let old = item(&log, "old");
    let reader = Reader::begin();
    assert!(gone.enqueue_rcu(old.clone()).is_queued());
    within("the drop of the queue", move || drop(gone));
    assert!(old.work.is_pending());
    reader.end();
    until("it is released", || Arc::strong_count(&old) == 1);
    assert!(!old.work.is_pending());
    another_grace_period(&queue("rcu").build().unwrap(), &log);
    assert_eq!(log.events(), ["probe"]);
}

static OVER: AtomicBool = AtomicBool::new(false);
static SEEN_DEAD: AtomicU32 = AtomicU32::new(0);

struct Kill {
    work: RcuWork<Kill>,
    /// The value that readers may read until the run.
    value: Arc<AtomicBool>,
}

uwork::has_work!(impl HasRcuWork for Kill { work });

impl WorkItem for Kill {
    type Pointer = std::pin::Pin<Box<Kill>>;

    fn run(this: Self::Pointer) {
        this.value.store(false, Ordering::Relaxed);
    }
}

// Catches: a grace period that is too short, under load, with many short readers.
#[test]
fn s2_13_no_reader_sees_what_was_reclaimed() {
    let _watchdog = watchdog();
    const ROUNDS: usize = 300;
    let queue = queue("rcu").build().unwrap();
    let current = std::sync::Mutex::new(Arc::new(AtomicBool::new(true)));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !OVER.load(Ordering::Relaxed) {
                    let _guard = read_lock();
                    let value = current.lock().unwrap().clone();
                    for _ in 0..50 {
                        if !value.load(Ordering::Relaxed) {
                            SEEN_DEAD.fetch_add(1, Ordering::Relaxed);
                        }
                        std::hint::spin_loop();
                    }
                    std::thread::yield_now();
                    if !value.load(Ordering::Relaxed) {
                        SEEN_DEAD.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _over = SetOnDrop(&OVER);
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let new = Arc::new(AtomicBool::new(true));
            let value = std::mem::replace(&mut *current.lock().unwrap(), new);
            all.push(value.clone());
            assert!(queue.enqueue_rcu(Box::pin(Kill { work: RcuWork::new(), value })).is_queued());
            std::thread::yield_now();
        }
        until("all are reclaimed", || all.iter().all(|value| !value.load(Ordering::Relaxed)));
    });
    assert_eq!(SEEN_DEAD.load(Ordering::Relaxed), 0, "reads of reclaimed data");
}
